"""Active candidates of a model: their contribution to the scores of literals, and the gradient of their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relcrf.graph.candidates import CandidateSet, CandidateSide
from relcrf.graph.triples import CompositeLiterals, PairOrTripleSpace, TripleSpace
from relcrf.kernels import active_pairs
from relcrf.learning.literals import Literals

MAX_LITERAL_VARIANCE = 0.25
"""The largest possible variance of a literal."""


@dataclass(frozen=True)
class ActiveSpace:
    """The active candidates of one space, as pairs of literals, or of a composite of two literals and a third literal.

    A candidate acts on a literal if its other literals are true. A score added to a composite is added to each of its
    two literals if the other one is true.

    Args:
        composites: Composites of triples, numbered after all literals. None for a space of pairs.
        first, second: The two sides; their `variable` is the number of a literal or of a composite.
        n_samples: The number of samples.
        first_keys, second_keys: Keys of each candidate on the two sides, shape (n,).
    """

    composites: CompositeLiterals | None
    first: CandidateSide
    second: CandidateSide
    n_samples: int
    first_keys: np.ndarray
    second_keys: np.ndarray

    @classmethod
    def from_pairs(cls, space: PairOrTripleSpace, n_literals: int, pairs: np.ndarray) -> ActiveSpace:
        """Return the given candidates of a space, as pairs of numbers of shape (n, 2)."""
        if isinstance(space, TripleSpace):
            made, pairs = space.composites(pairs, n_literals)
            sides = made.side, space.third
        else:
            made, sides = None, space.sides
        a, b = (np.ascontiguousarray(keys) for keys in pairs.T)
        return cls(made, *sides, space.n_samples, a, b)

    def add_scores(self, weights: np.ndarray, truth_values: np.ndarray, scores: np.ndarray) -> None:
        """Add the weight of each candidate to the score of each of its literals whose other literals are true.

        Args:
            weights: Shape (n,).
            truth_values: Truth value of each literal, shape (n_literals,).
            scores: Modified in place, same shape.
        """
        made = self.composites
        if made is None:
            self._add_scores(weights, truth_values, scores)
            return
        every, n = made.append_truth_values(truth_values), len(truth_values)
        added = np.zeros(len(every))
        self._add_scores(weights, every, added)
        scores += added[:n]
        for own, neighbour in (
            (made.first_variable, made.second_variable),
            (made.second_variable, made.first_variable),
        ):
            scores += np.bincount(own, added[n:] * truth_values[neighbour], minlength=n)

    def _add_scores(self, weights: np.ndarray, truth_values: np.ndarray, scores: np.ndarray) -> None:
        cells = self.first.kernel_cells, self.second.kernel_cells
        active_pairs.add_scores(
            *cells, self.n_samples, self.first_keys, self.second_keys, weights, truth_values, scores
        )

    def gradient(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        """Apply the adjoint of `add_scores` to the errors of the literals, shape (n_literals,); return shape (n,)."""
        made = self.composites
        if made is None:
            return self._gradient(errors, truth_values)
        return self._gradient(made.append_errors(errors, truth_values), made.append_truth_values(truth_values))

    def count_changes(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return the change in the number of samples in which all literals of a candidate are true, shape (n,).

        Args:
            changes: Change of each literal, shape (n_literals,).
            means: Mean of each literal before and after the change, same shape.
        """
        # a a' - b b' = (a - b) (a' + b') / 2 + (a' - b') (a + b) / 2
        made = self.composites
        if made is None:
            return self._gradient(changes, means)
        return self._gradient(made.append_errors(changes, means), made.append_means(means, changes))

    def _gradient(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        cells = self.first.kernel_cells, self.second.kernel_cells
        return active_pairs.gradient(*cells, self.n_samples, self.first_keys, self.second_keys, errors, truth_values)

    def curvature(self, truth_values: np.ndarray) -> np.ndarray:
        """Estimate the diagonal of the pseudo-likelihood's Hessian, shape (n,).

        It is an upper bound if no literal is in two samples of its key.
        """
        # A literal moves where the others hold, with a variance of a quarter at most.
        return MAX_LITERAL_VARIANCE * self.gradient(np.ones(len(truth_values)), truth_values)


@dataclass(frozen=True)
class ActiveCandidates:
    """The active candidates of all spaces.

    Args:
        n: The number of candidates.
        spaces: For each space with active candidates, their indices among all active candidates, and the `ActiveSpace`.
    """

    n: int
    spaces: tuple[tuple[np.ndarray, ActiveSpace], ...]

    @classmethod
    def from_set(cls, literals: Literals, chosen: CandidateSet) -> ActiveCandidates:
        """Return the given candidates of the literals' spaces."""
        places = [chosen.indices_in_space(number) for number in range(len(literals.spaces))]
        parts = [
            (at, ActiveSpace.from_pairs(space, literals.size, chosen.pairs(at)))
            for space, at in zip(literals.spaces, places, strict=True)
            if len(at)
        ]
        return cls(len(chosen), tuple(parts))

    def add_scores(self, weights: np.ndarray, truth_values: np.ndarray, scores: np.ndarray) -> None:
        """Call `ActiveSpace.add_scores` for each space; `weights` has shape (n,)."""
        for places, part in self.spaces:
            part.add_scores(weights[places], truth_values, scores)

    def gradient(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        """Return `ActiveSpace.gradient` of all spaces, shape (n,)."""
        return self._collect(lambda part: part.gradient(errors, truth_values))

    def count_changes(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return `ActiveSpace.count_changes` of all spaces, shape (n,)."""
        return self._collect(lambda part: part.count_changes(changes, means))

    def curvature(self, truth_values: np.ndarray) -> np.ndarray:
        """Return `ActiveSpace.curvature` of all spaces, shape (n,)."""
        return self._collect(lambda part: part.curvature(truth_values))

    def _collect(self, compute: Callable[[ActiveSpace], np.ndarray]) -> np.ndarray:
        """Compute one value per candidate for each space and return them in the order of the candidates, shape (n,)."""
        out = np.zeros(self.n)
        for places, part in self.spaces:
            out[places] = compute(part)
        return out


@dataclass(frozen=True)
class SideInteractions:
    """The active candidates of a space, viewed from one side: the keys there, and the side and keys of the others.

    Args:
        keys: Key of each active candidate on that side, shape (n,).
        other_side: The other side; for triples, the composites of the two other sides, numbered after all literals.
        partner_keys: Key of each active candidate on the other side.
    """

    keys: np.ndarray
    other_side: CandidateSide | CompositeLiterals
    partner_keys: np.ndarray

    @classmethod
    def build(cls, space: PairOrTripleSpace, side_index: int, n_literals: int, pairs: np.ndarray) -> SideInteractions:
        """Return the interactions of side `side_index` for the active candidates `pairs`, shape (n, 2)."""
        keys = space.decode_keys(pairs)
        others = [k for k in range(len(space.sides)) if k != side_index]
        if not isinstance(space, TripleSpace):
            return cls(keys[:, side_index], space.sides[others[0]], keys[:, others[0]])
        distinct, which = np.unique(keys[:, others], axis=0, return_inverse=True)
        one, other = (space.sides[k] for k in others)
        return cls(
            keys[:, side_index], CompositeLiterals.from_pairs(one, other, space.n_samples, distinct, n_literals), which
        )

    def add_scores(
        self,
        own_side: CandidateSide,
        n_samples: int,
        selected: np.ndarray,
        weights: np.ndarray,
        truth_values: np.ndarray,
        scores: np.ndarray,
    ) -> None:
        """Add the weights of the selected candidates to the scores of `own_side`; see `ActiveSpace.add_scores`.

        Args:
            selected: Candidates to include, shape (n,), bool.
        """
        if isinstance(self.other_side, CompositeLiterals):
            other, truth_values = self.other_side.side, self.other_side.append_truth_values(truth_values)
        else:
            other = self.other_side
        keys, partners, weights = (each[selected] for each in (self.keys, self.partner_keys, weights))
        active_pairs.add_side_scores(
            own_side.kernel_cells, other.kernel_cells, n_samples, keys, partners, weights, truth_values, scores
        )
