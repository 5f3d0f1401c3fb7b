# Everything is installed from the lock, into .venv, with the Python that PYTHON names.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# Nothing that the lock does not name: no other version, no other file, and nothing that has to be built first.
LOCKED := $(PIP_INSTALL) --require-hashes --only-binary :all:
PYTEST := -m pytest -n auto --dist worksteal --durations-by-file=10
# The processes that tests start share the bytecode of what they import, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow test-all test-gpu coverage test-latest test-lowest test-middle lint docs man picture site dist release lock clean

demo: $(VENV)/installed
	$(BIN)/surgery apply recipes/bert.yaml

# All but what takes long by its nature, or repeats in breadth what other tests show.
test: $(VENV)/tested
	$(BIN)/python $(PYTEST) -m 'not slow'

# PART=K/N runs one of N parts of them. Pictures of what people do in the workbench are kept in build/stories.
test-slow: $(VENV)/tested
	$(BIN)/python $(PYTEST) -m slow $(if $(PART),--part $(PART))

test-all: test test-slow

# On one GPU, one test at a time, with an environment that has onnxruntime-gpu and the test dependencies: GPU_PYTHON. Where it
# has torch, too, the models of full size are built once. SURGERY_GPU_DRY_RUN=1 tries the tests on the CPU.
GPU_PYTHON ?= $(PYTHON)
test-gpu:
	-$(GPU_PYTHON) -c "import torch" 2>/dev/null && \
		$(GPU_PYTHON) -m models.build bert vit llama resnet50 --size full --exporter dy
	$(GPU_PYTHON) -m pytest tests/gpu -m '' -rs --durations=10 -s

# The share of statements that the tests run, in all processes. Measuring takes time and memory: a test that bounds them
# may fail here, which `make test` decides.
coverage: export COVERAGE_FILE := $(CURDIR)/build/coverage/data
coverage: $(VENV)/tested
	rm -rf build/coverage
	mkdir -p build/coverage
	-$(BIN)/coverage run $(PYTEST) -m 'not slow'
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# With the newest release of every dependency, whatever the lock says.
test-latest:
	$(PYTHON) -m venv --clear .venv-latest
	.venv-latest/bin/python $(PIP_INSTALL) --editable '.[test]' 'setuptools>=77'
	.venv-latest/bin/python $(PYTEST)

# With the oldest release of every dependency of the package that pyproject.toml allows, and with a set in between. What
# only the tests need is as new as fits; TESTS names some of them.
MIDDLE := onnx==1.20.1 onnxruntime==1.27.0
COMPILE_OLD = $(BIN)/uv pip compile --quiet --no-header --only-binary :all: --python .venv-$*/bin/python
test-lowest test-middle: test-%: .venv-%/tested
	.venv-$*/bin/python $(PYTEST) $(TESTS)

.PRECIOUS: .venv-%/tested
.venv-%/tested: pyproject.toml $(VENV)/tested
	$(PYTHON) -m venv --clear .venv-$*
	printf '%s\n' $(if $(filter middle,$*),$(MIDDLE)) > .venv-$*/between.txt
	$(BIN)/python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb')); print(*(one for one in \
		project['project']['optional-dependencies']['test'] if not one.startswith(('onnx>', 'onnxruntime>'))), \
		*project['dependency-groups']['build'], sep='\n')" > .venv-$*/testing.txt
	$(COMPILE_OLD) --resolution lowest-direct --extra cpu --constraint .venv-$*/between.txt \
		--output-file .venv-$*/package.txt pyproject.toml
	$(COMPILE_OLD) --output-file .venv-$*/all.txt .venv-$*/package.txt .venv-$*/testing.txt
	.venv-$*/bin/python $(PIP_INSTALL) --requirement .venv-$*/all.txt
	.venv-$*/bin/python $(PIP_INSTALL) --no-deps --editable .
	touch $@

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Writes the generated pages and, with `picture`, the picture of a run.
docs: $(VENV)/installed
	$(BIN)/python -m surgery.interface.docsgen docs
	$(BIN)/python -m surgery.engine.recipe.checked

# The manual pages, in build/man.
man: $(VENV)/installed
	$(BIN)/python -m surgery.interface.docsgen --man build/man

picture: $(VENV)/installed
	$(BIN)/python docs/images/draw.py

# The documentation as a web site in build/site; a broken link is an error.
site: $(VENV)/installed
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python $(PIP_INSTALL) $$($(BIN)/python -c "import tomllib; \
		print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	.venv-site/bin/sphinx-build --fail-on-warning --keep-going --quiet -b html docs build/site

# The source distribution and the wheel of the current commit in dist, checked, and installed in fresh environments: the
# wheel with each of PYTHONS. Nothing is uploaded.
PYTHONS ?= $(PYTHON)
dist: $(VENV)/installed .venv-dist/installed
	rm -rf dist
	$(BIN)/python .ci/dist.py dist
	.venv-dist/bin/twine check --strict dist/*
	.ci/try-dist "$(PYTHON)" dist/*.tar.gz
	.ci/try-dist "$(strip $(PYTHONS))" dist/*.whl

# Raises the version by a PART, which is major, minor or patch, dates the changelog, commits and tags.
release: .venv-dist/installed
	.venv-dist/bin/bump-my-version bump $(PART)

.venv-dist/installed:
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python $(PIP_INSTALL) 'bump-my-version>=1.8' 'twine>=7'
	touch $@

COMPILE := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock'

# Writes both locks anew, with the newest releases that fit together on each Python from 3.11 on. The second has all
# that the first has, in the same versions.
lock: $(VENV)/tested
	$(BIN)/uv pip compile $(COMPILE) --group build --extra cpu --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile $(COMPILE) --group build --group lock --extra test --constraint requirements.lock \
		--output-file requirements-test.lock pyproject.toml

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml requirements.lock
	$(BIN)/python $(LOCKED) --requirement requirements.lock
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/tested: $(VENV)/installed requirements-test.lock
	$(BIN)/python $(LOCKED) --requirement requirements-test.lock
	touch $@

clean:
	rm -rf $(VENV) .venv-latest .venv-lowest .venv-middle .venv-site .venv-dist build dist *.egg-info
