"""The command `python -m relcrf.relbench FOLDER TASK`, which writes a model and a manifest for a RelBench task."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from relcrf.errors import Diagnostic, UsageError
from relcrf.files import require_suffix
from relcrf.relbench.model import convert_task


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m relcrf.relbench", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of a RelBench dataset, such as ~/.cache/relbench/rel-f1")
    parser.add_argument("task", help="name of a task of the dataset, such as driver-dnf")
    parser.add_argument("--out", type=Path, default=Path("model.rcrf"), help="model file to write")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    options = parser.parse_args(arguments)
    manifest = options.out.with_suffix(".toml")
    try:
        require_suffix(options.out, (".rcrf",), "model.rcrf")  # otherwise the manifest might replace the model
        for path in (options.out, manifest):
            if path.exists() and not options.force:
                hint = "choose another file with --out, or overwrite it with --force"
                raise UsageError(Diagnostic("E374", f"the file '{path}' already exists", hint=hint))
        convert_task(options.folder, options.task).write(options.out)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    command = ["relcrf", "evaluate", options.out, "--data", options.folder, "--manifest", manifest]
    print(shlex.join(map(str, command)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
