"""The best pair features of all that there could be: sparse sums of products of errors and signals.

A pair feature says that two literals hold together. Each of its two *sides* is a table with a cell, or none, for every
sample and key; the feature (a, b) joins, in every sample that has both cells, that of key a of the first side and that of
key b of the second.

Source: Lao & Zhu, Contrastive feature induction for efficient structure learning of conditional random fields (2014).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float64, int32, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.prefetch import prefetch
from relcrf.kernels.threads import freeze, map_key_ranges

ALL, ASCENDING, DIFFERENT = 0, 1, 2
"""What the keys of a pair (a, b) may be: any, a < b, a != b."""

SCAN_LENGTH = 64
"""Sums that are looked at together for one that is large."""

PREFETCH_DISTANCE = 16
"""Rows lie anywhere in memory: each is asked for so many before it is read."""

MAX_PREFETCH_LINES = 8
"""Of 16 entries of a row that are asked for; of what comes behind them the machine knows by then."""

BLOCK_SIZE = 1024
"""Keys of either side whose dense products are made at a time."""

NO_LIMITS = freeze(np.empty((0, 4)), np.int64)
"""Where a key may be paired with any."""

U = np.uint64
"""Indices without a sign; see `forest.py`."""

ONE = U(1)


class SparseMatrix(NamedTuple):
    """A sparse matrix: the entries of row i are those from start[i] to start[i + 1] - 1, by ascending column.

    Args:
        start: shape (n_rows + 1,), int64. column: shape (n,), int32. value: shape (n,), float64.
    """

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray


SparseArrays = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The three arrays of a sparse matrix."""

INDEX, SHORT, FLAT = int64[::1], int32[::1], float64[::1]
LIMITS = read_only(int64[:, ::1])
SPARSE = types.NamedTuple([read_only(INDEX), read_only(SHORT), read_only(FLAT)], SparseMatrix)


@kernel()
def _is_worse(value, pair, other_value, other_pair):
    """Whether a pair comes later in the list: its sum is smaller, or as large and its number higher."""
    a, b = abs(value), abs(other_value)
    return a < b or (a == b and pair > other_pair)


@kernel()
def _push_bounded(value, pair, n, best_value, best_pair):
    """Adds a pair to a heap with the worst first; where the heap is full, in the place of the worst, if it is better.

    Args:
        n: pairs in the heap; it has room for those of `best_value`, shape (n_best,), 1 at least.

    Returns:
        How many there are then.
    """
    if n < len(best_value):
        at = n
        while at > 0:
            above = (at - 1) >> 1
            if not _is_worse(value, pair, best_value[above], best_pair[above]):
                break
            best_value[at], best_pair[at] = best_value[above], best_pair[above]
            at = above
        best_value[at], best_pair[at] = value, pair
        return n + 1
    if _is_worse(value, pair, best_value[0], best_pair[0]):
        return n
    at = 0
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and _is_worse(
            best_value[below + 1], best_pair[below + 1], best_value[below], best_pair[below]
        ):
            below += 1
        if not _is_worse(best_value[below], best_pair[below], value, pair):
            break
        best_value[at], best_pair[at] = best_value[below], best_pair[below]
        at = below
    best_value[at], best_pair[at] = value, pair
    return n


