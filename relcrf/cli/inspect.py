"""Commands that look before anything is grounded: check, plan."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import asdict
from typing import Annotated

import typer

from relcrf import api
from relcrf.cli.options import JsonOption, MemoryOption, ModelArgument, TableOptions
from relcrf.cli.output import note, print_json, say, size, table, warn, watching
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.data.store import DEFAULT_MEMORY
from relcrf.errors import BudgetError
from relcrf.execution.memory import LEARNING, WORK, available
from relcrf.graph.candidates import BYTES_OF_A_CELL
from relcrf.grounding.ground import prepare
from relcrf.grounding.preview import TemplatePlan, budget_errors
from relcrf.grounding.preview import plan as plan_templates


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
    warn(warnings)
    for text in notes:
        note(text)
    spec = found.spec
    say(
        f"{model} is well formed: {_count(spec.entities, 'entity')}, {_count(spec.relations, 'relation')}, "
        f"{_count(spec.random_relations, 'random relation')}, {_count(spec.derived, 'derived relation')}, "
        f"{_count(spec.templates, 'template')}, {_count(spec.rules, 'rule')}",
        style="green",
    )


def _count(things: Sized, noun: str) -> str:
    if len(things) != 1:
        noun = noun.removesuffix("y") + "ies" if noun.endswith("y") else noun + "s"
    return f"{len(things)} {noun}"


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
    with watching(quiet=as_json) as watch:
        watch.phase("reading tables")
        bound = bind(loaded.spec, tables.dataset)
        prepare(bound, tables.budget, watch.grounding)
        watch.phase("counting")
        rows = plan_templates(bound, tables.budget, exactly=exact)
        over = budget_errors(bound, rows, tables.budget)
    if as_json and not over:
        print_json({"templates": {row.name: asdict(row) | {"held": row.held} for row in rows}})
        return
    if not as_json:
        warn(loaded.warnings)
        for text in bound.notes:
            note(text)
        _show_plan(rows)
        _show_memory(rows, tables.dataset.store.n_bytes)
    if over:
        raise BudgetError(over)


def _show_memory(rows: Sequence[TemplatePlan], limit: int) -> None:
    """What learning will take, and whether there is as much."""
    own = [row for row in rows if not row.is_candidate]
    graph, weights = sum(row.bytes for row in own), sum(row.weights for row in own)
    cells = BYTES_OF_A_CELL * sum(row.cells for row in rows)
    needed = WORK * (min(graph, limit) + cells) + 8 * LEARNING * weights
    pieces = "in one piece" if graph <= limit else f"in shards, by --memory {size(limit)},"
    besides = " with its candidates" if cells else ""
    say(f"learning {pieces}{besides} takes about {size(needed)} of memory; {size(available())} are free")


def _show_plan(rows: Sequence[TemplatePlan]) -> None:
    columns = ["template", "bindings", "factors", "weights", "bytes", "worst hub"]
    is_repeated = any(row.rows > 1 for row in rows)
    shown = [
        (
            row.name + " (candidates)" * row.is_candidate,
            f"{'' if row.is_exact else '<= '}{row.bindings:,}",
            f"{row.factors:,}",
            f"{row.weights:,}",
            size(row.bytes),
            row.hub,
            *([f"{row.rows:,} x {row.held:,}" if row.rows > 1 else ""] if is_repeated else []),
        )
        for row in rows
    ]
    table("what it grounds into", [*columns, "rows x each"] if is_repeated else columns, shown)
