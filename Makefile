# What a developer types; `make help` lists it. The work of `setup` and `test-tools` is done by the scripts in .ci/.

PYTHON := .venv/bin/python

# The datasets lie beside the checkout on some machines; tfos_lab.data looks here first.
ifneq ($(wildcard ../shared/data),)
export TFOS_LAB_DATA ?= $(abspath ../shared/data)
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo lab test test-tools check format bench lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup:  ## .venv with the locked dependencies, the Lab extension, and Java for Spark
	@.ci/setup

demo: setup  ## train MNIST from the first notebook on local Spark and report
	@.venv/bin/tfos-lab demo

lab: setup  ## JupyterLab with the tutorials
	@.venv/bin/tfos-lab lab

test: test-tools  ## all tests, or some: make test ARGS="tests/engine -k roster"
	$(PYTHON) -m pytest $(ARGS)

test-tools: setup  ## what the tests need beyond setup: Chromium
	@.ci/test-tools

check: setup  ## lint, formatting, types and import layers, in seconds
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	PYTHONPATH=. $(PYTHON) .ci/check_scripts.py
	cd extensions/jupyterlab && { [ ! -d node_modules ] || ../../.venv/bin/jlpm check; }

format: setup  ## format the code, and mend what ruff can mend
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

bench: setup  ## benchmarks side by side; writes benchmarks/results.json
	@.venv/bin/tfos-lab bench

lock:  ## renew requirements.lock from pyproject.toml, keeping versions that still fit (needs uv)
	uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 \
	  --no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.lock

clean:  ## remove .venv and everything that tools left behind
	rm -rf .venv .venv-peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  tests/artefacts runs metastore_db spark-warehouse artifacts \
	  $(addprefix extensions/jupyterlab/,node_modules lib labextension build.log .yarn)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
