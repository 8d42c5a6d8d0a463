"""The new command: propose a first model for a folder of tables."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from relcrf.cli.flat_options import JsonOption, MemoryOption
from relcrf.cli.output import console, print_json, print_line, print_note, print_notes, print_table
from relcrf.cli.progress import show_progress
from relcrf.evaluation.measures import Score
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal.aggregate_models import FORMS
from relcrf.proposal.proposal import Proposal, propose
from relcrf.proposal.schema_diagram import schema_lines
from relcrf.proposal.trial import BACKEND, NO_AGGREGATES, AggregateTrial, ModelTrial

MAX_SHOWN = 12
"""Maximum number of aggregates that are printed; --json contains all."""


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
    no_aggregates: Annotated[
        bool,
        typer.Option("--no-aggregates", help="Try no counts, sums and means over links; this is faster."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write the files without asking.")] = False,
    memory: MemoryOption = DEFAULT_MEMORY,
    as_json: JsonOption = False,
) -> None:
    """Propose a first model for a folder of tables, try it on held-out labels, and write it.

    Example: relcrf new webkb/ --out webkb.rcrf --predict page.category
    """
    started = time.perf_counter()
    with show_progress(quiet=as_json) as display:
        proposal = propose(
            data,
            out,
            predict,
            memory,
            force=force,
            with_trial=True,
            with_aggregates=not no_aggregates,
            progress=display.start_phase,
        )
    seconds = time.perf_counter() - started
    if as_json:
        proposal.write()
        print_json(_as_dict(proposal, seconds))
        return
    _print_proposal(proposal, seconds)
    files = " and ".join(f"'{path}'" for path in (proposal.model, *(proposal.manifest or ())[:1]))
    if not yes and sys.stdin.isatty() and not typer.confirm(f"Write {files}?", default=True):
        print_line("Nothing was written. To predict something else, add --predict NAME.")
        return
    proposal.write()
    print_line(f"wrote {files}; next, run:")
    for command in proposal.commands:
        print_line(f"  {command}")


def _print_proposal(proposal: Proposal, seconds: float) -> None:
    draft, analysis = proposal.draft, proposal.draft.analysis
    rows = [(f.table, f.role, f.rows, f.reason) for f in analysis.schema.findings]
    print_table("interpretation of the tables", ("table", "interpreted as", "rows", "reason"), rows)
    for line in schema_lines(analysis.schema, console.width - 2):
        print_line(f"  {line}")
    if analysis.schema.excluded_columns:
        print_table("columns that the model does not use", ("column", "reason"), analysis.schema.excluded_columns)
    counts = {p.name: p for p in draft.plans}
    shown = [
        (t.name, counts[t.name].bindings, counts[t.name].weights, t.comment)
        for t in draft.templates
        if t.name in counts
    ]
    print_table(f"templates for {analysis.target.name}", ("template", "bindings", "weights", "description"), shown)
    print_line(
        f"predicts {analysis.target.name} ({analysis.target.reason}); "
        f"{draft.n_variables:,} variables, {draft.n_labelled:,} labelled; {seconds:.1f} s",
    )  # fmt: skip
    if analysis.alternatives:
        print_line(f"other targets, for --predict: {', '.join(analysis.alternatives)}")
    if proposal.trial is not None:
        _print_trial(proposal.trial)
    print_notes(draft.notes)


def _print_trial(trial: ModelTrial) -> None:
    """Print the scores on held-out labels, with the majority value and the model without relations for comparison."""
    if trial.reason:
        print_note(f"the model was not tried on held-out labels: {trial.reason}")
        return
    first = next(iter(trial.scores.values()))
    majority = "the most frequent value" if math.isnan(first.mae) else "the mean"
    names = {"majority": majority, "local": "the model without relations", BACKEND: "the model"}
    rows = [(names[name], *_measures(score).values()) for name, score in trial.scores.items()]
    if trial.aggregates is not None:
        _print_aggregates(trial.aggregates)
    print_table(f"trial: predictions of {first.n:,} held-out labels", ("prediction", *_measures(first)), rows)


def _measures(score: Score) -> dict[str, float]:
    """Return the accuracy or the error, and the log-likelihood, by the heading of the column."""
    error = {"accuracy": score.accuracy} if math.isnan(score.mae) else {"mean absolute error": score.mae}
    return {**error, "log-likelihood": score.log_likelihood}


def _print_aggregates(trial: AggregateTrial) -> None:
    """Print the aggregates with the largest association with the labels, and the scores of the models that contain them."""
    shown = [
        (each.text, f"{association:.3f}", "yes" if is_kept else "no")
        for each, association, is_kept in trial.aggregates[:MAX_SHOWN]
    ]
    title = f"aggregates: {min(len(trial.aggregates), MAX_SHOWN)} of {trial.n_proposed} that were proposed"
    print_table(title, ("aggregate", "association", "in the model"), shown)
    names = {NO_AGGREGATES: "no aggregates", **FORMS}
    rows = [
        (
            f"{names[each.form]}{' *' if each.form == trial.chosen else ''}", *_measures(each.score).values(),
            f"{each.gain:+.4f} ± {each.standard_error:.4f}",
        )
        for each in trial.forms
        if each.score is not None
    ]  # fmt: skip
    measures = next(_measures(each.score) for each in trial.forms if each.score is not None)
    columns = ("aggregates in the model", *measures, "gain ± standard error")
    models = "models" if trial.system == BACKEND else "models without relations"
    print_table(f"{models} on the held-out labels of {trial.n_folds} of 5 folds (*: chosen)", columns, rows)
    for each in trial.forms:
        if each.score is None:
            print_note(f"{names[each.form]}: {each.reason}")
    print_line(str(trial))
    print_notes(trial.warnings)


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
        "trial": {n: score.as_dict() for n, score in project.trial.scores.items()} if project.trial else {},
        "aggregates": _aggregates_as_dict(project.trial.aggregates if project.trial else None),
        "commands": list(project.commands),
        "notes": list(draft.notes),
        "seconds": seconds,
    }


def _aggregates_as_dict(trial: AggregateTrial | None) -> dict[str, object]:
    """Return the aggregates and the scores of the models with and without them; empty if aggregates were not compared."""
    if trial is None:
        return {}
    return {
        "chosen": trial.chosen,
        "system": trial.system,
        "folds": trial.n_folds,
        "proposed": trial.n_proposed,
        "warnings": list(trial.warnings),
        "forms": [
            {**asdict(each), "score": each.score and each.score.as_dict(), "gain": each.gain if each.score else None}
            for each in trial.forms
        ],
        "aggregates": [
            {"name": each.name, "text": each.text, "association": association, "is_in_model": is_kept}
            for each, association, is_kept in trial.aggregates
        ],
    }
