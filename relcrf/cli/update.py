"""The update command: learn and predict again after rows of the tables changed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from relcrf.backends import run_folder
from relcrf.backends.base import MORE_ITERATIONS
from relcrf.cli.frame_output import write_frame
from relcrf.cli.options import GroundingOptions, RunArgument, SafeCsvOption, SessionOptions
from relcrf.cli.output import print_json, print_line, print_note, print_notes, print_table
from relcrf.data.frame import Frame, require_writable
from relcrf.errors import ConvergenceError, Diagnostic, UsageError
from relcrf.updating.update import Update
from relcrf.updating.update import update as update_run


def update(
    run: RunArgument,
    tables: GroundingOptions,
    session: SessionOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="Run folder to write. Default: replace RUN.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run folder at --out.")] = False,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions", metavar="PATH", help="Write predictions: .csv, .tsv, .jsonl, .parquet or .arrow."
        ),
    ] = None,
    attribute: Annotated[
        str | None, typer.Option(metavar="NAME", help="Attribute or relation to write, if there are several.")
    ] = None,
    safe_csv: SafeCsvOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 4 without convergence.")] = False,
) -> None:
    """Learn and predict again after rows of the tables were added, removed or changed, and replace the run.

    Unchanged components keep their predictions, and the weights are kept unless labels changed, where the model permits it.

    Example: relcrf update runs/webkb --data webkb/ --predictions pages.csv
    """
    target = run if out is None else out
    replaces = force or out is None
    if predictions is not None:
        require_writable(predictions)
    source = [] if "://" in tables.data else [Path(tables.data)]
    if run_folder.is_run(run):
        run_folder.require_writable(target, resume=False, force=replaces, inputs=source)
    tables = tables.for_run(run)
    with session.show_progress() as display:
        display.start_phase("reading tables")
        updated = update_run(run, tables.dataset, progress=display, budget=tables.budget, cache=tables.block_cache)
        frame = None if predictions is None else _select_table(updated, attribute)
        if strict:
            _require_convergence(updated)
        updated.save(target, force=replaces, sync=not tables.no_sync)
    notes = list(updated.notes)
    if predictions is not None and frame is not None:
        notes += write_frame(frame, predictions, safe_csv=safe_csv, sync=not tables.no_sync)
    if session.as_json:
        report = asdict(updated.report)
        queries = {name: len(table) for name, table in updated.tables.items()}
        print_json({"run": target, **report, "queries": queries, "notes": notes, "out": predictions})
        return
    tables.note_cache_use()
    print_notes(notes)
    _print_report(updated)
    written = f"; wrote {predictions}" if predictions is not None else ""
    seconds = ", ".join(f"{step} {value:.2f} s" for step, value in updated.report.seconds.items())
    print_line(f"{seconds}; wrote the run folder '{target}'{written}")


def _select_table(updated: Update, attribute: str | None) -> Frame:
    """Return the predictions of an attribute.

    Raises:
        UsageError: The name is unknown, or is missing and there are several attributes (E310).
    """
    if attribute is None and len(updated.tables) == 1:
        return next(iter(updated.tables.values()))
    matches = [table for name, table in updated.tables.items() if attribute in (name, name.partition(".")[2])]
    if len(matches) != 1:
        message = "several attributes are predicted" if attribute is None else f"unknown attribute '{attribute}'"
        hint = f"select one with --attribute: {', '.join(updated.tables)}"
        raise UsageError(Diagnostic("E310", message, hint=hint))
    return matches[0]


def _require_convergence(updated: Update) -> None:
    """Raise ConvergenceError if learning or inference did not converge."""
    backend = updated.learned.backend
    if not updated.learned.converged:
        hint = f"train again with a larger limit, e.g. --set {MORE_ITERATIONS}"
        raise ConvergenceError(Diagnostic("E401", f"learning by backend '{backend}' did not converge", hint=hint))
    if not updated.report.is_converged:
        hint = "train again with another method, --set inference=..."
        raise ConvergenceError(
            Diagnostic("E402", f"inference by backend '{backend}': {updated.report.verdict}", hint=hint)
        )


def _print_report(updated: Update) -> None:
    """Print the changes of the tables, and what was kept and computed."""
    report = updated.report
    if report.rows:
        rows = [
            (name, "" if before is None else f"{before:,}", f"{after:,}")
            for name, (before, after) in report.rows.items()
        ]
        print_table("rows of the tables", ("table", "in the run", "now"), rows)
    if report.entities:
        counts = [(name, f"{count:,}") for name, count in report.entities.items()]
        print_table("entities", ("", ""), counts)
    if report.reason:
        print_note(f"all components were grounded and inferred again: {report.reason}")
    if not updated.learned.converged:
        print_note(f"learning did not converge; train again with a larger limit, e.g. --set {MORE_ITERATIONS}")
    change = "" if report.weight_change is None else f" (largest change {report.weight_change:.3g})"
    weights = {
        "kept": "the weights were kept: labels and factors over labelled variables are the same",
        "warm start": f"the weights were learned again, starting at those of the run{change}",
        "learned": f"the weights were learned again from the usual start{change}",
    }
    print_line(f"backend {updated.learned.backend}; {weights[report.weights]}")
    joint = "" if report.joint_verdict == report.verdict else f"; column 'joint': {report.joint_verdict}"
    print_line(f"{report.inferred:,} predictions inferred ({report.verdict}{joint}), {report.kept:,} kept")
