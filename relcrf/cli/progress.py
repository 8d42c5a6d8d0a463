"""The progress display of commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relcrf.backends.base import Monitor
from relcrf.cli.dropped_signals import raise_dropped_signals
from relcrf.cli.output import messages
from relcrf.learning.lbfgs import OptimiserState
from relcrf.progress_reporting import ProgressMonitor, console_progress


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[ProgressMonitor]:
    """Display progress on standard error, and erase it at the end; a report raises the exceptions of dropped signals."""
    disable = quiet or not messages.is_terminal
    with console_progress(messages, disable=disable, check=raise_dropped_signals) as monitor:
        yield monitor


class PrefixedMonitor(Monitor):
    """A monitor that displays the phases and the steps of an optimiser with a prefix."""

    def __init__(self, display: ProgressMonitor, prefix: str) -> None:
        self._display, self._prefix = display, prefix

    def start_phase(self, name: str) -> None:
        self._display.start_phase(f"{self._prefix}: {name}")

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        self._display.step(f"{self._prefix}: {stage}", state, max_iterations)
