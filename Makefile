# Targets:
#   demo       run the demo
#   test       run the linters and the tests
#   test-fast  run some tests of each package, in about a minute
#   test-all   run all tests as CI does, with Spark; unexpected skips are failures
#   docs       build the documentation site in build/site, with a separate environment in .venv-docs
# Each target first creates .venv with the locked packages. The tests have three workers, because with two workers, two cores
# are idle for a quarter of the time, while tests wait for other processes.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
DOCS := .venv-docs
WORKERS := 3
PYTEST := $(VENV)/bin/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal

.PHONY: demo kernels test test-all test-fast test-oldest lint docs grammar lock clean

demo: $(READY)
	$(VENV)/bin/relcrf demo

lint: $(READY)
	$(VENV)/bin/ruff check relcrf datasets benchmarks tests docs
	$(VENV)/bin/mypy

# Compile all kernels, which tests otherwise compile when they need them.
kernels: $(READY)
	$(VENV)/bin/relcrf warmup

test: lint
	$(PYTEST)

# Run the files of tests/support/fast_tier.py, except tests marked slow.
test-fast: $(READY)
	$(VENV)/bin/ruff check relcrf datasets benchmarks tests docs
	$(PYTEST) -m "not slow" $$($(VENV)/bin/python tests/support/fast_tier.py)

test-all: export RELCRF_EXPECTED_SKIPS = tests/expected_skips.txt
test-all: lint $(VENV)/.ready-spark
	$(PYTEST)

# Run the tests with the oldest versions that pyproject.toml allows.
test-oldest: .venv-oldest/.ready
	.venv-oldest/bin/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal

docs: $(DOCS)/.ready
	$(DOCS)/bin/sphinx-build --quiet --fresh-env --write-all --fail-on-warning -c docs/site docs build/site
	@echo "the site is build/site/index.html"

$(READY): requirements.lock pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# Spark is 430 MB; `make demo` and `make test` do not install it.
$(VENV)/.ready-spark: $(READY) requirements-spark.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	touch $(VENV)/.ready-spark

$(DOCS)/.ready: docs/site/requirements.lock pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/site/requirements.lock
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(DOCS)/.ready

.venv-oldest/.ready: requirements-oldest.lock pyproject.toml
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-oldest.lock
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch .venv-oldest/.ready

# For maintainers: compute the tables of the parser from grammar/rcrf.lark.
grammar: $(READY)
	$(VENV)/bin/python -m relcrf.language.grammar

# For maintainers: update the lock files from the bounds in pyproject.toml (requires `uv`).
lock: LOCKED := --universal --python-version 3.11 --generate-hashes --no-header
lock:
	uv pip compile pyproject.toml --extra dev $(LOCKED) --output-file requirements.lock
	uv pip compile pyproject.toml --extra dev --resolution lowest-direct $(LOCKED) --output-file requirements-oldest.lock
	uv pip compile pyproject.toml --extra spark --constraint requirements.lock $(LOCKED) --output-file requirements-spark.lock
	uv pip compile pyproject.toml --extra docs $(LOCKED) --output-file docs/site/requirements.lock

clean:
	rm -rf $(VENV) $(DOCS) demo build dist
