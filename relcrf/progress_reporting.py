"""Progress display on terminals and in notebooks.

In a notebook, `fit` and `predict` display progress by default. In a script, request it for one call by
`model.fit(data, progress=True)`, or for any number of calls by `with relcrf.progress(): ...`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from relcrf.backends.base import Monitor
from relcrf.inference.result import Verdict
from relcrf.learning.lbfgs import OptimiserState


class ProgressMonitor(Monitor):
    """A monitor that displays the current phase and the iterations of an optimiser.

    Args:
        check: A function called before each report; it may raise an exception, e.g. for Ctrl-C.
    """

    def __init__(self, progress: Progress, check: Callable[[], None] = lambda: None) -> None:
        self.progress = progress
        self.check = check
        self.task = progress.add_task("", total=None, note="")

    def start_phase(self, name: str) -> None:
        """Display the start of a phase of unknown length."""
        self.check()
        self.progress.update(self.task, description=name, total=None, completed=0, note="")

    def report_grounding(self, template: str) -> None:
        self.start_phase(f"grounding {template}")

    def report_inference(self, verdict: Verdict) -> None:
        """Display one iteration of an inference method."""
        self.start_phase(f"inferring: {verdict.iterations:,} iterations, residual {verdict.residual:.1e}")

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        """Display one iteration of an optimiser."""
        self.check()
        self.progress.update(
            self.task,
            description=f"learning: {stage}",
            total=max_iterations,
            completed=state.iteration,
            note=f"objective {state.value:,.3f}, gradient {state.gradient_norm:.1e}",
        )


_requested: ContextVar[bool | None] = ContextVar("requested", default=None)
_current_monitor: ContextVar[ProgressMonitor | None] = ContextVar("current_monitor", default=None)
"""The monitor of the enclosing call, which nested calls share."""


@contextmanager
def progress(shown: bool = True) -> Iterator[None]:
    """Display the progress of every call in the context; `progress(False)` disables the display, even in notebooks."""
    token = _requested.set(shown)
    try:
        yield
    finally:
        _requested.reset(token)


@contextmanager
def console_progress(
    console: Console, *, disable: bool = False, check: Callable[[], None] = lambda: None
) -> Iterator[ProgressMonitor]:
    """Display progress on a console, and erase it at the end. If the console is a file or a pipe, nothing is written.

    Args:
        check: See `ProgressMonitor`.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    enabled = not disable and (console.is_terminal or console.is_jupyter)
    display = Progress(*columns, console=console, transient=True, disable=not enabled)
    with display if enabled else nullcontext():  # older versions of Rich print an empty line after a disabled display
        yield ProgressMonitor(display, check)


@contextmanager
def progress_monitor(requested: bool | None = None) -> Iterator[ProgressMonitor]:
    """Yield the monitor of a call. It is the monitor of the enclosing call or, without one, a new monitor.

    Args:
        requested: Whether to display progress; None to use the value of an enclosing `progress` context or, without a
            context, to display progress only in notebooks.
    """
    current = _current_monitor.get()
    if current is not None:
        yield current
        return
    console = Console(stderr=True)
    enabled = _requested.get() if requested is None else requested
    if console.is_jupyter:
        has_widgets = find_spec("ipywidgets") is not None  # without this package, Rich displays only a warning
        disable = not has_widgets or enabled is False
    else:
        disable = not enabled or not console.is_terminal
    with console_progress(console, disable=disable) as monitor:
        token = _current_monitor.set(monitor)
        try:
            yield monitor
        finally:
            _current_monitor.reset(token)
