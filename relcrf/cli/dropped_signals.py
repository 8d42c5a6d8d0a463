"""Resending of signals: Python discards an exception that a signal handler raises in a C callback or a finalizer."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

RESEND_DELAY = 0.1
"""Delay before resending, in seconds. After a shorter delay, Python may still be handling the lost exception."""


@contextmanager
def resend_dropped_signals(number: int, exception: type[BaseException]) -> Iterator[list[int]]:
    """Resend a signal until the exception that its handler raises is not lost; yield the list of received signals.

    If another exception occurs, the list shows whether a signal may be the cause, e.g. one that interrupted a compiler.

    Args:
        number: Number of the signal.
        exception: Type of the exception that the handler of the signal raises; no other code may raise it.
    """
    received: list[int] = []
    previous_hook, main, handler = sys.unraisablehook, threading.main_thread().ident, signal.getsignal(number)
    lock, active, in_hook, missed = threading.Lock(), True, False, False

    def send() -> None:
        with lock:  # a signal sent after the context could reach the default handler, which terminates the process
            if main is not None and active:
                signal.pthread_kill(main, number)

    def handle(signal_number: int, frame: FrameType | None) -> None:
        nonlocal missed
        if in_hook:  # an exception raised in the hook would also be lost
            missed = True
        elif callable(handler):
            received.append(signal_number)
            handler(signal_number, frame)

    def schedule_resend() -> None:
        timer = threading.Timer(RESEND_DELAY, send)
        timer.daemon = True
        timer.start()

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal in_hook, missed
        if not isinstance(unraisable.exc_value, exception):
            previous_hook(unraisable)
            return
        in_hook, missed = True, False
        schedule_resend()
        in_hook = False
        if missed:
            schedule_resend()

    is_handled = threading.current_thread() is threading.main_thread() and callable(handler)
    if is_handled:
        signal.signal(number, handle)
    sys.unraisablehook = hook
    try:
        yield received
    finally:
        with lock:
            active = False
        sys.unraisablehook = previous_hook
        if is_handled:
            signal.signal(number, handler)
