"""Spanning forests that together use every pair: what tree-reweighted propagation mixes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.forest import ForestInference
from relcrf.inference.result import UnsupportedGraphError
from relcrf.kernels.spanning import maximum_forest

MIN_FORESTS = 8
"""Forests: of fewer, how often a pair is in one is a coarse number."""


@dataclass(frozen=True)
class SpanningTrees:
    """Spanning forests of a graph of pairs, all as likely as each other.

    Args:
        scopes: of pairs with tables. members: which pairs each forest has, ascending.
    """

    scopes: Scopes
    forest_pairs: tuple[np.ndarray, ...]

    @classmethod
    def sample(cls, scopes: Scopes, seed: int) -> SpanningTrees:
        """Each forest prefers the pairs that those before it used least, and else goes by chance, until every pair is in one.

        Raises:
            Unanswerable: a ValueError, where a factor has more than two nodes.
        """
        if (scopes.arity != 2).any():
            raise UnsupportedGraphError("a factor has more than two nodes; tree-reweighted propagation needs pairs")
        rng = np.random.default_rng(seed)
        edges = scopes.node.reshape(-1, 2)
        uses = np.zeros(len(edges), dtype=np.int64)
        members: list[np.ndarray] = []
        while len(members) < MIN_FORESTS or not uses.all():
            order = np.lexsort((rng.random(len(edges)), uses))
            chosen, preference = np.zeros(len(edges), dtype=np.bool_), np.empty(len(edges))
            preference[order] = -np.arange(len(edges))
            maximum_forest(scopes.n_nodes, edges, preference, np.empty(0), chosen)
            uses[chosen] += 1
            members.append(np.flatnonzero(chosen))
        return cls(replace(scopes, agreement=None), tuple(members))

    @property
    def appearance(self) -> np.ndarray:
        """The share of forests that have each pair, shape (n_factors,)."""
        uses = np.bincount(np.concatenate(self.forest_pairs), minlength=self.scopes.n_factors)
        return np.asarray(uses / len(self.forest_pairs))

    def mean_log_partition(self, potentials: Potentials) -> float:
        """The mean log partition of the forests; each pair's table counts wherever it is in one."""
        return float(
            np.mean([forest.marginals(part).log_partition for forest, part in self._forest_problems(potentials)])
        )

    def mean_best_score(self, potentials: Potentials) -> float:
        """The mean of the best scores in the forests."""
        return float(np.mean([forest.map_states(part).score for forest, part in self._forest_problems(potentials)]))

    def _forest_problems(self, potentials: Potentials) -> list[tuple[ForestInference, Potentials]]:
        return [
            (ForestInference(self.scopes.with_factors(pairs)), potentials.select_factors(self.scopes, pairs))
            for pairs in self.forest_pairs
        ]
