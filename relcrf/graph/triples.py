"""Spaces of candidate factors over three literals, which grow from chosen pairs of two of them.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
equation 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.candidates import AbstractSpace, CandidateSide, KeyRelation, PairSpace, match_cells


@dataclass(frozen=True)
class CompositeLiterals:
    """Pairs of literals that act as one each, which holds in a sample where both do.

    Args:
        side: a key for each pair, and a cell for each sample in which both have one; its `variable` is a number of its own.
        side_cells: in the sides of the two literals, two arrays of shape (n_cells,).
        first_variable, second_variable: their variables, shape (n_cells,).
    """

    side: CandidateSide
    side_cells: tuple[np.ndarray, np.ndarray]
    first_variable: np.ndarray
    second_variable: np.ndarray

    @classmethod
    def from_pairs(
        cls, first: CandidateSide, second: CandidateSide, n_samples: int, pairs: np.ndarray, start: int = 0
    ) -> CompositeLiterals:
        """Of some pairs of keys, shape (n, 2), with numbers from `start` on."""
        rows, columns, place = match_cells(first, second, n_samples, pairs)
        begin = offsets(np.bincount(place, minlength=len(pairs)))
        number = np.arange(start, start + len(place), dtype=np.int32)
        side = CandidateSide(begin, first.sample[rows], number, np.array([0.0, 1.0]))
        return cls(side, (rows, columns), first.variable[rows], second.variable[columns])

    def append_truth_values(self, truth_values: np.ndarray) -> np.ndarray:
        """Whether literals hold, and after them the composites of these: shape (n_literals + n_cells,)."""
        return np.concatenate((truth_values, truth_values[self.first_variable] * truth_values[self.second_variable]))

    def append_means(self, means: np.ndarray, changes: np.ndarray) -> np.ndarray:
        """As `holds`, where that of literals changes: the mean of before and after, as `means` of the literals are."""
        return np.concatenate(
            (
                means,
                means[self.first_variable] * means[self.second_variable]
                + 0.25 * changes[self.first_variable] * changes[self.second_variable],
            )
        )

    def append_errors(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        """The same of errors: a composite's is the derivative along its pair. With changes and `means` it is its change."""
        composite = (
            errors[self.first_variable] * truth_values[self.second_variable]
            + truth_values[self.first_variable] * errors[self.second_variable]
        )
        return np.concatenate((errors, composite))


@dataclass(frozen=True)
class ParentSpace:
    """A space of pairs that triples grow from.

    Args:
        space: its number among all spaces.
        positions: which sides of the triples its first and its second side are.
        key_map: of these two, the key of the triples for each of its own; -1 where they have none.
    """

    space: int
    positions: tuple[int, int]
    key_map: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class TripleSpace(AbstractSpace):
    """Triples of keys (a, b, c) of three literals, numbered as the pairs (a * n_keys of b + b, c): of a composite and a literal.

    Args:
        relations: which keys may stand together, for the sides (0, 1), (0, 2) and (1, 2).
        parents: a triple is a candidate where one of them has chosen two of its literals.
    """

    name: str
    first: CandidateSide
    second: CandidateSide
    third: CandidateSide
    relations: Mapping[tuple[int, int], KeyRelation]
    n_samples: int
    parents: tuple[ParentSpace, ...] = ()
    l1: float | None = None
    l2: float | None = None

    @property
    def sides(self) -> tuple[CandidateSide, CandidateSide, CandidateSide]:
        return self.first, self.second, self.third

    def decode_keys(self, pairs: np.ndarray) -> np.ndarray:
        return np.column_stack((*np.divmod(pairs[:, 0], max(self.second.n_keys, 1)), pairs[:, 1]))

    def encode_keys(self, keys: np.ndarray) -> np.ndarray:
        return np.column_stack((keys[:, 0] * self.second.n_keys + keys[:, 1], keys[:, 2]))

    def composites(self, pairs: np.ndarray, start: int = 0) -> tuple[CompositeLiterals, np.ndarray]:
        """The first two literals of some triples as one each, with numbers from `start` on; and the triples as keys of these and
        of the third side.
        """
        distinct, which = np.unique(pairs[:, 0], return_inverse=True)
        keys = np.column_stack(np.divmod(distinct, max(self.second.n_keys, 1)))
        made = CompositeLiterals.from_pairs(self.first, self.second, self.n_samples, keys, start)
        return made, np.column_stack((which, pairs[:, 1]))

    def matching_cells(self, pairs: np.ndarray) -> tuple[np.ndarray, ...]:
        made, keys = self.composites(pairs)
        rows, third, place = match_cells(made.side, self.third, self.n_samples, keys)
        first, second = made.side_cells
        return first[rows], second[rows], third, place

    def with_sides(self, sides: Sequence[CandidateSide]) -> TripleSpace:
        first, second, third = sides
        return replace(self, first=first, second=second, third=third)

    def candidate_pairs(self, excluded: int, chosen: Sequence[np.ndarray]) -> np.ndarray:
        """The pairs of keys of the two sides other than one that stand as chosen pairs, ascending, shape (n, 2).

        Args:
            chosen: of each space its chosen pairs, shape (n, 2).
        """
        one, other = (k for k in range(3) if k != excluded)
        found = [np.empty((0, 2), dtype=np.int64)]
        for parent in self.parents:
            if excluded not in parent.positions:
                keys = [of[column] for of, column in zip(parent.key_map, chosen[parent.space].T, strict=True)]
                found.append(np.column_stack(keys if parent.positions == (one, other) else keys[::-1]))
        pairs = np.unique(np.concatenate(found), axis=0)
        allowed = (pairs >= 0).all(axis=1) & self.relations[one, other].allows(*pairs.T)
        return np.asarray(pairs[allowed])

    def key_limits(self, excluded: int, pairs: np.ndarray) -> np.ndarray:
        """The keys of a side that may stand with pairs of keys of the two others, as `top_products` takes them: between the
        first and the second number, other than the third and the fourth. Shape (n, 4).
        """
        others = [k for k in range(3) if k != excluded]
        out = np.tile([-1, self.sides[excluded].n_keys, -1, -1], (len(pairs), 1))
        for column, (place, keys) in enumerate(zip(others, pairs.T, strict=True)):
            match self.relations[min(place, excluded), max(place, excluded)]:
                case KeyRelation.ASCENDING if place < excluded:
                    out[:, 0] = np.maximum(out[:, 0], keys)
                case KeyRelation.ASCENDING:
                    out[:, 1] = np.minimum(out[:, 1], keys)
                case KeyRelation.DISTINCT:
                    out[:, 2 + column] = keys
        return out


PairOrTripleSpace = PairSpace | TripleSpace
"""Of candidates."""
