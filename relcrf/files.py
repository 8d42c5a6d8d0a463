"""Atomic writes: a file or folder is complete or does not exist, even after a kill or, with `sync`, a power cut.

A power cut can lose all changes that the system has not written to disk, in any order. A new file or folder is therefore
flushed to disk before it is renamed, and the folder that contains its name is flushed afterwards.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import IO

import numpy as np
import psutil
from filelock import FileLock, Timeout

from relcrf.errors import Diagnostic, UsageError

UNFINISHED_SUFFIX, REMOVED_SUFFIX = ".writing", ".removed"
MAX_PREFIX_LENGTH = 40
"""Maximum characters of a file name that its temporary name contains; more could exceed the limit of the system."""

_AT_FDCWD = -100
"""AT_FDCWD of Linux: paths are relative to the working directory of the process."""
_RENAME_EXCHANGE = 2
"""The flag RENAME_EXCHANGE of Linux; the flag RENAME_SWAP of macOS has the same value."""
_UNSUPPORTED_ERRNOS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def require_suffix(path: Path, suffixes: Sequence[str], example: str) -> None:
    """Validate the name of a file that will be written, before any work is done.

    Args:
        example: A valid name, for the hint.

    Raises:
        UsageError: The path has another suffix, or is a folder.
    """
    if path.suffix not in suffixes or path.is_dir():
        message = f"'{path}' is a folder" if path.is_dir() else f"'{path}' does not end in {' or '.join(suffixes)}"
        raise UsageError(Diagnostic("E312", message, hint=f"use a file name such as {example}"))


@contextmanager
def atomic_path(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write, and rename it to `path` on success; delete it if writing fails.

    The temporary name is random: an attacker cannot place a link there, and several processes can write the same file.
    A killed process leaves its hidden temporary file, which the next process that writes `path` removes.

    Args:
        sync: Flush the file to disk, so that a power cut cannot damage it.

    Raises:
        OSError: Writing failed; the error contains the name of the final file.
    """
    partial = _create_temporary(path)
    try:
        yield partial
        if sync:
            _flush(partial)
        os.replace(partial, path)
        if sync:
            _flush(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from None
        raise


@cache
def _machine_id() -> str:
    """Return a short hash that differs between machines and between containers, whose processes cannot see each other."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/etc/machine-id").read_text(encoding="utf-8"))
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.blake2b(repr(parts).encode(), digest_size=4).hexdigest()


def _create_temporary(path: Path) -> Path:
    """Create an empty file with a new random name in the folder of `path`; remove those of dead processes."""
    prefix = f".{path.name[:MAX_PREFIX_LENGTH]}.{_machine_id()}-"
    with suppress(OSError):
        for name in os.listdir(path.parent):
            owner = re.fullmatch(rf"{re.escape(prefix)}(\d+)-[0-9a-f]{{8}}{UNFINISHED_SUFFIX}", name)
            if owner and not psutil.pid_exists(int(owner[1])):
                path.with_name(name).unlink(missing_ok=True)
    while True:
        partial = path.with_name(f"{prefix}{os.getpid()}-{token_hex(4)}{UNFINISHED_SUFFIX}")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            return partial
        except FileExistsError:
            continue
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def remove_unfinished(folder: Path) -> None:
    """Remove the unfinished files of killed processes from a folder that no other process writes to."""
    for path in folder.glob(f".*{UNFINISHED_SUFFIX}"):
        path.unlink()


@contextmanager
def atomic_file(path: Path, *, sync: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for atomic writing; see `atomic_path`."""
    with atomic_path(path, sync=sync) as partial, partial.open("wb") as file:
        yield file


@contextmanager
def file_lock(path: Path, *, timeout: float = -1.0) -> Iterator[None]:
    """Hold an exclusive lock file, and remove it at the end.

    If the lock file is removed while another process waits for it, that process creates and locks a new file:
    `FileLock` detects the removed file by its number of links.

    Args:
        timeout: Seconds to wait for the lock; negative for no limit.

    Raises:
        filelock.Timeout: Another process or thread held the lock for longer.
        UsageError: The file system does not support locks.
    """
    lock = FileLock(path, timeout=timeout, poll_interval=0.01)
    try:
        lock.acquire()
    except Timeout:
        raise
    except OSError as error:
        if error.filename is not None:  # the file cannot be opened
            raise
        reason = (error.strerror or str(error)).lower()
        message = f"'{path}' cannot be locked: {reason}; the file system may not support file locks"
        hint = "use a folder on a local disk, or mount the file system with support for locks (flock)"
        raise UsageError(Diagnostic("E314", message, hint=hint)) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows cannot remove an open file; a remaining lock file is harmless
            path.unlink()
        lock.release()


def write_text(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a text file atomically; see `atomic_path`."""
    write_bytes(path, text.encode(), sync=sync)


def write_bytes(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a file atomically; see `atomic_path`."""
    with atomic_file(path, sync=sync) as file:
        file.write(content)


def write_array(path: Path, array: np.ndarray, *, sync: bool = True) -> None:
    """Write a `.npy` file atomically; see `atomic_path`."""
    array = np.asarray(array, order="C")
    with atomic_file(path, sync=sync) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        # `np.save` would hide the system error.
        file.write(array.reshape(-1).view(np.uint8).data)


def make_folder(folder: Path, *, sync: bool = True) -> None:
    """Create a folder and its missing parents; with `sync`, flush their names to disk."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if sync:
        for path in missing:
            _flush(path.parent)


def require_writable_folder(folder: Path) -> None:
    """Create a folder and its missing parents; call this before long work, to raise errors early.

    Raises:
        OSError: The folder cannot be created, or files cannot be created in it.
    """
    make_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def replace_folder(folder: Path, target: Path, *, sync: bool = True) -> None:
    """Rename a folder to `target` and remove the old folder of that name, atomically if the system supports it.

    Otherwise the old folder is renamed first. If the process is killed before the second rename, no `target` exists,
    and the old folder remains in the same parent folder as `.NAME.*.removed`.

    Args:
        sync: Flush the folder to disk before it is renamed, and the new name before the old folder is removed.
    """
    if sync:
        _flush_tree(folder)
    is_exchanged = target.exists() and _exchange_paths(folder, target)
    old = move_aside(target, target) if target.exists() and not is_exchanged else None
    if not is_exchanged:
        os.replace(folder, target)
    if sync:
        _flush(target.parent)
    if is_exchanged:
        remove_folder(folder)
    elif old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _flush_tree(folder: Path) -> None:
    """Flush the files of a folder and of its subfolders to disk, and then the folders."""
    for parent, _, names in os.walk(folder, topdown=False):
        for path in (Path(parent, name) for name in names):
            if path.is_file() and not path.is_symlink():
                _flush(path)
        _flush(Path(parent))


def _flush(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk, if the system supports this.

    A folder without read permission cannot be flushed, and Windows cannot flush folders.
    """
    is_folder = path.is_dir()
    if is_folder and (sys.platform == "win32" or not os.access(path, os.R_OK)):
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (*_UNSUPPORTED_ERRNOS, errno.EBADF):
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder, and complete interrupted removals. The folder is renamed first, so it is never seen partial."""
    if folder.exists():
        move_aside(folder, folder)
    for path in folder.parent.iterdir():
        if re.fullmatch(
            rf"{re.escape(f'.{folder.name[:MAX_PREFIX_LENGTH]}.')}[a-z0-9_]{{8}}{re.escape(REMOVED_SUFFIX)}",
            path.name,
        ):
            shutil.rmtree(path, ignore_errors=True)


def move_aside(folder: Path, target: Path) -> Path:
    """Rename a folder to a random name next to `target` that `remove_folder(target)` recognises; return the new path."""
    renamed = target.with_name(f".{target.name[:MAX_PREFIX_LENGTH]}.{token_hex(4)}{REMOVED_SUFFIX}")
    os.rename(folder, renamed)
    return renamed


def _exchange_paths(first: Path, second: Path) -> bool:
    """Exchange two names atomically; return False if the system or the file system does not support it."""
    if sys.platform not in ("linux", "darwin"):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(first), os.fsencode(second)
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(*paths, _RENAME_EXCHANGE)
    else:
        return False
    if failed and ctypes.get_errno() not in _UNSUPPORTED_ERRNOS:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(second))
    return not failed
