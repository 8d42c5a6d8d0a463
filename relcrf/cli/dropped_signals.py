"""Signals that Python drops: where one raises inside a callback of C or while something is removed, nobody hears of it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SOON = 0.01
"""Seconds."""


@contextmanager
def sent_again(number: int, raises: type[BaseException]) -> Iterator[None]:
    """Inside, a signal whose exception has been dropped comes once more, until it is heard.

    Args:
        number: of the signal. raises: what its handler raises, and nothing else does.
    """
    before, main = sys.unraisablehook, threading.main_thread().ident
    lock, listening = threading.Lock(), True

    def send() -> None:
        with lock:  # what comes after the end might find the handler that ends the process
            if main is not None and listening:
                signal.pthread_kill(main, number)

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, raises):
            again = threading.Timer(SOON, send)
            again.daemon = True
            again.start()
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        with lock:
            listening = False
        sys.unraisablehook = before
