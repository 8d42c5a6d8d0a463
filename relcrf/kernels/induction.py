"""Search for the best pair features among all candidates: sparse sums of products of errors and signals.

A *side* is a sparse matrix of literals, with a row for each *key* and a column for each *sample*. The pair feature
(a, b) is the conjunction of the literals of key a of the first side and key b of the second side, in each sample in
which both keys have a literal. The *error* E of a literal is the difference between its probability and its truth
value. The *signal* S is its truth value or, in contrastive divergence, its mean truth value. With indices 1 and 2 for
the two sides, the gradient of a feature's weight is the sum of S1 E2 + E1 S2 over these samples.

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
"""The allowed pairs of keys (a, b): all, a < b, or a != b."""

SCAN_LENGTH = 64
"""Number of sums per chunk. A vectorised test detects chunks without a large sum, which are skipped."""

PREFETCH_DISTANCE = 16
"""Number of rows between the prefetch of a row and its use; rows are scattered in memory."""

MAX_PREFETCH_LINES = 8
"""Maximum number of cache lines, of 16 entries each, prefetched per row; the hardware prefetcher loads the rest."""

BLOCK_SIZE = 1024
"""Number of keys per side in one dense matrix product."""

NO_LIMITS = freeze(np.empty((0, 4)), np.int64)
"""The value of `limits` that allows all pairs."""

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

ONE = U(1)


class SparseMatrix(NamedTuple):
    """A sparse matrix in CSR form; the entries of row i are start[i] .. start[i + 1] - 1, in ascending order of column.

    Args:
        start: offset of each row's entries, shape (n_rows + 1,), int64.
        column, value: column and value of each entry, shape (n,), int32 and float64.
    """

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray


SparseArrays = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The arrays start, column and value of a sparse matrix."""

INDEX, SHORT, FLAT = int64[::1], int32[::1], float64[::1]
LIMITS = read_only(int64[:, ::1])
SPARSE = types.NamedTuple([read_only(INDEX), read_only(SHORT), read_only(FLAT)], SparseMatrix)


@kernel()
def _is_worse(value, pair, other_value, other_pair):
    """Return True if a pair ranks below another pair, by smaller |value| or, if equal, by higher pair number."""
    a, b = abs(value), abs(other_value)
    return a < b or (a == b and pair > other_pair)


