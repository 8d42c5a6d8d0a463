"""Files and folders that are there whole or not at all, whenever the process that writes them is ended."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

_HERE = -100
"""AT_FDCWD of Linux: paths are as the process sees them."""
_EXCHANGE = 2
"""RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS."""
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextmanager
def whole_path(path: Path) -> Iterator[Path]:
    """Another name to write a file to, which gets its own when it is whole; where writing fails nothing is left of it.

    Raises:
        OSError: with the file's name.
    """
    partial = path.with_name(f".{path.name}.writing")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from None
        raise


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, as `whole_path`."""
    with whole_path(path) as partial, partial.open("wb") as file:
        yield file


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
    two renames, it stands beside its place as `NAME.replaced`.
    """
    former = place.with_name(place.name + ".replaced")
    shutil.rmtree(former, ignore_errors=True)
    if not place.exists():
        os.replace(folder, place)
        return
    if _exchanged(folder, place):
        os.replace(folder, former)
    else:
        os.replace(place, former)
        os.replace(folder, place)
    shutil.rmtree(former, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Removes a folder; ended in the middle of it, it does not leave a part of it under its name."""
    former = folder.with_name(folder.name + ".removed")
    shutil.rmtree(former, ignore_errors=True)
    if folder.exists():
        os.replace(folder, former)
        shutil.rmtree(former, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the system has exchanged two names in one step; some systems and file systems cannot."""
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
