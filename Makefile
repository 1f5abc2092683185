# `make demo` and `make test` do everything on a machine with Python 3.11+ and make: they set up .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4 --dist loadfile
INSTALLED := $(VENV)/.installed

.PHONY: setup demo test test-processes test-slow bench lint types docs notebook clean
.DELETE_ON_ERROR:

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "expected Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[dev]'
	@touch $@

demo: setup
	PATH="$(abspath $(BIN)):$$PATH" sh docs/demo.sh

test: setup
	$(BIN)/python -m pytest -m "not slow and not processes" $(SIDE_BY_SIDE)

test-processes: setup
	$(BIN)/python -m pytest -m "processes and not slow" $(SIDE_BY_SIDE)

test-slow: setup
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)

# `make bench BENCH="--peers"` passes options on.
bench: setup
	JOBI_TF_ARCHIVES="$${JOBI_TF_ARCHIVES-$(abspath $(wildcard ../shared/data))}" $(BIN)/python -m benchmarks $(BENCH)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# The site, into site/; `.venv/bin/mkdocs serve` shows it while you write.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The notebook of the tutorial, with its outputs, from examples/tutorial.py.
notebook: setup
	$(BIN)/python docs/notebook.py

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache
