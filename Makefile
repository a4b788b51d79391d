# Needs Python >= 3.11 and make; every target makes or updates .venv itself.
# The locks name every package with its hashes; `make lock` renews them.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate \
	--python-version 3.11 --custom-compile-command "make lock"
PYTEST := $(BIN)/pytest
# The engine contract on DBOS and the chaos runs take as long as everything else together: `make dbos` runs them.
DBOS := tests/conformance/engine/test_dbos.py tests/processes/test_dbos_workers.py tests/processes/test_chaos.py
SUITES := tests --ignore=tests/simulation --ignore=tests/browser --ignore=tests/clients $(DBOS:%=--ignore=%)

.DEFAULT_GOAL := help
.PHONY: help demo check format test suites sim browser clients dbos ci bench lock clean

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
test: suites sim browser clients ## every test that this machine can run; prints why it skips one

suites: .venv/.dev ## unit, conformance, wire, processes
	$(PYTEST) $(SUITES) $(ARGS)

sim: .venv/.dev ## the whole system, killed at every commit in turn
	$(PYTEST) tests/simulation $(ARGS)

browser: .venv/.dev ## the demo page in headless Chromium
	$(PYTEST) tests/browser $(ARGS)

clients: .venv/.dev ## published third-party clients against the demo
	$(PYTEST) tests/clients $(ARGS)

dbos: .venv/.dev ## workers: the engine contract on DBOS, and the chaos runs (not part of make test)
	$(PYTEST) $(DBOS) $(ARGS)

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
