"""The report command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from relcrf import api
from relcrf.cli.evaluate import split_of_run
from relcrf.cli.flat_options import JsonOption, ManifestOption
from relcrf.cli.options import CacheOption, HoldoutOptions, LimitOptions, note_cache_use, run_manifest
from relcrf.cli.output import format_size, print_json, print_line, print_note, print_notes
from relcrf.cli.progress import show_progress
from relcrf.clustering.costs import read_costs
from relcrf.data.dataset import Dataset
from relcrf.data.split_plan import SplitPlan
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.decision_costs import DecisionCosts
from relcrf.evaluation.run_comparison import GroundedRun, score_runs
from relcrf.evaluation.splits import hold_out, labelled_in_grounding
from relcrf.grounding.block_cache import BlockCache
from relcrf.report import page
from relcrf.report.holdout import evaluate_holdout
from relcrf.report.run_comparison import load_runs, write_comparison
from relcrf.report.tracking import find_trackers, tracked_run

DEFAULT_EXPLANATIONS = 4
"""Number of explained predictions without `--explanations`."""


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
        int | None,
        typer.Option(
            "--explanations",
            metavar="INT",
            min=0,
            help="Number of held-out predictions to explain by their neighbours. Default: 4.",
        ),
    ] = None
    cost: Annotated[
        str | None,
        typer.Option(
            "--cost",
            metavar="COSTS",
            help="Costs of a missed value and of a false alarm, e.g. fn=10,fp=1: add thresholds.",
        ),
    ] = None
    cache: CacheOption = None

    def require_several_runs(self, log: list[str] | None) -> None:
        """Raise an error if an option is set that applies only to a single run; `log` is the value of `--log`.

        Raises:
            UsageError: An option is set (E465).
        """
        named = {
            "--learning-curve": self.learning_curve,
            "--standard-errors": self.standard_errors,
            "--cost": self.cost,
            "--log": log,
            "--explanations": self.explanations is not None,
        }
        options = [option for option, is_set in named.items() if is_set]
        if options:
            message = f"{listing(options)} cannot be combined with several runs"
            hint = "remove it, or write the report of one run"
            raise UsageError(Diagnostic("E465", message, hint=hint))

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
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folder written by 'relcrf train'; several are compared.")
    ],
    options: ReportDataOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="The .html file to write. Default: report.html in the run folder; for several runs, comparison.html.",
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="TRACKER", help="Also store the figures in mlflow or wandb; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an HTML report on a run: settings, held-out scores, convergence, advice. Several runs are compared.

    Example: relcrf report runs/webkb --data webkb/ --split university --holdout cornell --out webkb.html
    """
    if len(runs) > 1:
        options.require_several_runs(log)
        compare_reported_runs(runs, options, out or Path("comparison.html"), as_json=as_json)
        return
    (run,) = runs
    path = out or run / "report.html"
    page.require_writable(path)
    options.require_data()
    trackers = find_trackers(log or [])
    costs = None if options.cost is None else DecisionCosts(*read_costs(options.cost))
    fit, cache, evaluation = api.load_fit(run), None if options.cache is None else BlockCache(options.cache), None
    if options.data is not None:
        with show_progress(quiet=as_json) as display:
            display.start_phase("reading tables")
            manifest = run_manifest(run, options.data, options.manifest)
            dataset = Dataset(options.data, manifest=manifest, memory=options.memory)
            grounding = fit.ground(dataset, options.budget, display.report_grounding, cache=cache)
            own = split_of_run(run)
            if own is not None:
                options.require_split_of_run()
            plan = options.holdout_plan(own or dataset.split)
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
                n_explained=DEFAULT_EXPLANATIONS if options.explanations is None else options.explanations,
                observe=display.report_inference,
            )
            print_notes(grounding.bound.dataset.notes)
    written = page.write_report(run, path, evaluation, costs)
    results = None if evaluation is None else evaluation.predictions
    tracked = tracked_run(run, path, results) if trackers else None
    places = [] if tracked is None else [store(tracked) for store in trackers]
    n_bytes = path.stat().st_size
    if as_json:
        headlines = {one.attribute: one.text for one in written.headlines}
        facts = {"run": run, "headlines": headlines, "report": path, "bytes": n_bytes, "plots": written.plots}
        rows = [] if results is None else results.measure_table().to_dicts()
        print_json({**facts, "warnings": written.warnings, "results": rows, "stored": places})
        return
    note_cache_use(cache)
    for text in written.warnings:
        print_note(text)
    for headline in written.headlines:
        print_line(f"{headline.attribute}: {headline.text}" if len(written.headlines) > 1 else headline.text)
    print_line(f"wrote {path} ({format_size(n_bytes)}, {len(written.plots)} plots)")
    for place in places:
        print_line(f"stored the figures in {place}")


