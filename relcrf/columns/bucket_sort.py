"""Out-of-core bucket sort of rows: rows are distributed to buckets by their first field, and each bucket is sorted separately.

The integers and single-precision numbers of a row are packed into a 64-bit *key*, which sorts like the fields. One
vectorised sort of integers therefore sorts a bucket (5 ns per row; ORDER BY of DuckDB takes 120 ns). Double-precision
numbers and fields that do not fit into the key are stored separately as the row's *payload*. A `Storage` holds the
buckets in memory or in files; only one bucket is loaded at a time. All rows with the same value of the first field are
in the same bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from relcrf.columns.storage import Storage

BUCKET_ROWS = 1 << 18
"""Target number of rows per bucket; the sort of one bucket takes about 10 MB of memory."""
MAX_BUCKETS = 1 << 8
"""Maximum number of buckets, limited because each bucket may be a file."""
BATCH_ROWS = 1 << 18
"""Number of rows that are collected before they are distributed to the buckets."""
KEY_BITS = 64
"""Number of bits of the sort key, which is a machine word."""
MAX_PAYLOAD_INTEGER = 1 << 53
"""Maximum absolute value of an integer in the payload, which is stored in double precision."""


@dataclass(frozen=True)
class IntegerField:
    """A field of integers from `low` to `high - 1`, returned as int32 or, if the range does not fit, as int64."""

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
        """Return integers with the order of the numbers, computed from their bits; -0.0 is treated as 0.0."""
        with np.errstate(over="ignore"):  # values beyond the range become infinite
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
    """An out-of-core sort of rows by all fields in order.

    Args:
        fields: fields of a row; the first one is an `IntegerField`.
        n_rows: expected number of rows, approximately.
        storage: the store for the buckets.
        is_unique: whether to remove duplicate rows.
    """

    def __init__(self, fields: Sequence[Field], n_rows: int, storage: Storage, *, is_unique: bool = False) -> None:
        first = fields[0]
        assert isinstance(first, IntegerField)
        self._first, self._fields, self._storage, self._is_unique = first, tuple(fields), storage, is_unique
        span = max(first.high - first.low, 1)
        n_wanted = min(max(n_rows // BUCKET_ROWS, 1), MAX_BUCKETS, span)
        n_bits = sum(f.bits for f in fields if not isinstance(f, DoubleField))
        if n_bits > KEY_BITS:
            n_wanted = max(n_wanted, min(1 << (n_bits - KEY_BITS), MAX_BUCKETS, span))
        self._bucket_width = -(-span // n_wanted)
        """Number of values of the first field per bucket."""
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
        """Return the fields of the key, each with the position of its lowest bit, and the fields of the payload."""
        free_bits = KEY_BITS - (self._bucket_width - 1).bit_length()
        key_fields: list[IntegerField | FloatField] = [self._first]
        payload_fields: list[Field] = []
        for field in self._fields[1:]:
            if isinstance(field, DoubleField) or payload_fields or field.bits > free_bits:
                assert (
                    not isinstance(field, IntegerField)
                    or -MAX_PAYLOAD_INTEGER <= field.low <= field.high <= MAX_PAYLOAD_INTEGER
                )
                payload_fields.append(field)
            else:
                key_fields.append(field)
                free_bits -= field.bits
        shift = 0
        placed_fields: list[tuple[IntegerField | FloatField, int]] = []
        for field in reversed(key_fields):
            placed_fields.insert(0, (field, shift))
            shift += field.bits
        return placed_fields, payload_fields

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Add rows, given as one column per field; the columns are copied."""
        self._pending.append({f.name: np.array(batch[f.name]) for f in self._fields})
        self._n_pending += len(batch[self._first.name])
        if self._n_pending >= BATCH_ROWS:
            self._distribute()

    def buckets(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the sorted buckets, each freed when the next one is requested. Rows cannot be added after this call."""
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
        batches, self._pending, self._n_pending = self._pending, [], 0
        if len(batches) == 1:
            (batch,) = batches
        else:
            batch = {name: np.concatenate([one_batch[name] for one_batch in batches]) for name in batches[0]}
        del batches
        first = self._first.pack(batch[self._first.name], self._first.low)
        self.n_added += len(first)
        bucket = None
        if len(self._keys) > 1:  # NumPy vectorises division and multiplication, but not divmod
            bucket = first // np.uint64(self._bucket_width)
            first -= bucket * np.uint64(self._bucket_width)
        key = np.zeros(len(first), dtype=np.uint64)
        for field, shift in self._key_fields:
            code = first if field is self._first else field.pack(batch[field.name], field.low)
            key |= code << np.uint64(shift)
        # Adding 0.0 turns -0.0 into 0.0. Equal rows then have equal bits, so that the input order has no effect.
        payload = np.column_stack([batch[f.name] for f in self._payload_fields]) + 0.0 if self._payload_fields else None
        if bucket is None:
            self._append(0, key, payload)
            return
        bucket = bucket.astype(np.uint16)
        if (bucket[1:] < bucket[:-1]).any():
            order = np.argsort(bucket, kind="stable")
            key, bucket = key[order], bucket[order]
            payload = None if payload is None else payload[order]
        bucket_numbers = np.arange(len(self._keys), dtype=np.uint16)
        starts = np.append(np.searchsorted(bucket, bucket_numbers), len(bucket))
        for number in np.flatnonzero(np.diff(starts)):
            rows = slice(int(starts[number]), int(starts[number + 1]))
            self._append(int(number), key[rows], None if payload is None else payload[rows])

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
                is_kept = _differs_from_previous(key)
                is_kept[1:] |= (payload[1:] != payload[:-1]).any(axis=1)
                key, payload = key[is_kept], payload[is_kept]
        out = {}
        for field, shift in self._key_fields:
            is_first = field is self._first
            code = key >> np.uint64(shift)
            if not is_first:
                code &= np.uint64((1 << field.bits) - 1)
            out[field.name] = field.unpack(code, field.low + number * self._bucket_width if is_first else field.low)
        for k, payload_field in enumerate(self._payload_fields):
            assert payload is not None
            out[payload_field.name] = (
                payload[:, k] if isinstance(payload_field, DoubleField) else payload[:, k].astype(payload_field.dtype)
            )
        return out


def _differs_from_previous(key: np.ndarray) -> np.ndarray:
    """Return a mask of the entries of a sorted array that differ from the previous entry."""
    differs = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=differs[1:])
    return differs


def chunk_sorted_batches(
    batches: Iterable[Mapping[str, np.ndarray]], fields: Sequence[Field]
) -> Iterator[dict[str, np.ndarray]]:
    """Yield sorted rows in new batches, such that all rows with the same value of the first field are in one batch.

    Raises:
        ValueError: if the rows are not sorted by the first two fields.
    """
    names = [field.name for field in fields]
    float_names = {field.name for field in fields if isinstance(field, FloatField)}
    rest: dict[str, np.ndarray] = {}
    for batch in batches:
        columns = {n: batch[n].astype(np.float32) if n in float_names else np.asarray(batch[n]) for n in names}
        rows = {n: np.concatenate((rest[n], c)) for n, c in columns.items()} if rest else columns
        first, second = rows[names[0]], rows[names[1]]
        is_ascending = (first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] >= second[:-1]))
        if not is_ascending.all():
            raise ValueError("the rows are not sorted")
        cut = int(np.searchsorted(first, first[-1]))
        rest = {n: np.array(c[cut:]) for n, c in rows.items()}
        if cut:
            yield {n: c[:cut] for n, c in rows.items()}
    if rest:
        yield rest
