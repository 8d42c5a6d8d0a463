"""The `relcrf` command."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence

import duckdb
import typer

from relcrf import __version__
from relcrf.cli import (
    completion,
    demo,
    evaluate,
    example,
    explain,
    graph,
    ground,
    infer,
    inspect,
    language,
    learn,
    new,
    report,
    reproduce,
    warmup,
    weights,
)
from relcrf.cli.dropped_signals import resend_dropped_signals
from relcrf.cli.options import flatten_options
from relcrf.cli.output import print_diagnostics, print_error_line, print_json, print_note
from relcrf.cli.time_limit import INTERRUPTED, is_time_over, time_limit_error
from relcrf.data.store import DISK_FULL, io_error_reason, out_of_memory_error
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
    example.example,
    new.new,
    inspect.check,
    inspect.plan,
    ground.ground,
    learn.train,
    learn.predict,
    evaluate.evaluate,
    evaluate.compare,
    evaluate.pareto,
    infer.infer,
    report.report,
    reproduce.reproduce,
    weights.moments,
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
    app.command()(flatten_options(command))
app.command("cv")(flatten_options(evaluate.evaluate))


def _print_version(value: bool) -> None:
    if value:
        print(f"relcrf {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    if cache_folder().note:
        print_note(cache_folder().note)


def _print_error(error: RelcrfError, *, as_json: bool) -> None:
    """Print what is wrong for people, and with --json also as one object for programs."""
    try:
        if as_json:
            print_json({"errors": [d.as_dict() for d in error.diagnostics]})
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:  # of a full disk, say: people are told all the same
        _discard_output()
    print_diagnostics(error)


def _discard_output() -> None:
    """What nobody can be given goes nowhere, so that Python does not try it once more while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


INTERNAL_ERROR = 70
"""The exit code of a bug of ours, as BSD's sysexits.h has it."""

BROKEN_PIPE = 141
"""As of a program that the system ends because nobody reads what it writes."""

_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""What a wrong command line raises: click's class, of which typer may bring a copy of its own."""


def _silence_unraisable() -> None:
    """What was cut short must not complain while Python ends: a compiler that Ctrl-C has met, say."""
    sys.unraisablehook = lambda unraisable: None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _file_error(error: duckdb.Error) -> UsageError:
    """Return the error for a file that DuckDB cannot read or write."""
    message = f"DuckDB cannot read or write a file: {io_error_reason(error).lower()}"
    hint = "make room, or set TMPDIR to a folder with more: that is where what is larger than --memory goes"
    return UsageError(Diagnostic("E314", message, hint=hint, notes=(_first_line(error),)))


def _usage_error(error: Exception) -> UsageError:
    """Return the error for a wrong command line."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "relcrf"
    message = next(iter(getattr(error, "format_message", error.__str__)().strip().splitlines()), "").rstrip(".")
    if not message:  # no command at all: the help has been shown
        sys.exit(2)
    return UsageError(Diagnostic("E300", message[:1].lower() + message[1:], hint=f"see: {where} --help"))


def _system_error(error: OSError) -> UsageError:
    """Return the error for a file that the system does not let us read or write."""
    what = f"'{error.filename}'" if error.filename else "a file"
    message = f"{what} cannot be read or written: {(error.strerror or str(error)).lower()}"
    full = error.errno == errno.ENOSPC
    hint = "make room; what was whole before is there still" if full else "name another place"
    return UsageError(Diagnostic("E314", message, hint=hint))


def _handle_interrupt(text: str = "") -> int:
    """Return the exit code of a command that was interrupted, and print a text about it.

    Raises:
        ConvergenceError: where it was the end of its time that has interrupted it.
    """
    if over := time_limit_error():
        raise over
    if text:
        print_error_line(text)
    return INTERRUPTED


def _report_internal_error(error: Exception) -> int:
    """Print where a bug of ours is, and return the exit code for one."""
    if os.environ.get("RELCRF_DEBUG"):
        raise error
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    print_error_line(f"internal error at {last.filename}:{last.lineno}: {what}")
    print_error_line(
        "This is a bug in relcrf, not a mistake of yours. Set RELCRF_DEBUG=1 to see where it comes from, and report it."
    )
    return INTERNAL_ERROR


def run() -> None:
    """Entry point: a mistake of the user ends in its diagnostics and its exit code, never in a traceback."""
    arguments = sys.argv[1:]
    try:
        try:
            code = _run_command(arguments)
        except RelcrfError as error:
            _print_error(error, as_json="--json" in arguments)
            code = error.exit_code
    except BrokenPipeError:
        _discard_output()
        code = BROKEN_PIPE
    except SystemExit as end:
        # Where nobody reads the output any more (`| head`), rich and typer end with 1, as relcrf never does.
        sys.exit(BROKEN_PIPE if end.code == 1 else end.code)
    if code == INTERRUPTED:
        _silence_unraisable()
    if code:
        sys.exit(code)


def _run_command(arguments: Sequence[str]) -> int:
    """Run a command line, and return its exit code.

    Raises:
        RelcrfError: for every mistake of the user, and every limit of the machine.
    """
    received: list[int] = []
    try:
        with resend_dropped_signals(signal.SIGINT, KeyboardInterrupt) as received:
            code = app(arguments, standalone_mode=False)
        if code == INTERRUPTED:
            return _handle_interrupt()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (RelcrfError, BrokenPipeError):
        raise
    except _USAGE_ERROR as error:
        raise _usage_error(error) from None
    except typer.Abort:
        return _handle_interrupt()
    except (KeyboardInterrupt, duckdb.InterruptException):
        return _handle_interrupt("interrupted")
    except duckdb.OutOfMemoryException as error:
        raise out_of_memory_error(error) from None
    except duckdb.IOException as error:
        raise _file_error(error) from None
    except OSError as error:
        raise _system_error(error) from None
    except Exception as error:
        # Ctrl-C, or the end of the time, while DuckDB was at work or a kernel was compiled
        if received or is_time_over() or (isinstance(error, RuntimeError) and "Query interrupted" in str(error)):
            return _handle_interrupt("interrupted")
        if isinstance(error, duckdb.Error) and DISK_FULL in str(error):
            raise _file_error(error) from None
        return _report_internal_error(error)


if __name__ == "__main__":
    run()
