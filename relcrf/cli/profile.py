"""The profile command: a page on tables without a model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from relcrf.cli.flat_options import JsonOption, MemoryOption
from relcrf.cli.output import console, format_size, print_json, print_line, print_note, print_table
from relcrf.cli.progress import show_progress
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal.data_profile import profile_data
from relcrf.proposal.profile_page import write_profile
from relcrf.proposal.schema_diagram import schema_lines
from relcrf.report.page import require_writable


def profile(
    data: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Folder of tables, dataset.toml, database file or postgresql:// URL."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="HTML file to write.")] = Path(
        "profile.html"
    ),
    predict: Annotated[
        str | None,
        typer.Option("--predict", "-p", metavar="NAME", help="Target: Table.column, or the table of a relation."),
    ] = None,
    memory: MemoryOption = DEFAULT_MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Write an HTML page on tables: columns, missing values, keys, links, the target and suspected leaks.

    Example: relcrf profile webkb/ --out webkb.html
    """
    require_writable(out)
    started = time.perf_counter()
    with show_progress(quiet=as_json) as display:
        found = profile_data(data, predict, memory, display.start_phase)
        write_profile(out, found)
    if as_json:
        print_json({"page": out, **found.as_dict()})
        return
    rows = [(table.name, table.rows, table.n_columns, table.format) for table in found.tables]
    print_table("tables", ("table", "rows", "columns", "format"), rows)
    for line in schema_lines(found.analysis.schema, console.width - 2) if found.analysis is not None else ():
        print_line(f"  {line}")
    for balance in found.labels:
        print_line(f"{balance.name}: {balance}")
    for column, leak in found.leaks:
        print_note(f"{column} may contain the label: {leak}")
    for text in (*found.notes, *filter(None, [found.reason])):
        print_note(text)
    size = format_size(out.stat().st_size)
    print_line(f"wrote {out} ({size}) in {time.perf_counter() - started:.1f} s")
