# The commands of a developer; `make help` lists them. The work of `setup` and `test-tools` is done by the scripts in .ci/.

PYTHON := .venv/bin/python

# The datasets lie beside the checkout on some machines; tfos_lab.data looks here first.
ifneq ($(wildcard ../shared/data),)
export TFOS_LAB_DATA ?= $(abspath ../shared/data)
endif

# Without bytecode, each process would compile what it imports: TensorFlow takes 17 s instead of 6.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo lab test test-all test-rest tutorials hosts sim soak matrix test-tools check format bench scale gallery golden pictures docs lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup:  ## .venv with the locked dependencies, the built front end, and Java for Spark
	@.ci/setup

demo: setup  ## train MNIST from the first notebook on local Spark and report
	@$(PYTHON) -m tfos_lab.demo

lab: setup  ## JupyterLab with the tutorials
	@.venv/bin/tfos-lab lab

# Four processes keep two cores busy, as many tests wait. Tests that share a rig, or what their file keeps, are one
# process', and come in the order of tests/conftest.py.
PYTEST := $(PYTHON) -m pytest
TOGETHER := --numprocesses=4 --dist=loadgroup --no-loadscope-reorder --durations=30

test: setup  ## the core, without cluster, browser or root, in some minutes; or some tests: make test ARGS="tests/driver -k state"
	@$(PYTHON) -m tests.support.class_archive  # with it, Spark's JVMs start with less work
	$(PYTEST) $(or $(ARGS),-m "not full" $(TOGETHER))

test-all: test test-rest  ## all tests: ML stages, scoring, compat, other file systems, standalone, Connect, YARN, stores, browser, notebooks, examples, hosts, soak, too

test-rest: test-tools
	@$(PYTHON) -m tests.support.class_archive
	$(PYTEST) -m full $(TOGETHER)

tutorials: test-tools  ## the tests of all tutorials, each of them locally and on a cluster: some minutes
	TFOS_TEST_TUTORIALS=cluster $(PYTHON) -m pytest $(or $(ARGS),tests/notebooks/test_tutorials.py)

hosts: test-tools  ## tests on several hosts, made of namespaces on this machine: some minutes, as root
	TFOS_TEST_HOSTS=1 $(PYTHON) -m pytest $(or $(ARGS),tests/hosts)

SEEDS := 60000

sim: setup  ## the control plane under a fake clock and network, with faults from seeds, in a minute or two: make sim SEEDS=5000
	$(PYTHON) -m tests.simulation --seeds $(SEEDS) $(if $(FROM),--from $(FROM))

MINUTES := 20
MASTER := local

soak: setup  ## fuzz with fresh examples, then clusters with random faults: make soak MINUTES=5 SEED=1234 MASTER=standalone
	TFOS_LAB_FUZZ=soak $(PYTHON) -m pytest tests/laws tests/data/test_tfrecords.py tests/node/test_batches.py --timeout=1800
	TFOS_SOAK_MINUTES=$(MINUTES) TFOS_SOAK_MASTER=$(MASTER) TFOS_SOAK_SEED=$(SEED) $(PYTHON) -m pytest -s tests/soak

matrix: setup  ## a suite with the oldest, newest and other versions, each in its environment: make matrix LEG=spark35
	$(PYTHON) -m tests.matrix $(LEG)

golden: test-tools  ## write tests/golden anew, the cards of a dozen runs and their pictures: read the difference
	TFOS_TEST_GOLDEN=write $(PYTHON) -m pytest tests/notebook/test_golden.py tests/browser/test_golden.py

test-tools: setup  ## install what the tests need beyond setup: Chromium
	@.ci/test-tools

check: setup  ## lint, formatting, types (Python and TypeScript), import layers, and the page of faults, in seconds
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PYTHON) -m pytest --quiet tests/faults/test_table.py -k page  # it names tests, which may have other names now
	$(PYTHON) extensions/build.py check

format: setup  ## format the code, and fix what ruff can fix
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

bench: setup  ## benchmarks side by side; writes benchmarks/results.json; or some: make bench ARGS=storage
	@$(PYTHON) -m benchmarks $(ARGS)

scale: setup  ## 512 and 4,096 acted nodes on one driver: what they cost it; writes benchmarks/results.json
	@$(PYTHON) -m benchmarks scale

gallery: setup  ## the tutorials executed, with their outputs, in gallery/: some minutes; or one: make gallery ARGS=04
	@$(PYTHON) .ci/gallery.py $(ARGS)

pictures: test-tools  ## take the pictures of the tutorials anew, in JupyterLab: some minutes; or some: make pictures ARGS="slow hangs"
	@$(PYTHON) .ci/pictures.py $(ARGS)

# With --quiet, MkDocs would count no warnings, and a wrong link would pass.
docs: setup  ## the site of the documents, in site/; fails on a link that leads nowhere
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build && echo "Open site/index.html"

lock: setup  ## update requirements.lock from pyproject.toml, keeping versions that still fit
	.venv/bin/uv pip compile pyproject.toml --group dev --group docs --all-extras --universal --python-version 3.11 \
	  --no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.lock

clean:  ## remove .venv and all that tools have made
	rm -rf .venv .venv-peers .venv-matrix build dist site gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  tests/artefacts runs metastore_db spark-warehouse artifacts tfos_lab/notebook/display/static \
	  $(addprefix extensions/,node_modules .yarn build.log jupyterlab/lib jupyterlab/labextension)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
