"""Access to a CUDA GPU through Numba. The kernels are imported on first use, because their compiler takes 0.1 to 0.2 seconds."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numba.core.errors import NumbaPerformanceWarning

from relcrf.errors import Diagnostic, UsageError

DEVICES = ("cpu", "gpu")
"""The values of the setting `device`."""

THREADS = 128
"""Number of threads per block. Every GPU runs several blocks of this size on each multiprocessor at a time."""


@cache
def load_kernels() -> ModuleType:
    """Import the module `relcrf.gpu.kernels`.

    Raises:
        UsageError: If no CUDA device or no CUDA compiler is found (E382).
    """
    try:
        found = import_module("numba.cuda").is_available()
    except ImportError:  # Numba without its built-in CUDA compiler, or with an incomplete one
        found = False
    if not found:
        hint = 'run pip install "relcrf[gpu]" on a machine with an NVIDIA GPU, or use --device cpu'
        raise UsageError(Diagnostic("E382", "no CUDA device was found", hint=hint))
    return import_module("relcrf.gpu.kernels")


def launch(kernel: Any, n_threads: int, *arguments: Any) -> None:
    """Start a kernel with at least `n_threads` threads; it does not start if there are none."""
    if n_threads:
        threads = min(THREADS, n_threads)
        with warnings.catch_warnings():
            # Numba warns of kernels that are too small to occupy the whole GPU.
            warnings.simplefilter("ignore", NumbaPerformanceWarning)
            kernel[-(-n_threads // threads), threads](*arguments)


def upload(values: np.ndarray, dtype: type) -> Any:
    """Return a copy of an array on the GPU."""
    return load_kernels().cuda.to_device(np.ascontiguousarray(values, dtype=dtype))


def allocate(size: int, dtype: type = np.float64) -> Any:
    """Return an uninitialised array on the GPU."""
    return load_kernels().cuda.device_array(size, dtype=dtype)
