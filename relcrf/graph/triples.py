"""Spaces of candidate factors over three literals. A candidate is a triple of keys that extends a chosen pair of keys.

Literals, keys, samples, sides and cells are defined in `candidates.py`.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
equation 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.graph.candidates import AbstractSpace, CandidateSide, KeyRelation, PairSpace, match_cells


@dataclass(frozen=True)
class CompositeLiterals:
    """Composite literals: each is the conjunction of two literals, and is true in a sample if both literals are true.

    Args:
        side: A side with one key for each pair of keys of the two literals. It has a cell in each sample in which both
            keys have a cell. Each of its cells has a separate, new variable.
        side_cells: Cells of the first and of the second literal that each cell of `side` combines, shape (n_cells,)
            each.
        first_variable, second_variable: Variables of the two literals in each cell of `side`, shape (n_cells,).
    """

    side: CandidateSide
    side_cells: tuple[np.ndarray, np.ndarray]
    first_variable: np.ndarray
    second_variable: np.ndarray

    @classmethod
    def from_pairs(
        cls, first: CandidateSide, second: CandidateSide, n_samples: int, pairs: np.ndarray, start: int = 0
    ) -> CompositeLiterals:
        """Build a composite literal for each pair of keys, shape (n, 2); new variables are numbered from `start`."""
        rows, columns, pair = match_cells(first, second, n_samples, pairs)
        cell_start = offsets(np.bincount(pair, minlength=len(pairs)))
        number = np.arange(start, start + len(pair), dtype=np.int32)
        side = CandidateSide(cell_start, first.sample[rows], number, np.array([0.0, 1.0]))
        return cls(side, (rows, columns), first.variable[rows], second.variable[columns])

    def truth_values(self, truth_values: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return the truth value of the composite literal in each cell of `side`, shape (n_cells,); undefined for other keys.

        Args:
            truth_values: Truth value of each literal.
            keys: The keys of `side` whose cells are computed.
        """
        out, cells = np.empty(len(self.first_variable)), entries_of_runs(self.side.start, keys)
        out[cells] = truth_values[self.first_variable[cells]] * truth_values[self.second_variable[cells]]
        return out

    def append_truth_values(self, truth_values: np.ndarray) -> np.ndarray:
        """Return the truth values of literals, then of composite literals, shape (n_literals + n_cells,)."""
        return np.concatenate((truth_values, truth_values[self.first_variable] * truth_values[self.second_variable]))

    def append_means(self, means: np.ndarray, changes: np.ndarray) -> np.ndarray:
        """Return the mean truth values of literals, then of composite literals, shape (n_literals + n_cells,).

        A mean m is the average of a truth value before and after an update, and c in `changes` is the difference. The
        mean of the composite of literals a and b is the mean of the product: `m_a m_b + c_a c_b / 4`.
        """
        return np.concatenate(
            (
                means,
                means[self.first_variable] * means[self.second_variable]
                + 0.25 * changes[self.first_variable] * changes[self.second_variable],
            )
        )

    def append_errors(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        """Return the errors of literals, then of composite literals, shape (n_literals + n_cells,).

        The error of the composite of literals a and b is `e_a t_b + t_a e_b`, the derivative of the product (e: errors,
        t: truth values). With changes as `errors` and means as `truth_values`, the result is the change of the product.
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
        key_map: For each side of the pair space, the keys of the triple space that correspond to its keys, or -1.
    """

    space: int
    positions: tuple[int, int]
    key_map: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class TripleSpace(AbstractSpace):
    """A candidate space over triples of keys (a, b, c) of three literals.

    A triple is identified by the integer pair (a * n_b + b, c), where n_b is the number of keys of the second side. The
    first integer identifies the composite of the first two literals; the second integer is the third key.

    Args:
        relations: Constraint on the keys of each pair of sides, by the pair: (0, 1), (0, 2) and (1, 2).
        parents: Pair spaces. A triple is a candidate if two of its keys form a chosen pair of one of these spaces.
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
        """Return the composites of the first two keys of triples, and each triple as a pair (composite key, third key).

        Args:
            start: Index of the first new variable of the composites.
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
        """Return the chosen pairs of the parents over the two sides other than `excluded`, as keys of these sides.

        The pairs are distinct, ascending and satisfy the constraint on the two sides; shape (n, 2).

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
        """Return limits on the keys of side `excluded`, given pairs of keys of the two other sides, shape (n, 4).

        A key is admissible if it is greater than the first limit, smaller than the second limit, and different from the
        third and the fourth limit. `top_products` takes limits in this form.
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
"""A space of candidates over two or three literals."""
