"""Scores and gradients of active pair features; a feature is active if it is in the model.

A *side* is a sparse matrix with a row for each *key* and a column for each *sample*; its entries are *cells*. A cell
contains a variable. Each variable has a *literal*: a condition on its state. A pair feature (a, b) combines key a of a
first side with key b of a second side. In each sample in which both keys have a cell, the feature is true if the
literals of the variables of both cells are true.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64

from relcrf.columns.offsets import offsets
from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.keyed_cells import CELLS, KeyedCells
from relcrf.kernels.prefetch import prefetch
from relcrf.kernels.threads import freeze, map_key_ranges

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

PREFETCH_LINES = 4
"""Number of cache lines (16 float32 each) prefetched from the cells of the next key while a key is read."""

INDEX, SHORT, FLAT = int64[::1], int32[::1], float64[::1]
NUMBERS = (float32[::1], float64[::1])


@kernel((read_only(SHORT), INDEX, SHORT))
def sort_by_key(key, start, feature):
    """Sort features by key with a counting sort: the features of key k are `feature[start[k]:start[k + 1]]`.

    Args:
        key: key of each feature, shape (n_features,).
        start: shape (n_keys + 2,), zeros on entry; overwritten by the offsets, followed by an unused entry.
        feature: overwritten by the sorted feature indices, shape (n_features,).
    """
    for f in range(len(key)):
        start[key[f] + 2] += 1
    for k in range(2, len(start)):
        start[k] += start[k - 1]
    for f in range(len(key)):
        slot = key[f] + 1
        feature[start[slot]] = f
        start[slot] += 1


@kernel(*((CELLS, int64, int64, read_only(INDEX), read_only(numbers), numbers) for numbers in NUMBERS))
def gather(cells, lo, hi, used, values, out):
    """For each cell of a used key in lo..hi-1, set `out[cell]` to the value of the cell's variable (0 if missing)."""
    for key in range(lo, hi):
        if used[key] > 0:
            for cell in range(U(cells.start[key]), U(cells.start[key + 1])):
                v = cells.variable[cell]
                out[cell] = values[U(v)] if v >= 0 else values.dtype.type(0)


@kernel(*((CELLS, read_only(INDEX), read_only(numbers), numbers) for numbers in NUMBERS))
def scatter(cells, used, values, out):
    """For each cell of a used key, add `values[cell]` to `out[variable of the cell]`: the adjoint of `gather`."""
    for key in range(len(used)):
        if used[key] > 0:
            for cell in range(U(cells.start[key]), U(cells.start[key + 1])):
                v = cells.variable[cell]
                if v >= 0:
                    out[U(v)] += values[cell]


FEATURE_TYPES = (CELLS, CELLS, int64, int64, int64, read_only(INDEX), read_only(SHORT), read_only(SHORT))
FASTMATH_FLAGS = {"contract", "reassoc", "nsz"}


@kernel(*((*FEATURE_TYPES, read_only(FLAT), read_only(numbers), numbers) for numbers in NUMBERS), fastmath={"contract"})
def sum_by_cell(own, other, n_samples, lo, hi, start, feature, partner, weight, other_truth, out):
    """For each cell of keys lo..hi-1, sum `weight * truth of the partner's cell` over the features of the cell's key.

    The *partner* is the other key of the feature, and only the partner's cell in the same sample is used. If this cell
    is missing, the feature adds 0.

    Args:
        start, feature: the features, sorted by key on the side `own`, as `_sort_features` returns them.
        partner: the key of each feature on the side `other`, shape (n_features,).
        weight: weight of each feature, shape (n_features,).
        other_truth: truth of the literal of each cell of `other`.
        out: the sum for each cell of `own`; overwritten for the cells of keys that have features.
    """
    total = np.zeros(n_samples, dtype=out.dtype)  # only entries of samples in which the key has a cell are read
    for key in range(lo, hi):
        if start[key] == start[key + 1]:
            continue
        for cell in range(U(own.start[key]), U(own.start[key + 1])):
            total[U(own.sample[cell])] = 0.0
        for at in range(start[key], start[key + 1]):
            w, b = out.dtype.type(weight[feature[at]]), partner[feature[at]]
            first, n = U(other.start[b]), U(other.start[b + 1] - other.start[b])
            if n == n_samples:
                for z in range(n):
                    total[z] += w * other_truth[first + z]
            else:
                for cell in range(first, first + n):
                    total[U(other.sample[cell])] += w * other_truth[cell]
        for cell in range(U(own.start[key]), U(own.start[key + 1])):
            out[cell] = total[U(own.sample[cell])]


