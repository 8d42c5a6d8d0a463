"""The profile command: a page on tables without a model."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from relcrf.cli.options import JsonOption, MemoryOption
from relcrf.cli.output import format_size, print_json, print_line, print_note, print_table, show_progress
from relcrf.data.dataset import Dataset
from relcrf.data.store import DEFAULT_MEMORY
from relcrf.errors import UsageError
from relcrf.proposal.profile import profile_tables
from relcrf.proposal.profile_page import write_profile
from relcrf.proposal.proposal import analyse_source, propose
from relcrf.proposal.schema_diagram import schema_lines
from relcrf.proposal.table_statistics import describe_table, find_leaks
from relcrf.report.page import require_writable

MAX_VARIABLES = 200_000
"""Maximum number of variables of the target for which links and leaks are measured, which requires grounding."""


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
        try:
            analysed = analyse_source(data, predict, memory, display.start_phase)
            profiles, reason = analysed[0].tables, ""
        except UsageError as error:
            if predict is not None or error.diagnostics[0].code != "E369":
                raise
            analysed, profiles, reason = (
                None,
                tuple(profile_tables(Dataset(data, memory=memory))),
                error.diagnostics[0].message,
            )
        analysis, draft = (None if analysed is None else analysed[0]), None
        if analysis is not None and analysis.target.size <= MAX_VARIABLES:
            path, phase = Path("model.rcrf"), display.start_phase
            draft = propose(data, path, predict, memory, force=True, analysed=analysed, progress=phase).draft
        elif analysis is not None:
            reason = (
                f"links and leaks were not measured: {analysis.target.name} has more than {MAX_VARIABLES:,} variables"
            )
        display.start_phase("statistics")
        tables = [describe_table(table) for table in profiles]
        leaks = [] if draft is None else find_leaks(draft)
        write_profile(out, data, tables, analysis, draft, leaks, reason)
    if as_json:
        target = None if analysis is None else analysis.target.name
        facts = {"page": out, "predict": target, "leaks": leaks, "note": reason}
        print_json({**facts, "tables": [asdict(table) for table in tables]})
        return
    rows = [(table.name, table.rows, table.n_columns, table.format) for table in tables]
    print_table("tables", ("table", "rows", "columns", "format"), rows)
    for line in schema_lines(analysis.schema) if analysis is not None else ():
        print_line(f"  {line}")
    for column, leak in leaks:
        print_note(f"{column} may contain the label: {leak}")
    if reason:
        print_note(reason)
    size = format_size(out.stat().st_size)
    print_line(f"wrote {out} ({size}) in {time.perf_counter() - started:.1f} s")
