"""Memory of the process: freed memory of the C library is returned to the operating system."""

import platform
from pathlib import Path

import numpy as np
import pytest

from relcrf.execution.memory import return_freed_memory


def anonymous_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library keeps freed memory")
def test_freed_memory_is_returned():
    arrays = [np.ones(8_000) for _ in range(1_000)]  # 64 kB each, which the C library does not map separately
    kept = arrays[-1]
    before = anonymous_bytes()
    del arrays
    return_freed_memory()
    assert anonymous_bytes() < before - 32_000_000
    assert (kept == 1.0).all()


def test_other_libraries_are_ignored(monkeypatch):
    monkeypatch.setattr("relcrf.execution.memory._malloc_trim", None)
    return_freed_memory()
