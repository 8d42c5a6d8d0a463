"""Environment variables of worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
"""Variables that limit a worker to one thread, because there is one worker per core. BLAS and Numba read them when loaded."""


@contextmanager
def temporary_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes started in the context, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
