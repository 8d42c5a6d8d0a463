"""How long work goes on, shown on terminals and in notebooks.

In a notebook fitting and predicting show where they are; in a script they are silent, unless they are asked:
`model.fit(data, progress=True)`, or `with relcrf.progress(): ...` around as many calls as there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from relcrf.backends.base import Monitor
from relcrf.inference.result import Verdict
from relcrf.learning.lbfgs import OptimiserState


class ProgressMonitor(Monitor):
    """Shows what is being done now, and how an optimiser goes on."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("", total=None, note="")

    def start_phase(self, name: str) -> None:
        """Something of unknown length begins."""
        self.progress.update(self.task, description=name, total=None, completed=0, note="")

    def report_grounding(self, template: str) -> None:
        self.start_phase(f"grounding {template}")

    def report_inference(self, verdict: Verdict) -> None:
        """One round of a method of inference."""
        self.start_phase(f"inferring: {verdict.iterations:,} iterations, residual {verdict.residual:.1e}")

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        """One iteration of an optimiser."""
        self.progress.update(
            self.task,
            description=f"learning: {stage}",
            total=max_iterations,
            completed=state.iteration,
            note=f"objective {state.value:,.3f}, gradient {state.gradient_norm:.1e}",
        )


_requested: ContextVar[bool | None] = ContextVar("asked", default=None)
_current_monitor: ContextVar[ProgressMonitor | None] = ContextVar("current", default=None)
"""What the calls inside show their work on."""


@contextmanager
def progress(shown: bool = True) -> Iterator[None]:
    """Shows progress of all that runs inside; `progress(False)` shows none, in a notebook either."""
    token = _requested.set(shown)
    try:
        yield
    finally:
        _requested.reset(token)


@contextmanager
def console_progress(console: Console, *, disable: bool = False) -> Iterator[ProgressMonitor]:
    """Progress on a console while something runs; gone when it is done. A file or a pipe gets none."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    seen = not disable and (console.is_terminal or console.is_jupyter)
    shown = Progress(*columns, console=console, transient=True, disable=not seen)
    with shown if seen else nullcontext():  # older versions of Rich end one that is disabled with an empty line
        yield ProgressMonitor(shown)


@contextmanager
def progress_monitor(requested: bool | None = None) -> Iterator[ProgressMonitor]:
    """What a call shows its work on, which is nothing unless somebody looks.

    Args:
        requested: by the call itself; None leaves it to `progress`, or else to where it runs.
    """
    current = _current_monitor.get()
    if current is not None:
        yield current
        return
    console = Console(stderr=True)
    wanted = _requested.get() if requested is None else requested
    if console.is_jupyter:
        can = find_spec("ipywidgets") is not None  # without it Rich shows a warning in place of the progress
        disable = not can or wanted is False
    else:
        disable = not wanted or not console.is_terminal
    with console_progress(console, disable=disable) as watch:
        token = _current_monitor.set(watch)
        try:
            yield watch
        finally:
            _current_monitor.reset(token)