@kernel()
def _push_bounded(value, pair, n, best_value, best_pair):
    """Push a pair onto a bounded heap with the worst pair on top; a full heap drops the worst of all pairs.

    Args:
        n: number of pairs in the heap; the capacity of the heap is the length of `best_value`, at least 1.

    Returns:
        The new number of pairs.
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
    """Add the sum of `first[a, z] * second[z, b]` over all samples z to `total[b]`, for each key b > after.

    Args:
        first: matrix with a row for each key.
        second: matrix with a row for each sample.

    Returns:
        The number of products.
    """
    n = 0
    last = U(len(first.column)) - ONE
    n_lines = min(1 + len(second.column) // (16 * (len(second.start) - 1)), MAX_PREFETCH_LINES)
    for entry in range(U(first.start[a]), U(first.start[a + 1])):
        next_stop = U(second.start[U(first.column[min(entry + U(PREFETCH_DISTANCE), last)]) + ONE])
        for line in range(n_lines):
            prefetch(second.column, next_stop - U(16 * line + 1))
            prefetch(second.value, next_stop - U(16 * line + 1))
            prefetch(second.value, next_stop - U(16 * line + 9))
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
    """Push each sum changed by `_add_products` that reaches the bound and has b < before; reset changed sums to 0."""
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
    """Push each sum that reaches the bound and has b < before; reset all sums to 0."""
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
    """Find the pairs with the largest absolute sums among those whose first key is in lo..hi-1; see `top_products`.

    Args:
        n_keys: number of keys of the second side.
        limits: see `top_products`; shape (0, 4) for no limits.
        bound: minimum absolute value of a sum, above 0.
        best_value, best_pair: overwritten by the sums and the numbers (a * n_keys + b) of the pairs, in heap order;
            shape (n_best,), n_best >= 1.

    Returns:
        The number of pairs found.
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
    """Find the pairs of keys (a, b) with the largest |h|, where `h = sum over z of S1[z, a] E2[z, b] + E1[z, a] S2[z, b]`.

    Additional memory is linear in the numbers of keys and samples; no table of pairs is built.

    Args:
        first_error, first_signal: E1 and S1, each as the three arrays of a `SparseMatrix` with one row per key.
        second_error, second_signal: E2 and S2, each as the three arrays of a `SparseMatrix` with one row per sample.
        relation: ALL, ASCENDING or DIFFERENT.
        threshold: only pairs with |h| above this number, which must not be negative, are returned.
        n_best: maximum number of pairs.
        limits: if `relation` is ALL, two or more numbers for each key a, shape (n_first, k): b must be above the first,
            below the second, and different from the others; -1 excludes no key.

    Returns:
        The arrays a and b (int32) and h, sorted by descending |h|, then ascending a, then ascending b. They are bitwise
        identical for every number of threads.

    Raises:
        ValueError: if the shapes of the tables do not match, or `threshold` is negative.
    """
    columns = tuple(_to_sparse_matrix(table) for table in (first_error, first_signal))
    rows = tuple(_to_sparse_matrix(table) for table in (second_error, second_signal))
    n_first, n_samples = len(columns[0].start) - 1, len(rows[0].start) - 1
    if len(columns[1].start) != n_first + 1 or len(rows[1].start) != n_samples + 1:
        raise ValueError("error and signal of a side have different shapes")
    if any(len(table.column) and table.column.max() >= n_samples for table in columns):
        raise ValueError(f"the first side has samples beyond the {n_samples} of the second side")
    n_second = max((int(table.column.max()) + 1 for table in rows if len(table.column)), default=0)
    n_best, limits = min(n_best, n_first * n_second), freeze(limits, np.int64)
    bound = _next_above(threshold)
    if n_best <= 0:
        return _decode_pairs(np.empty(0), np.empty(0, dtype=np.int64), 1, 0)
    costs = np.diff(columns[0].start) + np.diff(columns[1].start) + 1.0
    mean_row = (len(rows[0].column) + len(rows[1].column)) / (2 * n_samples)
    if relation == ASCENDING:
        costs *= np.maximum(n_second - np.arange(n_first), 1) / n_second

    def process_keys(lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        value, pair = np.empty(n_best), np.empty(n_best, dtype=np.int64)
        n = best_products(*columns, *rows, n_second, int(relation), limits, lo, hi, bound, value, pair)
        return value[:n], pair[:n]

    values, pairs = zip(*map_key_ranges(mean_row * costs, process_keys), strict=True)
    return _decode_pairs(np.concatenate(values), np.concatenate(pairs), n_second, n_best)


def top_products_dense(
    first_error: np.ndarray,
    first_signal: np.ndarray,
    second_error: np.ndarray,
    second_signal: np.ndarray,
    relation: int,
    threshold: float,
    n_best: int,
    limits: np.ndarray = NO_LIMITS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute `top_products` of dense tables with BLAS; the number of BLAS threads may affect the last bits of sums.

    Args:
        first_error, first_signal, second_error, second_signal: E1, S1, E2 and S2, each of shape (n_samples, number of
            the side's keys); 0 if a key has no literal in a sample.
        relation, threshold, n_best, limits: as for `top_products`.
    """
    n_second = second_error.shape[1]
    bound = _next_above(threshold)
    value, pair = np.empty(0), np.empty(0, dtype=np.int64)
    for lo in range(0, first_error.shape[1], BLOCK_SIZE):
        error, signal = first_error[:, lo : lo + BLOCK_SIZE].T, first_signal[:, lo : lo + BLOCK_SIZE].T
        a = lo + np.arange(len(error))[:, None]
        for start in range(lo if relation == ASCENDING else 0, n_second, BLOCK_SIZE):
            columns = slice(start, start + BLOCK_SIZE)
            sums = signal @ second_error[:, columns] + error @ second_signal[:, columns]
            b = start + np.arange(sums.shape[1])
            if relation != ALL:
                sums[(a >= b) if relation == ASCENDING else (a == b)] = 0.0
            if len(limits):
                after, before, *excluded = limits[lo : lo + BLOCK_SIZE].T[:, :, None]
                sums[(b <= after) | (b >= before)] = 0.0
                for key in excluded:
                    sums[b == key] = 0.0
            row, column = np.nonzero(np.abs(sums) >= bound)
            value = np.concatenate((value, sums[row, column]))
            pair = np.concatenate((pair, (lo + row) * n_second + start + column))
            value, pair = _select_best(value, pair, n_best)
            if 0 < n_best == len(value):
                bound = max(bound, float(np.abs(value).min()))
    return _decode_pairs(value, pair, max(n_second, 1), n_best)


def _next_above(threshold: float) -> float:
    """Return the smallest float above the threshold."""
    if not threshold >= 0.0:
        raise ValueError(f"the threshold of sums is {threshold}, but must not be negative")
    return float(np.nextafter(threshold, np.inf))


def _select_best(value: np.ndarray, pair: np.ndarray, n_best: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort pairs by descending absolute value, then by ascending number, and return the first `n_best`."""
    magnitude = np.abs(value)
    if n_best < len(magnitude):
        is_candidate = magnitude >= np.partition(magnitude, len(magnitude) - n_best - 1)[len(magnitude) - n_best - 1]
        value, pair, magnitude = value[is_candidate], pair[is_candidate], magnitude[is_candidate]
    order = np.lexsort((pair, -magnitude))[:n_best]
    return value[order], pair[order]


def _decode_pairs(
    value: np.ndarray, pair: np.ndarray, n_keys: int, n_best: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the keys a, the keys b and the values of the best pairs; the number of a pair is a * n_keys + b."""
    value, pair = _select_best(value, pair, n_best)
    a, b = np.divmod(pair, n_keys)
    return a.astype(np.int32), b.astype(np.int32), value


def _to_sparse_matrix(table: SparseArrays) -> SparseMatrix:
    start, column, value = table
    return SparseMatrix(freeze(start, np.int64), freeze(column, np.int32), freeze(value, np.float64))
