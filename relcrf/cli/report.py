"""The report command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from relcrf import api
from relcrf.backends import run_folder
from relcrf.cli.options import HoldOptions
from relcrf.cli.output import (
    BUDGET,
    MEMORY,
    BudgetOption,
    HoldOption,
    JsonOption,
    KeepOption,
    MemoryOption,
    SplitOption,
    kept_blocks,
    note,
    note_kept,
    print_json,
    say,
    size,
    watching,
)
from relcrf.data.dataset import Dataset
from relcrf.errors import Diagnostic, UsageError
from relcrf.report import page
from relcrf.report.trial import Trial, hold_trial


def report(
    run: Annotated[Path, typer.Argument(help="A run folder that 'relcrf train' wrote.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The .html file to write. Default: report.html in the run folder."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="Tables: judge the run by labels there that it has not seen."),
    ] = None,
    split: SplitOption = None,
    hold: HoldOption = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Learn again from 1/8, 1/4 and 1/2 of the labels: a learning curve.")
    ] = False,
    errors: Annotated[
        bool,
        typer.Option("--errors", help="Find standard errors of the strongest weights; may take longer than learning."),
    ] = False,
    keep: KeepOption = None,
    budget: BudgetOption = BUDGET,
    memory: MemoryOption = MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Show a run in one HTML file: what was asked, what held-out labels say, how learning went, what to do next.

    Example: relcrf report runs/webkb --data webkb/ --split university --hold cornell --out webkb.html
    """
    place = out or run / "report.html"
    page.require_writable(place)
    if data is None and (split is not None or hold or curve or errors or keep is not None):
        message = "labels can be held out of data only, and no data is given"
        raise UsageError(Diagnostic("E359", message, hint="add --data, the tables"))
    fit, made_of = api.load_fit(run), run_folder.load_provenance(run)
    if data is not None and split is None and not hold and made_of is not None and made_of.protocol.split is not None:
        # What the training did not see, unless somebody says otherwise.
        split, hold = made_of.protocol.split, list(made_of.protocol.hold)
    trial = None
    if data is not None:
        with watching(quiet=as_json) as watch:
            watch.phase("reading tables")
            dataset, saved = Dataset(data, memory=memory), kept_blocks(keep)
            grounding = fit.ground(dataset, budget, watch.grounding, keep=saved)
            hidden = HoldOptions(split=split, hold=hold).hidden(grounding)
            watch.phase("asking for what is held out")
            words = _words(dataset.place, split, hold)
            trial = hold_trial(
                fit, grounding, hidden, options=words, with_curve=curve, with_errors=errors, observe=watch.inference
            )
    made = page.write(run, place, trial)
    n_bytes = place.stat().st_size
    if as_json:
        facts = {"run": str(run), "report": str(place), "bytes": n_bytes, "plots": made.plots}
        print_json({**facts, "warnings": made.warnings, "results": _results(trial)})
        return
    if data is not None:
        note_kept(saved)
    for text in made.warnings:
        note(text)
    say(f"the report is in {place} ({size(n_bytes)}, {len(made.plots)} plots)")


def _words(place: str, split: str | None, hold: list[str] | None) -> tuple[str, ...]:
    """What of the command line says the data and what is held out; the password of a database is not in it."""
    words = ["--data", place]
    words += [] if split is None else ["--split", split]
    return (*words, *(word for value in hold or () for word in ("--hold", value)))


def _results(trial: Trial | None) -> list[dict[str, object]]:
    """What held-out labels say: one object an attribute, a system and a measure."""
    frame = None if trial is None else trial.table()
    if frame is None:
        return []
    rows = zip(*(np.asarray(column).tolist() for column in frame.columns.values()), strict=True)
    return [dict(zip(frame.columns, row, strict=True)) for row in rows]
