"""The chosen candidates of a model: what they add to the scores of literals, and the gradient of their weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.graph.candidates import CandidateSet, Side
from relcrf.graph.triples import Composites, Space, TripleSpace
from relcrf.kernels import active_pairs
from relcrf.learning.literals import Literals

CURVATURE = 0.25
"""The largest variance of a literal."""


@dataclass(frozen=True)
class ActivePairs:
    """Pairs of literals that hold together.

    Args:
        first, second: the sides; their `variable` is the number of a literal.
        a, b: keys in the two, shape (n,).
    """

    first: Side
    second: Side
    n_samples: int
    a: np.ndarray
    b: np.ndarray

    @classmethod
    def of(cls, first: Side, second: Side, n_samples: int, pairs: np.ndarray) -> ActivePairs:
        """Some pairs of keys, shape (n, 2)."""
        return cls(first, second, n_samples, np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))

    def add_scores(self, weights: np.ndarray, holds: np.ndarray, scores: np.ndarray) -> None:
        """Adds to the scores of literals what the chosen say where all their other literals hold.

        Args:
            weights: shape (n,).
            holds: of each literal, shape (n_literals,). scores: added to, the same shape.
        """
        cells = self.first.arrays, self.second.arrays
        active_pairs.add_scores(*cells, self.n_samples, self.a, self.b, weights, holds, scores)

    def gradient(self, errors: np.ndarray, holds: np.ndarray) -> np.ndarray:
        """The adjoint of `add_scores` at errors of literals, shape (n_literals,). Shape (n,)."""
        cells = self.first.arrays, self.second.arrays
        return active_pairs.gradient(*cells, self.n_samples, self.a, self.b, errors, holds)

    def change(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """By how much the number of samples in which all literals hold changes, shape (n,).

        Args:
            changes: of each literal, shape (n_literals,). means: of before and after, the same shape.
        """
        # a a' - b b' = (a - b) (a' + b') / 2 + (a' - b') (a + b) / 2
        return self.gradient(changes, means)

    def curvature(self, holds: np.ndarray) -> np.ndarray:
        """An estimate of the diagonal of the pseudo-likelihood's Hessian, shape (n,): an upper one where no literal is in two
        samples of its key.
        """
        out = np.zeros(len(self.a))
        for side, keys in ((self.first, self.a), (self.second, self.b)):
            # A literal moves where the other holds, with a variance of a quarter at most.
            held = np.concatenate(([0.0], np.cumsum(holds[side.variable])))[side.start]
            out += CURVATURE * np.diff(held)[keys]
        return out


@dataclass(frozen=True)
class ActiveTriples:
    """Triples of literals that hold together, as pairs of a composite of the first two and of the third.

    What acts on a composite acts on each of its two literals where the other holds.

    Args:
        composites: their numbers are after those of all literals.
        pairs: of a composite and a literal.
    """

    composites: Composites
    pairs: ActivePairs

    @classmethod
    def of(cls, space: TripleSpace, n_literals: int, pairs: np.ndarray) -> ActiveTriples:
        """Some triples of a space, as pairs of numbers, shape (n, 2)."""
        made, keys = space.composites(pairs, n_literals)
        return cls(made, ActivePairs.of(made.side, space.third, space.n_samples, keys))

    def add_scores(self, weights: np.ndarray, holds: np.ndarray, scores: np.ndarray) -> None:
        """See `ActivePairs`."""
        every = self.composites.holds(holds)
        added, n = np.zeros(len(every)), len(holds)
        self.pairs.add_scores(weights, every, added)
        scores += added[:n]
        one, other = self.composites.one, self.composites.other
        for own, neighbour in ((one, other), (other, one)):
            scores += np.bincount(own, added[n:] * holds[neighbour], minlength=n)

    def gradient(self, errors: np.ndarray, holds: np.ndarray) -> np.ndarray:
        """See `ActivePairs`."""
        return self.pairs.gradient(self.composites.errors(errors, holds), self.composites.holds(holds))

    def change(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """See `ActivePairs`."""
        return self.pairs.gradient(self.composites.errors(changes, means), self.composites.means(means, changes))

    def curvature(self, holds: np.ndarray) -> np.ndarray:
        """See `ActivePairs`."""
        return CURVATURE * self.gradient(np.ones(len(holds)), holds)


@dataclass(frozen=True)
class Active:
    """All that is chosen, of every space.

    Args:
        n: how many.
        parts: of the spaces that have some, the places of these among all, and what they are.
    """

    n: int
    parts: tuple[tuple[np.ndarray, ActivePairs | ActiveTriples], ...]

    @classmethod
    def of(cls, literals: Literals, chosen: CandidateSet) -> Active:
        """Return some candidates of the literals' spaces."""
        parts: list[tuple[np.ndarray, ActivePairs | ActiveTriples]] = []
        for number, space in enumerate(literals.spaces):
            places = chosen.places(number)
            pairs = chosen.pairs(places)
            if not len(places):
                continue
            if isinstance(space, TripleSpace):
                parts.append((places, ActiveTriples.of(space, literals.size, pairs)))
            else:
                parts.append((places, ActivePairs.of(*space.sides, space.n_samples, pairs)))
        return cls(len(chosen), tuple(parts))

    def add_scores(self, weights: np.ndarray, holds: np.ndarray, scores: np.ndarray) -> None:
        """See `ActivePairs`; `weights` has shape (n,)."""
        for places, part in self.parts:
            part.add_scores(weights[places], holds, scores)

    def gradient(self, errors: np.ndarray, holds: np.ndarray) -> np.ndarray:
        """See `ActivePairs`."""
        out = np.zeros(self.n)
        for places, part in self.parts:
            out[places] = part.gradient(errors, holds)
        return out

    def change(self, changes: np.ndarray, means: np.ndarray) -> np.ndarray:
        """See `ActivePairs`."""
        out = np.zeros(self.n)
        for places, part in self.parts:
            out[places] = part.change(changes, means)
        return out

    def curvature(self, holds: np.ndarray) -> np.ndarray:
        """See `ActivePairs`."""
        out = np.zeros(self.n)
        for places, part in self.parts:
            out[places] = part.curvature(holds)
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
        """Adds what some of the chosen, shape (n,), bool, say to the scores of literals of the own side; see `ActivePairs`."""
        if isinstance(self.other, Composites):
            other, holds = self.other.side, self.other.holds(holds)
        else:
            other = self.other
        keys, partners, weights = (each[acting] for each in (self.keys, self.partners, weights))
        active_pairs.add_to_side(own.arrays, other.arrays, n_samples, keys, partners, weights, holds, scores)
