"""The report command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from relcrf import api
from relcrf.cli.evaluate import split_of_run
from relcrf.cli.options import HoldoutOptions, JsonOption, LimitOptions, RunArgument, note_cache_use
from relcrf.cli.output import format_size, print_json, print_line, print_note, show_progress
from relcrf.data.dataset import Dataset
from relcrf.data.split_plan import SplitPlan
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.splits import partition_variables
from relcrf.grounding.block_cache import BlockCache
from relcrf.report import page
from relcrf.report.holdout import evaluate_holdout


@dataclass(frozen=True, kw_only=True)
class ReportDataOptions(HoldoutOptions, LimitOptions):
    """The tables whose held-out labels a run is evaluated on, and what is computed from them."""

    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="Tables: evaluate the run on labels there that it has not seen."),
    ] = None
    learning_curve: Annotated[
        bool, typer.Option("--curve", help="Train again on 1/8, 1/4 and 1/2 of the labels: a learning curve.")
    ] = False
    standard_errors: Annotated[
        bool,
        typer.Option("--errors", help="Compute standard errors of the largest weights; may take longer than learning."),
    ] = False
    cache: Annotated[
        Path | None,
        typer.Option("--keep", help="A folder of ground blocks: takes what is there, and adds what is not."),
    ] = None

    def require_data(self) -> None:
        """Reject options that need data where there is none.

        Raises:
            UsageError: There is no --data (E359).
        """
        needed = (
            self.split,
            self.holdout,
            self.folds,
            self.hide,
            self.learning_curve,
            self.standard_errors,
            self.cache,
        )
        if self.data is None and any(needed):
            message = "labels can be held out of data only, and no data is given"
            raise UsageError(Diagnostic("E359", message, hint="add --data, the tables"))


def report(
    run: RunArgument,
    options: ReportDataOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The .html file to write. Default: report.html in the run folder."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run in one HTML file: what was asked, what held-out labels say, how learning went, what to do next.

    Example: relcrf report runs/webkb --data webkb/ --split university --hold cornell --out webkb.html
    """
    place = out or run / "report.html"
    page.require_writable(place)
    options.require_data()
    fit, saved, trial = api.load_fit(run), None if options.cache is None else BlockCache(options.cache), None
    if options.data is not None:
        with show_progress(quiet=as_json) as watch:
            watch.start_phase("reading tables")
            dataset = Dataset(options.data, memory=options.memory)
            grounding = fit.ground(dataset, options.budget, watch.report_grounding, cache=saved)
            plan = options.holdout_plan(split_of_run(run) or dataset.split)
            hidden = None if plan is None else partition_variables(grounding, plan).holdout_mask(list(plan.holdout))
            watch.start_phase("asking for what is held out")
            trial = evaluate_holdout(
                fit,
                grounding,
                hidden,
                options=_option_words(dataset, plan),
                with_curve=options.learning_curve,
                with_errors=options.standard_errors,
                observe=watch.report_inference,
            )
    made = page.write_report(run, place, trial)
    n_bytes = place.stat().st_size
    if as_json:
        facts = {"run": run, "report": place, "bytes": n_bytes, "plots": made.plots}
        results = trial.predictions.measure_table().to_dicts() if trial and trial.predictions else []
        print_json({**facts, "warnings": made.warnings, "results": results})
        return
    note_cache_use(saved)
    for text in made.warnings:
        print_note(text)
    print_line(f"the report is in {place} ({format_size(n_bytes)}, {len(made.plots)} plots)")


def _option_words(dataset: Dataset, plan: SplitPlan | None) -> tuple[str, ...]:
    """Return the options that name the data and what is held out; without the password of a database."""
    words = ["--data", dataset.location]
    if plan is not None and plan != dataset.split:
        words += ["--split", plan.text, *(word for value in plan.holdout for word in ("--hold", value))]
    return tuple(words)
