"""Compilation of the kernels of a wheel: `python -m relcrf.kernels.portable FOLDER PATTERN`.

The kernels are compiled for all processors of an architecture, see `PORTABLE_CPU`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from numba import config

from relcrf.kernels.compile import PORTABLE_CPU
from relcrf.kernels.warmup import compile_kernels, missing_kernels


def compile_portable_kernels(folder: Path, pattern: str) -> None:
    """Compile the kernels whose names match a pattern such as `forest.*`, and write them to a folder.

    Call this function in a process that has loaded no kernels: it changes the processor for which Numba compiles.

    Raises:
        subprocess.CalledProcessError: if a worker failed; its messages are on standard error.
    """
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"NUMBA_CPU_NAME": PORTABLE_CPU, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": cache}
        config.reload_config()
        for name, seconds in compile_kernels([name for name in missing_kernels() if fnmatch(name, pattern)]):
            print(f"compiled {name} in {seconds:.1f} s", flush=True)
        for path in Path(cache).rglob("*.nbc"):
            shutil.copy(path, folder)


if __name__ == "__main__":
    compile_portable_kernels(Path(sys.argv[1]), sys.argv[2])
