"""Signals that get lost: where one raises inside a callback of C, while something is removed, or in a compiler."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

RESEND_DELAY = 0.1
"""Seconds: sooner it might come while the one before is still being dropped."""


@contextmanager
def resend_dropped_signals(number: int, exception: type[BaseException]) -> Iterator[list[int]]:
    """Send a signal again whose exception was dropped, until it is raised; yield the signals that were received.

    The list is for whoever meets another exception: a compiler that a signal interrupts may raise one of its own.

    Args:
        number: of the signal. raises: what its handler raises, and nothing else does.
    """
    received: list[int] = []
    before, main, handler = sys.unraisablehook, threading.main_thread().ident, signal.getsignal(number)
    lock, listening, dropping, missed = threading.Lock(), True, False, False

    def send() -> None:
        with lock:  # what comes after the end might find the handler that ends the process
            if main is not None and listening:
                signal.pthread_kill(main, number)

    def handle(signal_number: int, frame: FrameType | None) -> None:
        nonlocal missed
        if dropping:  # what is raised in the hook is dropped as well
            missed = True
        elif callable(handler):
            received.append(signal_number)
            handler(signal_number, frame)

    def send_soon() -> None:
        again = threading.Timer(RESEND_DELAY, send)
        again.daemon = True
        again.start()

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal dropping, missed
        if not isinstance(unraisable.exc_value, exception):
            before(unraisable)
            return
        dropping, missed = True, False
        send_soon()
        dropping = False
        if missed:
            send_soon()

    is_handled = threading.current_thread() is threading.main_thread() and callable(handler)
    if is_handled:
        signal.signal(number, handle)
    sys.unraisablehook = hook
    try:
        yield received
    finally:
        with lock:
            listening = False
        sys.unraisablehook = before
        if is_handled:
            signal.signal(number, handler)
