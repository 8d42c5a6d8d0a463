"""Resending of signals: an exception that a signal handler raises in a C callback or a finalizer is lost.

Python passes such an exception to a hook, which sends the signal again. C code can also clear the exception without a trace,
such as NumPy when it looks up an attribute; `raise_dropped_signals` then raises it at the next report of progress.
"""

from __future__ import annotations

import _thread
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from relcrf.cli.signal_watcher import acknowledge_signals

RESEND_DELAY = 0.1
"""Delay before resending, in seconds. After a shorter delay, Python may still be handling the lost exception."""

_raise_if_dropped: list[Callable[[], None]] = []
"""For each active `resend_dropped_signals`, a function that raises the exception of a signal received before."""


def raise_dropped_signals() -> None:
    """Raise the exception of a received signal; to be called where the program arrives only if the exception was lost."""
    for raise_if_dropped in _raise_if_dropped:
        raise_if_dropped()


def send_signal(thread: int, number: int) -> None:
    """Send a signal to the main thread; Windows does not interrupt system calls for it."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, number)
    else:
        _thread.interrupt_main(signal.Signals(number))


@contextmanager
def resend_dropped_signals(
    numbers: int | Sequence[int], exception: type[BaseException], merge_seconds: float = 0.0
) -> Iterator[list[int]]:
    """Resend a signal until the exception that its handler raises is not lost; yield the list of received signals.

    If another exception occurs, the list shows whether a signal may be the cause, e.g. one that interrupted a compiler.

    Args:
        numbers: Number of the signal, or of several signals.
        exception: Type of the exception that the handlers of the signals raise; no other code may raise it.
        merge_seconds: Seconds after a signal during which further ones are ignored, unless the exception is lost.
    """
    received: list[int] = []
    numbers = (numbers,) if isinstance(numbers, int) else numbers
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    previous_hook, main, handled_at = sys.unraisablehook, threading.main_thread().ident, -math.inf
    lock, active, in_hook, missed, resending = threading.Lock(), True, False, False, False

    def raise_if_dropped() -> None:
        if received and not resending:
            raise exception

    def send() -> None:
        with lock:  # a signal sent after the context could reach the default handler, which terminates the process
            if main is not None and active:
                send_signal(main, received[-1] if received else numbers[0])

    def handle(signal_number: int, frame: FrameType | None) -> None:
        nonlocal missed, resending, handled_at
        acknowledge_signals()
        if in_hook:  # an exception raised in the hook would also be lost
            missed = True
        elif resending or time.monotonic() - handled_at >= merge_seconds:
            received.append(signal_number)
            resending, handled_at = False, time.monotonic()
            handlers[signal_number](signal_number, frame)

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

    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    for number in handlers:
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
        for number, handler in handlers.items():
            signal.signal(number, handler)
