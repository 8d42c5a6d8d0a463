"""How trained models and predictions show themselves: a line on a terminal, tables in a notebook."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from relcrf.backends.base import Inferred
from relcrf.backends.learned import LearnedModel
from relcrf.data.frame import Frame
from relcrf.errors import listing
from relcrf.text.html_table import html_table

STRONGEST = 20
"""Weights that a notebook shows."""


class ShownFit(ABC):
    """The looks of a trained model."""

    learned: LearnedModel

    @abstractmethod
    def weights(self) -> Frame:
        """All weights, one a row."""

    def __repr__(self) -> str:
        learned = self.learned
        state = "converged" if learned.converged else "not converged"
        names = listing(template.name for template in learned.templates)
        return f"Fit({learned.backend}: {learned.layout.size:,} weights of {names}; {state}, {learned.seconds:.1f} s)"

    def _repr_html_(self) -> str:
        weights = self.weights()
        strongest = weights.chosen(np.argsort(-np.abs(weights["weight"]), kind="stable")[:STRONGEST])
        figures = html_table(("", ""), [*self.learned.summary.items()], caption=repr(self))
        return figures + html_table([*weights.columns], strongest.rows(), caption="strongest weights")


class ShownPrediction(ABC):
    """The looks of a prediction."""

    inferred: Inferred

    @property
    @abstractmethod
    def attributes(self) -> Sequence[str]:
        """What is predicted."""

    @abstractmethod
    def table(self, attribute: str | None = None) -> Frame:
        """One row a query."""

    def __repr__(self) -> str:
        counts = listing(f"{len(self.table(name)):,} queries of {name}" for name in self.attributes)
        return f"Prediction({counts}; {self.inferred.verdict})"

    def _repr_html_(self) -> str:
        tables = (f"<p>{html.escape(name)}</p>{self.table(name)._repr_html_()}" for name in self.attributes)
        return f"<p>{html.escape(repr(self))}</p>" + "".join(tables)
