# `make demo` runs the main job, `make test` passes the tests. Each makes .venv with the locked packages first.
# `make docs` builds the site of docs/ in build/site, with packages of its own in .venv-docs.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
DOCS := .venv-docs

.PHONY: demo test test-oldest docs lock clean

demo: $(READY)
	$(VENV)/bin/relcrf demo

test: $(READY)
	$(VENV)/bin/ruff check relcrf datasets benchmarks tests docs
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest --numprocesses=2 --dist=worksteal

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
	uv pip compile pyproject.toml --extra docs $(LOCKED) --output-file docs/site/requirements.lock

clean:
	rm -rf $(VENV) $(DOCS) demo build dist
