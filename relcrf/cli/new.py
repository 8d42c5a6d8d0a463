"""The command that begins a project: a first model from tables alone."""

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
        str, typer.Argument(help="A folder of tables, a dataset.toml, a database file or postgresql://...")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The model to write.")] = Path("model.rcrf"),
    predict: Annotated[
        str | None,
        typer.Option("--predict", "-p", help="What to predict: Table.column, or the table of a relation."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    memory: MemoryOption = DEFAULT_MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Begin a project: propose a first model for a folder of tables, verify it on them, and write it.

    Example: relcrf new webkb/ --out webkb.rcrf --predict page.category
    """
    started = time.perf_counter()
    with show_progress(quiet=as_json) as watch:
        project = write_proposal(data, out, predict, memory, force=force, progress=watch.start_phase)
    seconds = time.perf_counter() - started
    if as_json:
        print_json(_as_dict(project, seconds))
        return
    draft, target = project.draft, project.draft.analysis.target
    rows = [(f.table, f.role, f.rows, f.reason) for f in draft.analysis.schema.findings]
    print_table("what the tables are", ("table", "taken for", "rows", "because"), rows)
    counts = {p.name: p for p in draft.plans}
    shown = [
        (t.name, counts[t.name].bindings, counts[t.name].weights, t.comment)
        for t in draft.templates
        if t.name in counts
    ]
    print_table(f"templates for {target.name}", ("template", "bindings", "weights", "what it says"), shown)
    written = f"{project.model}" + (f" and {project.manifest[0]}" if project.manifest else "")
    print_line(
        f"{written}: predicts {target.name} ({target.reason}); "
        f"{draft.n_variables:,} variables, {draft.n_labelled:,} of them labelled; {seconds:.1f} s",
    )  # fmt: skip
    for text in draft.notes:
        print_note(text)
    for command in project.commands:
        print_line(f"  {command}")


def _as_dict(project: Proposal, seconds: float) -> dict[str, object]:
    draft, idea = project.draft, project.draft.analysis
    names = ("name", "bindings", "factors", "weights", "bytes", "is_candidate")
    return {
        "model": str(project.model),
        "manifest": str(project.manifest[0]) if project.manifest else None,
        "data": project.data,
        "predict": idea.target.name,
        "reason": idea.target.reason,
        "others": list(idea.alternatives),
        "tables": [
            {"table": f.table, "role": f.role, "rows": f.rows, "reason": f.reason} for f in idea.schema.findings
        ],
        "left_out": [{"column": column, "reason": reason} for column, reason in idea.schema.excluded_columns],
        "templates": [{n: getattr(plan, n) for n in names} for plan in draft.plans],
        "tried_next": [p.name for p in draft.templates if not p.is_active],
        "variables": draft.n_variables,
        "labelled": draft.n_labelled,
        "commands": list(project.commands),
        "notes": list(draft.notes),
        "seconds": seconds,
    }
