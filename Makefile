# Every target makes what it needs: the environment lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-slow check docs docs-serve clean

demo: .venv/.runtime
	$(BIN)/pathgrad demo --overwrite

# Two processes on two cores; tests that share compiled functions stay together (loadgroup).
test: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

test-slow: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

check: .venv/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The site, in site/; it needs no network to be read.
docs: .venv/.test
	$(BIN)/python -m mkdocs build --strict

docs-serve: .venv/.test
	$(BIN)/python -m mkdocs serve

.venv/.pip:
	$(PYTHON) -m venv .venv
	$(PIP) install "pip>=25.1"
	touch $@

.venv/.runtime: .venv/.pip pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e .
	touch $@

.venv/.test: .venv/.runtime
	$(PIP) install -c constraints.txt --group test
	touch $@

.venv/.check: .venv/.test
	$(PIP) install -c constraints.txt --group check
	touch $@

clean:
	rm -rf .venv demo site
