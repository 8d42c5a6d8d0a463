"""Tests of option groups: separate options on the command line, one object in the command."""

import gc
from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from relcrf.cli.commands import app
from relcrf.cli.flat_options import flatten_options
from relcrf.cli.help_panels import HOLDOUT, PANELS
from relcrf.cli.options import require_single_backend, split_names
from relcrf.errors import UsageError


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


def test_command_enables_garbage_collector(run):
    gc.disable()
    try:
        run("--name", "A4", "hello")
        assert gc.isenabled()
    finally:
        gc.enable()


def test_group_options_are_validated_and_documented(run):
    assert run("hello")[0] == 2  # --name is required
    assert run("--name", "A4", "hello", "--width", "0")[0] == 2
    help_ = run("--help")[1]
    assert help_.index("--name") < help_.index("--width") < help_.index("--twice")
    assert "Columns." in help_ and "Print a text." in help_


def test_several_backends_are_comma_separated_or_repeated():
    assert split_names(["ess,dense", " local ", "ess"]) == ["ess", "dense", "local"]
    assert split_names(None) == split_names([","]) == []


def test_commands_that_use_one_backend_reject_several():
    assert require_single_backend(None, "auto") == "auto"
    assert require_single_backend(["dense"], "auto") == "dense"
    assert require_single_backend(["dense", "dense"], "auto") == "dense"
    for several in (["ess,dense"], ["ess", "dense"]):
        with pytest.raises(UsageError, match="relcrf compare MODEL --backend ess,dense"):
            require_single_backend(several, "auto")
    with pytest.raises(UsageError, match="E301"):
        require_single_backend([""], "auto")


def test_options_of_the_same_name_are_equal_in_all_commands():
    options = [option for command in typer.main.get_command(app).commands.values() for option in command.params]
    forms, texts = defaultdict(set), defaultdict(set)
    for option in options:
        if option.param_type_name == "option":
            forms[option.opts[0]].add((*option.opts, (option.metavar or "").replace("NAMES", "NAME")))
            texts[option.opts[0]] |= {option.help} if option.rich_help_panel == HOLDOUT else set()
    assert not {name: found for name, found in forms.items() if len(found) > 1}
    assert not {name: found for name, found in texts.items() if len(found) > 1}


def test_panels_of_options_have_the_same_order_in_all_commands():
    for name, command in typer.main.get_command(app).commands.items():
        options = [option for option in command.params if option.param_type_name == "option"]
        ranks = [PANELS.index(option.rich_help_panel) for option in options]
        assert ranks == sorted(ranks), name
        main = [option.name for option in options if option.rich_help_panel is None]
        assert "as_json" not in main[:-1], name
