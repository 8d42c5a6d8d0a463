"""Evidence-specific forests of numbers, selected by the mutual information of linked numbers.

Source: Chechetka & Guestrin (2010), with Gaussian distributions. The information of a link is -1/2 log(1 - r^2), with the
correlation r of its ends given the features of the link, see `inference/gaussian_forest.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.graph.numeric_graph import NumericGraph
from relcrf.learning.gaussian_likelihood import NumberWeights
from relcrf.structure.spanning_forest import maximum_spanning_forest


@dataclass(frozen=True, eq=False)
class NumberForest:
    """A rule that selects links of numbers.

    Args:
        weights: The structure weights.
        min_information: Minimum mutual information of a link, in nats.
        uses_known: Whether all links between known and unknown numbers are selected, and a forest of the unknown numbers. Each
            of these links then has a separate copy of the known number, so that the copies are leaves of the forest. Otherwise,
            the selected links are a forest of all numbers, which does not depend on which of them are known.
    """

    weights: NumberWeights
    min_information: float = 0.0
    uses_known: bool = False

    def select(self, graph: NumericGraph, is_known: np.ndarray) -> NumericGraph:
        """Return the graph with the pairs of selected links.

        Args:
            is_known: Mask of the numbers whose deviation is known, shape (n,).
        """
        ends, link = graph.links
        information = self.weights.correlations(graph).information
        is_candidate = self._are_informative(ends, information)
        n_known = is_known[ends].sum(axis=1) if self.uses_known else np.zeros(len(ends), dtype=np.int64)
        candidates = np.flatnonzero(is_candidate & (n_known == 0))
        forest = maximum_spanning_forest(len(graph.variables), ends[candidates], information[candidates])
        chosen = is_candidate & (n_known == 1)
        chosen[candidates[forest]] = True
        return graph.with_pairs(chosen[link])

    def select_for_left_out(self, graph: NumericGraph, is_known: np.ndarray) -> NumericGraph:
        """Return the graph in which one known number at a time may be treated as unknown.

        With `uses_known`, the left-out number has all links to known numbers, and none to unknown ones.
        """
        if not self.uses_known:
            return self.select(graph, is_known)
        ends, link = graph.links
        chosen = self._are_informative(ends, self.weights.correlations(graph).information) & is_known[ends].all(axis=1)
        return graph.with_pairs(chosen[link])

    def _are_informative(self, ends: np.ndarray, information: np.ndarray) -> np.ndarray:
        """Return the mask of the links that may be selected, shape (n_links,); a number linked to itself is ignored."""
        return np.asarray((information >= self.min_information) & (ends[:, 0] != ends[:, 1]))
