"""A numbering and a pseudorandom order of all candidates of some candidate spaces, without stored arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.candidates import CandidateSet, KeyRelation, PairSpace
from relcrf.kernels.distinct import distinct

FEISTEL_ROUNDS = 4
"""Number of rounds of the Feistel network; three suffice for a pseudorandom permutation (Luby & Rackoff 1988)."""


@dataclass(frozen=True, eq=False)
class PairIndex:
    """A numbering of the candidates of several spaces, and of their *ends*.

    A candidate is a pair of keys, one from each side of a space (see `graph/candidates.py`); the keys are the ends of
    the pair. Pairs and ends are numbered space by space. If the two keys of a pair are compared as a whole (distinct or
    in ascending order), the two sides of the space have the same ends; otherwise each side has separate ends.

    Args:
        spaces: Pair spaces.
        seed: Seed of the search order.
    """

    spaces: tuple[PairSpace, ...]
    seed: int = 0

    @cached_property
    def search_order(self) -> FeistelPermutation:
        """Return the permutation that defines the order in which the pairs are tested."""
        return FeistelPermutation(self.size, self.seed)

    @cached_property
    def start(self) -> np.ndarray:
        """Return the offset of each space's pairs, and the total number of pairs, shape (n_spaces + 1,), int64."""
        return offsets([space.n_pairs for space in self.spaces])

    @property
    def size(self) -> int:
        return int(self.start[-1])

    @cached_property
    def _end_start(self) -> np.ndarray:
        """Return the first end of each side of each space, then the total number of ends, shape (n_spaces + 1, 2)."""
        out, n = [], 0
        for space in self.spaces:
            has_shared_keys = _has_shared_keys(space)
            out.append((n, n if has_shared_keys else n + space.first.n_keys))
            n += space.second.n_keys if has_shared_keys else space.first.n_keys + space.second.n_keys
        return np.array([*out, (n, n)], dtype=np.int64)

    @property
    def n_ends(self) -> int:
        return int(self._end_start[-1, 0])

    def decode(self, numbers: np.ndarray) -> CandidateSet:
        """Return the candidates with the given numbers, shape (n,)."""
        space = np.searchsorted(self.start, numbers, side="right") - 1
        keys = np.empty((len(numbers), 2), dtype=np.int64)
        for number, each_space in enumerate(self.spaces):
            in_space = space == number
            keys[in_space] = _unrank_pairs(each_space, numbers[in_space] - self.start[number])
        return CandidateSet(np.stack((space, keys[:, 0], keys[:, 1])))

    def encode(self, candidates: CandidateSet) -> np.ndarray:
        """Return the numbers of some candidates, shape (n,), int64; the inverse of `decode`."""
        out = np.empty(len(candidates), dtype=np.int64)
        for number, space in enumerate(self.spaces):
            indices = candidates.indices_in_space(number)
            out[indices] = self.start[number] + _rank_pairs(space, candidates.pairs(indices))
        return out

    def ends(self, numbers: np.ndarray) -> np.ndarray:
        """Return the two ends of each pair, shape (n, 2)."""
        candidates = self.decode(numbers)
        out: np.ndarray = self._end_start[candidates.space] + np.stack((candidates.first, candidates.second), axis=1)
        return out

    def pairs_at(self, end: int) -> np.ndarray:
        """Return the numbers of all pairs with a given end, ascending."""
        numbers = [np.empty(0, dtype=np.int64)]
        for number, space in enumerate(self.spaces):
            for side, n_own, n_other in (
                (0, space.first.n_keys, space.second.n_keys),
                (1, space.second.n_keys, space.first.n_keys),
            ):
                key = end - int(self._end_start[number, side])
                if not 0 <= key < n_own:
                    continue
                others = np.arange(n_other)
                pairs = np.stack((np.full(n_other, key), others), axis=1)[:, :: 1 - 2 * side]
                pairs = pairs[space.allows(pairs[:, 0], pairs[:, 1])]
                numbers.append(self.start[number] + _rank_pairs(space, pairs))
        return distinct(np.concatenate(numbers))

    @cached_property
    def n_partners(self) -> np.ndarray:
        """Return the number of possible partners of each end, at least 1, shape (n_ends,)."""
        out = np.empty(self.n_ends)
        for number, space in enumerate(self.spaces):
            has_shared_keys = int(_has_shared_keys(space))
            for side, n_own, n_other in (
                (0, space.first.n_keys, space.second.n_keys),
                (1, space.second.n_keys, space.first.n_keys),
            ):
                begin = self._end_start[number, side]
                out[begin : begin + n_own] = max(n_other - has_shared_keys, 1)
        return out


