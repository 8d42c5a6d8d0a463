"""The new command: propose a first model for a folder of tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from relcrf.cli.options import JsonOption, MemoryOption
from relcrf.cli.output import print_json, print_line, print_note, print_table, show_progress
from relcrf.data.store import DEFAULT_MEMORY
from relcrf.proposal.proposal import Proposal, write_proposal


def new(
    data: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Folder of tables, dataset.toml, database file or postgresql:// URL."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="Model file to write.")] = Path("model.rcrf"),
    predict: Annotated[
        str | None,
        typer.Option("--predict", "-p", metavar="NAME", help="Target: Table.column, or the table of a relation."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    memory: MemoryOption = DEFAULT_MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Propose a first model for a folder of tables, check the model on the tables, and write it.

    Example: relcrf new webkb/ --out webkb.rcrf --predict page.category
    """
    started = time.perf_counter()
    with show_progress(quiet=as_json) as display:
        project = write_proposal(data, out, predict, memory, force=force, progress=display.start_phase)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(_as_dict(project, seconds))
        return
    draft, target = project.draft, project.draft.analysis.target
    rows = [(f.table, f.role, f.rows, f.reason) for f in draft.analysis.schema.findings]
    print_table("interpretation of the tables", ("table", "interpreted as", "rows", "reason"), rows)
    counts = {p.name: p for p in draft.plans}
    shown = [
        (t.name, counts[t.name].bindings, counts[t.name].weights, t.comment)
        for t in draft.templates
        if t.name in counts
    ]
    print_table(f"templates for {target.name}", ("template", "bindings", "weights", "description"), shown)
    written = f"{project.model}" + (f" and {project.manifest[0]}" if project.manifest else "")
    print_line(
        f"wrote {written}: predicts {target.name} ({target.reason}); "
        f"{draft.n_variables:,} variables, {draft.n_labelled:,} labelled; {seconds:.1f} s",
    )  # fmt: skip
    for text in draft.notes:
        print_note(text)
    for command in project.commands:
        print_line(f"  {command}")


def _as_dict(project: Proposal, seconds: float) -> dict[str, object]:
    draft, analysis = project.draft, project.draft.analysis
    comments = {template.name: template.comment for template in draft.templates}
    names = ("name", "bindings", "factors", "weights", "bytes", "is_candidate")
    return {
        "model": str(project.model),
        "manifest": str(project.manifest[0]) if project.manifest else None,
        "data": project.data,
        "predict": analysis.target.name,
        "reason": analysis.target.reason,
        "others": list(analysis.alternatives),
        "tables": [
            {"table": f.table, "role": f.role, "rows": f.rows, "reason": f.reason} for f in analysis.schema.findings
        ],
        "left_out": [{"column": column, "reason": reason} for column, reason in analysis.schema.excluded_columns],
        "templates": [
            {n: getattr(plan, n) for n in names} | {"description": comments[plan.name]} for plan in draft.plans
        ],
        "tried_next": [p.name for p in draft.templates if not p.is_active],
        "variables": draft.n_variables,
        "labelled": draft.n_labelled,
        "commands": list(project.commands),
        "notes": list(draft.notes),
        "seconds": seconds,
    }
