"""Signals that get lost: where one raises inside a callback of C, while something is removed, or in a compiler."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SOON = 0.01
"""Seconds."""


@contextmanager
def remembered() -> Iterator[list[int]]:
    """Tells whether Ctrl-C came inside: a compiler that it meets may raise something else in its place.

    Only where Ctrl-C does what Python makes of it, and in the main thread, where alone it comes.
    """
    came: list[int] = []
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not _is_main():
        yield came
        return

    def remember(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


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
