"""Rows that come in any order and are read back in one: dealt to buckets by their first field, each sorted by itself.

A row's whole numbers and single-precision numbers are packed into one 64-bit key whose order is that of the fields, so
that a bucket is sorted by one vectorised sort of integers (5 ns a row; DuckDB's ORDER BY takes 120). What the key has
no room for, and double-precision numbers, stand beside it. Buckets wait in memory or in files, as their storage decides,
and only one is held whole at a time; no two of them share a value of the first field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from relcrf.columns.storage import Storage

BUCKET_ROWS = 1 << 18
"""Rows that a bucket should have: some ten megabytes while it is sorted."""
MAX_BUCKETS = 1 << 8
"""Each may be a file."""
BATCH_ROWS = 1 << 18
"""Rows that are gathered before they are dealt to the buckets."""
KEY_BITS = 64
MAX_PAYLOAD_INTEGER = 1 << 53
"""Beside the key all numbers are of double precision: no field of larger whole numbers can stand there."""


@dataclass(frozen=True)
class IntegerField:
    """A field of whole numbers from `low` to `high - 1`, read back as int32 (int64 where they do not fit)."""

    name: str
    low: int
    high: int

    @property
    def bits(self) -> int:
        return max(self.high - self.low - 1, 0).bit_length()

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.int32 if self.low >= -(2**31) and self.high <= 2**31 else np.int64)

    def pack(self, values: np.ndarray, low: int) -> np.ndarray:
        return (values.astype(np.int64, copy=False) - low).astype(np.uint64)

    def unpack(self, codes: np.ndarray, low: int) -> np.ndarray:
        return (codes.astype(np.int64) + low).astype(self.dtype, copy=False)


@dataclass(frozen=True)
class FloatField:
    """A field of single-precision numbers."""

    name: str
    bits: ClassVar[int] = 32
    low: ClassVar[int] = 0
    dtype: ClassVar[np.dtype] = np.dtype(np.float32)

    def pack(self, values: np.ndarray, low: int) -> np.ndarray:
        """The bits of the numbers, turned so that they sort as the numbers do; -0.0 is 0.0."""
        with np.errstate(over="ignore"):  # what is too large becomes infinite
            bits = (values.astype(np.float32, copy=False) + np.float32(0)).view(np.uint32)
        sign = np.uint32(1 << 31)
        return np.where(bits & sign, ~bits, bits | sign).astype(np.uint64)

    def unpack(self, codes: np.ndarray, low: int) -> np.ndarray:
        bits = codes.astype(np.uint32)
        sign = np.uint32(1 << 31)
        return np.where(bits & sign, bits ^ sign, ~bits).view(np.float32)


@dataclass(frozen=True)
class DoubleField:
    """A field of double-precision numbers."""

    name: str


Field: TypeAlias = IntegerField | FloatField | DoubleField


class BucketSort:
    """Takes rows and gives them back sorted by all fields, in their order.

    Args:
        fields: the first is a `IntegerField`.
        rows: how many will come, about.
        is_unique: of equal rows one is kept.
    """

    def __init__(self, fields: Sequence[Field], n_rows: int, storage: Storage, *, is_unique: bool = False) -> None:
        first = fields[0]
        assert isinstance(first, IntegerField)
        self._first, self._fields, self._storage, self._is_unique = first, tuple(fields), storage, is_unique
        span = max(first.high - first.low, 1)
        wanted = min(max(n_rows // BUCKET_ROWS, 1), MAX_BUCKETS, span)
        total = sum(f.bits for f in fields if not isinstance(f, DoubleField))
        if total > KEY_BITS:
            wanted = max(wanted, min(1 << (total - KEY_BITS), MAX_BUCKETS, span))
        self._bucket_width = -(-span // wanted)
        """Values of the first field that share a bucket."""
        self._key_fields, self._payload_fields = self._lay_out_fields()
        n_buckets = -(-span // self._bucket_width)
        self._keys = [storage.column(np.uint64) for _ in range(n_buckets)]
        self._payloads = [
            storage.column(np.float64, len(self._payload_fields))
            for _ in range(n_buckets if self._payload_fields else 0)
        ]
        self._pending: list[dict[str, np.ndarray]] = []
        self._n_pending = 0
        self.n_added = 0

    def _lay_out_fields(self) -> tuple[list[tuple[IntegerField | FloatField, int]], list[Field]]:
        """The fields of the key, each with the place of its lowest bit, and those that stand beside it."""
        room = KEY_BITS - (self._bucket_width - 1).bit_length()
        keyed: list[IntegerField | FloatField] = [self._first]
        beside: list[Field] = []
        for field in self._fields[1:]:
            if isinstance(field, DoubleField) or beside or field.bits > room:
                assert (
                    not isinstance(field, IntegerField)
                    or -MAX_PAYLOAD_INTEGER <= field.low <= field.high <= MAX_PAYLOAD_INTEGER
                )
                beside.append(field)
            else:
                keyed.append(field)
                room -= field.bits
        shift = 0
        placed: list[tuple[IntegerField | FloatField, int]] = []
        for field in reversed(keyed):
            placed.insert(0, (field, shift))
            shift += field.bits
        return placed, beside

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Adds rows: a column for each field, which is copied."""
        self._pending.append({f.name: np.array(batch[f.name]) for f in self._fields})
        self._n_pending += len(batch[self._first.name])
        if self._n_pending >= BATCH_ROWS:
            self._distribute()

    def buckets(self) -> Iterator[dict[str, np.ndarray]]:
        """The rows, bucket by bucket; each is gone when the next is asked for. Nothing can be added after that."""
        self._distribute()
        self._keys.reverse()
        self._payloads.reverse()
        for number in range(len(self._keys)):
            key = self._keys.pop().take()
            payload = self._payloads.pop().take() if self._payload_fields else None
            if len(key):
                yield self._sort_bucket(number, key, payload)

    def _distribute(self) -> None:
        if not self._n_pending:
            return
        waiting, self._pending, self._n_pending = self._pending, [], 0
        if len(waiting) == 1:
            (batch,) = waiting
        else:
            batch = {name: np.concatenate([each[name] for each in waiting]) for name in waiting[0]}
        del waiting
        first = self._first.pack(batch[self._first.name], self._first.low)
        self.n_added += len(first)
        bucket = None
        if len(self._keys) > 1:  # to divide by a number and multiply is vectorised, divmod is not
            bucket = first // np.uint64(self._bucket_width)
            first -= bucket * np.uint64(self._bucket_width)
        key = np.zeros(len(first), dtype=np.uint64)
        for field, shift in self._key_fields:
            code = first if field is self._first else field.pack(batch[field.name], field.low)
            key |= code << np.uint64(shift)
        # To add 0.0 makes 0.0 of -0.0: equal numbers have equal bits, so that rows may come in any order.
        payload = np.column_stack([batch[f.name] for f in self._payload_fields]) + 0.0 if self._payload_fields else None
        if bucket is None:
            self._append(0, key, payload)
            return
        bucket = bucket.astype(np.uint16)
        if (bucket[1:] < bucket[:-1]).any():
            order = np.argsort(bucket, kind="stable")
            key, bucket = key[order], bucket[order]
            payload = None if payload is None else payload[order]
        numbers = np.arange(len(self._keys), dtype=np.uint16)
        starts = np.append(np.searchsorted(bucket, numbers), len(bucket))
        for number in np.flatnonzero(np.diff(starts)):
            part = slice(int(starts[number]), int(starts[number + 1]))
            self._append(int(number), key[part], None if payload is None else payload[part])

    def _append(self, number: int, key: np.ndarray, payload: np.ndarray | None) -> None:
        self._keys[number].append(key)
        if payload is not None:
            self._payloads[number].append(payload)

    def _sort_bucket(self, number: int, key: np.ndarray, payload: np.ndarray | None) -> dict[str, np.ndarray]:
        if payload is None:
            key.sort()
            if self._is_unique:
                key = key[_differs_from_previous(key)]
        else:
            order = np.argsort(key)
            key, payload = key[order], payload[order]
            if not _differs_from_previous(key).all():
                order = np.lexsort((*payload.T[::-1], key))
                key, payload = key[order], payload[order]
            if self._is_unique:
                kept = _differs_from_previous(key)
                kept[1:] |= (payload[1:] != payload[:-1]).any(axis=1)
                key, payload = key[kept], payload[kept]
        out = {}
        for field, shift in self._key_fields:
            is_first = field is self._first
            code = key >> np.uint64(shift)
            if not is_first:
                code &= np.uint64((1 << field.bits) - 1)
            out[field.name] = field.unpack(code, field.low + number * self._bucket_width if is_first else field.low)
        for k, beside in enumerate(self._payload_fields):
            assert payload is not None
            out[beside.name] = payload[:, k] if isinstance(beside, DoubleField) else payload[:, k].astype(beside.dtype)
        return out


def _differs_from_previous(key: np.ndarray) -> np.ndarray:
    """Where a sorted key differs from the one before."""
    new = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=new[1:])
    return new


def chunk_sorted_batches(
    batches: Iterable[Mapping[str, np.ndarray]], fields: Sequence[Field]
) -> Iterator[dict[str, np.ndarray]]:
    """Rows that come sorted by their first two fields, cut so that no two parts share a value of the first.

    Raises:
        ValueError: where they are not sorted.
    """
    names = [field.name for field in fields]
    singles = {field.name for field in fields if isinstance(field, FloatField)}
    rest: dict[str, np.ndarray] = {}
    for batch in batches:
        columns = {n: batch[n].astype(np.float32) if n in singles else np.asarray(batch[n]) for n in names}
        part = {n: np.concatenate((rest[n], c)) for n, c in columns.items()} if rest else columns
        first, second = part[names[0]], part[names[1]]
        rises = (first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] >= second[:-1]))
        if not rises.all():
            raise ValueError("the rows are not sorted")
        cut = int(np.searchsorted(first, first[-1]))
        rest = {n: np.array(c[cut:]) for n, c in part.items()}
        if cut:
            yield {n: c[:cut] for n, c in part.items()}
    if rest:
        yield rest
