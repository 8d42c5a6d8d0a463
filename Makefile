# `make demo` runs the main job, `make test` passes the tests. Each makes .venv with the locked packages first.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test lock clean

demo: $(READY)
	$(VENV)/bin/relcrf demo

test: $(READY)
	$(VENV)/bin/ruff check relcrf datasets benchmarks tests
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest --numprocesses=2 --dist=worksteal

$(READY): requirements.lock pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# For maintainers: renew the lock from the bounds in pyproject.toml (needs `uv`).
lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header --output-file requirements.lock

clean:
	rm -rf $(VENV) demo build dist
