# Every goal sets up what it needs by itself, and takes CUDA=12, CUDA=13, CUDA=cpu, TORCH=1, JAX=0, CLUSTER=1.
PYTHON ?= python3
CUDA = auto
TORCH = 0
JAX = 1
CLUSTER = 0
SECONDS = 60
ARGS =

NO_PYTHON = setup: needs Python 3.11 or newer, and there is no $(PYTHON) on the PATH; \
install one, or name one: make $@ PYTHON=/path/to/python3.12
SETUP = command -v $(PYTHON) >/dev/null || { echo "$(NO_PYTHON)" >&2; exit 1; }; \
$(PYTHON) tools/setup.py --cuda "$(CUDA)" --torch "$(TORCH)" --jax "$(JAX)" \
--cluster "$(CLUSTER)"

# Files stay whole, since their tests share runs; more processes than cores, since many a test waits.
# Bytecode is written, whatever the environment says: each of hundreds of processes would compile the ladder anew.
PYTEST = PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

QUICK = tests/common/data/test_files.py tests/common/test_problem.py \
tests/ladder/machine tests/ladder/options tests/ladder/records tests/reports/compare tests/reports/facts \
tests/reports/terminal tests/stages/engine tests/stages/test_registry.py tests/test_docs.py tests/test_markers.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup ladder test test-quick test-alone test-gpu fuzz sanitize check rung prose fmt record site clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1 - /p' Makefile

setup: ## set up alone, as on a login node; CLUSTER=1 adds what sends studies to Slurm or to several GPUs
	@$(SETUP)

ladder: ## set up, then run every stage; more options through ARGS="--hidden 256"
	@$(SETUP) && .venv/bin/python run_ladder.py --stages all $(ARGS)

test: ## set up, then run the tests, four at a time; GPU tests are skipped without a GPU
	@$(SETUP) --dev && $(PYTEST) -m "not alone" $(ARGS)

test-quick: ## set up, then run the tests of options, data, records and reports, in under a minute
	@$(SETUP) --dev && $(PYTEST) -m "not alone and not slow" $(QUICK) $(ARGS)

test-alone: ## set up, then run the tests that look at times, one at a time, on a machine without other work
	@$(SETUP) --dev && .venv/bin/python -m pytest -m "alone and not gpu" $(ARGS)

test-gpu: ## set up, then run the tests that need a GPU
	@$(SETUP) --dev && tools/test_gpu.sh

sanitize: ## run compute-sanitizer over the GPU tests of our own kernels; one tool through ARGS=racecheck
	@$(SETUP) --dev && tools/sanitize.sh $(ARGS)

fuzz: ## set up, then feed the readers of a user's input with new random ones for SECONDS
	@$(SETUP) --dev && .venv/bin/python -m tests.fuzz --seconds $(SECONDS)

check: ## run the checks that a commit must pass: ruff, mypy, import-linter, the size of the code and the documents
	@$(SETUP) --dev
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/python -m tools.size

rung: ## lay out a rung: make rung NAME=my-gemm FROM=cublas PART=gemm
	@$(SETUP) --dev && .venv/bin/python -m tools.new_rung "$(NAME)" --from "$(FROM)" --part "$(PART)"

prose: ## for writers: spelling, British where it matters, and the prose of the documents; no gate
	@$(SETUP) --dev
	tools/check_words.sh

fmt: ## format the code, and apply ruff's fixes
	@$(SETUP) --dev
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

record: ## record the runs of results/reference/ on this machine's GPU
	@$(SETUP) --dev && .venv/bin/python -m tools.record $(ARGS)

site: ## build the static site in site/: documents, the climb, every recorded run and study
	@$(SETUP) --site && .venv/bin/python -m tools.site $(ARGS)

clean: ## remove .venv and the tools' caches; keep runs/ and results/
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
