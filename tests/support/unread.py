"""Named pipes without a writer, on which readers block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


@contextmanager
def unread_pipe(path: Path) -> Iterator[None]:
    """Create a pipe that must not be opened; a reader gets end of file, so that the test fails instead of blocking forever."""
    os.mkfifo(path)
    opened = []

    def write() -> None:
        end = os.open(path, os.O_WRONLY)
        opened.append(path)
        os.close(end)

    thread = Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
        assert not opened
    finally:
        if not opened:
            os.close(os.open(path, os.O_RDONLY))  # releases the thread
        thread.join()
        path.unlink()
