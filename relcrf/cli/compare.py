"""The compare command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from relcrf import api
from relcrf.backends.base import Monitor
from relcrf.cli.evaluate import SystemSettings, settings_of, show_leaks
from relcrf.cli.options import FoldOptions, GroundingOptions, ModelArgument, SessionOptions
from relcrf.cli.output import note, print_json, say, table, warn
from relcrf.data.splits import read_split
from relcrf.evaluation.evaluations import PARTS, Evaluation
from relcrf.evaluation.predictions import MAJORITY, Difference
from relcrf.evaluation.runner import SystemResult
from relcrf.report.comparison_plots import draw_backends
from relcrf.report.plot import require_drawable


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """The processes in which backends run."""

    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of backends at a time.")] = 1
    limit: Annotated[
        float, typer.Option("--limit", min=0.0, help="Maximum number of seconds per backend; 0 for no limit.")
    ] = 0.0
    parts: Annotated[
        int,
        typer.Option("--exact", min=0, help="Number of small parts of the graph with exact marginals to compare with."),
    ] = PARTS


def compare(
    model: ModelArgument,
    tables: GroundingOptions,
    folds: FoldOptions,
    processes: ProcessOptions,
    session: SessionOptions,
    backends: Annotated[
        str, typer.Option("--backends", "-b", help="Systems, with commas between them.")
    ] = "local,ess,pseudo,dense",
    setting: SystemSettings = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A plot of losses with their intervals, a .png file.")
    ] = None,
) -> None:
    """Compare backends on one grounding: held-out loss, seconds, memory, and how exact their marginals are.

    Example: relcrf compare models/webkb.rcrf --data webkb/ --split by=Page.university --backends local,ess,dense
    """
    names = list(dict.fromkeys(name.strip() for name in backends.split(",") if name.strip()))
    chosen = settings_of(names, setting)
    if plot is not None:
        require_drawable(plot)
    loaded = api.load(model)
    plan = folds.required_plan(tables.dataset.split or read_split("random", seed=folds.seed))
    with session.watching() as watch:
        grounding = tables.ground(loaded, watch)

        def left(what: str) -> Monitor:
            watch.phase(f"comparing: {what}")
            return Monitor()

        found = api.compare(
            grounding,
            names,
            plan,
            settings=chosen,
            jobs=processes.jobs,
            limit=processes.limit or float("inf"),
            parts=processes.parts,
            watch=left,
        )
    if plot is not None:
        draw_backends(found, plot)
    if session.as_json:
        print_json({**found.as_dict(), **found.resources_as_dict(), "jobs": processes.jobs, "plot": plot})
        return
    warn(loaded.warnings)
    tables.note_saved()
    for attribute in found.predictions.attributes:
        _show(found, attribute)
    show_leaks(found.leaks)
    if plot is not None:
        say(f"the plot is in {plot}")


def _show(found: Evaluation, attribute: str) -> None:
    """Print a row per backend, in a table of its scores and one of its costs."""
    predictions = found.predictions
    best, quality, costs = predictions.best(attribute), [], []
    for name in (MAJORITY, *found.results):
        result = found.results.get(name)
        marked = f"{name} *" if name == best else name
        if name in predictions.systems:
            estimates = predictions.estimates(name, attribute)
            gap = predictions.differences(name, best, attribute)["log_loss"]
            values = [estimates[measure].value for measure in ("log_loss", "accuracy", "roc_auc", "calibration_error")]
            texts = [f"{value:.4f}" if value == value else "" for value in values]
            quality.append((marked, texts[0], "" if name == best else _gap(gap), *texts[1:]))
        if result is not None:
            costs.append((marked, *_costs(found, name, result)))
    n, several = predictions.score(MAJORITY, attribute).n, len(found.folds) > 1
    title = f"{attribute}, {found.split}: {n:,} labels held out in {len(found.folds)} round{'s' * several}"
    table(title, ("", "log-loss", "- best", "accuracy", "AUC", "cal. error"), quality)
    table("what that takes, and how exact it is", ("", "learn", "infer", "MiB", "KL", "error", "status"), costs)
    what = "of the mean of the rounds" if several else f"bootstrap over {predictions.clusters(attribute).what}"
    note(f"* has the least log-loss; in brackets the 95 % interval of the difference from it, {what}")
    note("seconds are of the processor, all rounds together; MiB is the peak of the backend's own process")
    exact = next((one.exactness for one in found.results.values() if one.exactness is not None), None)
    if exact is not None:
        note(
            f"KL and error: mean divergence and largest error of the marginals of {exact.variables:,} variables in "
            f"{exact.parts:,} small parts of the graph, compared with the exact ones under the backend's own weights"
        )


def _gap(gap: Difference) -> str:
    """Format a difference with its interval: the mean of the folds, where there are several."""
    low, high = gap.over_folds
    if low != low:
        return f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
    return f"{0.5 * (low + high):+.3f} [{low:+.3f}, {high:+.3f}]"


def _costs(found: Evaluation, name: str, result: SystemResult) -> tuple[str, ...]:
    """Format seconds, memory, exactness and status."""
    if not result.predictions:
        return ("", "", "", "", "", result.status)
    learn, infer = found.predictions.seconds(name)
    peak = f"{result.bytes_peak / 2**20:,.0f}" if result.bytes_peak else ""
    exact = result.exactness
    errors = ("", "") if exact is None else (f"{exact.divergence:.1e}", f"{exact.largest:.1e}")
    return (f"{learn:.2f}", f"{infer:.2f}", peak, *errors, result.status)
