"""Pairs of things with nearly the same evidence, found without looking at all pairs.

Sets are near where they have `COMMON` of their values in common (Jaccard); numbers, each column with deviation 1, where their
distance is at most `APART` of that of two independent ones. Whoever has few values and some numbers is told by the numbers.

Candidates are who falls into one bucket by some hash: of sets by the smallest values under random orders (MinHash), of numbers by
random projections that are cut into intervals. Each is then compared. A pair just at the threshold is found with a probability of
99 %, a closer one nearly surely.

Source: Broder, On the resemblance and containment of documents (1997); Indyk & Motwani, Approximate nearest neighbors (1998) for
the bands; Datar, Immorlica, Indyk & Mirrokni, Locality-sensitive hashing scheme based on p-stable distributions (2004).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse import csr_array

from relcrf.evaluation.local_evidence import LocalEvidence, mix_hash
from relcrf.kernels.distinct import distinct

MIN_JACCARD = 0.8
"""Share of all values of two things that both have, from which they are near."""

MAX_DISTANCE = 0.03
"""Share of the distance of two independent things. Of few columns there are things so near by chance alone where it is larger."""

MIN_VALUES = 5
"""By which sets can be told to be near."""

BANDS, HASHES_PER_BAND = 16, 6
"""Of sets: at `COMMON` 1 - (1 - 0.8^6)^16 = 99 % of pairs meet; of those with a fifth in common 1 in 1,000."""

MIN_HASH_AGREEMENT = 0.65
"""Share of equal smallest values below which two sets are not compared: four deviations below `COMMON`."""

HASH_TABLES, PROJECTIONS, BUCKET_WIDTH = 12, 8, 0.25
"""Of numbers, and the width of intervals as a share of the distance of independent ones: of pairs at `APART` 99.9 % meet, of
independent ones 1 in 10 million."""

BUCKET_WINDOW = 10
"""Others in its bucket that a thing is compared with, by each hash: where more are alike, they are not all needed."""

PAIRS_PER_CHUNK = 1 << 16
"""Pairs that are compared at a time."""

Pairs = np.ndarray
"""Shape (n, 2)."""


def find_near_duplicates(evidence: LocalEvidence, variables: np.ndarray, seed: int = 0) -> Pairs:
    """Pairs of near ones among some variables of one attribute or relation, each once.

    Args:
        variables: ascending; of those with equal evidence one is enough.
    """
    values, numbers = evidence.value_matrix(variables), evidence.numeric_matrix(variables)
    rng = np.random.default_rng(seed)
    many = np.diff(values.indptr) >= MIN_VALUES
    met = [np.empty(0, dtype=np.int64)]
    for rows, candidates in (
        (np.flatnonzero(many), _minhash_candidates(values[many], rng)),
        (np.flatnonzero(~many), _projection_candidates(numbers[~many], rng)),
    ):
        for pairs in candidates:
            ends = np.sort(rows[pairs], axis=1)
            met.append(distinct(ends[:, 0] * len(variables) + ends[:, 1]))
    found = np.column_stack(np.divmod(distinct(np.concatenate(met)), max(len(variables), 1)))
    return np.asarray(variables[found[are_near_duplicates(values, numbers, found)]])


def are_near_duplicates(values: csr_array, numbers: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Return a mask of the pairs of rows that are near; for the rows see `LocalEvidence`."""
    sizes, reach = np.diff(values.indptr), MAX_DISTANCE**2 * 2.0 * numbers.shape[1]
    near = np.empty(len(pairs), dtype=bool)
    for start in range(0, len(pairs), PAIRS_PER_CHUNK):
        one, other = pairs[start : start + PAIRS_PER_CHUNK].T
        both = np.asarray(values[one].multiply(values[other]).sum(axis=1)).ravel()
        gap = numbers[one] - numbers[other]
        in_common = both >= MIN_JACCARD * (sizes[one] + sizes[other] - both)
        near[start : start + PAIRS_PER_CHUNK] = in_common & (np.einsum("ij,ij->i", gap, gap) <= reach)
    return near


def _minhash_candidates(values: csr_array, rng: np.random.Generator) -> Iterator[Pairs]:
    if values.shape[0] < 2:
        return
    smallest = np.empty((values.shape[0], BANDS * HASHES_PER_BAND), dtype=np.int32)
    for order in range(BANDS * HASHES_PER_BAND):
        rank = rng.permutation(values.shape[1]).astype(np.int32)
        smallest[:, order] = np.minimum.reduceat(rank[values.indices], values.indptr[:-1])
    for band in range(BANDS):
        key = _hash_rows(smallest[:, band * HASHES_PER_BAND : (band + 1) * HASHES_PER_BAND])
        yield from _bucket_pairs(
            key, rng, lambda one, two: (smallest[one] == smallest[two]).mean(axis=1) >= MIN_HASH_AGREEMENT
        )


def _projection_candidates(numbers: np.ndarray, rng: np.random.Generator) -> Iterator[Pairs]:
    n, width = numbers.shape
    if n < 2 or not width:
        return
    step = BUCKET_WIDTH * np.sqrt(2.0 * width)
    for _ in range(HASH_TABLES):
        places = numbers @ rng.normal(size=(width, PROJECTIONS)) / step + rng.random(PROJECTIONS)
        yield from _bucket_pairs(
            _hash_rows(np.floor(places).astype(np.int64)), rng, lambda one, two: np.ones(len(one), dtype=bool)
        )


def _hash_rows(columns: np.ndarray) -> np.ndarray:
    key = np.zeros(len(columns), dtype=np.uint64)
    for column in columns.T:
        key = mix_hash(key, column.astype(np.uint64))
    return key


def _bucket_pairs(
    key: np.ndarray, rng: np.random.Generator, accept: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Iterator[Pairs]:
    """Pairs of rows with the same key that are likely: each with up to `BUCKET_WINDOW` others."""
    order = rng.permutation(len(key))
    order = order[np.argsort(key[order], kind="stable")]
    for step in range(1, BUCKET_WINDOW + 1):
        one, two = order[:-step], order[step:]
        same = key[one] == key[two]
        if not same.any():
            return
        one, two = one[same], two[same]
        for start in range(0, len(one), PAIRS_PER_CHUNK):
            chosen = slice(start, start + PAIRS_PER_CHUNK)
            kept = accept(one[chosen], two[chosen])
            yield np.column_stack((one[chosen][kept], two[chosen][kept]))
