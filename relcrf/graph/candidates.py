"""Spaces of candidate factors over two literals.

A `candidates` declaration has two literals over binders (logical variables). A *key* is an assignment of the `per`
binders that occur in one literal. A *sample* is an assignment of the binders that both literals share. The *side* of a
literal is a table with at most one *cell* for each key and sample; a cell contains a variable. A *candidate* is a pair
of keys, one from each side; it has a factor in each sample in which both keys have a cell. The *space* of a declaration
contains all its candidates. Only the sides are stored; the pairs are never expanded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property, reduce
from typing import Self

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import Keyed
from relcrf.graph.weights import WeightBlock
from relcrf.kernels.keyed_cells import KeyedCells

BYTES_PER_CELL = 24
"""Bytes per cell during learning: sample, variable and key (int32), in two copies: sorted by key and by sample."""


class KeyRelation(IntEnum):
    """The constraint on the two keys of a candidate."""

    ANY = 0
    ASCENDING = 1
    """The first key is smaller than the second."""
    DISTINCT = 2

    def allows(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return a mask of the pairs `(first[i], second[i])` of keys that satisfy the relation, bool."""
        return np.asarray({0: first >= 0, 1: first < second, 2: first != second}[self.value])


@dataclass(frozen=True)
class CandidateSide:
    """The side of one literal: the cells of the literal, sorted by key, then by sample.

    Args:
        start: Offset of the first cell of each key, shape (n_keys + 1,), int64.
        sample, variable: Sample and variable of each cell, int32; the cells of a key have distinct samples.
        truth: Truth value of the literal in each state of a cell's variable, 0.0 or 1.0, shape (n_states,).
    """

    start: np.ndarray
    sample: np.ndarray
    variable: np.ndarray
    truth: np.ndarray

    @classmethod
    def from_cells(
        cls, n_keys: int, key: np.ndarray, sample: np.ndarray, variable: np.ndarray, truth: np.ndarray
    ) -> CandidateSide:
        """Build a side from unsorted cells."""
        order = np.lexsort((sample, key))
        start = offsets(np.bincount(key, minlength=n_keys))
        return cls(start, sample[order].astype(np.int32), variable[order].astype(np.int32), truth)

    @property
    def n_keys(self) -> int:
        return len(self.start) - 1

    @cached_property
    def kernel_cells(self) -> KeyedCells:
        """Return the cells in the form that kernels accept."""
        return KeyedCells.from_arrays(self.start, self.sample, self.variable)

    @cached_property
    def key(self) -> np.ndarray:
        """Return the key of each cell, int32."""
        return np.repeat(np.arange(self.n_keys, dtype=np.int32), np.diff(self.start))

    @cached_property
    def by_sample(self) -> CandidateSide:
        """Return the transposed side, sorted by sample: `start` has an entry per sample, and `sample` contains keys."""
        order = np.argsort(self.sample, kind="stable")
        n_samples = int(self.sample.max(initial=-1)) + 1
        start = offsets(np.bincount(self.sample, minlength=n_samples))
        return CandidateSide(start, self.key[order], self.variable[order], self.truth)

    def select(self, mask: np.ndarray) -> CandidateSide:
        """Return the side with only the cells that a mask selects; `mask` has shape (n_cells,), bool."""
        start = offsets(mask)[self.start]
        return replace(self, start=start, sample=self.sample[mask], variable=self.variable[mask])


