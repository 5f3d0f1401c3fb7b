# The two commands of the README. Both create .venv with the Python that PYTHON names.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs clean

demo: $(VENV)/installed
	$(BIN)/surgery apply recipes/bert.yaml

test: $(VENV)/tested
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/installed
	$(BIN)/python -m surgery.reference docs

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/tested: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
