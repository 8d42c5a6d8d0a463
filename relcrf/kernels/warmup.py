"""Ahead-of-time compilation of all kernels into the cache.

`python -m relcrf.kernels.warmup` is a worker process of `compile_kernels`. It imports only the kernels of relcrf.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module

from relcrf import kernels
from relcrf.kernels.compile import KERNELS, PACKAGE, Kernel

MAX_PROCESSES = 4
"""Maximum number of worker processes. A process takes a second to start, so more processes would not save time."""


def load_kernels() -> dict[str, Kernel]:
    """Import all kernel modules and return their kernels, by `module.function`."""
    for module in pkgutil.iter_modules(kernels.__path__):
        import_module(f"{kernels.__name__}.{module.name}")
    return KERNELS


def missing_kernels() -> list[str]:
    """Return the names of kernels that are not cached for all their signatures."""
    return [name for name, kernel in load_kernels().items() if not kernel.is_cached()]


def compile_kernels(names: list[str]) -> Iterator[tuple[str, float]]:
    """Compile kernels in worker processes, and store them in the cache.

    A task compiles the kernels of one module. All workers read task numbers, one byte each, from one pipe, and write
    results to another pipe.

    Yields:
        The name of each compiled kernel, and the compile time in seconds.

    Raises:
        subprocess.CalledProcessError: if a worker failed; its messages are on standard error.
    """
    tasks = _group_by_module(names)
    workers = min(len(tasks), os.cpu_count() or 1, MAX_PROCESSES)
    command = [sys.executable, "-m", __name__, json.dumps(tasks)]
    task_reader, task_writer = os.pipe()
    result_reader, result_writer = os.pipe()
    os.write(task_writer, bytes(range(len(tasks))))
    os.close(task_writer)
    with ExitStack() as running:
        processes = [
            running.enter_context(subprocess.Popen(command, stdin=task_reader, stdout=result_writer))
            for _ in range(workers)
        ]
        os.close(task_reader)
        os.close(result_writer)
        with open(result_reader) as results:
            for result in results:
                name, seconds = json.loads(result)
                yield name, seconds
    for process in processes:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)


def _group_by_module(names: list[str]) -> list[list[str]]:
    """Group kernels by module, because a module's kernels share functions; start with the longest module."""
    modules: dict[str, list[str]] = {}
    for name in names:
        modules.setdefault(name.partition(".")[0], []).append(name)
    return [modules[name] for name in sorted(modules, key=lambda name: -(PACKAGE / f"{name}.py").stat().st_size)]


def _run_tasks(tasks: list[list[str]]) -> None:
    """Read task numbers from standard input until its end, and compile the kernels of each task."""
    gc.disable()  # reduces the time by a fifth and doubles the memory of the process, which runs for seconds
    while number := os.read(sys.stdin.fileno(), 1):
        for name in tasks[number[0]]:
            import_module(f"{kernels.__name__}.{name.partition('.')[0]}")
            start = time.perf_counter()
            KERNELS[name].compile()
            result = json.dumps((name, time.perf_counter() - start)) + "\n"
            os.write(sys.stdout.fileno(), result.encode())  # one call, because the workers write to the same pipe


if __name__ == "__main__":
    # Ctrl-C interrupts the command and its workers; the command reports it, and the workers need no traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _run_tasks(json.loads(sys.argv[1]))