class AbstractSpace(ABC):
    """A space of candidates. A candidate is a combination of keys, one from each side, and has separate weights.

    A candidate has a factor in each sample in which all of its keys have a cell. The factor's log potential in joint
    state s is `patterns[s] @ weights`. By default, a candidate has one weight, which applies if all literals are true.

    Candidates are not stored. Methods identify a candidate by a pair of integers; `pairs` has shape (n, 2).

    Args:
        name: Name of the template.
        l1, l2: Strengths of the L1 and L2 penalties; None selects the strength in the backend's settings.
    """

    name: str
    n_samples: int
    l1: float | None
    l2: float | None

    @property
    @abstractmethod
    def sides(self) -> tuple[CandidateSide, ...]:
        """Return the sides in the order of the literals."""

    @property
    def patterns(self) -> np.ndarray:
        """Return a matrix (n_joint_states, n_weights): 1 if a weight applies in a joint state (row-major), else 0."""
        return reduce(np.multiply.outer, [side.truth for side in self.sides]).reshape(-1, 1)

    @property
    def n_weights(self) -> int:
        """Return the number of weights of one candidate."""
        return int(self.patterns.shape[1])

    @property
    def nbytes(self) -> int:
        """Return the memory of the cells of all sides during learning, in bytes."""
        return BYTES_PER_CELL * sum(len(side.sample) for side in self.sides)

    @abstractmethod
    def decode_keys(self, pairs: np.ndarray) -> np.ndarray:
        """Return the keys of some candidates, one key per side, shape (n, n_sides)."""

    @abstractmethod
    def encode_keys(self, keys: np.ndarray) -> np.ndarray:
        """Return the integer pairs of candidates with the given keys, shape (n, 2); the inverse of `decode_keys`."""

    @abstractmethod
    def matching_cells(self, pairs: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the cell of each factor, one array per side, then the index of each factor's candidate in `pairs`."""

    @abstractmethod
    def with_sides(self, sides: Sequence[CandidateSide]) -> Self:
        """Return a copy of the space with new sides, which must have as many keys as the old sides."""

    def restrict_to_variables(self, present: np.ndarray) -> Self:
        """Return the space without cells of absent variables; `present` has shape (n_variables,), bool."""
        return self.with_sides([side.select(present[side.variable]) for side in self.sides])

    def build_factor_group(self, pairs: np.ndarray, weights: np.ndarray, n_weights: int, block: int) -> FactorGroup:
        """Return the factors of some candidates.

        Args:
            pairs: Candidates, shape (n, 2).
            weights: Row index, in the weight block, of each candidate's weights, shape (n,).
            n_weights: Number of rows of the weight block.
            block: Index of the weight block in the layout.
        """
        *rows, candidate = self.matching_cells(pairs)
        return FactorGroup(
            tuple(side.variable[row] for side, row in zip(self.sides, rows, strict=True)),
            tuple(len(side.truth) for side in self.sides),
            Keyed(weights[candidate].astype(np.int32), np.empty((0, 1)), n_weights),
            self.patterns,
            block,
        )

    def build_weight_block(self, n: int) -> WeightBlock:
        """Return a block for the weights of `n` candidates."""
        return WeightBlock(self.name, n, self.n_weights, l1=self.l1, l2=self.l2)


@dataclass(frozen=True)
class PairSpace(AbstractSpace):
    """A candidate space over pairs of keys of two literals.

    Args:
        relation: Constraint on the ranks of the two keys.
        ranks: The rank of each key of each side, ascending, shape (n_keys,) each, for keys that are compared by a part of
            the key or with `<=`. None: the rank of a key is its index.
    """

    name: str
    first: CandidateSide
    second: CandidateSide
    relation: KeyRelation
    n_samples: int
    l1: float | None = None
    l2: float | None = None
    ranks: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def sides(self) -> tuple[CandidateSide, CandidateSide]:
        return self.first, self.second

    @property
    def n_pairs(self) -> int:
        """Return the number of pairs of keys that satisfy the relation."""
        n, m = self.first.n_keys, self.second.n_keys
        if self.ranks is not None:
            return int(self.partner_offsets[-1])
        return {KeyRelation.ANY: n * m, KeyRelation.ASCENDING: n * (m - 1) // 2, KeyRelation.DISTINCT: n * (m - 1)}[
            self.relation
        ]

    def allows(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return a mask of the pairs `(first[i], second[i])` of keys that satisfy the relation, bool."""
        if self.ranks is not None:
            first, second = self.ranks[0][first], self.ranks[1][second]
        return self.relation.allows(first, second)

    @cached_property
    def excluded_partners(self) -> np.ndarray:
        """The range of second keys that the relation excludes, for each first key, shape (n_first, 2)."""
        first, second = self.ranks or (np.arange(self.first.n_keys), np.arange(self.second.n_keys))
        if self.relation == KeyRelation.ANY:
            return np.zeros((len(first), 2), dtype=np.int64)
        begin = 0 if self.relation == KeyRelation.ASCENDING else np.searchsorted(second, first)
        return np.stack((np.full(len(first), begin), np.searchsorted(second, first, side="right")), axis=1)

    @cached_property
    def partner_offsets(self) -> np.ndarray:
        """The offset of the pairs of each first key among all pairs in ascending order, shape (n_first + 1,)."""
        return offsets(self.second.n_keys - np.diff(self.excluded_partners).ravel())

    def key_limits(self) -> np.ndarray:
        """Return limits on the second key for each first key, in the form that `top_products` takes."""
        begin, end = self.excluded_partners.T
        no_limit, n_second = np.full(len(begin), -1), np.full(len(begin), self.second.n_keys)
        if self.relation == KeyRelation.ASCENDING:
            return np.stack((end - 1, n_second), axis=1)
        excluded = begin[:, None] + np.arange((end - begin).max(initial=0))
        return np.column_stack((no_limit, n_second, np.where(excluded < end[:, None], excluded, -1)))

    def all_pairs(self) -> np.ndarray:
        """Return all pairs of keys that satisfy the relation, ascending, shape (n_pairs, 2)."""
        first, second = np.indices((self.first.n_keys, self.second.n_keys)).reshape(2, -1)
        return np.asarray(np.stack((first, second), axis=1)[self.allows(first, second)])

    def decode_keys(self, pairs: np.ndarray) -> np.ndarray:
        return pairs

    def encode_keys(self, keys: np.ndarray) -> np.ndarray:
        return keys

    def matching_cells(self, pairs: np.ndarray) -> tuple[np.ndarray, ...]:
        return match_cells(self.first, self.second, self.n_samples, pairs)

    def with_sides(self, sides: Sequence[CandidateSide]) -> PairSpace:
        first, second = sides
        return replace(self, first=first, second=second)


@dataclass(frozen=True)
class TableSpace(PairSpace):
    """A candidate space of edges: each pair of keys has a table of weights over the joint states of two variables.

    Args:
        table: The value of `patterns`, shape (n_joint_states, n_weights).
    """

    table: np.ndarray = field(kw_only=True)

    @property
    def patterns(self) -> np.ndarray:
        return self.table


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """Candidates of several spaces, in the order of their weights.

    Args:
        rows: Three integers per candidate, shape (3, n), int64: the index of the space, and the pair of integers that
            identifies the candidate in the space. The pair contains the two keys; for triples see `TripleSpace`.
    """

    rows: np.ndarray

    @classmethod
    def empty(cls) -> CandidateSet:
        """Return the empty set."""
        return cls(np.empty((3, 0), dtype=np.int64))

    @classmethod
    def from_pairs(cls, space: int, pairs: np.ndarray) -> CandidateSet:
        """Return candidates of one space, identified by integer pairs of shape (n, 2)."""
        return cls(np.stack((np.full(len(pairs), space), pairs[:, 0], pairs[:, 1])))

    @classmethod
    def from_spaces(cls, spaces: Sequence[PairSpace]) -> CandidateSet:
        """Return all candidates of some pair spaces."""
        sets = [cls.from_pairs(index, space.all_pairs()) for index, space in enumerate(spaces)]
        return reduce(cls.concat, sets, cls.empty())

    @property
    def space(self) -> np.ndarray:
        return np.asarray(self.rows[0])

    @property
    def first(self) -> np.ndarray:
        return np.asarray(self.rows[1])

    @property
    def second(self) -> np.ndarray:
        return np.asarray(self.rows[2])

    def __len__(self) -> int:
        return int(self.rows.shape[1])

    def concat(self, other: CandidateSet) -> CandidateSet:
        """Return a set with the candidates of `self`, followed by those of `other`."""
        return CandidateSet(np.concatenate((self.rows, other.rows), axis=1))

    def select(self, selection: np.ndarray) -> CandidateSet:
        """Return some of the candidates, selected by indices or by a mask."""
        return CandidateSet(self.rows[:, selection])

    def indices_in_space(self, space: int) -> np.ndarray:
        """Return the indices of the candidates of one space, ascending."""
        return np.flatnonzero(self.space == space)

    def pairs(self, indices: np.ndarray) -> np.ndarray:
        """Return the integer pairs of some candidates, shape (n, 2)."""
        return np.asarray(self.rows[1:, indices].T)

    def entry_offsets(self, sizes: Sequence[int]) -> np.ndarray:
        """Return the offset of each candidate in an array with `sizes[k]` entries per candidate of space k."""
        return offsets(np.array(sizes, dtype=np.int64)[self.space])


def match_cells(
    first: CandidateSide, second: CandidateSide, n_samples: int, pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each pair of keys, the pairs of cells that have the same sample; `pairs` has shape (n, 2).

    Returns:
        The cell of the first side, the cell of the second side, and the index of the key pair in `pairs`; shape
        (n_matches,) each, in ascending order of key pair, then sample.
    """
    sizes = np.diff(first.start)[pairs[:, 0]]
    pair = np.repeat(np.arange(len(pairs), dtype=np.int32), sizes)
    begin = offsets(sizes)[:-1]
    rows = np.repeat(first.start[pairs[:, 0]] - begin, sizes) + np.arange(len(pair))
    # The codes of the second side's cells ascend, because the cells are sorted by key, then by sample.
    codes = second.key.astype(np.int64) * n_samples + second.sample
    wanted_codes = pairs[pair, 1].astype(np.int64) * n_samples + first.sample[rows]
    columns = np.searchsorted(codes, wanted_codes)
    columns[columns == len(codes)] = 0
    matches = codes[columns] == wanted_codes if len(codes) else np.zeros(len(wanted_codes), dtype=bool)
    return rows[matches], columns[matches], pair[matches]
