"""Environment variables of worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
"""Variables that limit BLAS and Numba to one thread in a worker, because there is one worker per core."""


@contextmanager
def temporary_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started in the context; restore the previous values afterwards."""
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