@kernel(*((*FEATURE_TYPES, *[read_only(numbers)] * 4, FLAT) for numbers in NUMBERS), fastmath=FASTMATH_FLAGS)
def feature_gradient(
    first, second, n_samples, lo, hi, start, feature, partner, residual, truth, second_residual, second_truth, out
):  # fmt: skip
    """Compute the gradients of the features whose first key is in lo..hi-1; see `gradient`.

    Args:
        start, feature, partner: as for `sum_by_cell`, with the first side as `own`.
        residual, truth: residual and truth of each variable's literal.
        second_residual, second_truth: residual and truth of the literal of each cell of the second side.
        out: gradient of each feature, shape (n_features,); overwritten for these features.
    """
    own_residual = np.zeros(n_samples, dtype=residual.dtype)
    own_truth = np.zeros(n_samples, dtype=residual.dtype)
    for key in range(lo, hi):
        if start[key] == start[key + 1]:
            continue
        for cell in range(U(first.start[key]), U(first.start[key + 1])):
            z, v = U(first.sample[cell]), first.variable[cell]
            if v >= 0:
                own_residual[z] = residual[U(v)]
                own_truth[z] = truth[U(v)]
        for at in range(start[key], start[key + 1]):
            b = partner[feature[at]]
            next_cell = U(second.start[partner[feature[min(at + 1, len(feature) - 1)]]])
            for line in range(U(PREFETCH_LINES)):
                prefetch(second_residual, next_cell + line * U(16))
                prefetch(second_truth, next_cell + line * U(16))
            begin, n = U(second.start[b]), U(second.start[b + 1] - second.start[b])
            total = residual.dtype.type(0)
            if n == n_samples:
                for i in range(n):
                    total += own_residual[i] * second_truth[begin + i] + own_truth[i] * second_residual[begin + i]
            else:
                for cell in range(begin, begin + n):
                    z = U(second.sample[cell])
                    total += own_residual[z] * second_truth[cell] + own_truth[z] * second_residual[cell]
            out[feature[at]] = total
        for cell in range(U(first.start[key]), U(first.start[key + 1])):
            own_residual[U(first.sample[cell])] = 0.0
            own_truth[U(first.sample[cell])] = 0.0


def add_scores(
    first: KeyedCells,
    second: KeyedCells,
    n_samples: int,
    a: np.ndarray,
    b: np.ndarray,
    weight: np.ndarray,
    truth: np.ndarray,
    score: np.ndarray,
) -> None:
    """Add the weight of each active feature to the score of either literal of the feature if the other literal is true.

    Let a feature (a, b) have weight w, and let v1 and v2 be the variables of the cells of a and b in one sample. The
    function adds `w * truth[v2]` to `score[v1]` and `w * truth[v1]` to `score[v2]`. The result is bitwise identical for
    every number of threads.

    Args:
        first, second: the sides; a cell with variable -1 is treated as missing.
        a, b: key of each feature on the first and on the second side, shape (n_features,), int32.
        weight: weight of each feature, shape (n_features,), float64.
        truth: for each variable, 1 if its literal is true, else 0; shape (n_variables,), float64 or float32.
        score: score of each variable's literal, updated in place; same shape and type as `truth`.

    Raises:
        ValueError: if `score` differs from `truth` in shape or type, or is not contiguous.
    """
    if (score.shape, score.dtype) != (truth.shape, truth.dtype) or not score.flags.c_contiguous:
        raise ValueError(f"scores must be contiguous, of shape {truth.shape} and type {truth.dtype}")
    add_side_scores(first, second, n_samples, a, b, weight, truth, score)
    add_side_scores(second, first, n_samples, b, a, weight, truth, score)


