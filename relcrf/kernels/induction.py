"""Pair features: the best of all that there could be, and the scores and the gradient of those that are active.

A pair feature says that two literals hold together. Each of its two *sides* is a table with a cell, or none, for every
sample and key, and a variable in each cell: the feature (a, b) joins, in every sample that has both cells, the variable of
key a of the first side and that of key b of the second.

Source: Lao & Zhu, Contrastive feature induction for efficient structure learning of conditional random fields (2014).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numba
import numpy as np
from numba import float32, float64, int32, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.prefetch import prefetch

ALL, ASCENDING, DIFFERENT = 0, 1, 2
"""What the keys of a pair (a, b) may be: any, a < b, a != b."""

CHUNK = 64
"""Sums that are looked at together for one that is large."""

AHEAD = 16
"""Rows lie anywhere in memory: each is asked for so many before it is read."""

BLOCK = 1024
"""Keys of either side whose dense products are made at a time."""

LANES_A_THREAD = 4
"""Runs of keys: a thread that is done with one takes the next."""

LEAST_WORK = 1 << 18
"""Cells that are read, below which a second thread does not pay."""

U = np.uint64
"""Indices without a sign; see `forest.py`."""

ONE = U(1)

T = TypeVar("T")


class Sparse(NamedTuple):
    """A sparse matrix: the entries of row i are those from start[i] to start[i + 1] - 1, by ascending index.

    Args:
        start: shape (n_rows + 1,), int64. index: shape (n,), int32. value: shape (n,), float64.
    """

    start: np.ndarray
    index: np.ndarray
    value: np.ndarray


class Side(NamedTuple):
    """The cells of a side by key: those of key a are the ones from start[a] to start[a + 1] - 1, by ascending sample.

    Args:
        start: shape (n_keys + 1,), int64. sample: shape (n_cells,), int32.
        variable: shape (n_cells,), int32; a cell of variable -1 is as good as none.
    """

    start: np.ndarray
    sample: np.ndarray
    variable: np.ndarray


INDEX, SHORT, FLAT = int64[::1], int32[::1], float64[::1]
SPARSE = types.NamedTuple([read_only(INDEX), read_only(SHORT), read_only(FLAT)], Sparse)
SIDE = types.NamedTuple([read_only(INDEX), read_only(SHORT), read_only(SHORT)], Side)
NUMBERS = (float32[::1], float64[::1])


@kernel()
def _is_worse(value, pair, other_value, other_pair):  # type: ignore[no-untyped-def]
    """Whether a pair comes later in the list: its sum is smaller, or as large and its number higher."""
    a, b = abs(value), abs(other_value)
    return a < b or (a == b and pair > other_pair)


@kernel()
def _offer(value, pair, n, best_value, best_pair):  # type: ignore[no-untyped-def]
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
def _add_products(first, a, second, begin, after, total):  # type: ignore[no-untyped-def]
    """`total[b] += first[z, a] * second[z, b]` over the samples z of key a, for keys b > after.

    Args:
        first: by key. second: by sample.
        begin: where the keys above `after` begin in each row of `second`, or before; moved there. Shape (n_samples,).

    Returns:
        The number of products.
    """
    n = U(0)
    last = U(len(first.index)) - ONE
    for entry in range(U(first.start[a]), U(first.start[a + 1])):
        soon = U(begin[U(first.index[min(entry + U(AHEAD), last)])])
        prefetch(second.index, soon)
        prefetch(second.index, soon + U(16))
        prefetch(second.value, soon)
        prefetch(second.value, soon + U(8))
        prefetch(second.value, soon + U(16))
        z, scale = U(first.index[entry]), first.value[entry]
        lo, hi = U(begin[z]), U(second.start[z + ONE])
        while lo < hi and second.index[lo] <= after:
            lo += ONE
        begin[z] = lo
        n += hi - lo
        for at in range(lo, hi):
            total[U(second.index[at])] += scale * second.value[at]
    return n


@kernel()
def _take_touched(first, a, second, begin, pair, bound, n, total, best_value, best_pair):  # type: ignore[no-untyped-def]
    """Offers the sums that `_add_products` has touched where they reach the bound, and sets them to 0."""
    for entry in range(U(first.start[a]), U(first.start[a + 1])):
        z = U(first.index[entry])
        for at in range(U(begin[z]), U(second.start[z + ONE])):
            b = U(second.index[at])
            value = total[b]
            total[b] = 0.0
            if abs(value) >= bound:
                n = _offer(value, pair + np.int64(b), n, best_value, best_pair)
                if n == len(best_value):
                    bound = max(bound, abs(best_value[0]))
    return n, bound


@kernel()
def _take_all(pair, bound, n, total, best_value, best_pair):  # type: ignore[no-untyped-def]
    """The same of all sums."""
    for lo in range(U(0), U(len(total)), U(CHUNK)):
        hi = min(lo + U(CHUNK), U(len(total)))
        n_large = 0
        for b in range(lo, hi):
            n_large += abs(total[b]) >= bound
        if n_large > 0:
            for b in range(lo, hi):
                if abs(total[b]) >= bound:
                    n = _offer(total[b], pair + np.int64(b), n, best_value, best_pair)
                    if n == len(best_value):
                        bound = max(bound, abs(best_value[0]))
        for b in range(lo, hi):
            total[b] = 0.0
    return n, bound


@kernel(
    (SPARSE, SPARSE, SPARSE, SPARSE, int64, int64, int64, int64, float64, FLAT, INDEX),
    fastmath={"contract"},
)
def best_products(first_error, first_signal, second_error, second_signal, n_keys, relation, lo, hi, bound, best_value, best_pair):  # type: ignore[no-untyped-def]  # fmt: skip
    """The pairs of the first side's keys lo..hi-1 whose sums are largest; see `top_products`.

    Args:
        n_keys: of the second side.
        bound: least magnitude of a sum, above 0.
        best_value, best_pair: overwritten by sums and pairs, as a * n_keys + b, in the order of a heap; shape (n_best,),
            1 at least.

    Returns:
        How many there are.
    """
    total = np.zeros(n_keys)
    begin_error = second_error.start[:-1].copy()
    begin_signal = second_signal.start[:-1].copy()
    n = 0
    for a in range(lo, hi):
        after = a if relation == ASCENDING else -1
        products = _add_products(first_signal, a, second_error, begin_error, after, total)
        products += _add_products(first_error, a, second_signal, begin_signal, after, total)
        if relation == DIFFERENT and a < n_keys:
            total[a] = 0.0
        pair = a * n_keys
        if products * U(8) < U(n_keys):
            n, bound = _take_touched(
                first_signal, a, second_error, begin_error, pair, bound, n, total, best_value, best_pair
            )
            n, bound = _take_touched(
                first_error, a, second_signal, begin_signal, pair, bound, n, total, best_value, best_pair
            )
        else:
            n, bound = _take_all(pair, bound, n, total, best_value, best_pair)
    return n


def top_products(
    first_error: tuple[np.ndarray, np.ndarray, np.ndarray],
    first_signal: tuple[np.ndarray, np.ndarray, np.ndarray],
    second_error: tuple[np.ndarray, np.ndarray, np.ndarray],
    second_signal: tuple[np.ndarray, np.ndarray, np.ndarray],
    relation: int,
    least: float,
    n_best: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs of keys (a, b) whose `h = sum over samples z of S1[z, a] E2[z, b] + E1[z, a] S2[z, b]` is largest.

    Memory beyond what is given is that of the keys and samples; no table of pairs is made.

    Args:
        first_error, first_signal: E1 and S1 by key, as the three arrays of `Sparse`.
        second_error, second_signal: E2 and S2 by sample.
        relation: ALL, ASCENDING or DIFFERENT.
        least: only pairs with |h| above it, 0 or more. n_best: how many at most.

    Returns:
        a, b, both int32, and h, by falling |h|, and of equal ones by a and then b. No bit depends on the number of threads.

    Raises:
        ValueError: two tables do not fit together, or `least` is negative.
    """
    columns = tuple(_sparse(table) for table in (first_error, first_signal))
    rows = tuple(_sparse(table) for table in (second_error, second_signal))
    n_first, n_samples = len(columns[0].start) - 1, len(rows[0].start) - 1
    if len(columns[1].start) != n_first + 1 or len(rows[1].start) != n_samples + 1:
        raise ValueError("error and signal of a side are of different shapes")
    if any(len(table.index) and table.index.max() >= n_samples for table in columns):
        raise ValueError(f"the first side has samples that the second, with {n_samples}, has not")
    n_second = max((int(table.index.max()) + 1 for table in rows if len(table.index)), default=0)
    n_best = min(n_best, n_first * n_second)
    bound = _above(least)
    if n_best <= 0:
        return _pairs(np.empty(0), np.empty(0, dtype=np.int64), 1, 0)
    work = np.diff(columns[0].start) + np.diff(columns[1].start) + 1.0
    mean_row = (len(rows[0].index) + len(rows[1].index)) / (2 * n_samples)
    if relation == ASCENDING:
        work *= np.maximum(n_second - np.arange(n_first), 1) / n_second

    def run(lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        value, pair = np.empty(n_best), np.empty(n_best, dtype=np.int64)
        n = best_products(*columns, *rows, n_second, relation, lo, hi, bound, value, pair)
        return value[:n], pair[:n]

    values, pairs = zip(*_in_lanes(mean_row * work, run), strict=True)
    return _pairs(np.concatenate(values), np.concatenate(pairs), n_second, n_best)


def all_products(
    first_error: np.ndarray,
    first_signal: np.ndarray,
    second_error: np.ndarray,
    second_signal: np.ndarray,
    relation: int,
    least: float,
    n_best: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`top_products` of dense tables, by BLAS: the last bits of its sums may depend on the number of BLAS's threads.

    Args:
        first_error, first_signal, second_error, second_signal: shape (n_samples, n_keys of the side); 0 where there is no
            cell.
        relation, least, n_best: as of `top_products`.
    """
    n_second = second_error.shape[1]
    bound = _above(least)
    value, pair = np.empty(0), np.empty(0, dtype=np.int64)
    for lo in range(0, first_error.shape[1], BLOCK):
        error, signal = first_error[:, lo : lo + BLOCK].T, first_signal[:, lo : lo + BLOCK].T
        a = lo + np.arange(len(error))[:, None]
        for start in range(lo if relation == ASCENDING else 0, n_second, BLOCK):
            here = slice(start, start + BLOCK)
            block = signal @ second_error[:, here] + error @ second_signal[:, here]
            b = start + np.arange(block.shape[1])
            if relation != ALL:
                block[(a >= b) if relation == ASCENDING else (a == b)] = 0.0
            row, column = np.nonzero(np.abs(block) >= bound)
            value = np.concatenate((value, block[row, column]))
            pair = np.concatenate((pair, (lo + row) * n_second + start + column))
            value, pair = _best(value, pair, n_best)
            if 0 < n_best == len(value):
                bound = max(bound, float(np.abs(value).min()))
    return _pairs(value, pair, max(n_second, 1), n_best)


@kernel((read_only(SHORT), INDEX, SHORT))
def by_key(key, start, feature):  # type: ignore[no-untyped-def]
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


@kernel(*((SIDE, int64, int64, read_only(INDEX), read_only(numbers), numbers) for numbers in NUMBERS))
def gather(side, lo, hi, used, values, out):  # type: ignore[no-untyped-def]
    """`out[cell] = values[variable]`, and 0 without one, for the cells of those of the keys lo..hi-1 that are used."""
    for key in range(lo, hi):
        if used[key] > 0:
            for cell in range(U(side.start[key]), U(side.start[key + 1])):
                v = side.variable[cell]
                out[cell] = values[U(v)] if v >= 0 else values.dtype.type(0)


@kernel(*((SIDE, read_only(INDEX), read_only(numbers), numbers) for numbers in NUMBERS))
def scatter(side, used, cells, out):  # type: ignore[no-untyped-def]
    """`out[variable] += cells[cell]`, the adjoint of `gather`."""
    for key in range(len(used)):
        if used[key] > 0:
            for cell in range(U(side.start[key]), U(side.start[key + 1])):
                v = side.variable[cell]
                if v >= 0:
                    out[U(v)] += cells[cell]


ACTIVE = (SIDE, SIDE, int64, int64, int64, read_only(INDEX), read_only(SHORT), read_only(SHORT))
FAST = {"contract", "reassoc", "nsz"}


@kernel(*((*ACTIVE, read_only(FLAT), read_only(numbers), numbers) for numbers in NUMBERS), fastmath={"contract"})
def sums_by_cell(own, other, n_samples, lo, hi, start, feature, partner, weight, holds, out):  # type: ignore[no-untyped-def]
    """`out[cell] = sum over features of weight * holds` of the partner's cell in the same sample, for keys lo..hi-1.

    Args:
        start, feature: the features of the keys of `own`, as of `by_key`.
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


@kernel(*((*ACTIVE, *[read_only(numbers)] * 4, FLAT) for numbers in NUMBERS), fastmath=FAST)
def pair_gradient(first, second, n_samples, lo, hi, start, feature, partner, residual, holds, second_residual, second_holds, out):  # type: ignore[no-untyped-def]  # fmt: skip
    """The gradient of the features of the first side's keys lo..hi-1; see `gradient`.

    Args:
        start, feature, partner: as of `sums_by_cell`, with the first side as `own`.
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
            begin, n = U(second.start[b]), U(second.start[b + 1] - second.start[b])
            total = residual.dtype.type(0)
            if n == n_samples:
                for z in range(n):
                    total += own_residual[z] * second_holds[begin + z] + own_holds[z] * second_residual[begin + z]
            else:
                for cell in range(begin, begin + n):
                    z = U(second.sample[cell])
                    total += own_residual[z] * second_holds[cell] + own_holds[z] * second_residual[cell]
            out[feature[at]] = total
        for cell in range(U(first.start[key]), U(first.start[key + 1])):
            own_residual[U(first.sample[cell])] = 0.0
            own_holds[U(first.sample[cell])] = 0.0


def add_scores(
    first: tuple[np.ndarray, np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray, np.ndarray],
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
        first, second: the three arrays of `Side`, each.
        a, b: keys of the first and of the second side, shape (n_features,), int32. weight: float64, the same shape.
        holds: 1 where the variable's literal holds, shape (n_variables,), float64 or float32.
        score: added to, of the shape and type of `holds`.

    Raises:
        ValueError: `score` is not of the type of `holds`, or is not contiguous.
    """
    if score.dtype != holds.dtype or not score.flags.c_contiguous:
        raise ValueError(f"scores must be contiguous and of type {holds.dtype}")
    weight, holds = _frozen(weight, np.float64), _frozen(holds, holds.dtype)
    sides, keys = (_side(first), _side(second)), (_frozen(a, np.int32), _frozen(b, np.int32))
    for own, other in ((0, 1), (1, 0)):
        _add_to_side(sides[own], sides[other], n_samples, keys[own], keys[other], weight, holds, score)


def _add_to_side(
    own: Side,
    other: Side,
    n_samples: int,
    key: np.ndarray,
    partner: np.ndarray,
    weight: np.ndarray,
    holds: np.ndarray,
    score: np.ndarray,
) -> None:
    """One half of `add_scores`: the scores of the variables of `own`."""
    start, feature = _by_key(key, own)
    there = _cells(other, partner, holds)
    here = np.empty(len(own.variable), dtype=holds.dtype)

    def run(lo: int, hi: int) -> None:
        sums_by_cell(own, other, n_samples, lo, hi, start, feature, partner, weight, there, here)

    list(_in_lanes(_work(start, feature, partner, other), run))
    scatter(own, np.diff(start), here, score)


def gradient(
    first: tuple[np.ndarray, np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray, np.ndarray],
    n_samples: int,
    a: np.ndarray,
    b: np.ndarray,
    residual: np.ndarray,
    holds: np.ndarray,
) -> np.ndarray:
    """The adjoint of `add_scores` in the weights: of each feature the sum of `residual[v1] * holds[v2] + residual[v2] * holds[v1]`.

    Args:
        residual: shape (n_variables,), of the type of `holds`, in which sums are taken. Others: as of `add_scores`.

    Returns:
        shape (n_features,), float64. No bit depends on the number of threads.

    Raises:
        ValueError: `residual` is not of the type of `holds`.
    """
    if residual.dtype != holds.dtype:
        raise ValueError(f"residuals of type {residual.dtype}, but literals of {holds.dtype}")
    own, other = _side(first), _side(second)
    partner = _frozen(b, np.int32)
    residual, holds = (_frozen(values, values.dtype) for values in (residual, holds))
    start, feature = _by_key(_frozen(a, np.int32), own)
    there = tuple(_cells(other, partner, values) for values in (residual, holds))
    out = np.empty(len(partner))

    def run(lo: int, hi: int) -> None:
        pair_gradient(own, other, n_samples, lo, hi, start, feature, partner, residual, holds, *there, out)

    list(_in_lanes(_work(start, feature, partner, other), run))
    return out


def _by_key(key: np.ndarray, side: Side) -> tuple[np.ndarray, np.ndarray]:
    """Where the features of each key of a side begin, and features in that order."""
    start, feature = np.zeros(len(side.start) + 1, dtype=np.int64), np.empty(len(key), dtype=np.int32)
    by_key(key, start, feature)
    return _frozen(start[:-1], np.int64), _frozen(feature, np.int32)


def _cells(side: Side, key: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of variables by cell of a side, for the keys that some feature has."""
    used = _frozen(np.bincount(key, minlength=len(side.start) - 1), np.int64)
    out = np.empty(len(side.variable), dtype=values.dtype)
    list(_in_lanes(np.diff(side.start) * (used > 0), lambda lo, hi: gather(side, lo, hi, used, values, out)))
    return _frozen(out, out.dtype)


def _work(start: np.ndarray, feature: np.ndarray, partner: np.ndarray, other: Side) -> np.ndarray:
    """How many cells the features of each key read, shape (n_keys,)."""
    read = np.concatenate(([0], np.cumsum(np.diff(other.start)[partner[feature]])))
    return np.diff(read[start])


def _in_lanes(work: np.ndarray, run: Callable[[int, int], T]) -> Iterator[T]:
    """Does runs lo..hi-1 of keys of about the same work, on as many threads as Numba may use.

    Args:
        work: of each key, in cells that are read, shape (n_keys,).

    Yields:
        what each run gives, in their order.
    """
    total = np.cumsum(work)
    n_threads = numba.config.NUMBA_NUM_THREADS if len(work) and total[-1] > LEAST_WORK else 1
    if n_threads == 1:
        yield run(0, len(work))
        return
    inner = np.searchsorted(total, total[-1] * np.linspace(0, 1, n_threads * LANES_A_THREAD + 1)[1:-1])
    lanes = [(lo, hi) for lo, hi in pairwise((0, *inner.tolist(), len(work))) if lo < hi]
    with ThreadPoolExecutor(n_threads) as pool:
        yield from pool.map(lambda lane: run(*lane), lanes)


def _above(least: float) -> float:
    """The first number above `least`."""
    if not least >= 0.0:
        raise ValueError(f"the least magnitude of a sum is {least}, and must not be negative")
    return float(np.nextafter(least, np.inf))


def _best(value: np.ndarray, pair: np.ndarray, n_best: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `n_best` pairs by falling magnitude and rising number, in that order."""
    size = np.abs(value)
    if n_best < len(size):
        keep = size >= np.partition(size, len(size) - n_best - 1)[len(size) - n_best - 1]
        value, pair, size = value[keep], pair[keep], size[keep]
    order = np.lexsort((pair, -size))[:n_best]
    return value[order], pair[order]


def _pairs(value: np.ndarray, pair: np.ndarray, n_keys: int, n_best: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best pairs by their keys; a pair's number is a * n_keys + b."""
    value, pair = _best(value, pair, n_best)
    a, b = np.divmod(pair, n_keys)
    return a.astype(np.int32), b.astype(np.int32), value


def _sparse(table: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Sparse:
    start, index, value = table
    return Sparse(_frozen(start, np.int64), _frozen(index, np.int32), _frozen(value, np.float64))


def _side(table: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Side:
    start, sample, variable = table
    return Side(_frozen(start, np.int64), _frozen(sample, np.int32), _frozen(variable, np.int32))


def _frozen(array: np.ndarray, dtype: np.typing.DTypeLike) -> np.ndarray:
    """The same as the kernels take it, which are compiled for arrays that are not written to."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view
