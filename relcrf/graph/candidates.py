"""Spaces of candidate factors: pairs of literals that meet in a sample, described by their two sides and never expanded."""

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
"""Sample, variable and key, by key and by sample."""


class KeyRelation(IntEnum):
    """Which keys of the two sides may be paired."""

    ANY = 0
    ASCENDING = 1
    """The first before the second."""
    DISTINCT = 2

    def allows(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Which keys may be paired, bool, of the shape of both."""
        return np.asarray({0: first >= 0, 1: first < second, 2: first != second}[self.value])


@dataclass(frozen=True)
class CandidateSide:
    """The cells of one literal: which variable it speaks of for a key in a sample. Cells ascend by key, then by sample.

    Args:
        start: where each key's cells begin, shape (n_keys + 1,), int64.
        sample, variable: of each cell, int32; a key has a sample once at most.
        truth: of the literal in each state of its variables, shape (n_states,), 0.0 or 1.0.
    """

    start: np.ndarray
    sample: np.ndarray
    variable: np.ndarray
    truth: np.ndarray

    @classmethod
    def from_cells(
        cls, n_keys: int, key: np.ndarray, sample: np.ndarray, variable: np.ndarray, truth: np.ndarray
    ) -> CandidateSide:
        """A side of cells in any order."""
        order = np.lexsort((sample, key))
        start = offsets(np.bincount(key, minlength=n_keys))
        return cls(start, sample[order].astype(np.int32), variable[order].astype(np.int32), truth)

    @property
    def n_keys(self) -> int:
        return len(self.start) - 1

    @cached_property
    def kernel_cells(self) -> KeyedCells:
        """Return the cells as kernels take them."""
        return KeyedCells.from_arrays(self.start, self.sample, self.variable)

    @cached_property
    def key(self) -> np.ndarray:
        """Of each cell, int32."""
        return np.repeat(np.arange(self.n_keys, dtype=np.int32), np.diff(self.start))

    @cached_property
    def by_sample(self) -> CandidateSide:
        """The same cells ascending by sample and then by key: its `start` is of samples, and its `sample` is the key."""
        order = np.argsort(self.sample, kind="stable")
        n_samples = int(self.sample.max(initial=-1)) + 1
        start = offsets(np.bincount(self.sample, minlength=n_samples))
        return CandidateSide(start, self.key[order], self.variable[order], self.truth)

    def select(self, mask: np.ndarray) -> CandidateSide:
        """Some of the cells, shape (n_cells,), bool."""
        start = offsets(mask)[self.start]
        return replace(self, start=start, sample=self.sample[mask], variable=self.variable[mask])


class AbstractSpace(ABC):
    """A factor for each choice of keys, one of each side, and each sample in which all have a cell: worth a weight where all
    literals hold, or one for each of its `patterns`.

    A weight belongs to a choice of keys. Nothing is stored for one; some are named by pairs of numbers, shape (n, 2).

    Args:
        name: of the template.
        l1, l2: strengths of the penalties; None leaves them to the backend's settings.
    """

    name: str
    n_samples: int
    l1: float | None
    l2: float | None

    @property
    @abstractmethod
    def sides(self) -> tuple[CandidateSide, ...]:
        """In the order of the literals."""

    @property
    def patterns(self) -> np.ndarray:
        """What a choice of keys has weights for: indicators of joint states, row-major, shape (n_joint_states, n_weights)."""
        return reduce(np.multiply.outer, [side.truth for side in self.sides]).reshape(-1, 1)

    @property
    def n_weights(self) -> int:
        """Return the number of weights of one candidate."""
        return int(self.patterns.shape[1])

    @property
    def nbytes(self) -> int:
        """What the cells of its sides take, as learning looks at them."""
        return BYTES_PER_CELL * sum(len(side.sample) for side in self.sides)

    @abstractmethod
    def decode_keys(self, pairs: np.ndarray) -> np.ndarray:
        """The keys in each side, shape (n, n_sides)."""

    @abstractmethod
    def encode_keys(self, keys: np.ndarray) -> np.ndarray:
        """The pairs of numbers of some keys, shape (n, 2); the inverse of `keys`."""

    @abstractmethod
    def matching_cells(self, pairs: np.ndarray) -> tuple[np.ndarray, ...]:
        """The cells of each side that meet, and the place among `pairs`; n_sides + 1 arrays of shape (n_factors,)."""

    @abstractmethod
    def with_sides(self, sides: Sequence[CandidateSide]) -> Self:
        """The same with other cells of the same keys."""

    def restrict_to_variables(self, present: np.ndarray) -> Self:
        """The factors whose variables are all present, shape (n_variables,), bool."""
        return self.with_sides([side.select(present[side.variable]) for side in self.sides])

    def build_factor_group(self, pairs: np.ndarray, weights: np.ndarray, n_weights: int, block: int) -> FactorGroup:
        """The factors of some keys.

        Args:
            pairs: shape (n, 2).
            weights: which weight of the block each has, shape (n,).
            block: of `n_weights`.
        """
        *rows, place = self.matching_cells(pairs)
        return FactorGroup(
            tuple(side.variable[row] for side, row in zip(self.sides, rows, strict=True)),
            tuple(len(side.truth) for side in self.sides),
            Keyed(weights[place].astype(np.int32), np.empty((0, 1)), n_weights),
            self.patterns,
            block,
        )

    def build_weight_block(self, n: int) -> WeightBlock:
        """A block for the weights of some keys."""
        return WeightBlock(self.name, n, self.n_weights, l1=self.l1, l2=self.l2)


@dataclass(frozen=True)
class PairSpace(AbstractSpace):
    """The pairs of keys of two literals."""

    name: str
    first: CandidateSide
    second: CandidateSide
    relation: KeyRelation
    n_samples: int
    l1: float | None = None
    l2: float | None = None

    @property
    def sides(self) -> tuple[CandidateSide, CandidateSide]:
        return self.first, self.second

    @property
    def n_pairs(self) -> int:
        """How many pairs of keys there are."""
        n, m = self.first.n_keys, self.second.n_keys
        return {KeyRelation.ANY: n * m, KeyRelation.ASCENDING: n * (m - 1) // 2, KeyRelation.DISTINCT: n * (m - 1)}[
            self.relation
        ]

    def all_pairs(self) -> np.ndarray:
        """All pairs of keys, ascending, shape (n_pairs, 2)."""
        first, second = np.indices((self.first.n_keys, self.second.n_keys)).reshape(2, -1)
        return np.asarray(np.stack((first, second), axis=1)[self.relation.allows(first, second)])

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
    """The pairs of keys of two variables, each pair with a table of weights over their joint states: an edge of a graph.

    Args:
        table: its `patterns`, shape (n_joint_states, n_weights).
    """

    table: np.ndarray = field(kw_only=True)

    @property
    def patterns(self) -> np.ndarray:
        return self.table


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """Candidates of several spaces, in the order of their weights.

    Args:
        rows: the number of each candidate's space, and the pair of numbers that names it there: its keys, or of a triple its
            composite and its third key. Shape (3, n), int64.
    """

    rows: np.ndarray

    @classmethod
    def empty(cls) -> CandidateSet:
        """Return the empty set."""
        return cls(np.empty((3, 0), dtype=np.int64))

    @classmethod
    def from_pairs(cls, space: int, pairs: np.ndarray) -> CandidateSet:
        """Return candidates of one space, named by pairs of numbers of shape (n, 2)."""
        return cls(np.stack((np.full(len(pairs), space), pairs[:, 0], pairs[:, 1])))

    @classmethod
    def from_spaces(cls, spaces: Sequence[PairSpace]) -> CandidateSet:
        """Return all candidates of some spaces of pairs."""
        parts = [cls.from_pairs(number, space.all_pairs()) for number, space in enumerate(spaces)]
        return reduce(cls.concat, parts, cls.empty())

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
        """Return these candidates, then the others."""
        return CandidateSet(np.concatenate((self.rows, other.rows), axis=1))

    def select(self, selection: np.ndarray) -> CandidateSet:
        """Return some of the candidates, selected by indices or by a mask."""
        return CandidateSet(self.rows[:, selection])

    def indices_in_space(self, space: int) -> np.ndarray:
        """Return the indices of the candidates of one space, ascending."""
        return np.flatnonzero(self.space == space)

    def pairs(self, indices: np.ndarray) -> np.ndarray:
        """Return the pairs of numbers of some candidates, shape (n, 2)."""
        return np.asarray(self.rows[1:, indices].T)

    def entry_offsets(self, sizes: Sequence[int]) -> np.ndarray:
        """Return offsets of the candidates' entries, shape (n + 1,); `sizes` has one number of entries for each space."""
        return offsets(np.array(sizes, dtype=np.int64)[self.space])


def match_cells(
    first: CandidateSide, second: CandidateSide, n_samples: int, pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cells of two sides that meet, for some pairs of keys, shape (n, 2).

    Returns:
        cells of the first side, of the second, and the place of their pair, ascending by pair and sample; shape (n_met,) each.
    """
    sizes = np.diff(first.start)[pairs[:, 0]]
    place = np.repeat(np.arange(len(pairs), dtype=np.int32), sizes)
    begin = offsets(sizes)[:-1]
    rows = np.repeat(first.start[pairs[:, 0]] - begin, sizes) + np.arange(len(place))
    # Each cell of the second side has a number that ascends, by key and sample.
    numbers = second.key.astype(np.int64) * n_samples + second.sample
    wanted = pairs[place, 1].astype(np.int64) * n_samples + first.sample[rows]
    columns = np.searchsorted(numbers, wanted)
    columns[columns == len(numbers)] = 0
    met = numbers[columns] == wanted if len(numbers) else np.zeros(len(wanted), dtype=bool)
    return rows[met], columns[met], place[met]
