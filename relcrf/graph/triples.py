"""Spaces of candidate factors over three literals; a candidate extends a chosen pair of two of the literals.

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
    """Conjunctions of two literals; a composite literal is true in a sample if both of its literals are.

    Args:
        side: A side with one key per pair of literals, and one cell per sample in which both literals have a cell. Each cell
            has a separate variable number.
        side_cells: Cells in the sides of the two literals, two arrays of shape (n_cells,).
        first_variable, second_variable: Variables of the two literals, shape (n_cells,).
    """

    side: CandidateSide
    side_cells: tuple[np.ndarray, np.ndarray]
    first_variable: np.ndarray
    second_variable: np.ndarray

    @classmethod
    def from_pairs(
        cls, first: CandidateSide, second: CandidateSide, n_samples: int, pairs: np.ndarray, start: int = 0
    ) -> CompositeLiterals:
        """Build the composites of pairs of keys of shape (n, 2); their variables are numbered from `start` on."""
        rows, columns, pair = match_cells(first, second, n_samples, pairs)
        cell_start = offsets(np.bincount(pair, minlength=len(pairs)))
        number = np.arange(start, start + len(pair), dtype=np.int32)
        side = CandidateSide(cell_start, first.sample[rows], number, np.array([0.0, 1.0]))
        return cls(side, (rows, columns), first.variable[rows], second.variable[columns])

    def append_truth_values(self, truth_values: np.ndarray) -> np.ndarray:
        """Return truth values of literals followed by those of their composites, shape (n_literals + n_cells,)."""
        return np.concatenate((truth_values, truth_values[self.first_variable] * truth_values[self.second_variable]))

    def append_means(self, means: np.ndarray, changes: np.ndarray) -> np.ndarray:
        """Return mean truth values of literals followed by those of their composites, shape (n_literals + n_cells,).

        A mean is the mean of the values before and after an update, which differ by `changes`. A composite's mean is the
        mean of the product of its literals, `m_a m_b + c_a c_b / 4`.
        """
        return np.concatenate(
            (
                means,
                means[self.first_variable] * means[self.second_variable]
                + 0.25 * changes[self.first_variable] * changes[self.second_variable],
            )
        )

    def append_errors(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        """Return errors of literals followed by those of their composites, shape (n_literals + n_cells,).

        A composite's error is `e_a t_b + t_a e_b`, the derivative of the product. Given changes as `errors` and means as
        `truth_values`, the result is the change of the product.
        """
        composite = (
            errors[self.first_variable] * truth_values[self.second_variable]
            + truth_values[self.first_variable] * errors[self.second_variable]
        )
        return np.concatenate((errors, composite))


@dataclass(frozen=True)
class ParentSpace:
    """A pair space whose chosen pairs are extended to triples.

    Args:
        space: Index of the pair space.
        positions: The two sides of the triple space that correspond to the first and the second side of the pair space.
        key_map: For each of the two sides, the key in the triple space of each key in the pair space; -1 if there is none.
    """

    space: int
    positions: tuple[int, int]
    key_map: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class TripleSpace(AbstractSpace):
    """A candidate space over triples of keys (a, b, c) of three literals.

    A triple is identified by the integer pair (a * n_b + b, c), where n_b is the number of keys of the second side. The first
    integer identifies the composite of the first two literals, the second integer the third key.

    Args:
        relations: Constraints on the keys of two sides, by the pair of sides: 0 and 1, 0 and 2, and 1 and 2.
        parents: A triple is a candidate if two of its keys form a chosen pair of one of these spaces.
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
        """Return the composites of the first two literals of triples, and the triples as pairs of composite and third key.

        Args:
            start: First variable number of the composites.
        """
        distinct, composite = np.unique(pairs[:, 0], return_inverse=True)
        keys = np.column_stack(np.divmod(distinct, max(self.second.n_keys, 1)))
        composites = CompositeLiterals.from_pairs(self.first, self.second, self.n_samples, keys, start)
        return composites, np.column_stack((composite, pairs[:, 1]))

    def matching_cells(self, pairs: np.ndarray) -> tuple[np.ndarray, ...]:
        composites, keys = self.composites(pairs)
        rows, third, candidate = match_cells(composites.side, self.third, self.n_samples, keys)
        first, second = composites.side_cells
        return first[rows], second[rows], third, candidate

    def with_sides(self, sides: Sequence[CandidateSide]) -> TripleSpace:
        first, second, third = sides
        return replace(self, first=first, second=second, third=third)

    def candidate_pairs(self, excluded: int, chosen: Sequence[np.ndarray]) -> np.ndarray:
        """Return the pairs of keys of the two sides other than `excluded` that are chosen pairs of a parent, shape (n, 2).

        The pairs are distinct and ascending.

        Args:
            chosen: Chosen pairs of each space, shape (n, 2).
        """
        first, second = (k for k in range(3) if k != excluded)
        parent_pairs = [np.empty((0, 2), dtype=np.int64)]
        for parent in self.parents:
            if excluded not in parent.positions:
                keys = [mapping[column] for mapping, column in zip(parent.key_map, chosen[parent.space].T, strict=True)]
                parent_pairs.append(np.column_stack(keys if parent.positions == (first, second) else keys[::-1]))
        pairs = np.unique(np.concatenate(parent_pairs), axis=0)
        allowed = (pairs >= 0).all(axis=1) & self.relations[first, second].allows(*pairs.T)
        return np.asarray(pairs[allowed])

    def key_limits(self, excluded: int, pairs: np.ndarray) -> np.ndarray:
        """Return limits on the keys of one side for pairs of keys of the two other sides, shape (n, 4).

        A key is admissible if it is greater than the first limit, smaller than the second, and differs from the third and
        the fourth. `top_products` takes limits in this form.
        """
        others = [k for k in range(3) if k != excluded]
        out = np.tile([-1, self.sides[excluded].n_keys, -1, -1], (len(pairs), 1))
        for column, (position, keys) in enumerate(zip(others, pairs.T, strict=True)):
            match self.relations[min(position, excluded), max(position, excluded)]:
                case KeyRelation.ASCENDING if position < excluded:
                    out[:, 0] = np.maximum(out[:, 0], keys)
                case KeyRelation.ASCENDING:
                    out[:, 1] = np.minimum(out[:, 1], keys)
                case KeyRelation.DISTINCT:
                    out[:, 2 + column] = keys
        return out


PairOrTripleSpace = PairSpace | TripleSpace
"""A space of candidates."""
