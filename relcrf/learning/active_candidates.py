"""Scores of literals, and gradients of weights, for the active candidates of a model.

A literal is a condition on the state of one variable, and a candidate is a conjunction of two or three literals. A
candidate is active if it is in the model. The score of a literal a is the sum of the weights of the active candidates
`a & b` and `a & b & c` in which the literals other than a are true.

A candidate *space* has two or three *sides*, one for each literal. A side is a table with at most one *cell* for each
*key* and *sample* (for example, a column and a row of a data matrix); the cell contains a variable. A candidate of the
space is a combination of keys, one from each side. In each sample in which all of these keys have a cell, the candidate
has a factor: the conjunction of the literals of the cells' variables (see `graph/candidates.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relcrf.graph.candidates import CandidateSet, CandidateSide
from relcrf.graph.triples import CompositeLiterals, PairOrTripleSpace, TripleSpace
from relcrf.kernels import active_pairs
from relcrf.learning.literals import Literals

MAX_LITERAL_VARIANCE = 0.25
"""Maximum variance of a random variable with the values 0 and 1, such as the truth value of a literal."""


@dataclass(frozen=True)
class ActiveSpace:
    """The active candidates of one space, as pairs; a triple is a pair of a composite literal and a third literal.

    A composite literal `a & b` is a conjunction of two literals. The score of the composite literal is added to the
    score of a if b is true, and to the score of b if a is true.

    Args:
        composites: The composite literals of a space of triples; their indices follow the indices of all literals. None
            for a space of pairs.
        first, second: The two sides of the pairs; their `variable` arrays contain indices of literals (see `Literals`).
        n_samples: The number of samples.
        first_keys, second_keys: Each candidate's key on the first and on the second side, shape (n,) each.
    """

    composites: CompositeLiterals | None
    first: CandidateSide
    second: CandidateSide
    n_samples: int
    first_keys: np.ndarray
    second_keys: np.ndarray

    @classmethod
    def from_pairs(cls, space: PairOrTripleSpace, n_literals: int, pairs: np.ndarray) -> ActiveSpace:
        """Return the active candidates of a space; `pairs`, shape (n, 2), identifies them (see `AbstractSpace`)."""
        if isinstance(space, TripleSpace):
            composites, pairs = space.composites(pairs, n_literals)
            sides = composites.side, space.third
        else:
            composites, sides = None, space.sides
        first_keys, second_keys = (np.ascontiguousarray(keys) for keys in pairs.T)
        return cls(composites, *sides, space.n_samples, first_keys, second_keys)

    def add_scores(self, weights: np.ndarray, truth_values: np.ndarray, scores: np.ndarray) -> None:
        """Add the contributions of the candidates to the scores of literals (the module docstring defines scores).

        Args:
            weights: Weight of each candidate, shape (n,).
            truth_values: Truth value of each literal, shape (n_literals,).
            scores: Score of each literal, same shape; modified in place.
        """
        composites = self.composites
        if composites is None:
            self._add_scores(weights, truth_values, scores)
            return
        all_values, n = composites.append_truth_values(truth_values), len(truth_values)
        added = np.zeros(len(all_values))
        self._add_scores(weights, all_values, added)
        scores += added[:n]
        for variable, neighbour in (
            (composites.first_variable, composites.second_variable),
            (composites.second_variable, composites.first_variable),
        ):
            scores += np.bincount(variable, added[n:] * truth_values[neighbour], minlength=n)

    def _add_scores(self, weights: np.ndarray, truth_values: np.ndarray, scores: np.ndarray) -> None:
        cells = self.first.kernel_cells, self.second.kernel_cells
        active_pairs.add_scores(
            *cells, self.n_samples, self.first_keys, self.second_keys, weights, truth_values, scores
        )

    def gradient(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        """Return the gradient of the weights for the literals' errors (probability - truth value), shape (n,)."""
        composites = self.composites  # this method is the adjoint of `add_scores`
        if composites is None:
            return self._gradient(errors, truth_values)
        return self._gradient(
            composites.append_errors(errors, truth_values), composites.append_truth_values(truth_values)
        )

    def count_changes(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return, for each candidate, the change of the number of samples in which all of its literals are true.

        Args:
            changes: Change of each literal's truth value, shape (n_literals,).
            means: Mean of the old and the new truth value of each literal, same shape.
        """
        # new truth values a, a' and old ones b, b': a a' - b b' = (a - b) (a' + b') / 2 + (a' - b') (a + b) / 2
        composites = self.composites
        if composites is None:
            return self._gradient(changes, means)
        return self._gradient(composites.append_errors(changes, means), composites.append_means(means, changes))

    def _gradient(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        cells = self.first.kernel_cells, self.second.kernel_cells
        return active_pairs.gradient(*cells, self.n_samples, self.first_keys, self.second_keys, errors, truth_values)

    def curvature(self, truth_values: np.ndarray) -> np.ndarray:
        """Estimate the diagonal of the pseudo-likelihood's Hessian for the candidates' weights, shape (n,).

        The estimate is an upper bound if no key has two cells with the same literal.
        """
        # Each sample in which the other literals are true adds the variance of the literal, which is at most 1/4.
        return MAX_LITERAL_VARIANCE * self.gradient(np.ones(len(truth_values)), truth_values)


@dataclass(frozen=True)
class ActiveCandidates:
    """The active candidates of all spaces.

    Args:
        n: The number of candidates.
        spaces: A pair for each space with active candidates: the indices of these candidates among all active
            candidates, and the `ActiveSpace`.
    """

    n: int
    spaces: tuple[tuple[np.ndarray, ActiveSpace], ...]

    @classmethod
    def from_set(cls, literals: Literals, chosen: CandidateSet) -> ActiveCandidates:
        """Return the chosen candidates of all spaces of `literals` as active candidates."""
        indices = [chosen.indices_in_space(number) for number in range(len(literals.spaces))]
        spaces = [
            (chosen_here, ActiveSpace.from_pairs(space, literals.size, chosen.pairs(chosen_here)))
            for space, chosen_here in zip(literals.spaces, indices, strict=True)
            if len(chosen_here)
        ]
        return cls(len(chosen), tuple(spaces))

    def add_scores(self, weights: np.ndarray, truth_values: np.ndarray, scores: np.ndarray) -> None:
        """Call `ActiveSpace.add_scores` for each space; `weights` has shape (n,)."""
        for indices, active in self.spaces:
            active.add_scores(weights[indices], truth_values, scores)

    def gradient(self, errors: np.ndarray, truth_values: np.ndarray) -> np.ndarray:
        """Return the gradient of all weights, shape (n,); see `ActiveSpace.gradient`."""
        return self._collect(lambda active: active.gradient(errors, truth_values))

    def count_changes(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return the change of the count of each candidate, shape (n,); see `ActiveSpace.count_changes`."""
        return self._collect(lambda active: active.count_changes(changes, means))

    def curvature(self, truth_values: np.ndarray) -> np.ndarray:
        """Estimate the diagonal of the Hessian for all weights, shape (n,); see `ActiveSpace.curvature`."""
        return self._collect(lambda active: active.curvature(truth_values))

    def _collect(self, compute: Callable[[ActiveSpace], np.ndarray]) -> np.ndarray:
        """Call `compute` for each space, and return the value of each candidate in the order of all candidates."""
        out = np.zeros(self.n)
        for indices, active in self.spaces:
            out[indices] = compute(active)
        return out


@dataclass(frozen=True)
class SideInteractions:
    """Active candidates of a space, as pairs of a key on one given side ("this side") and a key on the other side.

    Args:
        candidates: Index of each candidate among the active candidates of the space, shape (n,).
        keys: Key of each candidate on this side, shape (n,).
        other_side: The other side. For triples, the composite literals of the two other sides, with indices from 0.
        partner_keys: Key of each candidate on the other side, shape (n,).
        n_samples: The number of samples.
    """

    candidates: np.ndarray
    keys: np.ndarray
    other_side: CandidateSide | CompositeLiterals
    partner_keys: np.ndarray
    n_samples: int

    @classmethod
    def build(cls, space: PairOrTripleSpace, side_index: int, pairs: np.ndarray) -> SideInteractions:
        """Return the interactions of side `side_index` for the active candidates `pairs`, shape (n, 2)."""
        keys, candidates = space.decode_keys(pairs), np.arange(len(pairs))
        others = [k for k in range(len(space.sides)) if k != side_index]
        if not isinstance(space, TripleSpace):
            (other,) = others
            return cls(candidates, keys[:, side_index], space.sides[other], keys[:, other], space.n_samples)
        pairs_of_keys, composite = np.unique(keys[:, others], axis=0, return_inverse=True)
        first, second = (space.sides[k] for k in others)
        composites = CompositeLiterals.from_pairs(first, second, space.n_samples, pairs_of_keys)
        return cls(candidates, keys[:, side_index], composites, composite, space.n_samples)

    def add_scores(
        self, own_side: CandidateSide, weights: np.ndarray, truth_values: np.ndarray, scores: np.ndarray
    ) -> None:
        """Add the weights of the candidates to the scores of literals of `own_side` only.

        Args:
            weights: Weight of each active candidate of the space.
            truth_values: Truth value of each literal of the other sides.
            scores: Score of each literal of `own_side`; modified in place.
        """
        other = self.other_side
        if isinstance(other, CompositeLiterals):
            truth_values = other.truth_values(truth_values, np.unique(self.partner_keys))
            other = other.side
        active_pairs.add_side_scores(
            own_side.kernel_cells,
            other.kernel_cells,
            self.n_samples,
            self.keys,
            self.partner_keys,
            weights[self.candidates],
            truth_values,
            scores,
        )
