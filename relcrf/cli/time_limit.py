"""Time limits of commands: at their end comes what Ctrl-C brings, and nothing is lost that it does not lose."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from relcrf.cli.dropped_signals import resend_dropped_signals
from relcrf.cli.output import print_diagnostics, print_error_line
from relcrf.errors import ConvergenceError, Diagnostic, UsageError

INTERRUPTED = 130
"""The exit code of what Ctrl-C has ended."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class TimeLimitReached(KeyboardInterrupt):
    """The time is over."""


_reached_limits: list[str] = []
"""The limit that has been reached, as it was given."""


@contextmanager
def limit_time(time: str | None) -> Iterator[None]:
    """Ends what is inside by `TimeLimitReached` when the time is over; None is any time.

    Raises:
        UsageError: where the text is no time.
    """
    if time is None:
        yield
        return
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", time.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0.0 < seconds < 1e8:
        raise UsageError(Diagnostic("E434", f"'{time}' is no length of time", hint="write 90s, 10m or 2h"))

    def end(number: int, frame: FrameType | None) -> None:
        _reached_limits[:] = [time]
        raise TimeLimitReached

    before = signal.signal(signal.SIGALRM, end)
    try:
        with resend_dropped_signals(signal.SIGALRM, TimeLimitReached):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def exit_interrupted(outcome: str = "the answer is what there was") -> NoReturn:
    """Ends a command that was cut short, by Ctrl-C or by the clock, and has given what there was.

    With `--json` too it says so to people alone: its one object has been printed, and says that it was interrupted.

    Args:
        outcome: has been given.
    """
    if over := time_limit_error(f"{outcome}; allow more with --time"):
        print_diagnostics(over)
        raise typer.Exit(over.exit_code)
    print_error_line(f"interrupted; {outcome}")
    raise typer.Exit(INTERRUPTED)


def is_time_over() -> bool:
    """Whether the time has ended a command."""
    return bool(_reached_limits)


def time_limit_error(recovery_hint: str = "") -> ConvergenceError | None:
    """What is said where the time is over; None where it is not.

    Args:
        recovery_hint: what there is, and how to go on.
    """
    if not _reached_limits:
        return None
    hint = recovery_hint or "allow more with --time; with --keep what has been grounded is there the next time"
    return ConvergenceError(Diagnostic("E436", f"the time of {_reached_limits.pop()} is over", hint=hint))
