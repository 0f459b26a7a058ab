# Every target makes what it needs: the environment lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-slow check docs docs-serve clean

demo: .venv/.runtime
	$(BIN)/pathgrad demo --overwrite

# Two processes on two cores; the tests of a file stay together, since they share compiled functions. (Groups
# would be finer, but pytest-xdist 3.8 does not see them under pytest 9.2.)
test: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

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
	$(PIP) install -c constraints.txt -e ".[cli]"
	touch $@

.venv/.test: .venv/.runtime
	$(PIP) install -c constraints.txt --group test
	touch $@

.venv/.check: .venv/.test
	$(PIP) install -c constraints.txt --group check
	touch $@

clean:
	rm -rf .venv demo site
