"""The example command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from relcrf.cli.flat_options import JsonOption
from relcrf.cli.output import print_json, print_line, print_table
from relcrf.datasets import examples
from relcrf.errors import listing


def example(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help=f"{listing(examples.descriptions())}. Default: list them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="Folder to write to. Default: the name.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="INT", min=0, help="Seed of the generated tables.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write an example: a model and its tables, or the exports of a company. Without a name, list the examples.

    Example: relcrf example fraud --out exports
    """
    if name is None:
        if as_json:
            print_json({"examples": examples.descriptions()})
        else:
            print_table("examples, for relcrf example NAME", ("", ""), examples.descriptions().items())
        return
    folder = Path(name) if out is None else out
    paths = examples.write(name, folder, seed, force=force)
    if name in examples.EXPORTS:
        _describe_exports(name, folder, paths, as_json=as_json)
        return
    example_data = examples.load(name, seed)
    if as_json:
        print_json(
            {
                "files": [str(path) for path in paths],
                "description": example_data.description,
                "split": example_data.split,
            }
        )
        return
    print_line(example_data.description)
    for path in paths:
        print_line(f"  {path}")
    if example_data.split.isidentifier():
        options = f"--split {example_data.split}" + "".join(
            f" --holdout {value}" for value in (example_data.data.split.holdout if example_data.data.split else ())
        )
    else:
        options = f"--{example_data.split.replace('=', ' ')}"
    print_line("Next, run:")
    print_line(f"  relcrf evaluate {paths[0]} --data {folder} {options}")


def _describe_exports(name: str, folder: Path, paths: list[Path], *, as_json: bool) -> None:
    """Print the description and the files of an example of files only, and the commands to run next."""
    export = examples.EXPORTS[name]
    if as_json:
        print_json({"files": [str(path) for path in paths], "description": export.description})
        return
    print_line(export.description)
    for path in paths:
        print_line(f"  {path}")
    print_line("Next, run:")
    for command in export.next_commands:
        print_line(f"  {command.format(folder=shlex.quote(str(folder)))}")
