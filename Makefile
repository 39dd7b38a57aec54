# Two commands set up a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-all test-versions judges check docs report-picture docs-site wheel golden bench fuzz mutants ops protos clean

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "deploykit needs Python 3.11 or later; run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(READY)  ## create .venv and install deploykit with what its tests need

demo: setup  ## run the main job on the embedded model
	$(BIN)/python models/fashion/demo.py

# Several processes, of which each starts TensorFlow once and takes whole files, in their order: by
# default those with the fewest tests come last, and one process would wait for the longest of them.
# One that was ended, as a test hung, is not replaced: its successor would begin with the same test.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder

# All sessions of a target have one seed.
SEED := $(or $(DEPLOYKIT_TEST_SEED),$(shell date +%s))
test test-slow test-all: export DEPLOYKIT_TEST_SEED = $(SEED)

# The tests start hundreds of processes, each of which would compile what it imports where the user's
# environment forbids Python to keep that.
test: setup  ## run the quick tests (SHUFFLE=1: files in random order; SEED=N: the same order again)
	$(BIN)/python -m compileall -q deploykit serving transforms tests
	$(PYTEST) $(if $(SHUFFLE),--shuffle-files)

# One file of them takes a few minutes at most, so whole files keep all cores at work here too, and
# what a file shares, such as a model or a server, is made once. Tests that measure which of two is
# faster come afterwards, when nothing else runs.
SLOW := -rs --durations 20
ALONE := $(BIN)/python -m pytest $(SLOW) -m

test-slow: setup  ## run the long tests, with a random sample of the combinations (SEED=N: the same sample again)
	$(PYTEST) $(SLOW) -m 'slow and not full and not alone'; run=$$?; $(ALONE) 'slow and not full and alone' && exit $$run

# The combinations are independent, and a file has thousands: any worker may run any of them.
test-all: setup  ## run the long tests, with all combinations: takes a day
	$(PYTEST) $(SLOW) --dist worksteal -m '(slow or full) and not alone'; run=$$?; $(ALONE) '(slow or full) and alone' && exit $$run

test-versions:  ## run the main path in fresh environments of several TensorFlow and Python versions
	$(PYTHON) -m tests.versions $(PAIRS)

judges: setup  ## ask the server with clients of others, and import them beside deploykit
	$(BIN)/python -m pytest -m 'slow or full' -rs tests/serving/judges tests/transforms/ir

check: setup  ## format, lint, types, and whether the generated pages of docs/ are up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m docs.generator --check

docs: setup  ## write the generated pages of docs/
	$(BIN)/python -m docs.generator

report-picture: setup  ## write docs/report.png, as wide as a phone, from a new report of the embedded model (needs Chromium)
	cd models/fashion && ../../$(BIN)/deploykit ship fashion.keras --calibration test_1000.npz --evaluation test_1000.npz --budget 3 -o ../../build/fashion.ship
	echo '<body style="margin: 0"><iframe src="fashion.ship/report.html" style="border: 0; width: 360px; height: 700px">' > build/phone.html
	chromium --headless --no-sandbox --hide-scrollbars --force-device-scale-factor=2 --window-size=520,700 --screenshot=docs/report.png file://$(CURDIR)/build/phone.html
	$(BIN)/python -c "from PIL import Image; Image.open('docs/report.png').convert('RGB').crop((0, 60, 720, 1056)).quantize(32).save('docs/report.png', optimize=True)"

SITE := build/site-venv

docs-site:  ## build the documentation site in build/site and check its links
	test -x $(SITE)/bin/zensical || ($(PYTHON) -m venv $(SITE) && $(SITE)/bin/python -m pip install --quiet --disable-pip-version-check 'zensical>=0.0.73')
	rm -rf build/site build/site-pages && mkdir -p build/site-pages
	git ls-files -z '*.md' 'docs/*.png' 'docs/*.css' LICENSE | xargs -0 cp --parents -t build/site-pages
	cp docs/mkdocs.yml build/
	$(SITE)/bin/zensical build --strict -f build/mkdocs.yml

# By the build backend of .venv, so that it needs no network.
wheel: setup  ## build dist/tf_deploykit-VERSION-py3-none-any.whl
	rm -f dist/tf_deploykit-*.whl
	$(BIN)/python -m hatchling build -t wheel -d dist

# No other file is even imported, which would take longer than the tests.
golden: setup  ## run the tests marked golden, which write tests/golden/; then the docs/ made of them
	DEPLOYKIT_GOLDEN=write $(PYTEST) -m golden $$(grep -rl --include='test_*.py' 'mark\.golden' tests)
	$(BIN)/python -m docs.generator
	@git --no-pager diff --stat -- tests/golden docs

bench: setup  ## run the benchmarks, print their tables, write JSON to benchmark-results/
	$(BIN)/python -m tests.benchmarks

MINUTES ?= 10

fuzz: setup  ## change sound files at random for MINUTES=10, and keep in .fuzz/ what goes wrong
	$(BIN)/python -m tests.hostile.fuzz --minutes $(MINUTES)

# MUTANTS="--seed 2 --number 20 transforms/ir/graph.py", for example.
mutants: setup  ## plant simple mistakes in ten modules, and show which no test notices
	nice $(BIN)/python -m tests.mutants $(MUTANTS)

ops: setup  ## rewrite the table of ops from the installed TensorFlow
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m docs.generator.op_table

protos: setup  ## rewrite the descriptors of messages from the installed packages
	$(BIN)/python -m pip install --quiet --disable-pip-version-check grpcio-tools
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m deploykit.serving.protocol.write_descriptors

clean:  ## remove .venv and what tools left behind
	rm -rf $(VENV) build dist .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis .fuzz .versions
