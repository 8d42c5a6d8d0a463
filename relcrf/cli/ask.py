"""The ask command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from relcrf import api
from relcrf.cli.flat_options import JsonOption
from relcrf.cli.frame_output import write_frame
from relcrf.cli.options import (
    GroundingOptions,
    HoldoutOptions,
    OverrideSetOption,
    RunArgument,
    SafeCsvOption,
    bindings_option,
)
from relcrf.cli.output import parse_settings, print_json, print_line, print_notes, print_table
from relcrf.cli.progress import show_progress
from relcrf.data.frame import require_writable
from relcrf.evaluation.label_requests import AbstractRequests
from relcrf.grounding.estimate import DEFAULT_BUDGET


@dataclass(frozen=True, kw_only=True)
class AskTableOptions(GroundingOptions):
    """The tables of `ask`, whose option `--budget` is the budget of labels instead of bindings."""

    budget: Annotated[int, bindings_option("--max-bindings")] = DEFAULT_BUDGET


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """The number and the cost of the labels to request."""

    label_budget: Annotated[
        int,
        typer.Option(
            "--budget", metavar="INT", min=1, help="Number of labels or, with --cost-column, their total cost."
        ),
    ] = 20
    cost: Annotated[
        str | None,
        typer.Option(
            "--cost-column", metavar="COLUMN", help="Column of the entity's table with the cost of each label."
        ),
    ] = None
    attribute: Annotated[
        str | None,
        typer.Option("--attribute", metavar="NAME", help="Attribute or relation to label, if there are several."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="Write rows to fill in: .csv, .tsv, .jsonl, .parquet or .arrow."
        ),
    ] = None


def ask(
    run: RunArgument,
    tables: AskTableOptions,
    options: RequestOptions,
    holdout: HoldoutOptions,
    setting: OverrideSetOption = None,
    safe_csv: SafeCsvOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the missing labels that would improve the predictions most, with the reason for each.

    Example: relcrf ask runs/webkb --data webkb/ --budget 20 --out labels.csv
    """
    if options.out is not None:
        require_writable(options.out)
    fit, tables = api.load_fit(run), tables.for_run(run)
    chosen = dict(parse_settings(setting))
    with show_progress(quiet=as_json) as display:
        grounding = tables.ground(fit, display)
        display.start_phase("selecting labels")
        requests = fit.ask(
            grounding,
            options.label_budget,
            attribute=options.attribute,
            cost=options.cost,
            hidden=holdout.hidden(grounding),
            **chosen,
        )
    notes = grounding.bound.notes
    if options.out is not None:
        notes += write_frame(requests.table(), options.out, safe_csv=safe_csv, sync=not tables.no_sync)
    if as_json:
        print_json({"run": run, **requests.as_dict(), "notes": notes, "out": options.out})
        return
    tables.note_cache_use()
    print_notes(notes)
    _print_requests(requests, with_cost=options.cost is not None)
    wrote = f"; wrote {options.out}" if options.out else ""
    print_line(f"selected in {requests.seconds:.2f} s ({requests.verdict}){wrote}")


def _print_requests(requests: AbstractRequests, *, with_cost: bool) -> None:
    suffix = f".{requests.block.attribute}"
    rows = [
        (
            request.variable.removesuffix(suffix),
            *request.prediction_cells,
            f"{request.gain:.2f}",
            *((f"{request.cost:g}",) if with_cost else ()),
            request.n_affected,
            request.reason,
        )
        for request in requests.requests
    ]
    missing = f"{len(requests):,} of {requests.n_candidates:,} missing labels"
    title = f"{requests.block.name}: {missing}, gain in {requests.unit}"
    costs = ("cost",) if with_cost else ()
    print_table(title, ("variable", *requests.prediction_columns, "gain", *costs, "affects", "reason"), rows)
    total = f" for a cost of {requests.total_cost:g}" if with_cost else ""
    print_line(f"{requests.summary}{total}")
