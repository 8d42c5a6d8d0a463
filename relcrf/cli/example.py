"""The example command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relcrf.cli.options import JsonOption
from relcrf.cli.output import print_json, print_line
from relcrf.datasets import examples


def example(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(examples.names())}.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write to; by default the name.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated tables.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write an example to try things on: a model and its tables.

    Example: relcrf example accounts
    """
    folder = Path(name) if out is None else out
    paths = examples.write(name, folder, seed, force=force)
    made = examples.load(name, seed)
    if as_json:
        print_json({"files": [str(path) for path in paths], "description": made.description, "split": made.split})
        return
    print_line(made.description)
    for path in paths:
        print_line(f"  {path}")
    if made.split.isidentifier():
        options = f"--split {made.split}" + "".join(
            f" --hold {value}" for value in (made.data.split.holdout if made.data.split else ())
        )
    else:
        options = f"--{made.split.replace('=', ' ')}"
    print_line("Now try:")
    print_line(f"  relcrf evaluate {paths[0]} --data {folder} {options}")
