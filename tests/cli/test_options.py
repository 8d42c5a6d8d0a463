"""Tests of option groups: separate options on the command line, one object in the command."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from relcrf.cli.options import flatten_options


@dataclass(frozen=True, kw_only=True)
class SizeOptions:
    width: Annotated[int, typer.Option("--width", "-w", min=1, help="Columns.")] = 80
    height: Annotated[int | None, typer.Option(help="Rows.")] = None


@dataclass(frozen=True, kw_only=True)
class PaperOptions(SizeOptions):
    name: Annotated[str, typer.Option("--name", help="Of the paper.")]


@pytest.fixture
def run():
    taken = []

    def command(text: Annotated[str, typer.Argument()], paper: PaperOptions, twice: bool = False) -> None:
        """Print a text."""
        taken[:] = [text, paper, twice]

    app = typer.Typer()
    app.command()(flatten_options(command))

    def invoke(*words):
        taken.clear()
        result = CliRunner().invoke(app, words)
        return result.exit_code, result.output, *taken

    return invoke


def test_command_receives_option_groups(run):
    code, _, *taken = run("--name", "A4", "-w", "60", "hello", "--twice")
    assert (code, taken) == (0, ["hello", PaperOptions(name="A4", width=60), True])
    assert run("--name", "A4", "hello")[2:] == ("hello", PaperOptions(name="A4"), False)


def test_group_options_are_validated_and_documented(run):
    assert run("hello")[0] == 2  # --name is required
    assert run("--name", "A4", "hello", "--width", "0")[0] == 2
    help_ = run("--help")[1]
    assert help_.index("--name") < help_.index("--width") < help_.index("--twice")
    assert "Columns." in help_ and "Print a text." in help_
