"""Compiles kernels before they are needed.

`python -m relcrf.kernels.warmup` is one of the processes that do so: it loads nothing of relcrf but kernels.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module

from relcrf import kernels
from relcrf.kernels.compile import KERNELS, PACKAGE, Kernel

MAX_PROCESSES = 4
"""Each takes a second to start: more of them do not pay for what there is to compile."""


def load_kernels() -> dict[str, Kernel]:
    """All kernels of relcrf, by `module.function`."""
    for module in pkgutil.iter_modules(kernels.__path__):
        import_module(f"{kernels.__name__}.{module.name}")
    return KERNELS


def missing_kernels() -> list[str]:
    """The kernels that the cache lacks for some arguments that users meet."""
    return [name for name, kernel in load_kernels().items() if not kernel.is_cached()]


def compile_kernels(names: list[str]) -> Iterator[tuple[str, float]]:
    """Compiles kernels in a few processes, into the cache.

    Each process takes what is to be done next from one pipe, a byte a task, and all write to another what is done.

    Yields:
        The name of each when it is done, and its seconds.

    Raises:
        subprocess.CalledProcessError: a process failed; what it had to say is on standard error.
    """
    tasks = _group_by_module(names)
    workers = min(len(tasks), os.cpu_count() or 1, MAX_PROCESSES)
    command = [sys.executable, "-m", __name__, json.dumps(tasks)]
    todo, give = os.pipe()
    take, done = os.pipe()
    os.write(give, bytes(range(len(tasks))))
    os.close(give)
    with ExitStack() as running:
        processes = [running.enter_context(subprocess.Popen(command, stdin=todo, stdout=done)) for _ in range(workers)]
        os.close(todo)
        os.close(done)
        with open(take) as answers:
            for answer in answers:
                name, seconds = json.loads(answer)
                yield name, seconds
    for process in processes:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)


def _group_by_module(names: list[str]) -> list[list[str]]:
    """Kernels by module, as those of one share functions; the longest module first, so that all processes end together."""
    modules: dict[str, list[str]] = {}
    for name in names:
        modules.setdefault(name.partition(".")[0], []).append(name)
    return [modules[name] for name in sorted(modules, key=lambda name: -(PACKAGE / f"{name}.py").stat().st_size)]


def _run_tasks(tasks: list[list[str]]) -> None:
    """Takes tasks by their number from standard input until none is left."""
    gc.disable()  # a fifth of the time, for twice the memory of a process that lives for seconds
    while number := os.read(sys.stdin.fileno(), 1):
        for name in tasks[number[0]]:
            import_module(f"{kernels.__name__}.{name.partition('.')[0]}")
            start = time.perf_counter()
            KERNELS[name].compile()
            print(json.dumps((name, time.perf_counter() - start)), flush=True)


if __name__ == "__main__":
    _run_tasks(json.loads(sys.argv[1]))
