# The two commands: `make run` searches a kernel for a bundled problem, `make test` runs every test. Each sets
# itself up.
.PHONY: run test check
PROBLEM = examples/residual_rms_norm/problem.py
# Without a GPU against eager alone and on one thread: torch.compile needs half a minute, and on few cores one
# thread scatters least. That nothing is faster (1) is a result, too.
run:
	@scripts/setup
	@if .venv/bin/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
	  set -x; .venv/bin/assay search $(PROBLEM) --time 60 || [ $$? = 1 ]; \
	else \
	  set -x; OMP_NUM_THREADS=1 .venv/bin/assay search $(PROBLEM) --rungs eager --width 1 --evaluations 3 \
	    || [ $$? = 1 ]; \
	fi

test:
	@scripts/test

check:
	@scripts/check
