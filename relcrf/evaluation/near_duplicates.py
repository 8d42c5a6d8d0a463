"""Near-duplicates: pairs of entities with nearly the same local evidence, found without comparing all pairs.

Two entities are near-duplicates if their value sets are near and their numeric vectors are near. Two value sets are
near if their Jaccard index is at least `MIN_JACCARD`. Two numeric vectors, standardised per column, are near if their
distance is at most `MAX_DISTANCE` times the distance of two independent vectors.

Only pairs of entities in the same hash bucket are compared. Value sets are hashed by the first value in a random order
(MinHash). Entities with fewer than `MIN_VALUES` values are hashed by the intervals that contain random projections of
the numeric vector. A pair exactly at the threshold is found with a probability of 99 %, a closer pair almost surely.

Source: Broder, On the resemblance and containment of documents (1997); for banding: Indyk & Motwani, Approximate
nearest neighbors (1998); Datar, Immorlica, Indyk & Mirrokni, Locality-sensitive hashing scheme based on p-stable
distributions (2004).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse import csr_array

from relcrf.evaluation.local_evidence import LocalEvidence, mix_hash
from relcrf.kernels.distinct import distinct

MIN_JACCARD = 0.8
"""Minimum Jaccard index of the value sets of near-duplicates."""

MAX_DISTANCE = 0.03
"""Maximum distance of near-duplicates, relative to the distance of independent vectors; with larger values, vectors of
few columns match by chance.
"""

MIN_VALUES = 5
"""Minimum number of values of an entity that is hashed by its value set."""

BANDS, HASHES_PER_BAND = 16, 6
"""Number of MinHash bands, and number of hashes per band. Of the pairs with Jaccard index 0.8, 99 % share a bucket,
because 1 - (1 - 0.8^6)^16 = 0.99; of the pairs with index 0.2, 1 in 1,000.
"""

MIN_HASH_AGREEMENT = 0.65
"""Minimum fraction of equal MinHash values of two sets to be compared, four standard deviations below `MIN_JACCARD`."""

HASH_TABLES, PROJECTIONS, BUCKET_WIDTH = 12, 8, 0.25
"""Number of projection hash tables, projections per table, and interval width relative to the distance of independent
vectors. Of the pairs at `MAX_DISTANCE`, 99.9 % share a bucket; of the pairs of independent vectors, 1 in 10 million.
"""

BUCKET_WINDOW = 10
"""Maximum number of entities later in the bucket with which an entity is compared; a larger bucket is only sampled."""

PAIRS_PER_CHUNK = 1 << 16
"""Number of pairs compared at a time; it bounds the memory."""

Pairs = np.ndarray
"""Pairs of indices, shape (n, 2)."""


def find_near_duplicates(evidence: LocalEvidence, variables: np.ndarray, seed: int = 0) -> Pairs:
    """Return the pairs of near-duplicates among variables of one attribute or relation, each pair once.

    Args:
        variables: Indices of variables, ascending; no two of these variables have equal evidence.
    """
    values, numbers = evidence.value_matrix(variables), evidence.numeric_matrix(variables)
    rng = np.random.default_rng(seed)
    has_values = np.diff(values.indptr) >= MIN_VALUES
    pair_codes = [np.empty(0, dtype=np.int64)]
    for rows, candidates in (
        (np.flatnonzero(has_values), _minhash_candidates(values[has_values], rng)),
        (np.flatnonzero(~has_values), _projection_candidates(numbers[~has_values], rng)),
    ):
        for pairs in candidates:
            ends = np.sort(rows[pairs], axis=1)
            pair_codes.append(distinct(ends[:, 0] * len(variables) + ends[:, 1]))
    candidate_pairs = np.column_stack(np.divmod(distinct(np.concatenate(pair_codes)), max(len(variables), 1)))
    return np.asarray(variables[candidate_pairs[are_near_duplicates(values, numbers, candidate_pairs)]])


def are_near_duplicates(values: csr_array, numbers: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Return a mask of the pairs of rows that are near-duplicates, given the two matrices of `LocalEvidence`."""
    sizes, max_square = np.diff(values.indptr), MAX_DISTANCE**2 * 2.0 * numbers.shape[1]
    near = np.empty(len(pairs), dtype=bool)
    for start in range(0, len(pairs), PAIRS_PER_CHUNK):
        one, other = pairs[start : start + PAIRS_PER_CHUNK].T
        n_common = np.asarray(values[one].multiply(values[other]).sum(axis=1)).ravel()
        difference = numbers[one] - numbers[other]
        sets_are_near = n_common >= MIN_JACCARD * (sizes[one] + sizes[other] - n_common)
        near[start : start + PAIRS_PER_CHUNK] = sets_are_near & (
            np.einsum("ij,ij->i", difference, difference) <= max_square
        )
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
        positions = numbers @ rng.normal(size=(width, PROJECTIONS)) / step + rng.random(PROJECTIONS)
        yield from _bucket_pairs(
            _hash_rows(np.floor(positions).astype(np.int64)), rng, lambda one, two: np.ones(len(one), dtype=bool)
        )


def _hash_rows(columns: np.ndarray) -> np.ndarray:
    key = np.zeros(len(columns), dtype=np.uint64)
    for column in columns.T:
        key = mix_hash(key, column.astype(np.uint64))
    return key


def _bucket_pairs(
    key: np.ndarray, rng: np.random.Generator, accept: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Iterator[Pairs]:
    """Yield the accepted pairs of rows with equal keys; each row is paired with at most `BUCKET_WINDOW` later rows."""
    order = rng.permutation(len(key))
    order = order[np.argsort(key[order], kind="stable")]
    for step in range(1, BUCKET_WINDOW + 1):
        one, two = order[:-step], order[step:]
        share_key = key[one] == key[two]
        if not share_key.any():
            return
        one, two = one[share_key], two[share_key]
        for start in range(0, len(one), PAIRS_PER_CHUNK):
            chosen = slice(start, start + PAIRS_PER_CHUNK)
            mask = accept(one[chosen], two[chosen])
            yield np.column_stack((one[chosen][mask], two[chosen][mask]))
