"""Long sequences of texts, stored as bytes in the storage of columns instead of Python strings.

A Python string of a short word takes about 60 bytes besides its reference; here, a text takes its UTF-8 bytes and an offset of
8 bytes, in files if the storage is full. The sequences have the interface of tuples, but decode texts only when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np

from relcrf.columns.storage import Storage, read_rows

BLOCK_TEXTS = 1 << 13
"""Number of texts that are decoded at a time while a sequence is read."""

MAX_SINGLE_READS = 100
"""Texts are read one by one if at most one in this number is needed, between the first and the last; else all of these are
decoded, which is faster."""

MAX_HELD_TEXTS = 100_000
"""Number of texts up to which a tuple is used, which is faster; it takes about 10 MB."""


class StoredTexts(Sequence[str]):
    """An immutable sequence of texts in the storage of columns.

    Args:
        text: The UTF-8 bytes of all texts, shape (n_bytes,), uint8.
        start: The start of each text in `text`, shape (n + 1,), int64.
    """

    def __init__(self, text: np.ndarray, start: np.ndarray) -> None:
        self._text, self._start = text, start

    def __len__(self) -> int:
        return len(self._start) - 1

    def __repr__(self) -> str:
        return f"StoredTexts({len(self):,} texts)"

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            first, stop, step = index.indices(len(self))
            if step == 1:
                return StoredTexts(self._text, self._start[first : max(first, stop) + 1])
            return tuple(self[k] for k in range(first, stop, step))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        (text,) = self._decode(index % len(self), index % len(self) + 1)
        return text

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), BLOCK_TEXTS):
            yield from self._decode(first, min(first + BLOCK_TEXTS, len(self)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, StoredTexts | tuple) or len(self) != len(other):
            return NotImplemented if not isinstance(other, StoredTexts | tuple) else False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.fromiter(self, dtype=object, count=len(self))

    def __contains__(self, text: object) -> bool:
        return any(each == text for each in self)

    def index(self, text: str, start: int = 0, stop: int | None = None) -> int:
        """Return the index of a text; raise ValueError if there is none."""
        for k, each in enumerate(self[start:stop], start):
            if each == text:
                return k
        raise ValueError(f"{text!r} is not in the sequence")

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Return the texts at some indices, shape (n,), object; each distinct text is decoded once."""
        distinct, inverse = np.unique(indices, return_inverse=True)
        if not len(distinct):
            return np.empty(0, dtype=object)
        first, stop = int(distinct[0]), int(distinct[-1]) + 1
        if stop - first <= MAX_SINGLE_READS * len(distinct):
            near = np.fromiter(self[first:stop], dtype=object, count=stop - first)
            return np.asarray(near[distinct - first][inverse])
        texts = np.fromiter((self[int(k)] for k in distinct), dtype=object, count=len(distinct))
        return np.asarray(texts[inverse])

    @cached_property
    def nbytes(self) -> int:
        """The number of bytes in memory or in files."""
        return int(self._text.nbytes + self._start.nbytes)

    def _decode(self, first: int, stop: int) -> list[str]:
        bounds = read_rows(self._start, first, stop + 1)
        text = read_rows(self._text, int(bounds[0]), int(bounds[-1])).tobytes()
        return [text[a:b].decode() for a, b in pairwise((bounds - bounds[0]).tolist())]


class TextRows(Sequence[tuple[str, ...]]):
    """An immutable sequence of tuples of texts, one text of each column: row k contains `columns[i][codes[i][k]]`.

    Args:
        columns: The texts of each column.
        codes: For each column, the index of the text of each row, shape (n,); None if row k contains text k.
    """

    def __init__(self, columns: Sequence[Sequence[str]], codes: Sequence[np.ndarray] | None = None) -> None:
        self._columns, self._codes = tuple(columns), codes

    def __len__(self) -> int:
        return len(self._columns[0] if self._codes is None else self._codes[0])

    def __repr__(self) -> str:
        return f"TextRows({len(self):,} rows)"

    @overload
    def __getitem__(self, index: int) -> tuple[str, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, ...]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, ...] | Sequence[tuple[str, ...]]:
        if isinstance(index, slice):
            if self._codes is None:
                return TextRows([column[index] for column in self._columns])
            return TextRows(self._columns, [codes[index] for codes in self._codes])
        if self._codes is None:
            return tuple(column[index] for column in self._columns)
        return tuple(column[int(codes[index])] for column, codes in zip(self._columns, self._codes, strict=True))

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        if self._codes is None:
            return iter(zip(*self._columns, strict=True))
        return self._iter_decoded(self._codes)

    def _iter_decoded(self, codes: Sequence[np.ndarray]) -> Iterator[tuple[str, ...]]:
        for first in range(0, len(self), BLOCK_TEXTS):
            block = slice(first, first + BLOCK_TEXTS)
            texts = [take_texts(column, each[block]) for column, each in zip(self._columns, codes, strict=True)]
            yield from zip(*texts, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextRows | tuple):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))


def store_texts(batches: Iterable[np.ndarray], count: int, storage: Storage) -> Sequence[str]:
    """Return texts that arrive in batches, shape (n,), object, as a tuple or, if there are many, as stored texts."""
    if count <= MAX_HELD_TEXTS:
        return tuple(text for batch in batches for text in batch)
    text, start = storage.column(np.uint8), storage.column(np.int64)
    start.append(np.zeros(1, dtype=np.int64))
    n_bytes = 0
    for batch in batches:
        encoded = [each.encode() for each in batch]
        ends = n_bytes + np.cumsum([len(each) for each in encoded], dtype=np.int64)
        n_bytes = int(ends[-1]) if len(ends) else n_bytes
        text.append(np.frombuffer(b"".join(encoded), dtype=np.uint8))
        start.append(ends)
    return StoredTexts(text.finish(), start.finish())


def take_texts(texts: Sequence[str], indices: np.ndarray) -> np.ndarray:
    """Return the texts at some indices, shape (n,), object."""
    return texts.take(indices) if isinstance(texts, StoredTexts) else np.asarray(texts, dtype=object)[indices]
