# Everything starts here. Another interpreter: make test VENV=.venv313 PYTHON=python3.13

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CODE := $(wildcard src tests benchmarks examples)
MEASURED := src/penstock/batchqueue/*,src/penstock/batcher/*,src/penstock/scheduling/*

THOROUGH := property acceptance integration crash

# Inside the environment, so that two interpreters can be tested side by side.
export COVERAGE_FILE := $(abspath $(VENV))/.coverage

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install run test test-without-spark test-with-spark test-fast soak check format bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## create .venv with everything pinned (the other targets do this by themselves)

# The build backends are installed first and used without isolation, so that they are pinned as well:
# hatchling for penstock, setuptools for PySpark, which is published as source only.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip hatchling editables setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable . --group dev
	@touch $@

# Two lanes beside each other, as both wait more than they work: with Spark, and without.
test: $(INSTALLED) ## run all tests; branch coverage of the queues and scheduling must be 100 %
	@$(MAKE) --jobs=2 --no-print-directory test-without-spark test-with-spark

# Property tests run untraced: they would take three times as long, and cover nothing that is not covered.
test-without-spark: $(INSTALLED)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m 'not slow and not spark' --ignore=tests/property
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='$(MEASURED)' --fail-under=100
	$(BIN)/python -m pytest -m 'not slow' tests/property

# What it says is shown at its end, not in between what the other says.
test-with-spark: $(INSTALLED)
	@$(BIN)/python -m pytest -m 'spark and not slow' >$(VENV)/with-spark.log 2>&1; \
	code=$$?; cat $(VENV)/with-spark.log; exit $$code

# Units, interleavings and contracts: what is worth running after every change.
test-fast: $(INSTALLED) ## run the quick tests, without Spark; ARGS goes to pytest (ARGS='-k order')
	$(BIN)/python -m pytest -m 'not slow and not spark' $(addprefix --ignore=tests/,$(THOROUGH)) $(ARGS)

soak: $(INSTALLED) ## run the slow tests: guards broken one by one, kills, property tests in depth
	$(BIN)/python -m pytest -m slow
	PENSTOCK_EXAMPLES=10 $(BIN)/python -m pytest tests/property

check: $(INSTALLED) ## lint, formatting, types and import rules; runs no tests
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## format the code and apply the safe fixes
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

run: $(INSTALLED) ## see the whole pipeline at work, with made-up traffic; ARGS goes to penstock demo
	$(BIN)/penstock demo $(ARGS)

bench: $(INSTALLED) ## run the benchmarks and record the results
	$(BIN)/python benchmarks/record.py

clean: ## remove the environment, caches and build results
	rm -rf $(VENV) penstock-demo build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +
