"""What a worker finds in its environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
"""There is a worker for each core; BLAS and Numba, which read this as they load, would each take all cores again."""


@contextmanager
def temporary_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables are set within, for processes that are started there, and are as before afterwards."""
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
