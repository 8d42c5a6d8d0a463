"""The `relcrf` command."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence

import typer

from relcrf.cli.closed_pipe import BROKEN_PIPE, discard_output
from relcrf.cli.commands import app
from relcrf.cli.output import print_diagnostics, print_error_line, print_json, replace_unencodable_output
from relcrf.cli.stop_signals import TERMINATION_SIGNALS, ReceivedSignals, stop_on_signals
from relcrf.cli.time_limit import INTERRUPTED, is_time_over, time_limit_error
from relcrf.errors import DataError, Diagnostic, RelcrfError, UsageError
from relcrf.execution.memory import memory_exhausted_error


def _print_error(error: RelcrfError, *, as_json: bool) -> None:
    """Print the diagnostics of an error; with --json, print them also as one JSON object."""
    try:
        if as_json:
            print_json({"errors": [d.as_dict() for d in error.diagnostics]})
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:  # e.g. a full disk; the diagnostics still go to standard error
        discard_output()
    print_diagnostics(error)


INTERNAL_ERROR = 70
"""Exit code of an internal error: EX_SOFTWARE of BSD's sysexits.h."""

_INTERRUPTED_CODES = (INTERRUPTED, *(128 + number for number in TERMINATION_SIGNALS))

_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""Exception type for an invalid command line: the UsageError of click or of the copy of click in Typer."""


def _silence_unraisable() -> None:
    """Suppress unraisable exceptions at exit, e.g. those of a compiler that Ctrl-C has interrupted."""
    sys.unraisablehook = lambda unraisable: None


def _usage_error(error: Exception) -> UsageError:
    """Return the error for an invalid command line."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "relcrf"
    message = next(iter(getattr(error, "format_message", error.__str__)().strip().splitlines()), "").rstrip(".")
    if not message:  # no command; the help is already printed
        sys.exit(2)
    return UsageError(Diagnostic("E300", message[:1].lower() + message[1:], hint=f"see {where} --help"))


def _system_error(error: OSError) -> UsageError:
    """Return the error for a file that the system cannot read or write."""
    what = f"'{error.filename}'" if error.filename else "a file"
    message = f"{what} cannot be read or written: {(error.strerror or str(error)).lower()}"
    full = error.errno == errno.ENOSPC
    hint = "free disk space; existing files are unchanged" if full else "use another path"
    return UsageError(Diagnostic("E314", message, hint=hint))


def _database_limit_error(error: Exception) -> UsageError | None:
    """Return the error for an exception of DuckDB that a limit of the machine causes, and None for other exceptions."""
    store = sys.modules.get("relcrf.data.store")  # DuckDB is imported only by commands that read tables
    return store.limit_error(error) if store else None


def _is_interrupted_query(error: Exception) -> bool:
    """Return True for an exception of DuckDB that reports an interrupted query."""
    return "Query interrupted" in str(error) if isinstance(error, RuntimeError) else "INTERRUPT Error" in str(error)


def _handle_interrupt(received: ReceivedSignals, text: str = "") -> int:
    """Print a message and return the exit code of an interrupted command.

    Raises:
        ConvergenceError: The command was interrupted by its time limit.
    """
    if error := time_limit_error():
        raise error
    if text:
        print_error_line(text)
    return received.exit_code


def _report_internal_error(error: Exception) -> int:
    """Print the location of an internal error and return its exit code."""
    if os.environ.get("RELCRF_DEBUG"):
        raise error
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    print_error_line(f"internal error at {last.filename}:{last.lineno}: {what}")
    print_error_line("this is a bug in relcrf; please report it with the traceback that RELCRF_DEBUG=1 prints")
    return INTERNAL_ERROR


def run() -> None:
    """Run the command line; print user errors as diagnostics with an exit code, never as a traceback."""
    arguments = sys.argv[1:]
    replace_unencodable_output()
    try:
        try:
            code = _run_command(arguments)
        except RelcrfError as error:
            _print_error(error, as_json="--json" in arguments)
            code = error.exit_code
    except BrokenPipeError:
        discard_output()
        code = BROKEN_PIPE
    except SystemExit as end:
        # Rich and Typer exit with 1 on a closed pipe (`| head`); relcrf never exits with 1.
        sys.exit(BROKEN_PIPE if end.code == 1 else end.code)
    if code in _INTERRUPTED_CODES:
        _silence_unraisable()
    if code:
        sys.exit(code)


def _run_command(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    Raises:
        RelcrfError: A user error, or a limit of the machine.
    """
    received = ReceivedSignals()
    try:
        with stop_on_signals() as received:
            code = app(arguments, standalone_mode=False)
        if code == INTERRUPTED:
            return _handle_interrupt(received)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (RelcrfError, BrokenPipeError) as error:
        if isinstance(error, DataError) and (received or is_time_over()):
            return _handle_interrupt(received, "interrupted")  # DuckDB can report an interrupt as a damaged file
        raise
    except _USAGE_ERROR as error:
        raise _usage_error(error) from None
    except (KeyboardInterrupt, typer.Abort):
        return _handle_interrupt(received, "interrupted")
    except OSError as error:
        raise _system_error(error) from None
    except MemoryError as error:
        raise memory_exhausted_error(error) from None
    except Exception as error:
        if known := _database_limit_error(error):
            raise known from None
        # an interrupt by Ctrl-C or the time limit can cause other exceptions in DuckDB or in the compiler of kernels
        if received or is_time_over() or _is_interrupted_query(error):
            return _handle_interrupt(received, "interrupted")
        return _report_internal_error(error)


if __name__ == "__main__":
    run()
