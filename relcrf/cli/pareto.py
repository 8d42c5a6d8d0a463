"""The pareto command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relcrf import api
from relcrf.cli.evaluate import WatchedMonitor
from relcrf.cli.options import FoldOptions, GroundingOptions, ModelArgument, SessionOptions, SetOption
from relcrf.cli.output import note, print_json, say, say_error, settings, table, warn
from relcrf.cli.time_limit import INTERRUPTED, end_interrupted, out_of_time
from relcrf.evaluation.pareto import PricePoint, systems, unbeaten
from relcrf.evaluation.splits import folds_of
from relcrf.report.comparison_plots import draw_prices
from relcrf.report.plot import require_drawable


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The prices, and the systems that learn at them."""

    price: Annotated[
        str, typer.Option("--price", help="Prices of a message, in loss, with commas between them: 0,1e-5,1e-4.")
    ]
    backend: Annotated[str, typer.Option("--backend", "-b", help="The system that learns; it has gates.")] = "gated"
    setting: SetOption = None
    against: Annotated[
        str | None, typer.Option("--against", help="Sweeps to compare with, by their gates: static,none.")
    ] = None

    def sweeps(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each sweep, by its gates.

        Raises:
            UsageError: see `systems`.
        """
        chosen, found = settings(self.setting), dict[str, dict[str, Any]]()
        for kind in (chosen, *({**chosen, "gates": gates} for gates in _parts(self.against or ""))):
            found.setdefault(systems(self.backend, self.prices, kind)[0].gates, kind)
        return found

    @property
    def prices(self) -> list[str]:
        return _parts(self.price)


def pareto(
    model: ModelArgument,
    tables: GroundingOptions,
    sweep: SweepOptions,
    held: FoldOptions,
    session: SessionOptions,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="A plot of loss over messages and seconds, a .png file.")
    ] = None,
) -> None:
    """Learn at several prices of a message, and show what loss each speed costs, by held-out labels.

    Example: relcrf pareto models/random_field.rcrf --data fields/ --split hide=0.2 --price 0,1e-4,1e-3
    """
    sweeps = sweep.sweeps()
    if plot is not None:
        require_drawable(plot)
    loaded = api.load(model)
    plan = held.required_plan(tables.dataset.split)
    points: list[PricePoint] = []
    interrupted = False
    with session.watching() as watch:
        grounding = tables.ground(loaded, watch)
        folds = folds_of(grounding, plan)
        for kind in sweeps.values():
            found = api.pareto(
                grounding,
                sweep.prices,
                folds,
                backend=sweep.backend,
                watch=lambda what: WatchedMonitor(watch, what),
                **kind,
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
        draw_prices(points, plot)
    if session.as_json:
        rows = [{**point.as_dict(), "unbeaten": best} for point, best in zip(points, unbeaten(points), strict=True)]
        facts = {"backend": sweep.backend, "split": str(plan), "held_out": [fold.name for fold in folds]}
        print_json({**facts, "interrupted": interrupted, "points": rows, "plot": plot})
    else:
        warn(loaded.warnings)
        tables.note_saved()
        _show(points)
        if plot is not None:
            say(f"the plot is in {plot}")
    if interrupted:
        end_interrupted("these are the prices that were done")


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _show(points: list[PricePoint]) -> None:
    """Print a table for each kind of gates."""
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
