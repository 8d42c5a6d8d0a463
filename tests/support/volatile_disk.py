"""A simulation of power cuts: the states that a folder can have after a power cut at any time of a recorded program.

The recorder takes a snapshot of the folder before each file operation of this process, which Python's audit hooks report,
and before each `fsync`, which it replaces. Writes of native code appear in the next snapshot. This loses no state, because
the simulation varies the content of each file that is not flushed.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path

import pytest

EVENTS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.symlink", "os.truncate"}
"""Audit events of operations that change a folder, or may precede a change."""

_recorders: list[Recorder] = []


def _audit(event, arguments):
    if event in EVENTS and _recorders:
        _recorders[-1].observe(arguments[0])


sys.addaudithook(_audit)  # hooks cannot be removed; without a recorder, this one has no effect


@dataclass
class Snapshot:
    """The content of files and the names in folders, both by inode."""

    content: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, int]] = field(default_factory=dict)


class Recorder:
    """The history of a folder.

    Attributes:
        snapshots: The different states of the folder, in order; the first one is on disk.
        folders: Inodes of folders.
        flushes: For each inode, the snapshots that were the last ones when it was flushed.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.snapshots, self.flushes = root, [], {}
        self.folders: set[int] = set()
        self._open, self._busy = {}, False
        self.take_snapshot()

    def observe(self, path):
        """Take a snapshot if the path of an operation is, or may be, in the folder."""
        if self._busy or (isinstance(path, str | bytes | os.PathLike) and self._is_elsewhere(os.fsdecode(path))):
            return
        self.take_snapshot()

    def _is_elsewhere(self, path):
        return os.path.isabs(path) and not path.startswith(str(self.root))

    def take_snapshot(self):
        """Add the current state of the folder to the snapshots if it has changed."""
        self._busy = True
        snapshot = Snapshot()
        self._read(str(self.root), snapshot)
        if not self.snapshots or snapshot != self.snapshots[-1]:
            self.snapshots.append(snapshot)
        self._busy = False

    def _read(self, path, snapshot):
        number = os.lstat(path).st_ino
        if number not in self._open:
            self._open[number] = os.open(path, os.O_RDONLY)  # the system uses no number of an open file again
        if os.path.isdir(path):
            self.folders.add(number)
            names = sorted(os.listdir(path))
            snapshot.names[number] = {name: self._read(os.path.join(path, name), snapshot) for name in names}
        else:
            with open(path, "rb") as file:
                snapshot.content[number] = file.read()
        return number

    def flush(self, descriptor):
        """Record an `fsync`."""
        self.take_snapshot()
        self.flushes.setdefault(os.fstat(descriptor).st_ino, []).append(len(self.snapshots) - 1)

    def close(self):
        self.take_snapshot()
        for descriptor in self._open.values():
            os.close(descriptor)

    def first_tree(self) -> dict[str, bytes | None]:
        """Return the files at the start."""
        return self._tree(0, lambda inode, flushed: 0, "kept", 0)

    def last_tree(self) -> dict[str, bytes | None]:
        """Return the files at the end."""
        cut = len(self.snapshots) - 1
        return self._tree(cut, lambda inode, flushed: cut, "kept", 0)

    def durable_tree(self) -> dict[str, bytes | None]:
        """Return the files that certainly survive a power cut after the end."""
        return self._tree(len(self.snapshots) - 1, lambda inode, flushed: flushed, "lost", math.inf)

    def possible_trees(self) -> Iterator[dict[str, bytes | None]]:
        """Yield the states after power cuts: the content of each file by its path, and None for each folder.

        After each operation, the disk contains all flushed data, and of the other changes of names either the first n,
        for each n, or all those of one folder; and the content of files that are not flushed is either missing,
        incomplete or complete. Equal states are yielded once.
        """
        seen = set()
        renamings = [0] + [k for k, (a, b) in enumerate(pairwise(self.snapshots), 1) if a.names != b.names]
        for cut in range(len(self.snapshots)):
            written = [lambda inode, flushed, n=n: max(n, flushed) for n in renamings if n <= cut]
            folders = self.snapshots[cut].names
            written += [lambda inode, flushed, f=f, cut=cut: cut if inode == f else flushed for f in folders]
            for choice in product(written, ("lost", "partial", "kept"), (cut, cut + 1)):
                tree = self._tree(cut, *choice)
                if (key := frozenset(tree.items())) not in seen:
                    seen.add(key)
                    yield tree

    def _tree(self, cut, written, data, flushed_before):
        """Return the state after a power cut.

        Args:
            cut: Index of the last snapshot before it.
            written: Function of the inode of a folder and the index of the snapshot when it was last flushed, that
                returns the index of the snapshot with the names on disk.
            data: Content of files that were not flushed: "lost", "partial" or "kept".
            flushed_before: Index of the first snapshot whose flushes came too late.
        """
        tree = {}

        def add(inode, path):
            flush = max((k for k in self.flushes.get(inode, ()) if k < flushed_before), default=0)
            if inode in self.folders:
                tree[path] = None
                for name, number in self.snapshots[written(inode, flush)].names.get(inode, {}).items():
                    add(number, f"{path}/{name}" if path else name)
                return
            flushed = self.snapshots[flush].content.get(inode, b"")
            current = next(s.content[inode] for s in reversed(self.snapshots[: cut + 1]) if inode in s.content)
            incomplete = flushed or (b"" if data == "lost" else current[: len(current) // 2])
            tree[path] = current if data == "kept" else incomplete

        add(os.lstat(self.root).st_ino, "")
        return tree


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Record the changes of a folder in the context."""
    recorder = Recorder(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", recorder.flush)
        _recorders.append(recorder)
        try:
            yield recorder
        finally:
            _recorders.remove(recorder)
            recorder.close()


def subtree(tree, folder):
    """Return the files of a folder by their path in it; None if it does not exist."""
    if folder not in tree:
        return None
    return {path.removeprefix(f"{folder}/"): content for path, content in tree.items() if path.startswith(f"{folder}/")}


def write_tree(tree, folder):
    """Write a state to a folder."""
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir(exist_ok=True)
        else:
            (folder / path).write_bytes(content)
