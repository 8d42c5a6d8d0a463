"""The warmup command."""

from __future__ import annotations

import time

from relcrf.cli.flat_options import JsonOption
from relcrf.cli.output import print_json, print_line
from relcrf.cli.progress import show_progress
from relcrf.errors import Diagnostic, UsageError
from relcrf.kernels.compile import cache_folder
from relcrf.kernels.warmup import compile_kernels, missing_kernels


def warmup(as_json: JsonOption = False) -> None:
    """Compile the numeric kernels, so that the first training starts without delay.

    Example: relcrf warmup
    """
    start = time.perf_counter()
    folder, names = cache_folder(), missing_kernels()
    if names and folder.path is None:
        hint = "set NUMBA_CACHE_DIR to a writable folder"
        raise UsageError(Diagnostic("E314", folder.note, hint=hint))
    seconds = {}
    with show_progress(quiet=as_json or not names) as display:
        for name, taken in compile_kernels(names):
            seconds[name] = taken
            display.progress.update(
                display.task, description="compiling", total=len(names), completed=len(seconds), note=name
            )
    total = time.perf_counter() - start
    if as_json:
        print_json({"folder": str(folder.path or ""), "compiled": seconds, "seconds": total})
        return
    if names:
        print_line(f"compiled {len(names)} kernels in {total:.1f} seconds; they are in {folder.path}")
    else:
        print_line("all kernels are already compiled")
