"""Temporary folders that the next start removes if their process died without removing them.

The process holds a lock on a file of the folder as long as it lives, so that the lock proves its death, whatever became of its
process ID. On Windows, which has no such locks, the file contains the ID and the start time of the process instead. The module
imports only the standard library where it has locks, because each command imports it first.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]
    import psutil

PREFIX = "relcrf-"

LOCK_NAME = "owner.lock"

_UNLOCKED_NAME = "owner.new"
"""Name of the lock file before it is locked, so that a file called LOCK_NAME always is or was locked."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""File with a random identifier of the running kernel, which containers share; Linux only."""


def new_temporary_folder(owner: object) -> Path:
    """Create a folder with mode 0700, which is removed with its owner, or after the death of this process.

    Raises:
        OSError: The folder cannot be created.
    """
    remove_stale_folders_once(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    weakref.finalize(owner, _remove_in_process, os.getpid(), folder, _write_lock(folder))
    return folder


def _write_lock(folder: Path) -> int | None:
    """Write the lock file of a folder of this process; return the locked descriptor, if the system has such locks."""
    if fcntl is None:
        (folder / _UNLOCKED_NAME).write_bytes(_machine() + b"\n" + _process_identity(os.getpid()))
        os.rename(folder / _UNLOCKED_NAME, folder / LOCK_NAME)
        return None
    lock = os.open(folder / _UNLOCKED_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # a file system without locks; the folder is then never taken for stale
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, _machine())
        os.rename(folder / _UNLOCKED_NAME, folder / LOCK_NAME)
    return lock


def _process_identity(number: int) -> bytes:
    """Return a process ID and the start time of the process, which has no time if it does not exist."""
    try:
        return f"{number} {psutil.Process(number).create_time()}".encode()
    except psutil.Error:
        return f"{number} ".encode()


class _Context:
    """The owner of a folder that exists during a context."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder for the context, which is also removed after the death of this process.

    Raises:
        OSError: The folder cannot be created.
    """
    owner = _Context()
    try:
        yield new_temporary_folder(owner)
    finally:
        del owner  # removes the folder


def _remove_in_process(process: int, folder: Path, lock: int | None) -> None:
    """Remove a folder of a process; do nothing in a forked child, which inherits the owners of its parent's folders."""
    if os.getpid() == process:
        _remove(folder, lock)


def _remove(folder: Path, lock: int | None) -> None:
    """Remove a folder, the lock file last: a process that is killed meanwhile leaves a stale folder."""
    for path in folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)


@cache
def _machine() -> bytes:
    """Return two lines that identify the running kernel and the machine."""
    boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
    return f"{boot}\n{platform.node()}".encode()


@cache
def remove_stale_folders_once(parent: str) -> None:
    """Call `remove_stale_folders` once per process."""
    remove_stale_folders(parent)


def remove_stale_folders(parent: str | os.PathLike[str]) -> None:
    """Remove the temporary folders of this user whose process has died.

    A folder without a lock file is kept, because another process may be creating it. So are symbolic links, folders of
    other users, and folders of other machines, whose locks are invisible on some network file systems.
    """
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_if_stale(entry)


def _remove_if_stale(entry: os.DirEntry[str]) -> None:
    """Remove a folder if it is stale.

    Raises:
        OSError: The folder is in use, is not a folder with a lock file, or was removed by another process.
    """
    status = entry.stat(follow_symlinks=False)
    if not entry.is_dir(follow_symlinks=False) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        return
    if fcntl is None:
        machine, _, process = Path(entry.path, LOCK_NAME).read_bytes().rpartition(b"\n")
        if machine == _machine() and process != _process_identity(int(process.split()[0])):
            _remove(Path(entry.path), None)
        return
    # Network file systems grant exclusive locks only for files opened for writing.
    lock = os.open(os.path.join(entry.path, LOCK_NAME), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with ExitStack() as stack:
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        boot, _, node = os.read(lock, 1000).partition(b"\n")
        own_boot, _, own_node = _machine().partition(b"\n")
        if (boot and boot == own_boot) or (node and node == own_node):
            stack.pop_all()
            _remove(Path(entry.path), lock)
