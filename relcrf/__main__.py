"""The command's door, of the standard library alone: Ctrl-C while all else is still being imported ends as it does later."""

from __future__ import annotations

import os
import sys
from importlib import import_module

INTERRUPTED = 130


def main() -> None:
    """Loads the command, and runs it."""
    _replace_closed_streams()
    try:
        command = import_module("relcrf.cli.main")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.unraisablehook = lambda unraisable: None  # a module that was cut short must not complain while Python ends
        sys.exit(INTERRUPTED)
    command.run()


def _replace_closed_streams() -> None:
    """Whoever starts the command may have closed its streams (`>&-`); Python then has None in their places."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # a file takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


if __name__ == "__main__":
    main()
