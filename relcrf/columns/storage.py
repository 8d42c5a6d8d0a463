"""Storage of columns under construction: in memory up to a limit on the total size, and beyond it in `.npy` files."""

from __future__ import annotations

import math
import mmap
import weakref
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

READ_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    EOFError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    TokenError,
)
"""Exceptions that reading damaged files may raise."""

INITIAL_ROWS = 1 << 12
"""Minimum capacity of a buffer in memory, in rows."""


@dataclass
class Storage:
    """A store of columns in memory or in the files of a folder.

    Args:
        folder: an existing folder for the files.
        max_bytes: maximum size of all columns in memory together; 0 stores every column in a file from the start.
        used_bytes: current size of all columns in memory.
        written_bytes: number of bytes written to files.
    """

    folder: Path
    max_bytes: int
    used_bytes: int = 0
    written_bytes: int = 0
    _names: Counter[str] = field(default_factory=Counter, repr=False)

    def column(self, dtype: np.dtype | type, width: int = 0, name: str | None = None) -> ColumnBuilder:
        """Return a builder of a column of shape (n,), or (n, width) if a width is given.

        Args:
            name: file name without suffix. A number is appended for each further column of the same name.
        """
        name = name or "column"
        number, self._names[name] = self._names[name], self._names[name] + 1
        file = f"{name}-{number}.npy" if number else f"{name}.npy"
        return ColumnBuilder(self, file, np.dtype(dtype), width)


class ColumnBuilder:
    """A builder of a column: `append` adds values, then one call of `finish` or `take` returns the column."""

    def __init__(self, storage: Storage, file: str, dtype: np.dtype, width: int = 0) -> None:
        self._storage, self._file, self._dtype, self._width = storage, file, dtype, width
        self._row_shape = (width,) if width else ()
        self._buffer = np.empty((0, *self._row_shape), dtype=dtype)
        self._has_file = False
        """True if the column is in a file. It is open only during writes, because file descriptors are limited."""
        self._memory_bytes = 0
        """Number of bytes that the storage counts for this column."""
        self.size = 0
        if storage.max_bytes == 0:
            self._move_to_file()

    def __len__(self) -> int:
        return self.size

    @property
    def _path(self) -> Path:
        """The path of the file, which most columns do not have. pathlib interns the name of each path that is created."""
        return self._storage.folder / self._file

    def __del__(self) -> None:
        """Release the memory and remove the file of a column that was neither finished nor taken."""
        _release_bytes(self._storage, self._memory_bytes)
        if self._has_file:
            self._path.unlink(missing_ok=True)

    def append(self, values: np.ndarray) -> None:
        """Append values, cast to the dtype of the column."""
        values = np.ascontiguousarray(values, dtype=self._dtype)
        if not self._has_file and self._storage.used_bytes + values.nbytes > self._storage.max_bytes:
            self._move_to_file()
        if self._has_file:
            self._append_to_file(values)
        else:
            self._reserve(self.size + len(values))
            self._buffer[self.size : self.size + len(values)] = values
            self._storage.used_bytes += values.nbytes
            self._memory_bytes += values.nbytes
        self.size += len(values)

    def finish(self) -> np.ndarray:
        """Return the complete, read-only column: an array, or a memory map of its file. Do not append afterwards.

        The storage counts the memory of an array as used until the array is garbage-collected.
        """
        if not self._has_file:
            self._buffer.resize((self.size, *self._row_shape), refcheck=False)
            out = self._buffer
            weakref.finalize(out, _release_bytes, self._storage, out.nbytes)
            self._memory_bytes = 0
        else:
            with self._path.open("r+b") as file:
                _write_header(file, self._dtype, (self.size, *self._row_shape))
            out = open_column(self._path)
            self._has_file = False
        del self._buffer
        out.flags.writeable = False
        return out

    def take(self) -> np.ndarray:
        """Return the complete column as a writable array that the caller owns; remove the file."""
        if not self._has_file:
            out = self._buffer
            del self._buffer
            out.resize((self.size, *self._row_shape), refcheck=False)
            _release_bytes(self._storage, self._memory_bytes)
            self._memory_bytes = 0
            return out
        with self._path.open("rb") as file:
            _skip_header(file, self._dtype, self._row_shape)
            out = np.fromfile(file, dtype=self._dtype).reshape(-1, *self._row_shape)
        self._path.unlink()
        self._has_file = False
        return out

    def _reserve(self, rows: int) -> None:
        if rows > len(self._buffer):
            # Linux remaps large buffers without copying them, and pages that were never written use no memory.
            self._buffer.resize((max(rows, INITIAL_ROWS, len(self._buffer) * 3 // 2), *self._row_shape), refcheck=False)

    def _move_to_file(self) -> None:
        with self._path.open("wb") as file:
            _write_header(file, self._dtype, (0, *self._row_shape))
        self._has_file = True
        self._append_to_file(self._buffer[: self.size])
        _release_bytes(self._storage, self._memory_bytes)
        self._memory_bytes = 0
        self._buffer = np.empty((0, *self._row_shape), dtype=self._dtype)

    def _append_to_file(self, values: np.ndarray) -> None:
        with self._path.open("ab") as file:
            file.write(values.reshape(-1).view(np.uint8).data)
        self._storage.written_bytes += values.nbytes


def open_column(path: Path) -> np.ndarray:
    """Open the file of a finished column as a memory map, or as an array if it is empty and cannot be mapped.

    Raises:
        OSError, ValueError: if the file is missing, or is not a complete column.
    """
    with path.open("rb") as file:
        is_first = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if file.tell() + math.prod(shape) * dtype.itemsize != path.stat().st_size:
            raise ValueError(f"the size of {path.name} does not match its header")
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def find_mapped_file(column: np.ndarray) -> Path | None:
    """Return the file of which a column is the complete memory map; None for an array in memory or a slice of a map."""
    base: object = column
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return Path(str(base.filename)) if base.nbytes == column.nbytes else None
        base = base.base
    return None


def read_rows(column: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return rows start..stop-1 of a finished column.

    The rows of a memory-mapped column are read from its file. Pages that are accessed through the map would stay in
    memory.
    """
    path = find_mapped_file(column)
    if path is None:
        return column[start:stop]
    rows = min(stop, len(column)) - start
    width = column.nbytes // max(len(column), 1)
    offset = path.stat().st_size - column.nbytes + start * width
    count = rows * width // column.dtype.itemsize
    return np.fromfile(path, dtype=column.dtype, count=count, offset=offset).reshape(-1, *column.shape[1:])


def release_pages(column: np.ndarray) -> None:
    """Remove the pages of a column that is mapped from a file from the memory of this process; an access maps them again."""
    base: object = column
    while isinstance(base, np.ndarray):
        is_read_only = isinstance(base, np.memmap) and base.mode == "r"
        base = base.base
        if is_read_only and isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            base.madvise(mmap.MADV_DONTNEED)


def _release_bytes(storage: Storage, n_bytes: int) -> None:
    storage.used_bytes -= n_bytes


def _write_header(file: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Write the header of a `.npy` file. NumPy pads it, so that a header for a longer first axis can overwrite it."""
    file.seek(0)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, header)


def _skip_header(file: IO[bytes], dtype: np.dtype, row: tuple[int, ...]) -> None:
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_2_0(file)
