"""The `relcrf` command."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from typing import NoReturn

import duckdb
import typer

from relcrf import __version__
from relcrf.cli import (
    compare,
    completion,
    cv,
    demo,
    explain,
    graph,
    ground,
    infer,
    inspect,
    language,
    learn,
    moments,
    new,
    pareto,
    report,
    reproduce,
    warmup,
    weights,
)
from relcrf.cli.dropped_signals import remembered, sent_again
from relcrf.cli.options import flattened
from relcrf.cli.output import complain, note, print_json, say_error
from relcrf.cli.time_limit import INTERRUPTED, is_over, out_of_time
from relcrf.data.store import FULL, reason, too_little_memory
from relcrf.errors import Diagnostic, RelcrfError, UsageError
from relcrf.kernels.compile import cache_folder

app = typer.Typer(
    name="relcrf",
    help="Relational conditional random fields on tables: write a .rcrf model, point it at tables, train, predict.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    new.new,
    inspect.check,
    inspect.plan,
    ground.ground,
    learn.train,
    learn.predict,
    learn.evaluate,
    cv.cv,
    compare.compare,
    pareto.pareto,
    infer.infer,
    report.report,
    reproduce.reproduce,
    moments.moments,
    graph.graph,
    explain.explain,
    weights.weights,
    weights.diff,
    demo.demo,
    warmup.warmup,
    language.fmt,
    language.explain_error,
    language.lsp,
    completion.completion,
):
    app.command()(flattened(command))


def _version(value: bool) -> None:
    if value:
        print(f"relcrf {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    if cache_folder().note:
        note(cache_folder().note)


def _refuse(error: RelcrfError) -> NoReturn:
    """Says what is wrong, to people and with --json to machines, and ends with the error's exit code."""
    try:
        if "--json" in sys.argv:
            print_json({"errors": [d.as_dict() for d in error.diagnostics]})
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:  # of a full disk, say: people are told all the same
        _drop_output()
    complain(error)
    sys.exit(error.exit_code)


def _drop_output() -> None:
    """What nobody can be given goes nowhere, so that Python does not try it once more while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


UNREAD = 141
"""As of a program that the system ends because nobody reads what it writes."""

_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""What a wrong command line raises: click's class, of which typer may bring a copy of its own."""


def _end_quietly() -> None:
    """What was cut short must not complain while Python ends: a compiler that Ctrl-C has met, say."""
    sys.unraisablehook = lambda unraisable: None


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _refuse_file(error: duckdb.Error) -> NoReturn:
    """Says that DuckDB cannot read or write one of its files."""
    message = f"DuckDB cannot read or write a file: {reason(error).lower()}"
    hint = "make room, or set TMPDIR to a folder with more: that is where what is larger than --memory goes"
    _refuse(UsageError(Diagnostic("E314", message, hint=hint, notes=(_line(error),))))


def run() -> None:
    """Entry point: a mistake of the user ends in its diagnostics and its exit code, never in a traceback."""
    try:
        _run()
    except BrokenPipeError:
        _drop_output()
        sys.exit(UNREAD)
    except SystemExit as end:
        # Where nobody reads the output any more (`| head`), rich and typer end with 1, as relcrf never does.
        sys.exit(UNREAD if end.code == 1 else end.code)


def _run() -> None:
    came: list[int] = []
    try:
        with remembered() as came, sent_again(signal.SIGINT, KeyboardInterrupt):
            code = app(standalone_mode=False)
        if isinstance(code, int) and code:
            if code == INTERRUPTED:
                if over := out_of_time():
                    _refuse(over)
                _end_quietly()
            sys.exit(code)
        sys.stdout.flush()
    except _USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "relcrf"
        message = next(iter(getattr(error, "format_message", error.__str__)().strip().splitlines()), "").rstrip(".")
        if not message:  # no command at all: the help has been shown
            sys.exit(2)
        _refuse(UsageError(Diagnostic("E300", message[:1].lower() + message[1:], hint=f"see: {where} --help")))
    except typer.Abort:
        if over := out_of_time():
            _refuse(over)
        _end_quietly()
        sys.exit(INTERRUPTED)
    except RelcrfError as error:
        _refuse(error)
    except (KeyboardInterrupt, duckdb.InterruptException):
        if over := out_of_time():
            _refuse(over)
        say_error("interrupted")
        _end_quietly()
        sys.exit(INTERRUPTED)
    except duckdb.OutOfMemoryException as error:
        _refuse(too_little_memory(error))
    except BrokenPipeError:
        raise
    except duckdb.IOException as error:
        _refuse_file(error)
    except OSError as error:
        what = f"'{error.filename}'" if error.filename else "a file"
        message = f"{what} cannot be read or written: {(error.strerror or str(error)).lower()}"
        full = error.errno == errno.ENOSPC
        hint = "make room; what was whole before is there still" if full else "name another place"
        _refuse(UsageError(Diagnostic("E314", message, hint=hint)))
    except Exception as error:  # a bug of ours: say so, and keep what is needed to find it
        # Ctrl-C, or the end of the time, while DuckDB was at work or a kernel was compiled
        if came or is_over() or (isinstance(error, RuntimeError) and "Query interrupted" in str(error)):
            if over := out_of_time():
                _refuse(over)
            say_error("interrupted")
            _end_quietly()
            sys.exit(INTERRUPTED)
        if isinstance(error, duckdb.Error) and FULL in str(error):
            _refuse_file(error)
        if os.environ.get("RELCRF_DEBUG"):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        say_error(f"internal error at {last.filename}:{last.lineno}: {what}")
        say_error(
            "This is a bug in relcrf, not a mistake of yours. Set RELCRF_DEBUG=1 to see where it comes from, and report it."
        )
        sys.exit(70)


if __name__ == "__main__":
    run()
