"""The audit command."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from relcrf import api
from relcrf.cli.frame_output import write_frame
from relcrf.cli.options import GroundingOptions, RunArgument, SafeCsvOption, SessionOptions
from relcrf.cli.output import print_json, print_line, print_note, print_notes, print_table
from relcrf.cli.progress import PrefixedMonitor
from relcrf.data.frame import require_writable
from relcrf.data.split_plan import DEFAULT_FOLDS
from relcrf.evaluation.audit import Audit, AuditSettings, find_reasons
from relcrf.evaluation.number_audit import NumberAudit, audit_numbers
from relcrf.grounding.variables import VariableBlock
from relcrf.prediction import find_variable_block


def audit(
    run: RunArgument,
    tables: GroundingOptions,
    session: SessionOptions,
    attribute: Annotated[
        str | None, typer.Option(metavar="NAME", help="Attribute or relation to audit. Default: all.")
    ] = None,
    observed: Annotated[
        str | None,
        typer.Option(metavar="VALUE", help="List only labels with this value, e.g. true for the tuples in a table."),
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="INT", min=1, help="Number of labels to print.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="Write all audited labels: .csv, .tsv, .jsonl, .parquet or .arrow."
        ),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            "--folds",
            "-k",
            metavar="INT",
            min=0,
            help="Number of folds; the weights for a fold are learned from the other folds. 0: weights of the run.",
        ),
    ] = DEFAULT_FOLDS,
    seed: Annotated[
        int, typer.Option("--seed", metavar="INT", min=0, help="Seed of the assignment of labels to folds.")
    ] = 0,
    safe_csv: SafeCsvOption = False,
) -> None:
    """List labels and numbers that the model finds improbable given all others, with a proposed value.

    Example: relcrf audit runs/webkb --data webkb/ --top 50 --out labels.csv
    """
    if out is not None:
        require_writable(out)
    fit, tables = api.load_fit(run), tables.for_run(run)
    with session.show_progress() as display:
        grounding = tables.ground(fit, display)
        if attribute is not None or out is not None:  # the file contains the labels of one attribute
            attribute = find_variable_block(grounding, attribute).name
        settings = AuditSettings(attribute, folds, seed)
        settings.require_value(grounding, observed)
        arguments = (fit.learned, grounding, settings, lambda label: PrefixedMonitor(display, label))
        if has_numbers := any(block.is_numeric for block in grounding.blocks):
            numbers = audit_numbers(*arguments)
    if has_numbers:
        _show_numbers(numbers, run, tables, session, top, out, folds, safe_csv=safe_csv)
        return
    with session.show_progress() as display:
        found = api.audit_labels(*arguments)
        display.start_phase("explaining")
        shown = {block.name: _improbable_rows(found, block, observed, top) for block in found.blocks}
    frames = {block.name: found.table(block, observed) for block in found.blocks}
    summaries = {block.name: found.summary(block) for block in found.blocks}
    if out is not None:
        (frame,) = frames.values()
        grounding.bound.notes += write_frame(frame, out, safe_csv=safe_csv, sync=not tables.no_sync)
    if session.as_json:
        columns = ("variable", "observed", "proposed", "p_observed", "p_proposed", "reason")
        facts = {
            name: {**asdict(summary), "top": [dict(zip(columns, row, strict=True)) for row in shown[name]]}
            for name, summary in summaries.items()
        }
        print_json(
            {
                "run": run,
                "folds": folds,
                "weights": found.weights,
                "audited": facts,
                "notes": grounding.bound.notes,
                "out": out,
            }
        )
        return
    tables.note_cache_use()
    print_notes(grounding.bound.notes)
    for name, summary in summaries.items():
        if shown[name]:
            columns = ("label", "observed", "proposed", "P(obs.)", "P(prop.)", "main reason for the proposed value")
            n_selected = np.count_nonzero(frames[name]["log_odds"] > 0.0)
            title = f"{name}: {len(shown[name]):,} of {n_selected:,} labels with a more probable value"
            print_table(title, columns, shown[name])
        print_line(
            f"{name}: audited {summary.labels:,} labels; {summary.improbable:,} have a more probable value; "
            f"wrong or unusual: about {summary.expected_errors:,}"
        )
        if summary.joint:
            print_note(
                f"{summary.joint:,} probabilities are approximate: labels of one component of unlabelled neighbours "
                "were left out together"
            )
    if not all(part.conditionals.verdict.is_good for part in found.parts):
        print_note("inference of unlabelled neighbours did not converge in at least one fold")
    if folds:
        print_note(
            f"weights learned by {', '.join(f'{name} {value}' for name, value in found.weights.items())}, in {folds:,} folds"
        )
    else:
        print_note("the weights of the run have seen these labels; --folds 5 learns weights without them")
    if out is not None:
        print_line(f"wrote {out}")


def _show_numbers(
    found: NumberAudit,
    run: Path,
    tables: GroundingOptions,
    session: SessionOptions,
    top: int,
    out: Path | None,
    folds: int,
    *,
    safe_csv: bool,
) -> None:
    """Print the most improbable numbers of each attribute, and write the file."""
    frames = {block.name: found.table(block) for block in found.blocks}
    summaries = {block.name: found.summary(block) for block in found.blocks}
    notes = found.grounding.bound.notes
    if out is not None:
        (frame,) = frames.values()
        notes += write_frame(frame, out, safe_csv=safe_csv, sync=not tables.no_sync)
    columns = ("observed", "expected", "deviation", "distance")
    shown = {}
    for block in found.blocks:
        first = found.select(block)[0][:top]
        names, frame = found.grounding.variable_names(first).tolist(), frames[block.name]
        shown[block.name] = list(zip(names, *(frame[name][:top].tolist() for name in columns), strict=True))
    if session.as_json:
        facts = {
            name: {
                **asdict(summary),
                "top": [dict(zip(("variable", *columns), row, strict=True)) for row in shown[name]],
            }
            for name, summary in summaries.items()
        }
        weights = {"backend": found.backend}
        print_json({"run": run, "folds": folds, "weights": weights, "audited": facts, "notes": notes, "out": out})
        return
    tables.note_cache_use()
    print_notes(notes)
    for name, summary in summaries.items():
        print_table(f"{name}: the most improbable of {summary.numbers:,} numbers", ("number", *columns), shown[name])
        found_wrong = f"{summary.improbable:,} are improbable, of which at most a tenth are expected to be right"
        text = found_wrong if summary.improbable else "none is improbable"
        print_line(f"{name}: audited {summary.numbers:,} numbers; {text}")
    if folds:
        print_note(f"weights learned by {found.backend}, in {folds:,} folds")
    else:
        print_note("the weights of the run have seen these numbers; --folds 5 learns weights without them")
    if out is not None:
        print_line(f"wrote {out}")


def _improbable_rows(found: Audit, block: VariableBlock, observed: str | None, top: int) -> list[tuple[object, ...]]:
    """Return the first labels with a more probable value: name, observed and proposed value, probabilities, main reason."""
    frame, ranked = found.table(block, observed), found.ranking(block, observed)
    first = (frame["log_odds"] > 0.0).nonzero()[0][:top]
    reasons = find_reasons(found, ranked[first])
    names = found.grounding.variable_names(ranked[first]).tolist()
    columns = [
        frame.take_rows(first)[column].tolist() for column in ("observed", "proposed", "p_observed", "p_proposed")
    ]
    return list(zip(names, *columns, [reasons.get(one, "") for one in ranked[first].tolist()], strict=True))
