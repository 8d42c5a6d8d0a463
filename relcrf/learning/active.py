"""The chosen candidates of a model: what they add to the scores of literals, and the gradient of their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relcrf.graph.candidates import CandidateSet, Side
from relcrf.graph.triples import Composites, Space, TripleSpace
from relcrf.kernels import active_pairs
from relcrf.learning.literals import Literals

CURVATURE = 0.25
"""The largest variance of a literal."""


@dataclass(frozen=True)
class ActiveSpace:
    """Candidates of one space as pairs of literals that hold together, or of a composite of two literals and a third.

    What acts on a composite acts on each of its two literals where the other holds.

    Args:
        composites: of triples; their numbers are after those of all literals. None of pairs.
        first, second: the sides; their `variable` is the number of a literal, or of a composite.
        a, b: keys in the two, shape (n,).
    """

    composites: Composites | None
    first: Side
    second: Side
    n_samples: int
    a: np.ndarray
    b: np.ndarray

    @classmethod
    def of(cls, space: Space, n_literals: int, pairs: np.ndarray) -> ActiveSpace:
        """Return some candidates of a space, named by pairs of numbers of shape (n, 2)."""
        if isinstance(space, TripleSpace):
            made, pairs = space.composites(pairs, n_literals)
            sides = made.side, space.third
        else:
            made, sides = None, space.sides
        a, b = (np.ascontiguousarray(keys) for keys in pairs.T)
        return cls(made, *sides, space.n_samples, a, b)

    def add_scores(self, weights: np.ndarray, holds: np.ndarray, scores: np.ndarray) -> None:
        """Add to the scores of literals the weights of the candidates all of whose other literals hold.

        Args:
            weights: shape (n,).
            holds: of each literal, shape (n_literals,). scores: added to, the same shape.
        """
        made = self.composites
        if made is None:
            self._add_scores(weights, holds, scores)
            return
        every, n = made.holds(holds), len(holds)
        added = np.zeros(len(every))
        self._add_scores(weights, every, added)
        scores += added[:n]
        for own, neighbour in ((made.one, made.other), (made.other, made.one)):
            scores += np.bincount(own, added[n:] * holds[neighbour], minlength=n)

    def _add_scores(self, weights: np.ndarray, holds: np.ndarray, scores: np.ndarray) -> None:
        cells = self.first.cells, self.second.cells
        active_pairs.add_scores(*cells, self.n_samples, self.a, self.b, weights, holds, scores)

    def gradient(self, errors: np.ndarray, holds: np.ndarray) -> np.ndarray:
        """Return the adjoint of `add_scores` at errors of literals, shape (n_literals,). Shape (n,)."""
        made = self.composites
        if made is None:
            return self._gradient(errors, holds)
        return self._gradient(made.errors(errors, holds), made.holds(holds))

    def change(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return by how much the number of samples in which all literals hold changes, shape (n,).

        Args:
            changes: of each literal, shape (n_literals,). means: of before and after, the same shape.
        """
        # a a' - b b' = (a - b) (a' + b') / 2 + (a' - b') (a + b) / 2
        made = self.composites
        if made is None:
            return self._gradient(changes, means)
        return self._gradient(made.errors(changes, means), made.means(means, changes))

    def _gradient(self, errors: np.ndarray, holds: np.ndarray) -> np.ndarray:
        cells = self.first.cells, self.second.cells
        return active_pairs.gradient(*cells, self.n_samples, self.a, self.b, errors, holds)

    def curvature(self, holds: np.ndarray) -> np.ndarray:
        """Estimate the diagonal of the pseudo-likelihood's Hessian, shape (n,): an upper estimate where no literal is in two
        samples of its key.
        """
        # A literal moves where the others hold, with a variance of a quarter at most.
        return CURVATURE * self.gradient(np.ones(len(holds)), holds)


@dataclass(frozen=True)
class ActiveCandidates:
    """Candidates of all spaces.

    Args:
        n: how many.
        parts: of the spaces that have some, the indices of these among all, and what they are.
    """

    n: int
    parts: tuple[tuple[np.ndarray, ActiveSpace], ...]

    @classmethod
    def of(cls, literals: Literals, chosen: CandidateSet) -> ActiveCandidates:
        """Return some candidates of the literals' spaces."""
        places = [chosen.places(number) for number in range(len(literals.spaces))]
        parts = [
            (at, ActiveSpace.of(space, literals.size, chosen.pairs(at)))
            for space, at in zip(literals.spaces, places, strict=True)
            if len(at)
        ]
        return cls(len(chosen), tuple(parts))

    def add_scores(self, weights: np.ndarray, holds: np.ndarray, scores: np.ndarray) -> None:
        """See `ActiveSpace`; `weights` has shape (n,)."""
        for places, part in self.parts:
            part.add_scores(weights[places], holds, scores)

    def gradient(self, errors: np.ndarray, holds: np.ndarray) -> np.ndarray:
        """See `ActiveSpace`."""
        return self._collected(lambda part: part.gradient(errors, holds))

    def change(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """See `ActiveSpace`."""
        return self._collected(lambda part: part.change(changes, means))

    def curvature(self, holds: np.ndarray) -> np.ndarray:
        """See `ActiveSpace`."""
        return self._collected(lambda part: part.curvature(holds))

    def _collected(self, of: Callable[[ActiveSpace], np.ndarray]) -> np.ndarray:
        """Return a number for each candidate, shape (n,)."""
        out = np.zeros(self.n)
        for places, part in self.parts:
            out[places] = of(part)
        return out


@dataclass(frozen=True)
class Acting:
    """What the chosen of a space say of one of its literals, given all others.

    Args:
        keys: of each chosen, in the side of that literal; shape (n,).
        other: the other side; or of triples composites of the two others, whose numbers are after those of all literals.
        partners: of each chosen, its key there.
    """

    keys: np.ndarray
    other: Side | Composites
    partners: np.ndarray

    @classmethod
    def of(cls, space: Space, place: int, n_literals: int, pairs: np.ndarray) -> Acting:
        """On the literal of a place, of some of the chosen, shape (n, 2)."""
        keys = space.keys(pairs)
        others = [k for k in range(len(space.sides)) if k != place]
        if not isinstance(space, TripleSpace):
            return cls(keys[:, place], space.sides[others[0]], keys[:, others[0]])
        distinct, which = np.unique(keys[:, others], axis=0, return_inverse=True)
        one, other = (space.sides[k] for k in others)
        return cls(keys[:, place], Composites.of(one, other, space.n_samples, distinct, n_literals), which)

    def add_scores(
        self, own: Side, n_samples: int, acting: np.ndarray, weights: np.ndarray, holds: np.ndarray, scores: np.ndarray
    ) -> None:
        """Adds what some of the chosen, shape (n,), bool, say to the scores of literals of the own side; see `ActiveSpace`."""
        if isinstance(self.other, Composites):
            other, holds = self.other.side, self.other.holds(holds)
        else:
            other = self.other
        keys, partners, weights = (each[acting] for each in (self.keys, self.partners, weights))
        active_pairs.add_to_side(own.cells, other.cells, n_samples, keys, partners, weights, holds, scores)
