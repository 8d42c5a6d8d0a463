"""Commands that inspect a model and its tables before grounding: check, plan."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from relcrf import api
from relcrf.backends.memory_needs import working_arrays
from relcrf.cli.options import JsonOption, ManifestOption, MemoryOption, ModelArgument, TableOptions
from relcrf.cli.output import (
    format_size,
    print_json,
    print_line,
    print_note,
    print_notes,
    print_table,
    print_warnings,
    show_progress,
)
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.data.store import DEFAULT_MEMORY, Store
from relcrf.errors import BudgetError, Diagnostic, ModelError
from relcrf.evaluation.automatic import AutoBackend
from relcrf.execution.memory import TemplateSize, available_bytes, estimate_memory, total_bytes
from relcrf.graph.candidates import BYTES_PER_CELL
from relcrf.grounding.ground import create_relation_tables
from relcrf.grounding.preview import TemplatePlan, budget_errors, count_states
from relcrf.grounding.preview import plan_templates as plan_templates


def check(
    models: Annotated[list[Path], typer.Argument(metavar="MODELS...", help="Models, .rcrf files.")],
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", metavar="SOURCE", help="Tables to check against the models."),
    ] = None,
    manifest: ManifestOption = None,
    memory: MemoryOption = DEFAULT_MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Check models and, with --data, tables against the models; report all errors at once.

    Example: relcrf check models/webkb.rcrf --data webkb/
    """
    loaded = _load_models(models)
    checks = [api.TableCheck([*each.warnings], [], []) for each in loaded]
    if data:
        dataset = Dataset(data, manifest=manifest, memory=memory)
        checks = [each.check_tables(dataset) for each in loaded]
    if as_json:
        _print_checks_as_json(checks, with_tables=data is not None)
        return
    for path, model, checked in zip(models, loaded, checks, strict=True):
        _print_check(path, model, checked)


def _load_models(paths: Sequence[Path]) -> list[api.Model]:
    """Load models.

    Raises:
        ModelError: Models have errors; those of all models are reported.
    """
    loaded: list[api.Model] = []
    problems: list[Diagnostic] = []
    for path in paths:
        try:
            loaded.append(api.load(path))
        except ModelError as error:
            problems += error.diagnostics
    if problems:
        raise ModelError(problems)
    return loaded


def _print_checks_as_json(checks: Sequence[api.TableCheck], *, with_tables: bool) -> None:
    tables = {"tables": [asdict(table) for checked in checks for table in checked.tables]} if with_tables else {}
    warnings = [warning.as_dict() for checked in checks for warning in checked.warnings]
    print_json({"errors": [], "warnings": warnings, "notes": [n for c in checks for n in c.notes], **tables})


def _print_check(path: Path, model: api.Model, checked: api.TableCheck) -> None:
    print_warnings(checked.warnings)
    for table in checked.tables:
        print_line(str(table))
    formats = tuple(f"{table.location}: read with" for table in checked.tables)  # the lines of the tables contain these
    for text in checked.notes:
        if not text.startswith(formats):
            print_note(text)
    spec = model.spec
    derived = _format_count(spec.derived_relations, "derived relation")
    print_line(
        f"{path} is valid: {_format_count(spec.entities, 'entity type')}, "
        f"{_format_count(spec.relations, 'relation')}, "
        f"{_format_count(spec.random_relations, 'random relation')}, {derived}, "
        f"{_format_count(spec.templates, 'template')}, {_format_count(spec.rules, 'rule')}",
        style="green",
    )


def _format_count(items: Sized, noun: str) -> str:
    return f"{len(items)} {noun}" + "s" * (len(items) != 1)


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
    uses = estimate_memory(sizes, n_variables, n_states, working_arrays(AutoBackend(), learning=True), cells)
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
