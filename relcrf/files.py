"""Files and folders that are there whole or not at all, whenever the process that writes them is ended."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

import numpy as np
from filelock import FileLock

from relcrf.errors import Diagnostic, UsageError

UNFINISHED_SUFFIX, REMOVED_SUFFIX = ".writing", ".removed"
MAX_PREFIX_LENGTH = 40
"""Characters of a name that a drawn one begins with: a whole one might be too long."""

_AT_FDCWD = -100
"""AT_FDCWD of Linux: paths are as the process sees them."""
_RENAME_EXCHANGE = 2
"""RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS."""
_UNSUPPORTED_ERRNOS = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def require_suffix(path: Path, suffixes: Sequence[str], example: str) -> None:
    """Validate the name of a file that will be written, before any work is done.

    Args:
        example: A name that is valid, for the hint.

    Raises:
        UsageError: The path has another ending, or is a folder.
    """
    if path.suffix not in suffixes or path.is_dir():
        message = f"'{path}' is a folder" if path.is_dir() else f"'{path}' does not end in {' or '.join(suffixes)}"
        raise UsageError(Diagnostic("E312", message, hint=f"name a file such as {example}"))


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Another name to write a file to, which gets its own when it is whole; where writing fails nothing is left of it.

    The name is drawn: no link that somebody has laid out answers to it, nor another process that writes the same file. A process
    that is killed leaves a hidden file; see `remove_unfinished`.

    Raises:
        OSError: with the file's name.
    """
    partial = _create_temporary(path)
    try:
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from None
        raise


def _create_temporary(path: Path) -> Path:
    """Makes an empty file beside a path, under a name that nothing had."""
    while True:
        partial = path.with_name(f".{path.name[:MAX_PREFIX_LENGTH]}.{token_hex(4)}{UNFINISHED_SUFFIX}")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            return partial
        except FileExistsError:
            continue
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def remove_unfinished(folder: Path) -> None:
    """Removes what killed processes have left of files in a folder that nobody else writes to."""
    for path in folder.glob(f".*{UNFINISHED_SUFFIX}"):
        path.unlink()


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, as `atomic_path`."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        yield file


@contextmanager
def file_lock(path: Path, *, timeout: float = -1.0) -> Iterator[None]:
    """Hold a lock file, which one process and thread holds at a time, and remove it at the end.

    Who waits for a file that is removed meanwhile takes the next one of its name: `FileLock` looks at the number of links.

    Args:
        timeout: seconds to wait for whoever holds it; a negative number is any time.

    Raises:
        filelock.Timeout: where somebody holds it for longer.
    """
    with FileLock(path, timeout=timeout, poll_interval=0.01):
        try:
            yield
        finally:
            with suppress(OSError):  # on Windows an open file cannot be removed, and one that is left does no harm
                path.unlink()


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode())


def write_array(path: Path, array: np.ndarray) -> None:
    """Writes a `.npy` file, whole or not at all."""
    array = np.asarray(array, order="C")
    with atomic_file(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        # `np.save` hides why the system refuses.
        file.write(array.reshape(-1).view(np.uint8).data)


def replace_folder(folder: Path, target: Path) -> None:
    """Renames a folder to a place where another may stand, which goes. At every moment one of them stands there.

    Where the system cannot exchange two names at once the former folder is renamed first; if the process is ended between the
    two renames, it stands beside its place as `.NAME.*.removed`.
    """
    if not target.exists():
        os.replace(folder, target)
    elif _exchange_paths(folder, target):
        remove_folder(folder)
    else:
        former = move_aside(target, target)
        os.replace(folder, target)
        shutil.rmtree(former, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Removes a folder, and what killed processes have left of others of its name. Ended in the middle of it, it does not leave
    a part of it under its name.
    """
    if folder.exists():
        move_aside(folder, folder)
    for former in folder.parent.iterdir():
        if re.fullmatch(
            rf"{re.escape(f'.{folder.name[:MAX_PREFIX_LENGTH]}.')}[a-z0-9_]{{8}}{re.escape(REMOVED_SUFFIX)}",
            former.name,
        ):
            shutil.rmtree(former, ignore_errors=True)


def move_aside(folder: Path, target: Path) -> Path:
    """Gives a folder a drawn name beside a place, by which `remove_folder` of that place finds it; returns it."""
    former = Path(
        tempfile.mkdtemp(prefix=f".{target.name[:MAX_PREFIX_LENGTH]}.", suffix=REMOVED_SUFFIX, dir=target.parent)
    )
    os.replace(folder, former)
    return former


def _exchange_paths(first: Path, second: Path) -> bool:
    """Whether the system has exchanged two names in one step; some systems and file systems cannot."""
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
