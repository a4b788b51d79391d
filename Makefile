# Needs Python >= 3.11 and make; every target makes or updates .venv itself.
# The locks name every package with its hashes; `make lock` renews them.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate \
	--python-version 3.11 --custom-compile-command "make lock"
PYTEST := $(BIN)/pytest
# Tests of one suite run beside each other, each process with databases, keys and ports of its own. More than four
# would run out of the 100 connections that a PostgreSQL has.
PARALLEL := -n 4 --dist worksteal
DBOS := tests/conformance/engine/test_dbos.py
CHAOS := tests/processes/test_chaos.py
APART := tests/simulation tests/browser tests/clients tests/processes $(DBOS)

.DEFAULT_GOAL := help
.PHONY: help demo check format test suites sim dbos processes browser clients ci bench lock clean

help: ## what there is
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: .venv/.demo ## the demo on http://127.0.0.1:8000 (ARGS="--port 9000")
	$(BIN)/signoff demo $(ARGS)

check: .venv/.dev ## format, lint, types, layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.dev ## mend format and what ruff can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# One pytest run a suite: a browser's event loop and a simulation's fake clock stay out of each other's way,
# and a failure says which suite it is. `make ci` runs these same lines.
test: suites sim dbos processes browser clients ## every test that this machine can run; prints why it skips one

suites: .venv/.dev ## unit, conformance, cases, wire, docs
	$(PYTEST) $(PARALLEL) tests $(APART:%=--ignore=%) $(ARGS)

sim: .venv/.dev ## the whole system, killed at every commit in turn
	$(PYTEST) $(PARALLEL) tests/simulation $(ARGS)

dbos: .venv/.dev ## the engine contract on DBOS
	$(PYTEST) $(PARALLEL) $(DBOS) $(ARGS)

# These wait for real leases, and chaos counts seconds: the fewer beside them, the more they say.
processes: .venv/.dev ## real processes: killed, paused, drained, deployed; then all of it at once
	$(PYTEST) -n 2 --dist worksteal tests/processes --ignore=$(CHAOS) $(ARGS)
	$(PYTEST) $(CHAOS) $(ARGS)

browser: .venv/.dev ## the demo page in headless Chromium
	$(PYTEST) tests/browser $(ARGS)

clients: .venv/.dev ## published third-party clients against the demo
	$(PYTEST) tests/clients $(ARGS)

ci: check test ## what CI runs; with CI=true a skipped test fails

bench: .venv/.dev ## speed and size beside LangGraph and DBOS, half an hour (ARGS="--rounds 1 --quick": minutes)
	$(BIN)/python benchmarks/run.py $(ARGS)

lock: .venv/.dev ## renew both locks from pyproject.toml
	$(LOCK) --upgrade pyproject.toml --group dev --all-extras --output-file requirements-dev.lock
	$(LOCK) --upgrade pyproject.toml --constraint requirements-dev.lock --output-file requirements.lock

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "signoff needs Python 3.11 or newer; name one with PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# The base install is enough for the demo; the dev install contains it.
.venv/.demo: pyproject.toml requirements.lock | $(BIN)/python
	$(PIP) install --require-hashes --requirement requirements.lock
	$(PIP) install --no-deps --editable .
	@touch $@

.venv/.dev: pyproject.toml requirements-dev.lock | $(BIN)/python
	$(PIP) install --require-hashes --requirement requirements-dev.lock
	$(PIP) install --no-deps --editable .
	@touch $@ .venv/.demo
