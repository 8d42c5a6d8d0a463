"""Compiles kernels before they are needed."""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module

from relcrf import kernels
from relcrf.kernels.compile import DECLARED, Kernel

MAX_PROCESSES = 4
"""Each takes a second to start: more of them do not pay for what there is to compile."""


def every_kernel() -> dict[str, Kernel]:
    """All kernels of relcrf, by `module.function`."""
    for module in pkgutil.iter_modules(kernels.__path__):
        import_module(f"{kernels.__name__}.{module.name}")
    return DECLARED


def missing() -> list[str]:
    """The kernels that the cache lacks for some arguments that users meet."""
    return [name for name, kernel in every_kernel().items() if not kernel.is_kept()]


def compile_all(names: list[str]) -> Iterator[tuple[str, float]]:
    """Compiles kernels in a few processes, into the cache.

    Yields:
        The name of each when it is done, and its seconds.
    """
    workers = min(len(names), os.cpu_count() or 1, MAX_PROCESSES)
    if not workers:
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_compile, name) for name in names]):
            yield done.result()


def _compile(name: str) -> tuple[str, float]:
    kernel = every_kernel()[name]
    start = time.perf_counter()
    kernel.compile()
    return name, time.perf_counter() - start
