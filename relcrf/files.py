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

UNFINISHED, REMOVED = ".writing", ".removed"
SHOWN = 40
"""Characters of a name that a drawn one begins with: a whole one might be too long."""

_HERE = -100
"""AT_FDCWD of Linux: paths are as the process sees them."""
_EXCHANGE = 2
"""RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS."""
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def require_ending(path: Path, endings: Sequence[str], example: str) -> None:
    """Validate the name of a file that will be written, before any work is done.

    Args:
        example: A name that is valid, for the hint.

    Raises:
        UsageError: The path has another ending, or is a folder.
    """
    if path.suffix not in endings or path.is_dir():
        message = f"'{path}' is a folder" if path.is_dir() else f"'{path}' does not end in {' or '.join(endings)}"
        raise UsageError(Diagnostic("E312", message, hint=f"name a file such as {example}"))


@contextmanager
def whole_path(path: Path) -> Iterator[Path]:
    """Another name to write a file to, which gets its own when it is whole; where writing fails nothing is left of it.

    The name is drawn: no link that somebody has laid out answers to it, nor another process that writes the same file. A process
    that is killed leaves a hidden file; see `remove_unfinished`.

    Raises:
        OSError: with the file's name.
    """
    partial = _drawn(path)
    try:
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from None
        raise


def _drawn(path: Path) -> Path:
    """Makes an empty file beside a path, under a name that nothing had."""
    while True:
        partial = path.with_name(f".{path.name[:SHOWN]}.{token_hex(4)}{UNFINISHED}")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            return partial
        except FileExistsError:
            continue
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def remove_unfinished(folder: Path) -> None:
    """Removes what killed processes have left of files in a folder that nobody else writes to."""
    for path in folder.glob(f".*{UNFINISHED}"):
        path.unlink()


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, as `whole_path`."""
    with whole_path(path) as partial, partial.open("wb") as file:
        yield file


@contextmanager
def locked(path: Path, *, timeout: float = -1.0) -> Iterator[None]:
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
    with whole_file(path) as file:
        file.write(text.encode())


def write_array(path: Path, array: np.ndarray) -> None:
    """Writes a `.npy` file, whole or not at all."""
    array = np.asarray(array, order="C")
    with whole_file(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        # `np.save` hides why the system refuses.
        file.write(array.reshape(-1).view(np.uint8).data)


def put_in_place(folder: Path, place: Path) -> None:
    """Renames a folder to a place where another may stand, which goes. At every moment one of them stands there.

    Where the system cannot exchange two names at once the former folder is renamed first; if the process is ended between the
    two renames, it stands beside its place as `.NAME.*.removed`.
    """
    if not place.exists():
        os.replace(folder, place)
    elif _exchanged(folder, place):
        remove_folder(folder)
    else:
        former = move_aside(place, place)
        os.replace(folder, place)
        shutil.rmtree(former, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Removes a folder, and what killed processes have left of others of its name. Ended in the middle of it, it does not leave
    a part of it under its name.
    """
    if folder.exists():
        move_aside(folder, folder)
    for former in folder.parent.iterdir():
        if re.fullmatch(rf"{re.escape(f'.{folder.name[:SHOWN]}.')}[a-z0-9_]{{8}}{re.escape(REMOVED)}", former.name):
            shutil.rmtree(former, ignore_errors=True)


def move_aside(folder: Path, place: Path) -> Path:
    """Gives a folder a drawn name beside a place, by which `remove_folder` of that place finds it; returns it."""
    former = Path(tempfile.mkdtemp(prefix=f".{place.name[:SHOWN]}.", suffix=REMOVED, dir=place.parent))
    os.replace(folder, former)
    return former


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the system has exchanged two names in one step; some systems and file systems cannot."""
    if sys.platform not in ("linux", "darwin"):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        failed = library.renameat2(_HERE, paths[0], _HERE, paths[1], _EXCHANGE)
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(*paths, _EXCHANGE)
    else:
        return False
    if failed and ctypes.get_errno() not in _CANNOT:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))
    return not failed
