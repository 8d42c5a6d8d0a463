"""The runs command."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from relcrf.backends.run_list import RunSummary, find_runs, summarise_run
from relcrf.cli.flat_options import JsonOption
from relcrf.cli.output import format_size, print_json, print_line, print_note, print_table
from relcrf.errors import DataError, Diagnostic


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to search, with its subfolders. Default: this folder.")
    ] = Path(),
    top: Annotated[int, typer.Option("--top", metavar="INT", min=1, help="Number of runs to print.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the run folders in a folder with their figures, newest first.

    Example: relcrf runs experiments/
    """
    if not folder.is_dir():
        hint = "pass a folder that contains run folders"
        raise DataError(Diagnostic("E334", f"'{folder}' is not a folder", hint=hint))
    found: list[RunSummary] = []
    damaged = []
    for run in find_runs(folder):
        try:
            found.append(summarise_run(run))
        except ValueError as error:
            damaged.append(str(error))
    found.sort(key=lambda each: (each.trained, each.run), reverse=True)
    if as_json:
        rows = [{**asdict(each), "trained": each.trained.isoformat()} for each in found]
        print_json({"runs": rows, "damaged": damaged})
        return
    if found:
        columns = ("run", "predicts", "backend", "labels", "accuracy", "log-lik.", "trained", "seconds", "size")
        shown = found[:top]
        more = f"; the newest {len(shown):,}" if len(shown) < len(found) else ""
        print_table(f"{len(found):,} run{'s' * (len(found) > 1)}{more}", columns, map(_cells, shown))
        print_note("accuracy, log-lik.: of the labels that training held out to choose the backend or its settings")
    else:
        print_line(f"no run folders in '{folder}'; 'relcrf train' writes them")
    for text in damaged:
        print_note(text)


def _cells(run: RunSummary) -> tuple[str, ...]:
    backend = run.backend if run.requested == run.backend else f"{run.requested}: {run.backend}"
    labels = "" if run.labels is None else f"{run.labels:,}"
    scores = ("" if score is None else f"{score:.4f}" for score in (run.accuracy, run.log_likelihood))
    trained = run.trained.astimezone().strftime("%Y-%m-%d %H:%M")
    return (str(run.run), ", ".join(run.predicts), backend, labels, *scores, trained, f"{run.seconds:.1f}",
            format_size(run.n_bytes))  # fmt: skip