def compare_reported_runs(folders: Sequence[Path], options: ReportDataOptions, path: Path, *, as_json: bool) -> None:
    """Write the page that compares several runs."""
    page.require_writable(path)
    options.require_data()
    runs, scores, n_labelled = load_runs(folders), None, 0
    if options.data is not None:
        with show_progress(quiet=as_json) as display:
            display.start_phase("reading tables")
            grounded = []
            cache = None if options.cache is None else BlockCache(options.cache)
            for run in runs:
                manifest = run_manifest(run.folder, options.data, options.manifest)
                dataset = Dataset(options.data, manifest=manifest, memory=options.memory)
                grounding = api.Fit(run.learned).ground(dataset, options.budget, display.report_grounding, cache=cache)
                grounded.append(GroundedRun(run.name, run.learned, grounding))
            plan = options.holdout_plan(_common_split(folders, options, grounded[0].grounding.bound.dataset.split))
            if plan is None:
                hint = "use --split COLUMN --holdout VALUE, or --split hide=0.1"
                raise UsageError(Diagnostic("E341", "no labels are held out to compare the runs on", hint=hint))
            display.start_phase("evaluating held-out labels")
            scores = score_runs(grounded, plan, display.report_inference)
            print_notes(dict.fromkeys(note for each in grounded for note in each.grounding.bound.dataset.notes))
            n_labelled = int(labelled_in_grounding(grounded[0].grounding).sum())
        note_cache_use(cache)
    written = write_comparison(runs, path, scores, n_labelled)
    n_bytes = path.stat().st_size
    if as_json:
        verdicts = {each.name: each.verdict_texts() for each in written.attributes}
        results = scores.predictions.measure_table().to_dicts() if scores else []
        facts = {"runs": [run.folder for run in runs], "verdicts": verdicts, "report": path, "bytes": n_bytes}
        print_json({**facts, "warnings": written.warnings, "results": results})
        return
    for text in written.warnings:
        print_note(text)
    for attribute in written.attributes:
        for text in attribute.verdict_texts():
            print_line(f"{attribute.name}: {text}" if len(written.attributes) > 1 else text)
    print_line(f"wrote {path} ({format_size(n_bytes)})")


def _common_split(folders: Sequence[Path], options: HoldoutOptions, default: SplitPlan | None) -> SplitPlan | None:
    """Return the split with which all runs were trained, or the default if they used none.

    Raises:
        UsageError: The splits differ, and the command line has none (E465).
    """
    splits = [split_of_run(folder) for folder in folders]
    if all(split == splits[0] for split in splits):
        return splits[0] or default
    if options.split is None and options.hide is None and options.folds is None:
        texts = (
            f"{folder}: {'none' if split is None else split.text}"
            for folder, split in zip(folders, splits, strict=True)
        )
        message = f"the runs were trained with different splits ({'; '.join(texts)})"
        raise UsageError(Diagnostic("E465", message, hint="choose the held-out labels with --split and --holdout"))
    return default


def _option_words(dataset: Dataset, manifest: Path | None, plan: SplitPlan | None) -> tuple[str, ...]:
    """Return the command line options for the data and the holdout, without database passwords."""
    words = ["--data", dataset.location, *([] if manifest is None else ["--manifest", str(manifest)])]
    if plan is not None and plan != dataset.split:
        words += plan.options
    return tuple(words)