def _has_shared_keys(space: PairSpace) -> bool:
    """Return True if both sides have the same keys, which the relation compares."""
    return space.relation != KeyRelation.ANY and space.ranks is None


def _unrank_pairs(space: PairSpace, ranks: np.ndarray) -> np.ndarray:
    """Return the pairs of keys with the given ranks (numbers within a space), shape (n, 2)."""
    if space.ranks is not None:
        first = np.searchsorted(space.partner_offsets, ranks, side="right") - 1
        begin, end = space.excluded_partners[first].T
        second = ranks - space.partner_offsets[first]
        return np.stack((first, second + (end - begin) * (second >= begin)), axis=1)
    if space.relation == KeyRelation.ASCENDING:
        # The pair (s, t), s < t, has rank t (t - 1) / 2 + s; for large ranks the rounded root can be off by one.
        t = ((1.0 + np.sqrt(1.0 + 8.0 * ranks)) / 2.0).astype(np.int64)
        t -= t * (t - 1) // 2 > ranks
        t += t * (t + 1) // 2 <= ranks
        return np.stack((ranks - t * (t - 1) // 2, t), axis=1)
    distinct = space.relation == KeyRelation.DISTINCT
    first, second = np.divmod(ranks, max(space.second.n_keys - distinct, 1))
    return np.stack((first, second + (distinct & (second >= first))), axis=1)


def _rank_pairs(space: PairSpace, pairs: np.ndarray) -> np.ndarray:
    """Return the ranks of some pairs of keys in a space, shape (n,); the inverse of `_unrank_pairs`."""
    first, second = pairs.astype(np.int64).T
    if space.ranks is not None:
        begin, end = space.excluded_partners[first].T
        return np.asarray(space.partner_offsets[first] + second - (end - begin) * (second >= end))
    if space.relation == KeyRelation.ASCENDING:
        return np.asarray(second * (second - 1) // 2 + first)
    distinct = space.relation == KeyRelation.DISTINCT
    return np.asarray(first * (space.second.n_keys - distinct) + second - (distinct & (second > first)))


@dataclass(frozen=True)
class FeistelPermutation:
    """A pseudorandom permutation of 0..size-1 without stored arrays: a Feistel network with cycle walking.

    Args:
        size: Number of elements.
        seed: Seed of the permutation.
    """

    size: int
    seed: int

    @cached_property
    def _half_bits(self) -> int:
        """Return the number of bits of one half of a number."""
        return max((max(self.size - 1, 1).bit_length() + 1) // 2, 1)

    @cached_property
    def _round_keys(self) -> list[int]:
        return [int(key) | 1 for key in np.random.default_rng(self.seed).integers(1 << 62, size=FEISTEL_ROUNDS)]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers at the given positions of the permutation, shape (n,), int64."""
        return self._cycle_walk(positions, self._round_keys, forward=True)

    def inverse(self, numbers: np.ndarray) -> np.ndarray:
        """Return the positions of the given numbers, shape (n,), int64."""
        return self._cycle_walk(numbers, self._round_keys[::-1], forward=False)

    def _cycle_walk(self, values: np.ndarray, keys: Sequence[int], *, forward: bool) -> np.ndarray:
        out = values.astype(np.uint64)
        outside = np.arange(len(out))
        while len(outside):
            out[outside] = self._mix(out[outside], keys, forward=forward)
            outside = outside[out[outside] >= self.size]
        return out.astype(np.int64)

    def _mix(self, values: np.ndarray, keys: Sequence[int], *, forward: bool) -> np.ndarray:
        half = np.uint64(self._half_bits)
        mask = np.uint64((1 << self._half_bits) - 1)
        left, right = values >> half, values & mask
        if not forward:
            left, right = right, left
        for key in keys:
            mixed = (right + np.uint64(1)) * np.uint64(key)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        if not forward:
            left, right = right, left
        return (left << half) | right
