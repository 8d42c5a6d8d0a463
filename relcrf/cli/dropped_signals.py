"""Signals that get lost: where one raises inside a callback of C, while something is removed, or in a compiler."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SOON = 0.1
"""Seconds: sooner it might come while the one before is still being dropped."""


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
    before, main, handler = sys.unraisablehook, threading.main_thread().ident, signal.getsignal(number)
    lock, listening, dropping, missed = threading.Lock(), True, False, False

    def send() -> None:
        with lock:  # what comes after the end might find the handler that ends the process
            if main is not None and listening:
                signal.pthread_kill(main, number)

    def handle(came: int, frame: FrameType | None) -> None:
        nonlocal missed
        if dropping:  # what is raised in the hook is dropped as well
            missed = True
        elif callable(handler):
            handler(came, frame)

    def send_soon() -> None:
        again = threading.Timer(SOON, send)
        again.daemon = True
        again.start()

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal dropping, missed
        if not isinstance(unraisable.exc_value, raises):
            before(unraisable)
            return
        dropping, missed = True, False
        send_soon()
        dropping = False
        if missed:
            send_soon()

    if _is_main() and callable(handler):
        signal.signal(number, handle)
    sys.unraisablehook = hook
    try:
        yield
    finally:
        with lock:
            listening = False
        sys.unraisablehook = before
        if _is_main() and callable(handler):
            signal.signal(number, handler)
