# The two commands: `make run` judges a bundled candidate, `make test` runs every test. Each sets itself up.
.PHONY: run test check
run:
	@scripts/setup
	@.venv/bin/assay check examples/layernorm/problem.py examples/layernorm/kernel.py

test:
	@scripts/test

check:
	@scripts/check
