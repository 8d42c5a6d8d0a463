"""The command's door, of the standard library alone: Ctrl-C while all else is still being imported ends as it does later."""

from __future__ import annotations

import sys
from importlib import import_module

INTERRUPTED = 130


def main() -> None:
    """Loads the command, and runs it."""
    try:
        command = import_module("relcrf.cli.main")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.unraisablehook = lambda unraisable: None  # a module that was cut short must not complain while Python ends
        sys.exit(INTERRUPTED)
    command.run()


if __name__ == "__main__":
    main()
