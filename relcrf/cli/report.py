"""The report command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from relcrf import api
from relcrf.cli.evaluate import split_of_run
from relcrf.cli.options import (
    CacheOption,
    HoldoutOptions,
    JsonOption,
    LimitOptions,
    ManifestOption,
    RunArgument,
    note_cache_use,
    run_manifest,
)
from relcrf.cli.output import format_size, print_json, print_line, print_note, show_progress
from relcrf.clustering.costs import read_costs
from relcrf.data.dataset import Dataset
from relcrf.data.split_plan import SplitPlan
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.decision_costs import DecisionCosts
from relcrf.evaluation.splits import hold_out
from relcrf.grounding.block_cache import BlockCache
from relcrf.report import page
from relcrf.report.holdout import evaluate_holdout


@dataclass(frozen=True, kw_only=True)
class ReportDataOptions(HoldoutOptions, LimitOptions):
    """The tables for the evaluation of a run, and the optional parts of the report."""

    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="SOURCE",
            help="Tables with held-out labels to evaluate the run on.",
        ),
    ] = None
    manifest: ManifestOption = None
    learning_curve: Annotated[
        bool, typer.Option("--learning-curve", help="Plot a learning curve: train on 1/8, 1/4 and 1/2 of the labels.")
    ] = False
    standard_errors: Annotated[
        bool,
        typer.Option(
            "--standard-errors", help="Compute standard errors of the largest weights; can take longer than training."
        ),
    ] = False
    explanations: Annotated[
        int,
        typer.Option(
            "--explanations",
            metavar="INT",
            min=0,
            help="Number of held-out predictions to explain by their neighbours.",
        ),
    ] = 4
    cost: Annotated[
        str | None,
        typer.Option(
            "--cost",
            metavar="COSTS",
            help="Costs of a missed value and of a false alarm, e.g. fn=10,fp=1: add thresholds.",
        ),
    ] = None
    cache: CacheOption = None

    def require_data(self) -> None:
        """Raise an error if an option requires --data and --data is missing.

        Raises:
            UsageError: --data is missing (E359).
        """
        dependent = (
            self.split,
            self.holdout,
            self.train,
            self.valid,
            self.test,
            self.folds,
            self.hide,
            self.learning_curve,
            self.standard_errors,
            self.cost,
            self.cache,
        )
        if self.data is None and any(dependent):
            message = "holdout options, --learning-curve, --standard-errors, --cost and --cache require --data"
            raise UsageError(Diagnostic("E359", message, hint="add --data with the tables"))


def report(
    run: RunArgument,
    options: ReportDataOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="The .html file to write. Default: report.html in the run folder.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an HTML report on a run: settings, held-out scores, convergence, advice.

    Example: relcrf report runs/webkb --data webkb/ --split university --holdout cornell --out webkb.html
    """
    path = out or run / "report.html"
    page.require_writable(path)
    options.require_data()
    costs = None if options.cost is None else DecisionCosts(*read_costs(options.cost))
    fit, cache, evaluation = api.load_fit(run), None if options.cache is None else BlockCache(options.cache), None
    if options.data is not None:
        with show_progress(quiet=as_json) as display:
            display.start_phase("reading tables")
            manifest = run_manifest(run, options.data, options.manifest)
            dataset = Dataset(options.data, manifest=manifest, memory=options.memory)
            grounding = fit.ground(dataset, options.budget, display.report_grounding, cache=cache)
            plan = options.holdout_plan(split_of_run(run) or dataset.split)
            held_out = None if plan is None else hold_out(grounding, plan)
            display.start_phase("evaluating held-out labels")
            evaluation = evaluate_holdout(
                fit,
                grounding,
                None if held_out is None else held_out.hidden,
                scored=None if held_out is None else held_out.test,
                options=_option_words(dataset, manifest, plan),
                with_curve=options.learning_curve,
                with_errors=options.standard_errors,
                n_explained=options.explanations,
                observe=display.report_inference,
            )
    written = page.write_report(run, path, evaluation, costs)
    n_bytes = path.stat().st_size
    if as_json:
        headlines = {one.attribute: one.text for one in written.headlines}
        facts = {"run": run, "headlines": headlines, "report": path, "bytes": n_bytes, "plots": written.plots}
        results = evaluation.predictions.measure_table().to_dicts() if evaluation and evaluation.predictions else []
        print_json({**facts, "warnings": written.warnings, "results": results})
        return
    note_cache_use(cache)
    for text in written.warnings:
        print_note(text)
    for headline in written.headlines:
        print_line(f"{headline.attribute}: {headline.text}" if len(written.headlines) > 1 else headline.text)
    print_line(f"wrote {path} ({format_size(n_bytes)}, {len(written.plots)} plots)")


def _option_words(dataset: Dataset, manifest: Path | None, plan: SplitPlan | None) -> tuple[str, ...]:
    """Return the command line options for the data and the holdout, without database passwords."""
    words = ["--data", dataset.location, *([] if manifest is None else ["--manifest", str(manifest)])]
    if plan is not None and plan != dataset.split:
        words += plan.options
    return tuple(words)
