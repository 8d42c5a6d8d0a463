"""The pareto command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relcrf import api
from relcrf.backends.base import Monitor
from relcrf.cli.output import (
    BUDGET,
    MEMORY,
    BudgetOption,
    DataOption,
    HoldOption,
    JsonOption,
    KeepOption,
    MemoryOption,
    ModelArgument,
    SetOption,
    SplitOption,
    Watch,
    kept_blocks,
    note,
    note_kept,
    print_json,
    say,
    say_error,
    settings,
    table,
    warn,
    watching,
)
from relcrf.cli.time_limit import INTERRUPTED, TimeOption, end_interrupted, limited, out_of_time
from relcrf.data.dataset import Dataset
from relcrf.evaluation.pareto import Point, systems, unbeaten
from relcrf.evaluation.splits import split_by
from relcrf.learning.lbfgs import State
from relcrf.report import front


class Shown(Monitor):
    """Shows the optimiser's steps."""

    def __init__(self, watch: Watch, what: str) -> None:
        self._watch, self._what = watch, what

    def step(self, stage: str, state: State, max_iterations: int) -> None:
        self._watch.step(f"{self._what}: {stage}", state, max_iterations)


def pareto(
    model: ModelArgument,
    data: DataOption,
    price: Annotated[
        str, typer.Option("--price", help="Prices of a message, in loss, with commas between them: 0,1e-5,1e-4.")
    ],
    split: SplitOption = None,
    hold: HoldOption = None,
    backend: Annotated[str, typer.Option("--backend", "-b", help="The system that learns; it has gates.")] = "gated",
    setting: SetOption = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Sweeps to compare with, by their gates: static,none.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A picture of loss over messages and seconds, a .png file.")
    ] = None,
    keep: KeepOption = None,
    budget: BudgetOption = BUDGET,
    memory: MemoryOption = MEMORY,
    time_limit: TimeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn at several prices of a message, and show what loss each speed costs, by held-out labels.

    Example: relcrf pareto models/random_field.rcrf --data fields/ --split hide=0.2 --price 0,1e-4,1e-3
    """
    prices, chosen = _parts(price), settings(setting)
    sweeps: dict[str, dict[str, Any]] = {}
    for kind in (chosen, *({**chosen, "gates": gates} for gates in _parts(against or ""))):
        sweeps.setdefault(systems(backend, prices, kind)[0].gates, kind)
    if plot is not None:
        front.require_drawable(plot)
    loaded = api.load(model)
    dataset = Dataset(data, memory=memory)
    plan = dataset.split_plan(split)
    saved = kept_blocks(keep)
    points: list[Point] = []
    interrupted = False
    with watching(quiet=as_json) as watch, limited(time_limit):
        watch.phase("reading tables")
        grounding = loaded.ground(dataset, budget, keep=saved, progress=watch.grounding)
        folds = split_by(grounding, plan)
        held = list(dict.fromkeys(hold or plan.hold or folds.values))
        hidden = np.array([folds.held_out([value]) for value in held])
        for kind in sweeps.values():
            found = api.pareto(
                grounding, prices, hidden=hidden, backend=backend, watch=lambda what: Shown(watch, what), **kind
            )
            points += found.points
            interrupted = found.interrupted
            if interrupted:
                break
    if not points:
        if over := out_of_time("no price was done; allow more with --time"):
            raise over
        say_error("interrupted before a price was done")
        raise typer.Exit(INTERRUPTED)
    if plot is not None:
        front.draw(points, plot)
    if as_json:
        rows = [{**point.as_dict(), "unbeaten": best} for point, best in zip(points, unbeaten(points), strict=True)]
        facts = {"backend": backend, "split": str(plan), "held_out": held, "interrupted": interrupted}
        print_json({**facts, "points": rows, "plot": str(plot) if plot else None})
    else:
        warn(loaded.warnings)
        note_kept(saved)
        _show(points)
        if plot is not None:
            say(f"the plot is in {plot}")
    if interrupted:
        end_interrupted("these are the prices that were done")


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _show(points: list[Point]) -> None:
    """A table for each kind of gates."""
    marked = list(zip(points, unbeaten(points), strict=True))
    for gates in dict.fromkeys(point.gates for point in points):
        rows = [
            (
                f"{point.price:g}" + (" *" if best else ""),
                point.loss,
                point.accuracy,
                point.log_likelihood,
                f"{point.messages_each:.2f}",
                f"{point.open_share:.0%}",
                f"{point.seconds_learn:.2f}",
                point.seconds_infer,
            )
            for point, best in marked
            if point.gates == gates
        ]
        title = f"gates {gates}: {points[0].n:,} labels held out, {points[0].asked:,} variables asked"
        table(title, ("price", "loss", "accuracy", "log-lik.", "messages", "open", "learn", "infer"), rows)
    note("messages are for each variable asked, times in seconds; * no other has both less loss and fewer messages")
