"""The report command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relcrf.cli.output import JsonOption, console, print_json, size
from relcrf.report import page


def report(
    run: Annotated[Path, typer.Argument(help="A run folder that 'relcrf train' wrote.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The .html file to write. Default: report.html in the run folder."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a training in one HTML file: the optimiser's path, what it saw, the strongest weights.

    Example: relcrf report runs/webkb --out webkb.html
    """
    place = out or run / "report.html"
    made = page.write(run, place)
    n_bytes = place.stat().st_size
    if as_json:
        print_json({"run": str(run), "report": str(place), "bytes": n_bytes, "plots": made.plots})
        return
    console.print(f"the report is in {place} ({size(n_bytes)}, {len(made.plots)} plots)", soft_wrap=True)
