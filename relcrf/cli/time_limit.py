"""Time limits of commands: at their end comes what Ctrl-C brings, and nothing is lost that it does not lose."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from relcrf.cli.dropped_signals import sent_again
from relcrf.cli.output import complain, say_error
from relcrf.errors import ConvergenceError, Diagnostic, UsageError

INTERRUPTED = 130
"""The exit code of what Ctrl-C has ended."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class OutOfTime(KeyboardInterrupt):
    """The time is over."""


_over: list[str] = []
"""The limit that has been reached, as it was given."""


@contextmanager
def limited(time: str | None) -> Iterator[None]:
    """Ends what is inside by `OutOfTime` when the time is over; None is any time.

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
        _over[:] = [time]
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, end)
    try:
        with sent_again(signal.SIGALRM, OutOfTime):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def end_interrupted(what: str = "the answer is what there was") -> NoReturn:
    """Ends a command that was cut short, by Ctrl-C or by the clock, and has given what there was.

    With `--json` too it says so to people alone: its one object has been printed, and says that it was interrupted.

    Args:
        what: has been given.
    """
    if over := out_of_time(f"{what}; allow more with --time"):
        complain(over)
        raise typer.Exit(over.exit_code)
    say_error(f"interrupted; {what}")
    raise typer.Exit(INTERRUPTED)


def is_over() -> bool:
    """Whether the time has ended a command."""
    return bool(_over)


def out_of_time(kept: str = "") -> ConvergenceError | None:
    """What is said where the time is over; None where it is not.

    Args:
        kept: what there is, and how to go on.
    """
    if not _over:
        return None
    hint = kept or "allow more with --time; with --keep what has been grounded is there the next time"
    return ConvergenceError(Diagnostic("E436", f"the time of {_over.pop()} is over", hint=hint))
