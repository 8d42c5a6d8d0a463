"""The compare command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relcrf import api
from relcrf.cli.cv import (
    FoldsOption,
    HideOption,
    ProtocolOption,
    RepeatsOption,
    SeedOption,
    SystemSettings,
    protocol,
    settings_of,
    show_leaks,
)
from relcrf.cli.output import (
    BUDGET,
    MEMORY,
    BudgetOption,
    DataOption,
    JsonOption,
    KeepOption,
    MemoryOption,
    ModelArgument,
    kept_blocks,
    note,
    note_kept,
    print_json,
    say,
    table,
    warn,
    watching,
)
from relcrf.cli.time_limit import TimeOption, limited
from relcrf.data.dataset import Dataset
from relcrf.evaluation.comparison import PARTS, Comparison, Outcome
from relcrf.evaluation.cross_validation import MAJORITY, Difference
from relcrf.report import intervals


def compare(
    model: ModelArgument,
    data: DataOption,
    backends: Annotated[
        str, typer.Option("--backends", "-b", help="Systems, with commas between them.")
    ] = "local,ess,pseudo,dense",
    split: ProtocolOption = None,
    folds: FoldsOption = None,
    repeats: RepeatsOption = 1,
    seed: SeedOption = 0,
    hide: HideOption = None,
    setting: SystemSettings = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Backends at work at a time.")] = 1,
    limit: Annotated[
        float, typer.Option("--limit", min=0.0, help="Seconds that a backend may take; 0: as long as it likes.")
    ] = 0.0,
    parts: Annotated[
        int,
        typer.Option("--exact", min=0, help="Small parts of the graph, in which answers are judged by the true ones."),
    ] = PARTS,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A picture of losses with their intervals, a .png file.")
    ] = None,
    keep: KeepOption = None,
    budget: BudgetOption = BUDGET,
    memory: MemoryOption = MEMORY,
    time_limit: TimeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare backends on one grounding: held-out loss, seconds, memory, and how exact their answers are.

    Example: relcrf compare models/webkb.rcrf --data webkb/ --split by=Page.university --backends local,ess,dense
    """
    names = list(dict.fromkeys(name.strip() for name in backends.split(",") if name.strip()))
    chosen = settings_of(names, setting)
    if plot is not None:
        intervals.require_drawable(plot)
    loaded = api.load(model)
    dataset = Dataset(data, memory=memory)
    plan = protocol(dataset, split, hide, folds, seed)
    saved = kept_blocks(keep)
    with watching(quiet=as_json) as watch, limited(time_limit):
        watch.phase("reading tables")
        grounding = loaded.ground(dataset, budget, keep=saved, progress=watch.grounding)

        def left(name: str, number: int) -> None:
            done = f"{name} is done, " if name else ""
            watch.phase(f"comparing: {done}{number} of {len(names)} backends left")

        found = api.compare(
            grounding,
            names,
            plan,
            repeats=repeats,
            jobs=jobs,
            limit=limit or float("inf"),
            parts=parts,
            seed=seed,
            settings=chosen,
            watch=left,
        )
    if plot is not None:
        intervals.draw(found, plot)
    if as_json:
        print_json({**found.as_dict(), "jobs": jobs, "plot": None if plot is None else str(plot)})
        return
    warn(loaded.warnings)
    note_kept(saved)
    for attribute in found.results.attributes:
        _show(found, attribute)
    show_leaks(found.leaks)
    if plot is not None:
        say(f"the plot is in {plot}")


def _show(found: Comparison, attribute: str) -> None:
    """A row for each backend, in a table of what it reaches and one of what it takes."""
    best, quality, costs = found.best(attribute), [], []
    for name in (MAJORITY, *found.outcomes):
        outcome = found.outcomes.get(name)
        marked = f"{name} *" if name == best else name
        if name in found.results.answers:
            figures, gap = (
                found.results.figures(name, attribute),
                found.results.differences(name, best, attribute)["log_loss"],
            )
            shown = [figures[measure].value for measure in ("log_loss", "accuracy", "roc_auc", "calibration_error")]
            texts = [f"{value:.4f}" if value == value else "" for value in shown]
            quality.append((marked, texts[0], "" if name == best else _gap(gap), *texts[1:]))
        if outcome is not None:
            costs.append((marked, *_costs(found, name, outcome)))
    n = len(found.results.pooled(MAJORITY, attribute).truth)
    title = f"{attribute}, {found.protocol}: {n:,} labels held out in {len(found.rounds)} round{'s' * (len(found.rounds) > 1)}"
    table(title, ("", "log-loss", "- best", "accuracy", "AUC", "cal. error"), quality)
    table("what that takes, and how exact it is", ("", "learn", "infer", "MiB", "KL", "error", "status"), costs)
    several = len(found.rounds) > 1
    what = "the mean of the rounds" if several else f"draws of the {found.results.clusters(attribute).what}"
    note(f"* has the least log-loss; in brackets the interval of 95 % of the difference from it, by {what}")
    note("seconds are of the processor, all rounds together; MiB is the peak of the backend's own process")
    exact = next((one.exactness for one in found.outcomes.values() if one.exactness is not None), None)
    if exact is not None:
        note(
            f"KL and error: mean divergence and largest error of the marginals of {exact.variables:,} variables in "
            f"{exact.parts:,} small parts of the graph, beside the true ones under the backend's own weights"
        )


def _gap(gap: Difference) -> str:
    """A difference with its interval: the mean of the rounds, where there are several."""
    low, high = gap.over_folds
    if low != low:
        return f"{gap.value:+.3f} [{gap.interval[0]:+.3f}, {gap.interval[1]:+.3f}]"
    return f"{0.5 * (low + high):+.3f} [{low:+.3f}, {high:+.3f}]"


def _costs(found: Comparison, name: str, outcome: Outcome) -> tuple[str, ...]:
    """Seconds, memory, exactness and status."""
    if not outcome.answers:
        return ("", "", "", "", "", outcome.status)
    learn, infer = found.results.seconds(name)
    peak = f"{outcome.bytes_peak / 2**20:,.0f}" if outcome.bytes_peak else ""
    exact = outcome.exactness
    judged = ("", "") if exact is None else (f"{exact.divergence:.1e}", f"{exact.largest:.1e}")
    return (f"{learn:.2f}", f"{infer:.2f}", peak, *judged, outcome.status)
