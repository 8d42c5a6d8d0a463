"""Columns that grow: in memory while all of them together are small, in `.npy` files beyond that."""

from __future__ import annotations

import math
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
"""What it raises to read files that are not as they were written."""

INITIAL_ROWS = 1 << 12


@dataclass
class Storage:
    """Where columns are kept.

    Args:
        folder: of the files; it exists.
        max_bytes: bytes that all columns in memory may take together; 0 puts every column in a file at once.
    """

    folder: Path
    max_bytes: int
    used_bytes: int = 0
    written_bytes: int = 0
    """Bytes that went to files."""
    _names: Counter[str] = field(default_factory=Counter, repr=False)

    def column(self, dtype: np.dtype | type, width: int = 0, name: str | None = None) -> ColumnBuilder:
        """A new column; of shape (n,), or (n, width) where a width is given.

        Args:
            name: of its file, without the ending; columns of one name are numbered.
        """
        name = name or "column"
        number, self._names[name] = self._names[name], self._names[name] + 1
        file = f"{name}-{number}.npy" if number else f"{name}.npy"
        return ColumnBuilder(self, self.folder / file, np.dtype(dtype), width)


class ColumnBuilder:
    """One column that is appended to, and then read."""

    def __init__(self, storage: Storage, path: Path, dtype: np.dtype, width: int = 0) -> None:
        self._storage, self._path, self._dtype, self._width = storage, path, dtype, width
        self._row_shape = (width,) if width else ()
        self._buffer = np.empty((0, *self._row_shape), dtype=dtype)
        self._has_file = False
        """Its file is open only while it is written to: there may be more columns than open files."""
        self._memory_bytes = 0
        """Bytes that the storage counts for it."""
        self.size = 0
        if storage.max_bytes == 0:
            self._move_to_file()

    def __len__(self) -> int:
        return self.size

    def __del__(self) -> None:
        """Of a column that was neither finished nor taken nothing is left."""
        _release_bytes(self._storage, self._memory_bytes)
        if self._has_file:
            self._path.unlink(missing_ok=True)

    def append(self, values: np.ndarray) -> None:
        """Adds values at the end; they are cast to the column's type."""
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
        """The whole column, read-only: an array, or a map of the file. Nothing can be appended after that.

        An array in memory counts as used for as long as it lives.
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
        """The whole column as an array of the caller's own; the column and its file are gone."""
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
            # Large buffers are moved by the kernel and not copied, and pages that nobody wrote to take no memory.
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
    """A finished column of a file, mapped; an empty one as an array, for nothing cannot be mapped.

    Raises:
        OSError, ValueError: where the file is missing, or no whole column.
    """
    with path.open("rb") as file:
        is_first = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if file.tell() + math.prod(shape) * dtype.itemsize != path.stat().st_size:
            raise ValueError(f"{path.name} is not as long as it says")
    if 0 in shape:
        return np.empty(shape, dtype=dtype)
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def find_mapped_file(column: np.ndarray) -> Path | None:
    """The file that a column is a map of; None for an array in memory or a part of a map."""
    base: object = column
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return Path(str(base.filename)) if base.nbytes == column.nbytes else None
        base = base.base
    return None


def read_rows(column: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Some rows of a finished column. Of a file they are read and not mapped, so that they take no memory afterwards."""
    path = find_mapped_file(column)
    if path is None:
        return column[start:stop]
    rows = min(stop, len(column)) - start
    width = column.nbytes // max(len(column), 1)
    offset = path.stat().st_size - column.nbytes + start * width
    count = rows * width // column.dtype.itemsize
    return np.fromfile(path, dtype=column.dtype, count=count, offset=offset).reshape(-1, *column.shape[1:])


def _release_bytes(storage: Storage, n_bytes: int) -> None:
    storage.used_bytes -= n_bytes


def _write_header(file: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """The header of a `.npy` file; it leaves room for the first axis to grow, so that it can be written again in place."""
    file.seek(0)
    facts = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, facts)


def _skip_header(file: IO[bytes], dtype: np.dtype, row: tuple[int, ...]) -> None:
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_2_0(file)
