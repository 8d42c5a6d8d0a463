"""Active pair features: what they add to the scores of single variables, and the gradient of their weights.

Each of the two *sides* of a feature (a, b) is a table with a cell, or none, for every sample and key, and a variable in each
cell: the feature says that two literals hold together, that of the variable of key a of the first side and that of the
variable of key b of the second, in every sample that has both cells.
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
"""Indices without a sign; see `forest.py`."""

PREFETCH_LINES = 4
"""Of 16 cells with which the cells of a key begin, asked for while those of the key before are read."""


INDEX, SHORT, FLAT = int64[::1], int32[::1], float64[::1]
NUMBERS = (float32[::1], float64[::1])


@kernel((read_only(SHORT), INDEX, SHORT))
def sort_by_key(key, start, feature):
    """Puts features in the order of their keys: those of key k are then from start[k] to start[k + 1] - 1.

    Args:
        key: shape (n_features,). start: zeros, shape (n_keys + 2,); overwritten, the last entry is of no use.
        feature: overwritten, shape (n_features,).
    """
    for f in range(len(key)):
        start[key[f] + 2] += 1
    for k in range(2, len(start)):
        start[k] += start[k - 1]
    for f in range(len(key)):
        place = key[f] + 1
        feature[start[place]] = f
        start[place] += 1


@kernel(*((CELLS, int64, int64, read_only(INDEX), read_only(numbers), numbers) for numbers in NUMBERS))
def gather(side, lo, hi, used, values, out):
    """`out[cell] = values[variable]`, and 0 without one, for the cells of those of the keys lo..hi-1 that are used."""
    for key in range(lo, hi):
        if used[key] > 0:
            for cell in range(U(side.start[key]), U(side.start[key + 1])):
                v = side.variable[cell]
                out[cell] = values[U(v)] if v >= 0 else values.dtype.type(0)


@kernel(*((CELLS, read_only(INDEX), read_only(numbers), numbers) for numbers in NUMBERS))
def scatter(side, used, cells, out):
    """`out[variable] += cells[cell]`, the adjoint of `gather`."""
    for key in range(len(used)):
        if used[key] > 0:
            for cell in range(U(side.start[key]), U(side.start[key + 1])):
                v = side.variable[cell]
                if v >= 0:
                    out[U(v)] += cells[cell]


FEATURE_TYPES = (CELLS, CELLS, int64, int64, int64, read_only(INDEX), read_only(SHORT), read_only(SHORT))
FAST = {"contract", "reassoc", "nsz"}


@kernel(*((*FEATURE_TYPES, read_only(FLAT), read_only(numbers), numbers) for numbers in NUMBERS), fastmath={"contract"})
def sum_by_cell(own, other, n_samples, lo, hi, start, feature, partner, weight, holds, out):
    """`out[cell] = sum over features of weight * holds` of the partner's cell in the same sample, for keys lo..hi-1.

    Args:
        start, feature: the features of the keys of `own`, as of `sort_by_key`.
        partner: the key of each feature in `other`, shape (n_features,). weight: the same shape.
        holds: by cell of `other`. out: by cell of `own`; written for keys that have features.
    """
    total = np.zeros(n_samples, dtype=out.dtype)  # not 0 where it is not read
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
                    total[z] += w * holds[first + z]
            else:
                for cell in range(first, first + n):
                    total[U(other.sample[cell])] += w * holds[cell]
        for cell in range(U(own.start[key]), U(own.start[key + 1])):
            out[cell] = total[U(own.sample[cell])]


@kernel(*((*FEATURE_TYPES, *[read_only(numbers)] * 4, FLAT) for numbers in NUMBERS), fastmath=FAST)
def feature_gradient(
    first, second, n_samples, lo, hi, start, feature, partner, residual, holds, second_residual, second_holds, out
):  # fmt: skip
    """The gradient of the features of the first side's keys lo..hi-1; see `gradient`.

    Args:
        start, feature, partner: as of `sum_by_cell`, with the first side as `own`.
        residual, holds: by variable. second_residual, second_holds: by cell of the second side.
        out: overwritten for these features, shape (n_features,).
    """
    own_residual = np.zeros(n_samples, dtype=residual.dtype)
    own_holds = np.zeros(n_samples, dtype=residual.dtype)
    for key in range(lo, hi):
        if start[key] == start[key + 1]:
            continue
        for cell in range(U(first.start[key]), U(first.start[key + 1])):
            z, v = U(first.sample[cell]), first.variable[cell]
            if v >= 0:
                own_residual[z] = residual[U(v)]
                own_holds[z] = holds[U(v)]
        for at in range(start[key], start[key + 1]):
            b = partner[feature[at]]
            soon = U(second.start[partner[feature[min(at + 1, len(feature) - 1)]]])
            for line in range(U(PREFETCH_LINES)):
                prefetch(second_residual, soon + line * U(16))
                prefetch(second_holds, soon + line * U(16))
            begin, n = U(second.start[b]), U(second.start[b + 1] - second.start[b])
            total = residual.dtype.type(0)
            if n == n_samples:
                for i in range(n):
                    total += own_residual[i] * second_holds[begin + i] + own_holds[i] * second_residual[begin + i]
            else:
                for cell in range(begin, begin + n):
                    z = U(second.sample[cell])
                    total += own_residual[z] * second_holds[cell] + own_holds[z] * second_residual[cell]
            out[feature[at]] = total
        for cell in range(U(first.start[key]), U(first.start[key + 1])):
            own_residual[U(first.sample[cell])] = 0.0
            own_holds[U(first.sample[cell])] = 0.0


def add_scores(
    first: KeyedCells,
    second: KeyedCells,
    n_samples: int,
    a: np.ndarray,
    b: np.ndarray,
    weight: np.ndarray,
    holds: np.ndarray,
    score: np.ndarray,
) -> None:
    """Adds to the score of each variable's literal the weights of its active features, where their other literal holds.

    Of a feature (a, b) of weight w and each sample that has both cells, with variables v1 and v2: `score[v1] += w * holds[v2]`
    and `score[v2] += w * holds[v1]`. No bit depends on the number of threads.

    Args:
        first, second: the sides; a cell of variable -1 is as good as none.
        a, b: keys of the first and of the second side, shape (n_features,), int32. weight: float64, the same shape.
        holds: 1 where the variable's literal holds, shape (n_variables,), float64 or float32.
        score: added to, of the shape and type of `holds`.

    Raises:
        ValueError: `score` is not of the shape and type of `holds`, or is not contiguous.
    """
    if (score.shape, score.dtype) != (holds.shape, holds.dtype) or not score.flags.c_contiguous:
        raise ValueError(f"scores must be contiguous, of shape {holds.shape} and type {holds.dtype}")
    add_side_scores(first, second, n_samples, a, b, weight, holds, score)
    add_side_scores(second, first, n_samples, b, a, weight, holds, score)


def add_side_scores(
    own: KeyedCells,
    other: KeyedCells,
    n_samples: int,
    key: np.ndarray,
    partner: np.ndarray,
    weight: np.ndarray,
    holds: np.ndarray,
    score: np.ndarray,
) -> None:
    """One half of `add_scores`: the scores of the variables of one side.

    Args:
        key, partner: of each feature in this side and in the other.
    """
    weight, holds, partner = freeze(weight, np.float64), freeze(holds, holds.dtype), freeze(partner, np.int32)
    start, feature = _sort_features(freeze(key, np.int32), own)
    there = _gather_used_cells(other, partner, holds)
    here = np.empty(len(own.variable), dtype=holds.dtype)

    def run(lo: int, hi: int) -> None:
        sum_by_cell(own, other, n_samples, lo, hi, start, feature, partner, weight, there, here)

    list(map_key_ranges(_count_reads(start, feature, partner, other), run))
    scatter(own, freeze(np.diff(start), np.int64), freeze(here, here.dtype), score)


def gradient(
    first: KeyedCells,
    second: KeyedCells,
    n_samples: int,
    a: np.ndarray,
    b: np.ndarray,
    residual: np.ndarray,
    holds: np.ndarray,
) -> np.ndarray:
    """Of each feature the sum of `residual[v1] * holds[v2] + residual[v2] * holds[v1]`: the adjoint of `add_scores`.

    Args:
        residual: of the shape and type of `holds`, in which sums are taken. Others: as of `add_scores`.

    Returns:
        shape (n_features,), float64. No bit depends on the number of threads.

    Raises:
        ValueError: `residual` is not of the shape and type of `holds`.
    """
    if (residual.shape, residual.dtype) != (holds.shape, holds.dtype):
        raise ValueError(f"residuals must be of shape {holds.shape} and type {holds.dtype}")
    own, other = first, second
    partner = freeze(b, np.int32)
    residual, holds = (freeze(values, values.dtype) for values in (residual, holds))
    start, feature = _sort_features(freeze(a, np.int32), own)
    there = tuple(_gather_used_cells(other, partner, values) for values in (residual, holds))
    out = np.empty(len(partner))

    def run(lo: int, hi: int) -> None:
        feature_gradient(own, other, n_samples, lo, hi, start, feature, partner, residual, holds, *there, out)

    list(map_key_ranges(_count_reads(start, feature, partner, other), run))
    return out


def _sort_features(key: np.ndarray, cells: KeyedCells) -> tuple[np.ndarray, np.ndarray]:
    """Where the features of each key of a side begin, and features in that order."""
    start, feature = np.zeros(len(cells.start) + 1, dtype=np.int64), np.empty(len(key), dtype=np.int32)
    sort_by_key(key, start, feature)
    return freeze(start[:-1], np.int64), freeze(feature, np.int32)


def _gather_used_cells(side: KeyedCells, key: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of variables by cell of a side, for the keys that some feature has."""
    used = freeze(np.bincount(key, minlength=len(side.start) - 1), np.int64)
    out = np.empty(len(side.variable), dtype=values.dtype)
    list(map_key_ranges(np.diff(side.start) * (used > 0), lambda lo, hi: gather(side, lo, hi, used, values, out)))
    return freeze(out, out.dtype)


def _count_reads(start: np.ndarray, feature: np.ndarray, partner: np.ndarray, other: KeyedCells) -> np.ndarray:
    """How many cells the features of each key read, shape (n_keys,)."""
    read = offsets(np.diff(other.start)[partner[feature]])
    return np.diff(read[start])
