"""The warmup command."""

from __future__ import annotations

import time

from relcrf.cli.options import JsonOption
from relcrf.cli.output import print_json, print_line, print_table, show_progress
from relcrf.errors import Diagnostic, UsageError
from relcrf.kernels.compile import cache_folder
from relcrf.kernels.warmup import compile_kernels, missing_kernels


def warmup(as_json: JsonOption = False) -> None:
    """Compile the numeric kernels, so that the first training starts without delay.

    Example: relcrf warmup
    """
    start = time.perf_counter()
    folder = cache_folder()
    if folder.path is None:
        hint = "set NUMBA_CACHE_DIR to a writable folder"
        raise UsageError(Diagnostic("E314", folder.note, hint=hint))
    names = missing_kernels()
    seconds = {}
    with show_progress(quiet=as_json or not names) as display:
        for name, taken in compile_kernels(names):
            seconds[name] = taken
            display.progress.update(
                display.task, description="compiling", total=len(names), completed=len(seconds), note=name
            )
    total = time.perf_counter() - start
    if as_json:
        print_json({"folder": str(folder.path), "compiled": seconds, "seconds": total})
        return
    if names:
        slowest = sorted(seconds.items(), key=lambda item: -item[1])
        print_table(f"{len(names)} kernels compiled in {total:.1f} seconds", ("kernel", "seconds"), slowest)
    else:
        print_line("all kernels are already compiled")
    print_line(f"the compiled kernels are in {folder.path}")
