# Each target first installs what it needs into .venv. `make` alone lists them.
PYTHON ?= python3
CONSTRAINTS ?= -c constraints.txt
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test test-slow check hooks docs docs-serve dist clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: .venv/.runtime  ## train two small flows, print a table and draw a picture (demo/)
	$(BIN)/pathgrad demo --overwrite

# The tests of one file stay in one process, because they share compiled functions. (Groups of tests would be
# finer, but pytest-xdist 3.8 ignores them under pytest 9.2.) A process that crashes ends the run.
TEST := $(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0

test: .venv/.test  ## run the daily tests, which may take ten minutes on two cores
	$(TEST) -m "not slow"

test-slow: .venv/.test  ## run the tests that take longer
	$(TEST) -m slow

check: .venv/.check  ## run the linter, the formatter and the type checker
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

hooks: .venv/.check  ## run these checks before each commit and push, from now on
	$(BIN)/pre-commit install

docs: .venv/.test  ## build the documentation (site/), which can be read offline
	$(BIN)/python -m mkdocs build --strict

docs-serve: .venv/.test  ## serve the documentation, rebuilt at each change
	$(BIN)/python -m mkdocs serve

dist: .venv/.build  ## build the wheel and the source archive (dist/)
	rm -rf dist
	$(BIN)/python -m build

.venv/.pip:
	$(PYTHON) -m venv .venv
	$(PIP) install "pip>=25.1"
	touch $@

.venv/.runtime: .venv/.pip pyproject.toml constraints.txt
	$(PIP) install $(CONSTRAINTS) -e ".[cli]"
	touch $@

.venv/.test: .venv/.runtime
	$(PIP) install $(CONSTRAINTS) --group test
	touch $@

.venv/.check: .venv/.test
	$(PIP) install $(CONSTRAINTS) --group check
	touch $@

.venv/.build: .venv/.runtime
	$(PIP) install $(CONSTRAINTS) --group build
	touch $@

clean:  ## remove everything that the other targets make
	rm -rf .venv demo site dist
