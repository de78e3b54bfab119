# One command for each thing a developer does. No virtual environment has to be active: .venv is made here, with
# uv if it is installed and else with python -m venv and pip, and made again when a lock changes.

VENV ?= .venv
BIN = $(VENV)/bin
UV = $(shell command -v uv 2>/dev/null)
PIP = $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
# Names under which a Python of 3.11 or later may be found; the first that is one is taken.
PYTHON ?= python3
PYTHONS = $(PYTHON) python3.14 python3.13 python3.12 python3.11
ARGS ?=
export UV_PROJECT_ENVIRONMENT = $(VENV)

.PHONY: help demo test lint lint-rules lint-format format types types-mypy types-basedpyright imports wheel \
    quality benchmarks check lock clean

help:
	@echo 'make demo      see it work: bus, daemon, a conversation, questions (ARGS=--keep leaves it running)'
	@echo 'make test      all tests (ARGS="tests/events -k gate" picks some)'
	@echo 'make lint      ruff: rules and formatting; make format applies them'
	@echo 'make types     mypy and basedpyright, both strict'
	@echo 'make imports   which package may import which'
	@echo 'make wheel     build the wheel, install it beside Events and python-daemon, run it'
	@echo 'make quality   evidence recall on LoCoMo (LOCOMO_DIR says where it is; ARGS=core picks a part)'
	@echo 'make benchmarks  speed, as ratios within one run (ARGS="append trees" picks some)'
	@echo 'make check     test, lint, types, imports and wheel'
	@echo 'make lock      renew uv.lock and the two files made from it (needs uv)'
	@echo 'make clean     remove what was made here'

demo: $(VENV)/.runtime
	$(BIN)/python -m daemon demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(ARGS)

lint: lint-rules lint-format

lint-rules: $(VENV)/.dev
	$(BIN)/python -m ruff check .

lint-format: $(VENV)/.dev
	$(BIN)/python -m ruff format --check .

format: $(VENV)/.dev
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

types: types-mypy types-basedpyright

types-mypy: $(VENV)/.dev
	$(BIN)/python -m mypy

types-basedpyright: $(VENV)/.dev
	$(BIN)/basedpyright --pythonpath $(BIN)/python

imports: $(VENV)/.dev
	$(BIN)/lint-imports

wheel: $(VENV)/.dev
	sh tests/wheel_check.sh $(BIN)/python

quality: $(VENV)/.dev
	$(BIN)/python -m tests.quality.run $(ARGS)

benchmarks: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.run $(ARGS)

check: test lint types imports wheel

# What running needs, and the project itself as an editable install (the commands memforest and memforestd).
$(VENV)/.runtime: pyproject.toml uv.lock requirements.lock
ifneq ($(UV),)
	$(UV) sync --quiet --frozen --inexact --no-dev
else
	@for python in $(PYTHONS); do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "$$python -m venv $(VENV)"; exec $$python -m venv $(VENV); \
	    fi; \
	done; echo 'Python 3.11 or later is needed; say where it is: make PYTHON=/path/to/python3' >&2; exit 1
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --editable .
endif
	@touch $@

# The same and what developing needs. It adds to .runtime, so that demo and test can take turns.
$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
ifneq ($(UV),)
	$(UV) sync --quiet --frozen --inexact
else
	$(PIP) install --require-hashes -r requirements-dev.lock
endif
	@touch $@

# Only PyPI may stand in the locks, whatever the configuration of this machine says.
lock:
	$(UV) --no-config lock --default-index https://pypi.org/simple
	$(UV) --no-config export --quiet --frozen --no-emit-project --no-header --no-annotate --no-dev \
	    --output-file requirements.lock
	$(UV) --no-config export --quiet --frozen --no-emit-project --no-header --no-annotate \
	    --output-file requirements-dev.lock

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
