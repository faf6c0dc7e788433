# On a fresh clone `make demo` and `make test` do everything: they create .venv and install into it.

PYTHON ?= python3
BIN    := .venv/bin
BEFORE ?= aaa8a2c
# One thread per worker: tests are many and small.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses=8 --dist=worksteal

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-all test-faults coverage lint format bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/installed  ## create .venv with apportion (editable) and all that tests and lint need

demo: .venv/installed  ## train on bags of handwritten digits, print a table, write a report
	$(BIN)/apportion demo --force

test: .venv/installed  ## the tests, doctests and README, without the slow ones
	$(PYTEST)

test-slow: .venv/installed  ## only the slow tests
	$(PYTEST) -m slow

test-all: .venv/installed  ## all tests
	$(PYTEST) -m ""

test-faults: .venv/installed  ## many kills through three doors, and a soak of 15 minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "" -s tests/faults $(wildcard tests/fuzz)

coverage: .venv/installed  ## all tests, with a report of the lines they miss
	$(PYTEST) -m "" --cov --cov-report=term-missing

lint: .venv/installed  ## ruff, mypy and import-linter, changing nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed  ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/installed-bench  ## measure all of docs/performance.md against commit BEFORE, and write it
	$(BIN)/python benchmarks/performance.py --before $(BEFORE)

clean:  ## remove .venv, caches and build products
	rm -rf .venv build dist .coverage htmlcov .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# The stamps are older than what they depend on exactly when something has to be installed again.
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

.venv/installed-bench: .venv/installed
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	touch $@
