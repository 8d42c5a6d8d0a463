"""The table of commands agrees with the commands, which the front page does not import."""

import subprocess
import sys

import pytest
import typer

from relcrf.cli.commands import COMMANDS, app
from relcrf.resources import resource_path


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_is_the_first_line_of_the_help(name):
    command = typer.main.get_command(app).commands[name]
    assert command.name == name and command.help.splitlines()[0] == COMMANDS[name].summary
    assert command.rich_help_panel == COMMANDS[name].panel and command.hidden == COMMANDS[name].is_hidden


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["--help"], "explain-error"),
        (["-h"], "explain-error"),
        (["--version"], "relcrf 0."),
        (["check", str(resource_path("models", "webkb.rcrf"))], "is valid"),
        (["check", "--json", str(resource_path("models", "cora.rcrf"))], "warnings"),
    ],
    ids=" ".join,
)
def test_command_imports_no_numerical_package(arguments, output):
    code = (
        "import sys; from relcrf.__main__ import _run; _run(); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'numpy', 'numba', 'llvmlite', 'scipy', 'duckdb', 'sqlglot', 'nanoarrow'}))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n") and output in done.stdout


def test_training_imports_no_rarely_used_package():
    rare = {"scipy.stats", "scipy.optimize", "matplotlib", "networkx", "pandas", "sklearn"}
    code = f"import sys, relcrf; relcrf.load; print(sorted(sys.modules.keys() & {rare}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_front_page_without_reader():
    process = subprocess.Popen(
        [sys.executable, "-m", "relcrf", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.wait() == 141 and process.stderr.read() == b""
    process.stderr.close()
