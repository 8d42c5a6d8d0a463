"""Resending of signals: an exception that a signal handler raises in a C callback or a finalizer is lost.

Python passes such an exception to a hook, which sends the signal again. C code can also clear the exception without a trace,
such as NumPy when it looks up an attribute; `raise_dropped_signals` then raises it at the next report of progress.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

RESEND_DELAY = 0.1
"""Delay before resending, in seconds. After a shorter delay, Python may still be handling the lost exception."""

_raise_if_dropped: list[Callable[[], None]] = []
"""For each active `resend_dropped_signals`, a function that raises the exception of a signal received before."""


def raise_dropped_signals() -> None:
    """Raise the exception of a received signal; to be called where the program arrives only if the exception was lost."""
    for raise_if_dropped in _raise_if_dropped:
        raise_if_dropped()


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
    lock, active, in_hook, missed, resending = threading.Lock(), True, False, False, False

    def raise_if_dropped() -> None:
        if received and not resending:
            raise exception

    def send() -> None:
        with lock:  # a signal sent after the context could reach the default handler, which terminates the process
            if main is not None and active:
                signal.pthread_kill(main, number)

    def handle(signal_number: int, frame: FrameType | None) -> None:
        nonlocal missed, resending
        if in_hook:  # an exception raised in the hook would also be lost
            missed = True
        elif callable(handler):
            received.append(signal_number)
            resending = False
            handler(signal_number, frame)

    def schedule_resend() -> None:
        nonlocal resending
        resending = True
        timer = threading.Timer(RESEND_DELAY, send)
        timer.daemon = True
        timer.start()

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal in_hook, missed
        if not isinstance(unraisable.exc_value, exception):
            if not received:  # finalizers of half-initialized objects can fail after an interrupt
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
    _raise_if_dropped.append(raise_if_dropped)
    try:
        yield received
    finally:
        with lock:
            active = False
        _raise_if_dropped.remove(raise_if_dropped)
        sys.unraisablehook = previous_hook
        if is_handled:
            signal.signal(number, handler)
