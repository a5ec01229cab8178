# `make realize` and `make test` do all the set-up that a fresh Debian 12 needs; `make help` lists.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
INSTALLABLE ?=
WORKERS ?= 2
PYTEST ?= $(BIN)/python -m pytest -n $(WORKERS)

RUN := $(VENV)/.set-up-run
DEV := $(VENV)/.set-up-dev

.PHONY: help setup setup-dev realize lock test test-slow torture check format docs bench requirements clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

setup: $(RUN) ## what realizing needs: Debian packages, and .venv with pinned Python packages

setup-dev: $(DEV) ## the same, and what tests and checks need

$(RUN): requirements/run.txt requirements/apt-run.txt pyproject.toml scripts/debian-packages scripts/virtual-environment
	@scripts/debian-packages requirements/apt-run.txt
	@scripts/virtual-environment $(VENV) requirements/run.txt
	@touch $@

$(DEV): $(RUN) requirements/dev.txt tests/apt-packages.txt
	@scripts/debian-packages requirements/apt-run.txt tests/apt-packages.txt
	@scripts/virtual-environment $(VENV) requirements/run.txt requirements/dev.txt
	@touch $@

realize: $(RUN) ## make the image (or INSTALLABLE=…) exist
	@$(BIN)/reprobuild realize $(INSTALLABLE)

lock: $(RUN) ## pin what is not pinned yet
	@$(BIN)/reprobuild lock

test: $(DEV) ## the test suite, without the slow tests
	@$(PYTEST) -m "not slow"

test-slow: $(DEV) ## the slow tests: real kernels, whole releases
	@$(PYTEST) -m slow

torture: $(DEV) ## store and engine killed, starved and crowded: all of it (about an hour)
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/torture --full --write docs/reliability.md $(TORTURE)

check: $(DEV) ## lint, format, types, import rules
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/arch

format: $(DEV) ## format the sources
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

docs: $(RUN) ## what is generated: docs/errors.md
	@$(BIN)/python -m reprobuild.errordocs > docs/errors.md.new
	@mv docs/errors.md.new docs/errors.md

bench: $(DEV) ## benchmarks against other tools (nix-bin, busybox-static), in one table
	@$(BIN)/python benchmarks $(BENCH)

requirements: ## pin the Python packages anew (needs the package index; uses uv, in .uv)
	@test -x .uv/bin/uv || { python3 -m venv .uv && .uv/bin/python -m pip install --quiet uv; }
	@.uv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  --no-emit-index-url --no-header --extra sbom pyproject.toml requirements/build.in -o requirements/run.txt
	@.uv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	  --no-emit-index-url --no-header requirements/dev.in -c requirements/run.txt -o requirements/dev.txt

clean: ## remove what was generated here; never the store
	@rm -rf $(VENV) .uv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
