"""The plan command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from relcrf import api
from relcrf.backends.memory_needs import working_arrays
from relcrf.cli.flat_options import JsonOption
from relcrf.cli.options import ModelArgument, TableOptions
from relcrf.cli.output import format_size, print_json, print_line, print_notes, print_table, print_warnings
from relcrf.cli.progress import show_progress
from relcrf.data.binding import bind
from relcrf.data.store import Store
from relcrf.errors import BudgetError
from relcrf.evaluation.automatic import AutoBackend
from relcrf.execution.memory import TemplateSize, available_bytes, estimate_memory, total_bytes
from relcrf.graph.candidates import BYTES_PER_CELL
from relcrf.grounding.ground import create_relation_tables
from relcrf.grounding.preview import TemplatePlan, budget_errors, count_states
from relcrf.grounding.preview import plan_templates as plan_templates


def plan(
    model: ModelArgument,
    tables: TableOptions,
    exact: Annotated[bool, typer.Option("--exact", help="Count every join exactly, which can take long.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate the bindings, factors and memory of each template without grounding.

    Example: relcrf plan models/webkb.rcrf --data webkb/
    """
    loaded = api.load(model)
    with show_progress(quiet=as_json) as display:
        display.start_phase("reading tables")
        bound = bind(loaded.spec, tables.dataset)
        create_relation_tables(bound, tables.budget, display.report_grounding)
        display.start_phase("counting")
        rows = plan_templates(bound, tables.budget, exact=exact)
        errors = budget_errors(bound, rows, tables.budget)
    if as_json and not errors:
        print_json({"templates": {row.name: asdict(row) | {"stored_bindings": row.stored_bindings} for row in rows}})
        return
    if not as_json:
        print_warnings(loaded.warnings)
        print_notes(bound.notes)
        _print_plan(rows)
        _print_memory(rows, *count_states(bound), tables.dataset.store)
    if errors:
        raise BudgetError(errors)


def _print_memory(rows: Sequence[TemplatePlan], n_variables: int, n_states: int, store: Store) -> None:
    """Print the memory that learning needs, the largest part of it, and the memory that is available."""
    sizes = [TemplateSize(row.name, row.bytes, row.weights, row.table_cells) for row in rows if not row.is_candidate]
    cells = BYTES_PER_CELL * sum(row.cells for row in rows)
    arrays = working_arrays(AutoBackend(), sum(size.n_weights for size in sizes), learning=True)
    uses = estimate_memory(sizes, n_variables, n_states, arrays, cells)
    needed, limit = total_bytes(uses), store.working_bytes
    candidates = " with candidates" if cells else ""
    print_line(
        f"learning from the whole graph{candidates} needs about {format_size(needed)} of memory; "
        f"{format_size(available_bytes())} are available"
    )
    if uses:
        print_line(f"the largest part is the memory for {uses[0].name}: {format_size(uses[0].n_bytes)}")
    if limit is not None and needed > limit:
        print_line(
            f"--memory allows {format_size(limit)}, so learning works in shards of connected variables, or is rejected"
        )


def _print_plan(rows: Sequence[TemplatePlan]) -> None:
    columns = ["template", "bindings", "factors", "weights", "bytes", "largest hub"]
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
    print_table("estimated size of the ground graph", [*columns, "rows x bindings"] if is_repeated else columns, shown)