def add_side_scores(
    own: KeyedCells,
    other: KeyedCells,
    n_samples: int,
    key: np.ndarray,
    partner: np.ndarray,
    weight: np.ndarray,
    truth: np.ndarray,
    score: np.ndarray,
) -> None:
    """Add the weights of active features to the scores of the literals of one side; see `add_scores`.

    Args:
        key, partner: the key of each feature on this side and on the other side.
    """
    weight, truth, partner = freeze(weight, np.float64), freeze(truth, truth.dtype), freeze(partner, np.int32)
    start, feature = _sort_features(freeze(key, np.int32), own)
    other_truth = _gather_used_cells(other, partner, truth)
    own_sums = np.empty(len(own.variable), dtype=truth.dtype)

    def run(lo: int, hi: int) -> None:
        sum_by_cell(own, other, n_samples, lo, hi, start, feature, partner, weight, other_truth, own_sums)

    list(map_key_ranges(_count_reads(start, feature, partner, other), run))
    scatter(own, freeze(np.diff(start), np.int64), freeze(own_sums, own_sums.dtype), score)


def gradient(
    first: KeyedCells,
    second: KeyedCells,
    n_samples: int,
    a: np.ndarray,
    b: np.ndarray,
    residual: np.ndarray,
    truth: np.ndarray,
) -> np.ndarray:
    """Compute, for each feature, `sum of residual[v1] * truth[v2] + residual[v2] * truth[v1]`: the adjoint of `add_scores`.

    The sum is over the samples in which both keys of the feature have a cell; v1 and v2 are the variables of the cells.

    Args:
        residual: residual of each variable's literal, in the shape and type of `truth`; sums have this type. For the
            other arguments, see `add_scores`.

    Returns:
        The derivative by each feature's weight, shape (n_features,), float64; bitwise identical for all thread counts.

    Raises:
        ValueError: if `residual` differs from `truth` in shape or type.
    """
    if (residual.shape, residual.dtype) != (truth.shape, truth.dtype):
        raise ValueError(f"residuals must be of shape {truth.shape} and type {truth.dtype}")
    own, other = first, second
    partner = freeze(b, np.int32)
    residual, truth = (freeze(values, values.dtype) for values in (residual, truth))
    start, feature = _sort_features(freeze(a, np.int32), own)
    other_values = tuple(_gather_used_cells(other, partner, values) for values in (residual, truth))
    out = np.empty(len(partner))

    def run(lo: int, hi: int) -> None:
        feature_gradient(own, other, n_samples, lo, hi, start, feature, partner, residual, truth, *other_values, out)

    list(map_key_ranges(_count_reads(start, feature, partner, other), run))
    return out


def _sort_features(key: np.ndarray, cells: KeyedCells) -> tuple[np.ndarray, np.ndarray]:
    """Return the offset of each key's features, and the indices of the features sorted by key."""
    start, feature = np.zeros(len(cells.start) + 1, dtype=np.int64), np.empty(len(key), dtype=np.int32)
    sort_by_key(key, start, feature)
    return freeze(start[:-1], np.int64), freeze(feature, np.int32)


def _gather_used_cells(cells: KeyedCells, key: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the value of each cell's variable; entries of keys that no feature uses are uninitialised."""
    used = freeze(np.bincount(key, minlength=len(cells.start) - 1), np.int64)
    out = np.empty(len(cells.variable), dtype=values.dtype)
    list(map_key_ranges(np.diff(cells.start) * (used > 0), lambda lo, hi: gather(cells, lo, hi, used, values, out)))
    return freeze(out, out.dtype)


def _count_reads(start: np.ndarray, feature: np.ndarray, partner: np.ndarray, other: KeyedCells) -> np.ndarray:
    """Return the number of cells that are read for the features of each key, shape (n_keys,)."""
    read = offsets(np.diff(other.start)[partner[feature]])
    return np.diff(read[start])
