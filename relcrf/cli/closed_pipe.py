"""The end of a command whose output has no reader any more, as in `relcrf --help | head`."""

from __future__ import annotations

import os
import sys

BROKEN_PIPE = 141
"""Exit code when the reader of the output has closed the pipe: 128 + SIGPIPE."""


def discard_output() -> None:
    """Redirect standard output to the null device; otherwise Python would fail to flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
