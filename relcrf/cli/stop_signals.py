"""Signals that stop a command: Ctrl-C, SIGTERM, and SIGHUP (SIGBREAK on Windows), which a closed terminal sends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from relcrf.cli.dropped_signals import resend_dropped_signals
from relcrf.cli.signal_watcher import watch_signals
from relcrf.execution.interruption import INTERRUPT_MERGE_SECONDS

TERMINATION_SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)

MERGE_SECONDS = 1.0
"""Seconds during which several termination signals count as one: both the system and the shell send SIGHUP when a terminal is
closed, and the second would interrupt the storage of the state."""


class TerminationSignal(KeyboardInterrupt):
    """An exception that interrupts a command as Ctrl-C does."""


@dataclass(frozen=True)
class ReceivedSignals:
    """The signals that a command received, in two lists that grow."""

    interrupts: list[int] = field(default_factory=list)
    terminations: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.interrupts or self.terminations)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that the signals stopped: 128 + the number of the signal."""
        return 128 + (self.terminations[0] if self.terminations else signal.SIGINT)


@contextmanager
def stop_on_signals() -> Iterator[ReceivedSignals]:
    """Interrupt the enclosed code and its queries by `KeyboardInterrupt` when a signal arrives; yield the received signals.

    A signal that the caller of the process ignores, as `nohup` does, is still ignored.
    """
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [n for n in TERMINATION_SIGNALS if is_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _raise_termination)
    try:
        with (
            watch_signals(),
            resend_dropped_signals(signal.SIGINT, KeyboardInterrupt, INTERRUPT_MERGE_SECONDS) as interrupts,
            resend_dropped_signals(numbers, TerminationSignal, MERGE_SECONDS) as terminations,
        ):
            yield ReceivedSignals(interrupts, terminations)
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _raise_termination(number: int, frame: FrameType | None) -> None:
    if number != signal.SIGTERM:
        _replace_closed_terminal()
    raise TerminationSignal


def _replace_closed_terminal() -> None:
    """Redirect standard output and standard error to the null device if their terminal is closed, so that writing succeeds."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)
