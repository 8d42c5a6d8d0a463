"""Commands that look before anything is grounded: check, plan."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import asdict
from typing import Annotated

import typer

from relcrf import api
from relcrf.cli.options import JsonOption, MemoryOption, ModelArgument, TableOptions
from relcrf.cli.output import (
    format_size,
    print_json,
    print_line,
    print_note,
    print_table,
    print_warnings,
    show_progress,
)
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.data.store import DEFAULT_MEMORY
from relcrf.errors import BudgetError
from relcrf.execution.memory import LEARNING_VECTORS, SCRATCH_FACTOR, available_bytes
from relcrf.graph.candidates import BYTES_PER_CELL
from relcrf.grounding.ground import create_relation_tables
from relcrf.grounding.preview import TemplatePlan, budget_errors
from relcrf.grounding.preview import plan_templates as plan_templates


def check(
    model: ModelArgument,
    data: Annotated[str | None, typer.Option("--data", "-d", help="Check these tables against it, too.")] = None,
    memory: MemoryOption = DEFAULT_MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Check a model, and tables against it. Reports all mistakes at once.

    Example: relcrf check models/webkb.rcrf --data webkb/
    """
    found = api.load(model)
    warnings, notes = found.check(Dataset(data, memory=memory)) if data else (found.warnings, [])
    if as_json:
        print_json({"errors": [], "warnings": [w.as_dict() for w in warnings], "notes": notes})
        return
    print_warnings(warnings)
    for text in notes:
        print_note(text)
    spec = found.spec
    print_line(
        f"{model} is well formed: {_format_count(spec.entities, 'entity')}, {_format_count(spec.relations, 'relation')}, "
        f"{_format_count(spec.random_relations, 'random relation')}, {_format_count(spec.derived_relations, 'derived relation')}, "
        f"{_format_count(spec.templates, 'template')}, {_format_count(spec.rules, 'rule')}",
        style="green",
    )


def _format_count(items: Sized, noun: str) -> str:
    if len(items) != 1:
        noun = noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s"
    return f"{len(items)} {noun}"


def plan(
    model: ModelArgument,
    tables: TableOptions,
    exact: Annotated[bool, typer.Option("--exact", help="Count every join, however long that takes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Count what each template will ground into, before anything is grounded.

    Example: relcrf plan models/webkb.rcrf --data webkb/
    """
    loaded = api.load(model)
    with show_progress(quiet=as_json) as watch:
        watch.start_phase("reading tables")
        bound = bind(loaded.spec, tables.dataset)
        create_relation_tables(bound, tables.budget, watch.report_grounding)
        watch.start_phase("counting")
        rows = plan_templates(bound, tables.budget, exact=exact)
        over = budget_errors(bound, rows, tables.budget)
    if as_json and not over:
        print_json({"templates": {row.name: asdict(row) | {"held": row.stored_bindings} for row in rows}})
        return
    if not as_json:
        print_warnings(loaded.warnings)
        for text in bound.notes:
            print_note(text)
        _print_plan(rows)
        _print_memory(rows, tables.dataset.store.n_bytes)
    if over:
        raise BudgetError(over)


def _print_memory(rows: Sequence[TemplatePlan], limit: int) -> None:
    """What learning will take, and whether there is as much."""
    own = [row for row in rows if not row.is_candidate]
    graph, weights = sum(row.bytes for row in own), sum(row.weights for row in own)
    cells = BYTES_PER_CELL * sum(row.cells for row in rows)
    needed = SCRATCH_FACTOR * (min(graph, limit) + cells) + 8 * LEARNING_VECTORS * weights
    pieces = "in one piece" if graph <= limit else f"in shards, by --memory {format_size(limit)},"
    besides = " with its candidates" if cells else ""
    print_line(
        f"learning {pieces}{besides} takes about {format_size(needed)} of memory; {format_size(available_bytes())} are free"
    )


def _print_plan(rows: Sequence[TemplatePlan]) -> None:
    columns = ["template", "bindings", "factors", "weights", "bytes", "worst hub"]
    is_repeated = any(row.rows > 1 for row in rows)
    shown = [
        (
            row.name + " (candidates)" * row.is_candidate,
            f"{'' if row.is_exact else '<= '}{row.bindings:,}",
            f"{row.factors:,}",
            f"{row.weights:,}",
            format_size(row.bytes),
            row.hub,
            *([f"{row.rows:,} x {row.stored_bindings:,}" if row.rows > 1 else ""] if is_repeated else []),
        )
        for row in rows
    ]
    print_table("what it grounds into", [*columns, "rows x each"] if is_repeated else columns, shown)
