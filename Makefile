# `make demo` and `make test` are each enough on a fresh machine: they make a virtual environment, install everything and run.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What a rebuild depends on; edits of Python files alone need none, because tests run on the installed package only after `pip install`.
SOURCES := pyproject.toml $(shell find csrc torch_ndd -type f -not -name '*.pyc' -not -name '*.so')
# DALI is the reference of the parity tests. It has no wheel for every Python.
EXTRAS ?= $(shell $(PYTHON) -c "import sys; print('test,dali' if sys.version_info < (3, 14) else 'test')")

.PHONY: demo test lint bench clean

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/train_images.py

test: $(VENV)/test.stamp lint
	cd tests && ../$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check torch_ndd tests examples
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(VENV)/test.stamp
	$(BIN)/python -m torch_ndd.bench main
	$(BIN)/python -m torch_ndd.bench ops

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/demo.stamp: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install ".[demo]"
	touch $@

$(VENV)/test.stamp: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) build dist
