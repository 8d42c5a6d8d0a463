"""The entry point of the command. It imports only the standard library, so that Ctrl-C is handled while the rest is imported.

On Linux, the command runs in a child process, so that a crash of a native library ends in a message instead of silence.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from relcrf.execution.supervisor import supervise

INTERRUPTED = 130


def main() -> None:
    """Run the command-line interface, in a supervised process where the system allows it."""
    _replace_closed_streams()
    supervise(_run)


def _run() -> None:
    """Show the help or the version, or import the command-line interface and run it.

    The garbage collector is disabled until the command runs: modules contain no garbage, and examining their objects again and
    again takes a seventh of the CPU time of `relcrf check`.
    """
    gc.disable()
    try:
        if import_module("relcrf.cli.commands").show_front_page(sys.argv[1:]):
            return
        command = import_module("relcrf.cli.main")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.unraisablehook = lambda unraisable: None  # a half-imported module must not print errors at exit
        sys.exit(INTERRUPTED)
    command.run()


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed (`>&-`); Python sets such streams to None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # `os.open` uses the lowest free descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


if __name__ == "__main__":
    main()
