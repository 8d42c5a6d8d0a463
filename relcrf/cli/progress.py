"""The progress display of commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relcrf.cli.dropped_signals import raise_dropped_signals
from relcrf.cli.output import messages
from relcrf.progress_reporting import ProgressMonitor, console_progress


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[ProgressMonitor]:
    """Display progress on standard error, and erase it at the end; a report raises the exceptions of dropped signals."""
    disable = quiet or not messages.is_terminal
    with console_progress(messages, disable=disable, check=raise_dropped_signals) as monitor:
        yield monitor