@kernel()
def _add_products(first, a, second, after, total):
    """`total[b] += first[z, a] * second[z, b]` over the samples z of key a, for keys b > after.

    Args:
        first: by key. second: by sample.

    Returns:
        The number of products.
    """
    n = 0
    last = U(len(first.column)) - ONE
    n_lines = min(1 + len(second.column) // (16 * (len(second.start) - 1)), MAX_PREFETCH_LINES)
    for entry in range(U(first.start[a]), U(first.start[a + 1])):
        soon = U(second.start[U(first.column[min(entry + U(PREFETCH_DISTANCE), last)]) + ONE])
        for line in range(n_lines):
            prefetch(second.column, soon - U(16 * line + 1))
            prefetch(second.value, soon - U(16 * line + 1))
            prefetch(second.value, soon - U(16 * line + 9))
        z, scale = U(first.column[entry]), first.value[entry]
        lo, hi = second.start[z], second.start[z + ONE]
        at = hi - 1
        while at >= lo and second.column[U(at)] > after:
            total[U(second.column[U(at)])] += scale * second.value[U(at)]
            at -= 1
        n += hi - 1 - at
    return n


@kernel()
def _collect_touched(first, a, second, after, before, pair, bound, n, total, best_value, best_pair):
    """Offers the sums that `_add_products` has touched where they reach the bound and b < before, and sets all to 0."""
    for entry in range(U(first.start[a]), U(first.start[a + 1])):
        z = U(first.column[entry])
        at = second.start[z + ONE] - 1
        while at >= second.start[z] and second.column[U(at)] > after:
            b = U(second.column[U(at)])
            value = total[b]
            total[b] = 0.0
            if abs(value) >= bound and b < U(before):
                n = _push_bounded(value, pair + np.int64(b), n, best_value, best_pair)
                if n == len(best_value):
                    bound = max(bound, abs(best_value[0]))
            at -= 1
    return n, bound


@kernel()
def _collect_all(before, pair, bound, n, total, best_value, best_pair):
    """The same of all sums."""
    for lo in range(U(0), U(len(total)), U(SCAN_LENGTH)):
        hi = min(lo + U(SCAN_LENGTH), U(len(total)))
        n_large = 0
        for b in range(lo, hi):
            n_large += abs(total[b]) >= bound
        if n_large > 0:
            for b in range(lo, hi):
                if abs(total[b]) >= bound and b < U(before):
                    n = _push_bounded(total[b], pair + np.int64(b), n, best_value, best_pair)
                    if n == len(best_value):
                        bound = max(bound, abs(best_value[0]))
        for b in range(lo, hi):
            total[b] = 0.0
    return n, bound


@kernel(
    (SPARSE, SPARSE, SPARSE, SPARSE, int64, int64, LIMITS, int64, int64, float64, FLAT, INDEX),
    fastmath={"contract"},
)
def best_products(
    first_error,
    first_signal,
    second_error,
    second_signal,
    n_keys,
    relation,
    limits,
    lo,
    hi,
    bound,
    best_value,
    best_pair,
):
    """The pairs of the first side's keys lo..hi-1 whose sums are largest; see `top_products`.

    Args:
        n_keys: of the second side.
        limits: see `top_products`, or of shape (0, 4).
        bound: least magnitude of a sum, above 0.
        best_value, best_pair: overwritten by sums and pairs, as a * n_keys + b, in the order of a heap; shape (n_best,),
            1 at least.

    Returns:
        How many there are.
    """
    total = np.zeros(n_keys)
    n = 0
    for a in range(lo, hi):
        after, before = a if relation == ASCENDING else -1, n_keys
        if len(limits) > 0:
            after, before = limits[a, 0], limits[a, 1]
        products = _add_products(first_signal, a, second_error, after, total)
        products += _add_products(first_error, a, second_signal, after, total)
        if relation == DIFFERENT and a < n_keys:
            total[a] = 0.0
        for k in range(2, limits.shape[1] if len(limits) > 0 else 2):
            if 0 <= limits[a, k] < n_keys:
                total[limits[a, k]] = 0.0
        pair = a * n_keys
        if products * 8 < n_keys:
            n, bound = _collect_touched(
                first_signal, a, second_error, after, before, pair, bound, n, total, best_value, best_pair
            )
            n, bound = _collect_touched(
                first_error, a, second_signal, after, before, pair, bound, n, total, best_value, best_pair
            )
        else:
            n, bound = _collect_all(before, pair, bound, n, total, best_value, best_pair)
    return n


def top_products(
    first_error: SparseArrays,
    first_signal: SparseArrays,
    second_error: SparseArrays,
    second_signal: SparseArrays,
    relation: int,
    threshold: float,
    n_best: int,
    limits: np.ndarray = NO_LIMITS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs of keys (a, b) whose `h = sum over samples z of S1[z, a] E2[z, b] + E1[z, a] S2[z, b]` is largest.

    Memory beyond what is given is that of the keys and samples; no table of pairs is made.

    Args:
        first_error, first_signal: E1 and S1 by key, as the three arrays of `SparseMatrix`.
        second_error, second_signal: E2 and S2 by sample.
        relation: ALL, ASCENDING or DIFFERENT.
        threshold: only pairs with |h| above it, 0 or more. n_best: how many at most.
        limits: with ALL, for each key a that b is above the first number, below the second, and neither the third nor the
            fourth; shape (n_first, 4).

    Returns:
        a, b, both int32, and h, by falling |h|, and of equal ones by a and then b. No bit depends on the number of threads.

    Raises:
        ValueError: two tables do not fit together, or `threshold` is negative.
    """
    columns = tuple(_to_sparse_matrix(table) for table in (first_error, first_signal))
    rows = tuple(_to_sparse_matrix(table) for table in (second_error, second_signal))
    n_first, n_samples = len(columns[0].start) - 1, len(rows[0].start) - 1
    if len(columns[1].start) != n_first + 1 or len(rows[1].start) != n_samples + 1:
        raise ValueError("error and signal of a side are of different shapes")
    if any(len(table.column) and table.column.max() >= n_samples for table in columns):
        raise ValueError(f"the first side has samples that the second, with {n_samples}, has not")
    n_second = max((int(table.column.max()) + 1 for table in rows if len(table.column)), default=0)
    n_best, limits = min(n_best, n_first * n_second), freeze(limits, np.int64)
    bound = _next_above(threshold)
    if n_best <= 0:
        return _decode_pairs(np.empty(0), np.empty(0, dtype=np.int64), 1, 0)
    work = np.diff(columns[0].start) + np.diff(columns[1].start) + 1.0
    mean_row = (len(rows[0].column) + len(rows[1].column)) / (2 * n_samples)
    if relation == ASCENDING:
        work *= np.maximum(n_second - np.arange(n_first), 1) / n_second

    def run(lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        value, pair = np.empty(n_best), np.empty(n_best, dtype=np.int64)
        n = best_products(*columns, *rows, n_second, relation, limits, lo, hi, bound, value, pair)
        return value[:n], pair[:n]

    values, pairs = zip(*map_key_ranges(mean_row * work, run), strict=True)
    return _decode_pairs(np.concatenate(values), np.concatenate(pairs), n_second, n_best)


def top_products_dense(
    first_error: np.ndarray,
    first_signal: np.ndarray,
    second_error: np.ndarray,
    second_signal: np.ndarray,
    relation: int,
    threshold: float,
    n_best: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`top_products` of dense tables, by BLAS: the last bits of its sums may depend on the number of BLAS's threads.

    Args:
        first_error, first_signal, second_error, second_signal: shape (n_samples, n_keys of the side); 0 where there is no
            cell.
        relation, threshold, n_best: as of `top_products`.
    """
    n_second = second_error.shape[1]
    bound = _next_above(threshold)
    value, pair = np.empty(0), np.empty(0, dtype=np.int64)
    for lo in range(0, first_error.shape[1], BLOCK_SIZE):
        error, signal = first_error[:, lo : lo + BLOCK_SIZE].T, first_signal[:, lo : lo + BLOCK_SIZE].T
        a = lo + np.arange(len(error))[:, None]
        for start in range(lo if relation == ASCENDING else 0, n_second, BLOCK_SIZE):
            here = slice(start, start + BLOCK_SIZE)
            block = signal @ second_error[:, here] + error @ second_signal[:, here]
            b = start + np.arange(block.shape[1])
            if relation != ALL:
                block[(a >= b) if relation == ASCENDING else (a == b)] = 0.0
            row, column = np.nonzero(np.abs(block) >= bound)
            value = np.concatenate((value, block[row, column]))
            pair = np.concatenate((pair, (lo + row) * n_second + start + column))
            value, pair = _select_best(value, pair, n_best)
            if 0 < n_best == len(value):
                bound = max(bound, float(np.abs(value).min()))
    return _decode_pairs(value, pair, max(n_second, 1), n_best)


def _next_above(threshold: float) -> float:
    """The first number above `threshold`."""
    if not threshold >= 0.0:
        raise ValueError(f"the least magnitude of a sum is {threshold}, and must not be negative")
    return float(np.nextafter(threshold, np.inf))


def _select_best(value: np.ndarray, pair: np.ndarray, n_best: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `n_best` pairs by falling magnitude and rising number, in that order."""
    size = np.abs(value)
    if n_best < len(size):
        keep = size >= np.partition(size, len(size) - n_best - 1)[len(size) - n_best - 1]
        value, pair, size = value[keep], pair[keep], size[keep]
    order = np.lexsort((pair, -size))[:n_best]
    return value[order], pair[order]


def _decode_pairs(
    value: np.ndarray, pair: np.ndarray, n_keys: int, n_best: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best pairs by their keys; a pair's number is a * n_keys + b."""
    value, pair = _select_best(value, pair, n_best)
    a, b = np.divmod(pair, n_keys)
    return a.astype(np.int32), b.astype(np.int32), value


def _to_sparse_matrix(table: SparseArrays) -> SparseMatrix:
    start, column, value = table
    return SparseMatrix(freeze(start, np.int64), freeze(column, np.int32), freeze(value, np.float64))
