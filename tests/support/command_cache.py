"""A cache of commands: where a command is repeated on the same files, what it wrote is copied."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path


def read_files(path: Path) -> dict[Path, bytes]:
    """Return the content of a file, or of all files in a folder, by path; empty if the path does not exist."""
    paths = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {each: each.read_bytes() for each in paths}


class CommandCache:
    """The output of commands, and the files that they changed and removed, by their arguments and the files that these name."""

    def __init__(self) -> None:
        self._changes: dict[object, tuple[dict[Path, bytes], list[Path], str]] = {}

    def run(self, folder: Path, arguments: Sequence[str], execute: Callable[[], str]) -> str:
        """Execute a command in its working folder, or repeat its changes if an equal command was executed before.

        A command must read and write only files in the folder, and read only those that its arguments name.

        Args:
            execute: Function that runs the command and returns its output, and raises an exception if it fails.
        """
        inputs = {}
        for argument in arguments:
            for path, content in read_files(folder / argument).items():
                inputs[path.relative_to(folder)] = hashlib.sha256(content).digest()
        key = (*arguments, *sorted(inputs.items()))
        if key not in self._changes:
            before = read_files(folder)
            output = execute()
            after = read_files(folder)
            changed = {
                path.relative_to(folder): content for path, content in after.items() if before.get(path) != content
            }
            removed = [path.relative_to(folder) for path in before.keys() - after.keys()]
            self._changes[key] = changed, removed, output
            return output
        changed, removed, output = self._changes[key]
        for path, content in changed.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        for path in removed:
            (folder / path).unlink()
        return output
