"""Time limits of commands. At the limit, a command stops as after Ctrl-C, and the same partial results are saved."""

from __future__ import annotations

import _thread
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from relcrf.cli.dropped_signals import resend_dropped_signals
from relcrf.cli.output import print_diagnostics, print_error_line
from relcrf.errors import ConvergenceError, Diagnostic, UsageError

INTERRUPTED = 130
"""Exit code of a command interrupted by Ctrl-C: 128 + SIGINT."""

ALARM: signal.Signals = getattr(signal, "SIGALRM", signal.SIGABRT)
"""The signal of a reached time limit. Windows has no signal for timers; SIGABRT, which nothing else raises, takes its place."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class TimeLimitReached(KeyboardInterrupt):
    """An exception that interrupts a command at its time limit."""


_reached_limits: list[str] = []
"""The reached time limit, as the user specified it; empty while the limit is not reached."""


def parse_time(time: str | None) -> float | None:
    """Return the seconds of a duration such as `90s`; None for no limit.

    Raises:
        UsageError: The text is not a valid duration.
    """
    if time is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", time.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.0 < seconds < 1e8:
        raise UsageError(
            Diagnostic("E434", f"invalid time limit '{time}'", hint="use a duration such as 90s, 10m or 2h")
        )
    return seconds


@contextmanager
def limit_time(time: str | None) -> Iterator[None]:
    """Raise `TimeLimitReached` in the enclosed code after a duration such as `90s`; None for no limit.

    Raises:
        UsageError: The text is not a valid duration.
    """
    seconds = parse_time(time)
    if time is None or seconds is None:
        yield
        return

    def handle_alarm(number: int, frame: FrameType | None) -> None:
        _reached_limits[:] = [time]
        raise TimeLimitReached

    previous_handler = signal.signal(ALARM, handle_alarm)
    try:
        with resend_dropped_signals(ALARM, TimeLimitReached), _alarm_after(seconds):
            yield
    finally:
        signal.signal(ALARM, previous_handler)


@contextmanager
def _alarm_after(seconds: float) -> Iterator[None]:
    """Send `ALARM` to the main thread after some seconds, unless the context has ended."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        return
    timer = threading.Timer(seconds, _thread.interrupt_main, args=(ALARM,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def exit_interrupted(outcome: str = "the result is incomplete") -> NoReturn:
    """Exit an interrupted command that has already printed its partial results.

    The message is printed only to standard error, even with `--json`: the printed JSON object contains the status.

    Args:
        outcome: Description of the partial results.
    """
    if error := time_limit_error(f"{outcome}; raise --time-limit"):
        print_diagnostics(error)
        raise typer.Exit(error.exit_code)
    print_error_line(f"interrupted; {outcome}")
    raise typer.Exit(INTERRUPTED)


def is_time_over() -> bool:
    """Return True if the time limit was reached."""
    return bool(_reached_limits)


def time_limit_error(recovery_hint: str = "") -> ConvergenceError | None:
    """Return the error for a reached time limit. The error is returned once: later calls return None.

    Args:
        recovery_hint: The hint of the error: where results are saved, and how to resume.
    """
    if not _reached_limits:
        return None
    hint = recovery_hint or "raise --time-limit; with --cache, ground blocks are reused in the next run"
    return ConvergenceError(Diagnostic("E436", f"the time limit of {_reached_limits.pop()} was reached", hint=hint))
