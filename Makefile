# Needs only make, Python 3.11 or later with its venv module, and a package index.

VENV ?= .venv
VENV_LATEST ?= .venv-latest
BIN := $(VENV)/bin

# The first Python on the path that is new enough and can make an environment. From 3.12 on, packages resolve to
# newer versions than the pinned ones.
USABLE := -c "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"
FIRST_USABLE = $(shell for p in $(1); do $$p $(USABLE) 2>/dev/null && echo $$p && break; done)
PYTHON ?= $(call FIRST_USABLE,python3.11 python3.12 python3.13 python3 python)
PYTHON_LATEST ?= $(call FIRST_USABLE,python3.13 python3.12 python3.14)

PIP_OPTIONS := --disable-pip-version-check --quiet --progress-bar off
PYTEST_OPTIONS ?= -n 2 --dist worksteal --durations=12

# Without this pyright asks the network whether a newer pyright exists.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-latest lint format dist bench results clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready  ## create the environment with the pinned dependencies

demo: $(VENV)/.ready  ## train a sampler and write its report to runs/demo
	$(BIN)/leapling demo --out runs/demo

test: lint  ## lint, check types, and run the tests
	$(BIN)/python -m pytest $(PYTEST_OPTIONS)

test-long: $(VENV)/.ready  ## run the long checks at full length
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) -m slow --long

lint: $(VENV)/.ready  ## check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.ready  ## fix style and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

dist: $(VENV)/.ready  ## build the sdist and the wheel into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

bench: $(VENV)/.ready  ## measure throughput
	$(BIN)/python benchmarks/throughput.py

results: $(VENV)/.ready  ## make again the tables that the docs quote
	$(BIN)/leapling demo --out runs/demo
	$(BIN)/python benchmarks/scg_seeds.py --out runs/scg-seeds
	$(BIN)/python benchmarks/throughput.py --json docs/results/throughput.json > docs/results/throughput.md
	$(BIN)/python benchmarks/settings.py rough-well --num-steps 1 2 5 10 --seeds 4 --runs-at-once 48 \
		--grid step_size=0.1,0.2,0.4,0.8,1.2,1.6 --json docs/results/settings.json > docs/results/settings.md
	$(BIN)/leapling reproduce all --preset paper --out runs/reproduce-paper
	cp runs/demo/demo.md runs/demo/demo.json runs/scg-seeds/scg-seeds.* runs/reproduce-paper/*/*.md \
		runs/reproduce-paper/*/*.json docs/results/

clean:  ## remove environments, build outputs and caches (runs/ is kept)
	rm -rf $(VENV) $(VENV_LATEST) dist .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

test-latest:  ## run the tests on the newest dependencies (PYTHON_LATEST=python3.13 chooses the Python)
	$(call make_venv,$(PYTHON_LATEST),$(VENV_LATEST),PYTHON_LATEST=/path/to/python3.13)
	$(VENV_LATEST)/bin/python -m pip install $(PIP_OPTIONS) --upgrade --upgrade-strategy eager -e ".[all,dev]"
	$(VENV_LATEST)/bin/python -m pytest $(PYTEST_OPTIONS)

# Pinned dependencies only. Any change of the pins starts the environment afresh, so that nothing stale survives.
$(VENV)/.pinned: requirements/dev.txt
	$(call make_venv,$(PYTHON),$(VENV),PYTHON=/path/to/python3.11)
	$(BIN)/python -m pip install $(PIP_OPTIONS) -r requirements/dev.txt
	@touch $@

# The package itself, in place; its dependencies and its build backend are among the pins.
$(VENV)/.ready: $(VENV)/.pinned pyproject.toml
	$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps --no-build-isolation -e .
	@touch $@

# make_venv: (1) the Python to use, (2) the folder, (3) how to choose another Python.
define make_venv
@python="$(1)"; $${python:-false} $(USABLE) 2>/dev/null || { \
	echo "leapling needs Python 3.11 or later with its venv module; $${python:-no such Python on the path} will not do." >&2; \
	echo "Install one (on Debian: apt install python3 python3-venv) or name it: make $(MAKECMDGOALS) $(3)" >&2; \
	exit 1; }; \
echo "Setting up $(2) with $$python; this takes a minute or more." && rm -rf $(2) && $$python -m venv $(2)
endef
