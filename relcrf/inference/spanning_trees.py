"""Random spanning forests that together contain every pair, for tree-reweighted belief propagation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.forest import ForestInference
from relcrf.inference.result import UnsupportedGraphError
from relcrf.kernels.spanning import maximum_forest

MIN_FORESTS = 8
"""Minimum number of forests; appearance probabilities from fewer forests are coarse."""


@dataclass(frozen=True)
class SpanningTrees:
    """A uniform distribution over spanning forests of a pairwise graph.

    Args:
        scopes: Scopes of the pairs; agreements are stored as full tables.
        forest_pairs: Indices of the pairs of each forest, ascending.
    """

    scopes: Scopes
    forest_pairs: tuple[np.ndarray, ...]

    @classmethod
    def sample(cls, scopes: Scopes, seed: int) -> SpanningTrees:
        """Sample forests until each pair is in a forest; each forest prefers the least used pairs and breaks ties at random.

        Raises:
            UnsupportedGraphError: A ValueError, if a factor has more than two nodes.
        """
        if (scopes.arity != 2).any():
            raise UnsupportedGraphError("a factor has more than two nodes; tree-reweighted propagation requires pairs")
        rng = np.random.default_rng(seed)
        edges = scopes.node.reshape(-1, 2)
        n_uses = np.zeros(len(edges), dtype=np.int64)
        forest_pairs: list[np.ndarray] = []
        while len(forest_pairs) < MIN_FORESTS or not n_uses.all():
            order = np.lexsort((rng.random(len(edges)), n_uses))
            chosen, preference = np.zeros(len(edges), dtype=np.bool_), np.empty(len(edges))
            preference[order] = -np.arange(len(edges))
            maximum_forest(scopes.n_nodes, edges, preference, np.empty(0), chosen)
            n_uses[chosen] += 1
            forest_pairs.append(np.flatnonzero(chosen))
        return cls(replace(scopes, agreement=None), tuple(forest_pairs))

    @property
    def appearance(self) -> np.ndarray:
        """Return the appearance probability of each pair, i.e. the fraction of forests with the pair, shape (n_factors,)."""
        n_uses = np.bincount(np.concatenate(self.forest_pairs), minlength=self.scopes.n_factors)
        return np.asarray(n_uses / len(self.forest_pairs))

    def mean_log_partition(self, potentials: Potentials) -> float:
        """Return the log partition function, averaged over the forests."""
        return float(
            np.mean(
                [
                    forest.marginals(forest_potentials).log_partition
                    for forest, forest_potentials in self._forest_problems(potentials)
                ]
            )
        )

    def mean_best_score(self, potentials: Potentials) -> float:
        """Return the maximum score, averaged over the forests."""
        return float(
            np.mean(
                [
                    forest.map_states(forest_potentials).score
                    for forest, forest_potentials in self._forest_problems(potentials)
                ]
            )
        )

    def _forest_problems(self, potentials: Potentials) -> list[tuple[ForestInference, Potentials]]:
        return [
            (ForestInference(self.scopes.with_factors(pairs)), potentials.select_factors(self.scopes, pairs))
            for pairs in self.forest_pairs
        ]
