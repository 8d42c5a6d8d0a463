"""The commands by name: a command is imported when it runs, so that `relcrf --help` only imports Typer."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from relcrf import __version__
from relcrf.cli.closed_pipe import BROKEN_PIPE, discard_output
from relcrf.cli.help_panels import PlainCommand, PlainGroup


@dataclass(frozen=True)
class CommandEntry:
    """The location of a command, and its line in the help of `relcrf`.

    Args:
        module, function: the module in `relcrf.cli`, and the function.
        panel: the panel of the help text.
        summary: the first line of the function's docstring.
        is_hidden: whether the help does not list the command.
    """

    module: str
    function: str
    panel: str
    summary: str
    is_hidden: bool = False


COMMANDS = {
    "new": CommandEntry(
        "new", "new", "Start", "Propose a first model for a folder of tables, try it on held-out labels, and write it."
    ),
    "example": CommandEntry(
        "example",
        "example",
        "Start",
        "Write an example: a model and its tables, or the exports of a company. Without a name, list the examples.",
    ),
    "demo": CommandEntry(
        "demo",
        "demo",
        "Start",
        "Predict 1,697 handwritten digits from 100 labelled digits, without and with relations.",
    ),
    "profile": CommandEntry(
        "profile",
        "profile",
        "Data and model",
        "Write an HTML page on tables: columns, missing values, keys, links, the target and suspected leaks.",
    ),
    "check": CommandEntry(
        "check",
        "check",
        "Data and model",
        "Check models and, with --data, tables against the models; report all errors at once.",
    ),
    "plan": CommandEntry(
        "plan",
        "plan",
        "Data and model",
        "Estimate the bindings, factors and memory of each template without grounding.",
    ),
    "ground": CommandEntry(
        "ground",
        "ground",
        "Data and model",
        "Ground a model and print its size, the instances of a template, or the factors of a variable.",
    ),
    "train": CommandEntry(
        "learn",
        "train",
        "Train and predict",
        "Learn the weights of a model from labelled tables, and write a run folder.",
    ),
    "predict": CommandEntry(
        "learn", "predict", "Train and predict", "Predict the missing values in tables; observed values are evidence."
    ),
    "update": CommandEntry(
        "update",
        "update",
        "Train and predict",
        "Learn and predict again after rows of the tables were added, removed or changed, and replace the run.",
    ),
    "cluster": CommandEntry(
        "cluster",
        "cluster",
        "Train and predict",
        "Group records into clusters by the predicted probabilities that pairs of records match.",
    ),
    "ask": CommandEntry(
        "ask",
        "ask",
        "Train and predict",
        "List the missing labels that would improve the predictions most, with the reason for each.",
    ),
    "infer": CommandEntry(
        "infer", "infer", "Train and predict", "Run a task of the UAI inference competitions on a model and evidence."
    ),
    "serve": CommandEntry(
        "serve",
        "serve",
        "Train and predict",
        "Serve predictions and explanations of a run over HTTP, with a web page if --data is given.",
    ),
    "reproduce": CommandEntry(
        "reproduce",
        "reproduce",
        "Train and predict",
        "Repeat the training of a run, and verify that all files are identical.",
    ),
    "evaluate": CommandEntry(
        "evaluate",
        "evaluate",
        "Evaluate",
        "Score held-out labels by cross-validation, and report leakage. (Alias: cv.)",
    ),
    "compare": CommandEntry(
        "evaluate",
        "compare",
        "Evaluate",
        "Compare backends by held-out loss, time, memory, and accuracy of the marginals.",
    ),
    "pareto": CommandEntry(
        "evaluate",
        "pareto",
        "Evaluate",
        "Show the trade-off between held-out loss and inference speed at several message costs.",
    ),
    "report": CommandEntry(
        "report",
        "report",
        "Evaluate",
        "Write an HTML report on a run: settings, held-out scores, convergence, advice. Several runs are compared.",
    ),
    "runs": CommandEntry(
        "runs", "runs", "Understand", "List the run folders in a folder with their figures, newest first."
    ),
    "weights": CommandEntry(
        "weights",
        "weights",
        "Understand",
        "Show learned weights by name, with their support and, with --data, standard errors.",
    ),
    "moments": CommandEntry(
        "weights",
        "moments",
        "Understand",
        "Compare the empirical moments of features with the moments that the model expects.",
    ),
    "diff": CommandEntry(
        "weights",
        "diff",
        "Understand",
        "Show how two runs differ in settings, model, data, weights, structure and, with --data, predictions.",
    ),
    "graph": CommandEntry(
        "graph",
        "graph",
        "Understand",
        "Show the graph that structure learning selected from the candidates: its largest edges and its hubs.",
    ),
    "explain": CommandEntry(
        "explain",
        "explain",
        "Understand",
        "Explain one prediction by the contributions of templates and neighbours to its log odds, its score or its mean.",
    ),
    "audit": CommandEntry(
        "audit",
        "audit",
        "Understand",
        "List labels and numbers that the model finds improbable given all others, with a proposed value.",
    ),
    "fmt": CommandEntry(
        "language", "fmt", "Tools", "Format model files in place, without changing tokens or comments."
    ),
    "explain-error": CommandEntry(
        "language", "explain_error", "Tools", "Explain an error or warning: its meaning, an example, and how to fix it."
    ),
    "lsp": CommandEntry(
        "language", "lsp", "Tools", "Run the language server for editors over standard input and output."
    ),
    "completion": CommandEntry(
        "completion",
        "completion",
        "Tools",
        "Print a shell completion script for commands, options, settings and files.",
    ),
    "warmup": CommandEntry(
        "warmup", "warmup", "Tools", "Compile the numeric kernels, so that the first training starts without delay."
    ),
    "cv": CommandEntry(
        "evaluate",
        "evaluate",
        "Evaluate",
        "Score held-out labels by cross-validation, and report leakage. (Alias: cv.)",
        is_hidden=True,
    ),
}
"""The commands in the order of the help text."""


class LazyCommands(Mapping[str, TyperCommand]):
    """The commands of Typer by name; each is imported when it is read."""

    def __getitem__(self, name: str) -> TyperCommand:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _load(name: str) -> TyperCommand:
    """Import the function of a command, and make the command.

    Raises:
        KeyError: if there is no such command.
        Abort: if Ctrl-C interrupts the import; Typer would convert `KeyboardInterrupt` to an exit without a message.
    """
    entry = COMMANDS[name]
    try:
        function = getattr(import_module(f"relcrf.cli.{entry.module}"), entry.function)
    except KeyboardInterrupt:
        raise typer.Abort from None
    flatten_options = import_module("relcrf.cli.flat_options").flatten_options
    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=HELP_OPTIONS)
    made.command(name, cls=PlainCommand, rich_help_panel=entry.panel, hidden=entry.is_hidden)(flatten_options(function))
    command = typer.main.get_command(made)
    assert isinstance(command, TyperCommand)
    return command


class LazyGroup(PlainGroup):
    """The group of all commands, whose help does not import them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": LazyCommands()})

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the help; each command is replaced by one without parameters."""
        listed: dict[str, Any] = {
            name: PlainCommand(name, help=entry.summary, rich_help_panel=entry.panel, hidden=entry.is_hidden)
            for name, entry in COMMANDS.items()
        }
        group = PlainGroup(
            name=self.name, commands=listed, params=self.params, help=self.help, rich_markup_mode=self.rich_markup_mode
        )
        group.format_help(ctx, formatter)


HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="relcrf",
    help="Learn and predict with relational conditional random fields on tables.",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings=HELP_OPTIONS,
)


def _print_version(value: bool) -> None:
    if value:
        print(f"relcrf {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    """Run a command."""


def show_front_page(arguments: list[str]) -> bool:
    """Show the help or the version if the arguments ask for it and for nothing else.

    Returns:
        False if they ask for something else, or if the output cannot be written, which the whole program reports.
    """
    if arguments not in (["--help"], ["-h"], ["--version"]):
        return False
    try:
        app(arguments, standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # Rich exits on a closed pipe
        discard_output()
        sys.exit(BROKEN_PIPE)
    except OSError:
        return False
    return True
