# specformer: `make` lists the targets.
#
#   make test VENV=/somewhere/else      another place for the environment
#   make test PYTHON=python3.13         another interpreter
#   make test ARGS='-k lanczos -x'      more arguments for pytest (or for `specformer demo`)
#   make bench SUITE=node ARGS='--datasets cora'

VENV    ?= .venv
PYTHON  ?= python3
EXTRAS  ?= dev
WORKERS ?= 2
ARGS    ?=
SUITE   ?= node

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed-$(EXTRAS)

# The pins hold for what is installed and for the isolated environments that pip builds packages in. Old versions
# of pip read the first variable for both, new ones read the second for the latter.
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1

# One thread each: workers that also split every product over all cores only get in each other's way.
# A file's tests stay with one worker, so that what they share is made once.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help install hooks demo test test-all test-long cov bench walks silence interruptions tables notebooks docs lint format types contract check audit sbom wheel clean distclean

help: ## Show this list
	@echo 'usage: make TARGET [VENV=$(VENV)] [PYTHON=$(PYTHON)] [ARGS=...]'
	@echo
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

# --- environment ---------------------------------------------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo 'specformer needs Python 3.11, 3.12 or 3.13: make PYTHON=python3.11 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first: the one large package, in the pinned version before anything else can ask for it.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(PINNED) $(BIN)/python -m pip install torch
	$(PINNED) $(BIN)/python -m pip install -e '.[$*]'
	@touch $@

install: $(STAMP) ## Make the virtual environment and install into it (once)

hooks: $(STAMP) ## Run the checks before every git commit
	$(BIN)/pre-commit install

# --- use and test --------------------------------------------------------------------------------------------

demo: $(STAMP) ## Train on embedded data and write an HTML report
	$(BIN)/specformer demo $(ARGS)

test: $(STAMP) ## Run the fast tests and the doctests
	$(PYTEST) $(ARGS)

test-all: $(STAMP) ## Run every test, the slow ones too
	$(PYTEST) -m '' $(ARGS)

test-long: $(addprefix test-long-,files moments commands documents) ## Attack every file and command (with -j2 20 minutes): ARGS='--scale 0.1' for a tenth

test-long-%: $(STAMP)
	OMP_NUM_THREADS=1 MPLBACKEND=Agg PYTHONPATH=. $(BIN)/python -m tests.attacks $* --out results/reliability/$*.json $(ARGS)

cov: $(STAMP) ## Run the fast tests and report what they cover
	$(PYTEST) --cov --cov-report=term --cov-report=html $(ARGS)

bench: $(STAMP) ## Measure speed and memory: SUITE=node, deep, graph, spectrum, decompose, overhead or same
	$(BIN)/python -m benchmarks $(SUITE) $(ARGS)

walks: $(STAMP) ## Count the files, functions and room changes on the way through `train`
	$(BIN)/python -m benchmarks.walks $(ARGS)

silence: $(STAMP) ## Measure how long commands say nothing (5 minutes); then `make tables`
	$(BIN)/python -m benchmarks.silence --out results/waiting/silence.json $(ARGS)

interruptions: $(STAMP) ## Stop trainings at twenty random moments, and check what they say (5 minutes)
	$(BIN)/python -m benchmarks.interruptions --out results/waiting/interruptions.json $(ARGS)

tables: $(STAMP) ## Rewrite the tables of README and docs from results/
	$(BIN)/python -m benchmarks.ledger tables

notebooks: $(STAMP) ## Run the tutorials' notebooks and write their outputs
	MPLBACKEND=Agg $(BIN)/python -m tools.notebooks $(ARGS)

docs: $(VENV)/.installed-docs ## Build the documentation's pages into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# --- check ---------------------------------------------------------------------------------------------------

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## Put style and formatting right
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

types: $(STAMP) ## Check the types
	$(BIN)/mypy

contract: $(STAMP) ## Check which room imports which
	$(BIN)/lint-imports

check: lint types contract ## All three

audit: $(VENV)/.installed-audit ## Look for known holes in dependencies (asks PyPI) and risky calls in the source
	$(BIN)/bandit -q -r src -c pyproject.toml
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

sbom: $(VENV)/.installed-audit ## Write the software bill of materials of this environment to dist/
	@mkdir -p dist
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/specformer.cdx.json $(BIN)/python

wheel: $(STAMP) ## Build the wheel and try it in an empty environment
	rm -rf dist $(VENV)-wheel
	$(PINNED) $(BIN)/python -m build --outdir dist
	$(BIN)/python -m venv $(VENV)-wheel
	$(PINNED) $(VENV)-wheel/bin/python -m pip install torch
	$(PINNED) $(VENV)-wheel/bin/python -m pip install dist/*.whl
	$(VENV)-wheel/bin/python -m pip check
	$(VENV)-wheel/bin/python -I -c 'import specformer; print(specformer.__file__)'
	$(VENV)-wheel/bin/specformer --version
	rm -rf $(VENV)-wheel

clean: ## Remove what building and testing leave behind
	rm -rf build dist site htmlcov .coverage .coverage.* src/*.egg-info
	rm -rf .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environment as well
	@for env in $(VENV) $(VENV)-wheel; do \
	  if [ -f "$$env/pyvenv.cfg" ]; then echo "rm -rf $$env"; rm -rf "$$env"; fi; \
	done
