"""The learned distribution of numbers, and the vectors in which a run folder stores it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.errors import DataError, Diagnostic
from relcrf.graph.numeric_graph import NumericGraph, NumericTargets
from relcrf.graph.weights import WeightLayout
from relcrf.learning.gaussian_likelihood import NumberWeights
from relcrf.structure.number_forest import NumberForest

LINKED, INDEPENDENT, STRUCTURE, RULE = "numbers", "independent_numbers", "structure", "number_forest"
"""Names of vectors: the mean and the log precision of each attribute, if inference uses the pairs of numbers and if it does not;
the structure weights, which the discrete variables share; and the settings of the rule that selects a forest."""

RULE_SETTINGS = ("min_information", "uses_known")
"""The entries of the vector `RULE`."""


@dataclass(frozen=True, eq=False)
class NumberModel:
    """The learned distribution of numbers.

    Args:
        are_linked: Whether inference uses the templates over two numbers.
        forest: Rule that selects a forest of links; None selects all links.
    """

    weights: NumberWeights
    are_linked: bool
    forest: NumberForest | None = None

    @classmethod
    def from_vectors(cls, vectors: dict[str, np.ndarray]) -> NumberModel:
        """Return the model that `add_to` stored.

        Raises:
            DataError: If training saw no numbers (E225).
        """
        are_linked = LINKED in vectors
        if not are_linked and INDEPENDENT not in vectors:
            message = "the training data contained no value of the predicted numbers"
            raise DataError(Diagnostic("E225", message, hint="train again with some values"))
        offset = vectors[LINKED if are_linked else INDEPENDENT].reshape(-1, 2)
        weights = NumberWeights(vectors["weights"], offset, is_forest=RULE in vectors)
        if RULE not in vectors:
            return cls(weights, are_linked)
        min_information, uses_known = vectors[RULE].tolist()
        structure = replace(weights, weights=vectors[STRUCTURE])
        return cls(weights, are_linked, NumberForest(structure, min_information, uses_known=bool(uses_known)))

    def add_to(
        self, vectors: dict[str, np.ndarray], targets: NumericTargets, layout: WeightLayout
    ) -> dict[str, np.ndarray]:
        """Return the vectors of the discrete variables with those of the numbers."""
        learned = {"weights": self.weights.weights}
        added = {LINKED if self.are_linked else INDEPENDENT: self.weights.offset.ravel()}
        if self.forest is not None:
            learned[STRUCTURE] = self.forest.weights.weights
            added[RULE] = np.array([float(getattr(self.forest, name)) for name in RULE_SETTINGS])
        for name, source in learned.items():
            added[name] = vectors.get(name, layout.initial()).copy()
            for block in {group.block for group in targets.groups}:
                layout.matrix(added[name], block)[:] = layout.matrix(source, block)
        return {**vectors, **added}

    def select(self, graph: NumericGraph, is_known: np.ndarray) -> NumericGraph:
        """Return the graph with the pairs that inference uses.

        Args:
            is_known: Mask of the numbers whose deviation is known, shape (n,).
        """
        if not self.are_linked:
            return graph.without_pairs()
        return graph if self.forest is None else self.forest.select(graph, is_known)

    def select_for_left_out(self, graph: NumericGraph, is_known: np.ndarray) -> NumericGraph:
        """Return the graph for the distribution of each known number given all others."""
        return self.select(graph, is_known) if self.forest is None else self.forest.select_for_left_out(graph, is_known)
