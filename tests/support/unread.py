"""Named pipes among files: who opens one to read waits for a writer that never comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


@contextmanager
def unread_pipe(path: Path) -> Iterator[None]:
    """A pipe that nobody may open inside. Who does reads nothing, so that the test fails and does not wait for ever."""
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
            os.close(os.open(path, os.O_RDONLY))  # lets the thread go
        thread.join()
        path.unlink()
