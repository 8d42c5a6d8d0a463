"""What inference has found about the queries of a dataset, as tables and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from relcrf.backends.base import Inferred
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.measures import Score, score
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.result import Verdict
from relcrf.shown import ShownPrediction


@dataclass(frozen=True, repr=False)
class Prediction(ShownPrediction):
    """Marginals of the queried variables.

    Args:
        unseen_keys: for each template, how many of its keys have no learned weights.
        seconds: that inference took.
    """

    grounding: Grounding
    inferred: Inferred
    unseen_keys: Mapping[str, int]
    seconds: float = field(default=0.0, compare=False)

    @cached_property
    def attributes(self) -> list[str]:
        """What is predicted: attributes as `Entity.attribute`, relations by their names. Latent ones are not."""
        return [block.name for block in self.grounding.blocks if not block.is_latent]

    def block(self, attribute: str | None) -> VariableBlock:
        """The block of a predicted attribute or relation, or of a latent attribute; None where only one is predicted.

        Raises:
            UsageError: for an unknown one, or where several could be meant.
        """
        if attribute is None and len(self.attributes) == 1:
            (attribute,) = self.attributes
        found = [b for b in self.grounding.blocks if attribute in (b.name, b.attribute)]
        if len(found) != 1:
            message = "say which predicted attribute" if attribute is None else f"no predicted attribute '{attribute}'"
            hint = suggestion(attribute or "", self.attributes) or f"there is {listing(self.attributes)}"
            raise UsageError(Diagnostic("E310", message, hint=hint))
        return found[0]

    @property
    def verdict(self) -> Verdict:
        """How far to trust the probabilities."""
        return self.inferred.verdict

    def _nodes(self, block: VariableBlock) -> np.ndarray:
        variables = self.inferred.variables
        start, stop = np.searchsorted(variables, (block.start, block.start + block.count))
        return np.arange(start, stop)

    def variables(self, attribute: str | None = None) -> np.ndarray:
        """The queried variables of an attribute, ascending."""
        return np.asarray(self.inferred.variables[self._nodes(self.block(attribute))])

    def probabilities(self, attribute: str | None = None) -> np.ndarray:
        """Marginals of the queried variables of an attribute, shape (n, n_values)."""
        block = self.block(attribute)
        starts = self.inferred.state_start[self._nodes(block)]
        return np.asarray(self.inferred.marginals[starts[:, None] + np.arange(len(block.values))])

    def table(self, attribute: str | None = None) -> Frame:
        """One row a query: the thing's key or the tuple's arguments, the most probable value, its probability, its value
        in the most probable joint state, and (up to 50 values) the probability of each value.
        """
        block = self.block(attribute)
        nodes, probabilities = self._nodes(block), self.probabilities(attribute)
        values = np.asarray(block.values, dtype=object)
        best = probabilities.argmax(axis=1) if len(nodes) else np.empty(0, dtype=np.int64)
        queried = self.variables(attribute) - block.start
        columns: dict[str, np.ndarray] = {}

        def add(name: str, column: np.ndarray) -> None:
            # A predicted attribute may be called `probability`: no column takes another's place.
            while name in columns:
                name += "_"
            columns[name] = column

        for name, texts in zip(block.columns, self.grounding.arguments(block), strict=True):
            add(name, texts[queried])
        add(block.attribute or "value", values[best])
        add("probability", probabilities[np.arange(len(nodes)), best])
        add("joint", values[self.inferred.map_states[nodes]])
        if len(block.values) <= 50:
            for k, value in enumerate(block.values):
                add(f"p_{value}", probabilities[:, k])
        return Frame(columns)

    def score(self, attribute: str | None = None, *, among: np.ndarray | None = None) -> Score:
        """Compares with the labels of the data.

        Args:
            among: only these variables, shape (n_variables,), bool; by default all queries whose label is known.
        """
        variables = self.variables(attribute)
        truth = self.grounding.states[variables]
        scored = truth >= 0
        if among is not None:
            scored &= among[variables]
        return score(self.probabilities(attribute)[scored], truth[scored])
