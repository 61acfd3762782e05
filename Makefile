# `make ladder` and `make test` set everything up by themselves; both take CUDA=12, CUDA=13, CUDA=cpu, TORCH=1, JAX=1.
PYTHON ?= python3
CUDA = auto
TORCH = 0
JAX = 0
ARGS =

NO_PYTHON = setup: needs Python 3.11 or newer, and there is no $(PYTHON) on the PATH; \
install one, or name one: make $@ PYTHON=/path/to/python3.12
SETUP = command -v $(PYTHON) >/dev/null || { echo "$(NO_PYTHON)" >&2; exit 1; }; \
$(PYTHON) tools/setup.py --cuda "$(CUDA)" --torch "$(TORCH)" --jax "$(JAX)"

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help ladder test test-gpu sanitize check fmt record clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1 - /p' Makefile

ladder: ## set up, then run every stage; more options through ARGS="--hidden 256"
	@$(SETUP) && .venv/bin/python run_ladder.py --stages all $(ARGS)

test: ## set up, then run the tests, two at a time; those that need a GPU are skipped where there is none
	@$(SETUP) --dev && .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-gpu: ## only the tests that need a GPU
	@$(SETUP) --dev && tools/test_gpu.sh

sanitize: ## compute-sanitizer over the GPU tests of our own kernels; one tool through ARGS=racecheck
	@$(SETUP) --dev && tools/sanitize.sh $(ARGS)

check: ## what has to be clean before a commit: ruff, mypy, import-linter
	@$(SETUP) --dev
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

fmt: ## format, and fix what ruff can fix
	@$(SETUP) --dev
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

record: ## measure on this machine's GPU what results/reference/ keeps
	@$(SETUP) --dev && tools/record.sh $(ARGS)

clean: ## remove .venv and the caches of the tools; runs/ and results/ stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
