# `make demo` runs the main job, `make test` passes the tests, `make test-fast` some of each package in a minute. Each makes
# .venv with the locked packages first. `make test-all` is what CI runs: it installs Spark, and every skipped test must be expected.
# `make docs` builds the site of docs/ in build/site, with packages of its own in .venv-docs.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
DOCS := .venv-docs
PYTEST := $(VENV)/bin/python -m pytest --numprocesses=2 --dist=worksteal

.PHONY: demo test test-all test-fast test-oldest lint docs lock clean

demo: $(READY)
	$(VENV)/bin/relcrf demo

lint: $(READY)
	$(VENV)/bin/ruff check relcrf datasets benchmarks tests docs
	$(VENV)/bin/mypy

test: lint
	$(PYTEST)

# The files of tests/support/fast_tier.py, less what is slow in them.
test-fast: $(READY)
	$(VENV)/bin/ruff check relcrf datasets benchmarks tests docs
	$(PYTEST) -m "not slow" $$($(VENV)/bin/python tests/support/fast_tier.py)

test-all: export RELCRF_EXPECTED_SKIPS = tests/expected_skips.txt
test-all: lint $(VENV)/.ready-spark
	$(PYTEST)

# The tests with the oldest versions that pyproject.toml allows.
test-oldest: .venv-oldest/.ready
	.venv-oldest/bin/python -m pytest --numprocesses=2 --dist=worksteal

docs: $(DOCS)/.ready
	$(DOCS)/bin/sphinx-build --quiet --fresh-env --write-all --fail-on-warning -c docs/site docs build/site
	@echo "the site is build/site/index.html"

$(READY): requirements.lock pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# Spark is 430 MB: `make demo` and `make test` do without.
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

# For maintainers: renew the locks from the bounds in pyproject.toml (needs `uv`).
lock: LOCKED := --universal --python-version 3.11 --generate-hashes --no-header
lock:
	uv pip compile pyproject.toml --extra dev $(LOCKED) --output-file requirements.lock
	uv pip compile pyproject.toml --extra dev --resolution lowest-direct $(LOCKED) --output-file requirements-oldest.lock
	uv pip compile pyproject.toml --extra spark --constraint requirements.lock $(LOCKED) --output-file requirements-spark.lock
	uv pip compile pyproject.toml --extra docs $(LOCKED) --output-file docs/site/requirements.lock

clean:
	rm -rf $(VENV) $(DOCS) demo build dist
