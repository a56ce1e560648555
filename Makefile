# The two commands: `make run` judges a bundled candidate, `make test` runs every test. Each sets itself up.
.PHONY: run test check
EXAMPLE = examples/layernorm
# On a GPU the Triton kernel against every baseline. Without one the C++ kernel against eager alone: Triton's
# interpreter has no speed, torch.compile needs half a minute, and on few cores one thread scatters least.
run:
	@scripts/setup
	@if .venv/bin/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
	  set -x; .venv/bin/assay check $(EXAMPLE)/problem.py $(EXAMPLE)/kernel.py; \
	else \
	  set -x; OMP_NUM_THREADS=1 .venv/bin/assay check $(EXAMPLE)/problem.py $(EXAMPLE)/kernel.cpp --rungs eager; \
	fi

test:
	@scripts/test

check:
	@scripts/check
