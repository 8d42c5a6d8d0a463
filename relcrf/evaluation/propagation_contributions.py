"""The contributions of a variable's own evidence and of its neighbours to a score of label propagation.

The scores F of a propagation satisfy F = (1 - alpha) Y + alpha S F, where Y are the propagated values and S the normalised
links. The score of a variable is therefore the sum of an own term, (1 - alpha) Y, and of a term for each neighbour: alpha
times the normalised link times the score of the neighbour. In Correct & Smooth, Y contains the base prediction plus
propagated errors, which are decomposed in the same way. The base prediction is divided among its features by Aumann-Shapley
values; see `inference/attribution.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.propagation import (
    AbstractPropagationBackend,
    DomainLinks,
    DomainPropagation,
    LinkedProblem,
    clamped_labels,
)
from relcrf.evaluation.contributions import Contribution, FactorContributions, FeatureContribution, Neighbour
from relcrf.grounding.grounding import Grounding
from relcrf.inference.attribution import probability_direction
from relcrf.inference.label_propagation import propagate

EXACT_TOLERANCE = 1e-13
"""Tolerance of propagation for explanations. At the default tolerance, the terms of a variable that is far from all labels
would not add up to its score."""


@dataclass(frozen=True, eq=False)
class PropagationContributions:
    """The named contributions to the scores of one variable and of its neighbours.

    Args:
        propagation: The propagation in the domain of the variable.
        base: The contributions of factors to the base predictions; None if labels only are propagated.
        row: Index of the variable in the domain.
    """

    grounding: Grounding
    problem: Problem
    propagation: DomainPropagation
    base: FactorContributions | None
    row: int

    @classmethod
    def build(
        cls,
        grounding: Grounding,
        problem: Problem,
        system: AbstractPropagationBackend,
        vectors: dict[str, np.ndarray],
        variable: int,
    ) -> PropagationContributions:
        """Propagate the labels of the clamped variables, and return the contributions to the scores of a variable."""
        linked = LinkedProblem.build(problem, system.name)
        number = problem.graph.domains.number[variable]
        propagations = system.propagations(linked, vectors, EXACT_TOLERANCE)
        propagation = next(each for each in propagations if each.links.number == number)
        task = system.base_task(linked, vectors)
        base = None if task is None else FactorContributions(grounding, problem, task)
        row = int(np.searchsorted(propagation.links.variables, variable))
        return cls(grounding, problem, propagation, base, row)

    @property
    def probabilities(self) -> np.ndarray:
        """The probabilities of the variable, shape (n_states,)."""
        return np.asarray(self.propagation.probabilities[self.row])

    @cached_property
    def scores(self) -> np.ndarray:
        """The scores of the variable divided by the sum of its positive scores, shape (n_states,)."""
        return np.asarray(self._scale * self.propagation.last.values[self.row])

    def contributions(self, direction: np.ndarray, depth: int) -> tuple[Contribution, ...]:
        """Return the contributions to `direction @ scores`, largest first.

        Args:
            direction: The coefficient of each state's score, with sum 0, shape (n_states,).
            depth: The number of links to follow.
        """
        return self._decompose(self.row, direction, (self._scale, 0.0), (self.row,), depth)

    def influence(self) -> np.ndarray:
        """Return the derivatives of the variable's scores with respect to the propagated values Y, shape (n,)."""
        links, last = self._links, self.propagation.last
        indicator = np.zeros((len(links.variables), 1))
        indicator[self.row] = self._scale
        return propagate(links.normalised, last.alpha, indicator).values[:, 0]

    @cached_property
    def labels(self) -> np.ndarray:
        """The observed labels of the variables of the domain, shape (n,); -1 for variables without a label."""
        return np.asarray(clamped_labels(self.problem)[self._links.variables])

    @property
    def _links(self) -> DomainLinks:
        return self.propagation.links

    @cached_property
    def _scale(self) -> float:
        total = float(np.maximum(self.propagation.last.values[self.row], 0.0).sum())
        return 1.0 / total if total else 1.0

    def _decompose(
        self, row: int, direction: np.ndarray, weights: tuple[float, float], path: tuple[int, ...], depth: int
    ) -> tuple[Contribution, ...]:
        """Return the contributions to the weighted sum of a variable's score and propagated error, largest first.

        Args:
            weights: Weight of the score, and weight of the propagated error.
            path: The variables whose contributions contain this one.
        """
        links, last, correction = self._links, self.propagation.last, self.propagation.correction
        weight, error_weight = weights
        found = list(self._own_contributions(row, direction, weight, error_weight))
        if correction is not None and self.labels[row] < 0:
            error_weight += weight * (1.0 - last.alpha) * float(correction.factor[row, 0])
        entries = slice(*links.normalised.indptr[row : row + 2])
        linked = links.normalised.indices[entries].tolist(), links.normalised.data[entries].tolist()
        for other, link in zip(*linked, strict=True):
            score_weight = weight * last.alpha * link
            amount = score_weight * float(direction @ last.values[other])
            parts = [FeatureContribution("smoothing" if correction else "propagation", "", "1", link, amount)]
            inner_weights = (score_weight, 0.0)
            if correction is not None:
                inner_weights = (score_weight, error_weight * correction.errors.alpha * link)
                amount = inner_weights[1] * float(direction @ correction.errors.values[other])
                parts.append(FeatureContribution("correction", "", "1", link, amount))
            parts.sort(key=lambda part: -abs(part.amount))
            sources: tuple[Contribution, ...] = ()
            if depth > 1 and other not in path:
                sources = self._decompose(other, direction, inner_weights, (*path, other), depth - 1)
            neighbour = self._neighbour(other)
            found.append(
                Contribution(
                    "evidence" if neighbour.is_observed else "neighbour",
                    tuple(part.template for part in parts),
                    (neighbour,),
                    sum(part.amount for part in parts),
                    tuple(parts),
                    sources,
                )
            )
        return tuple(sorted(found, key=lambda one: -abs(one.amount)))

    def _own_contributions(
        self, row: int, direction: np.ndarray, weight: float, error_weight: float
    ) -> Iterator[Contribution]:
        """Yield the contributions of a variable's own label, or of its base prediction; see `_decompose`."""
        last, correction = self.propagation.last, self.propagation.correction
        if self.labels[row] < 0:
            if self.base is not None and correction is not None:
                inner = probability_direction(correction.base[row], weight * (1.0 - last.alpha) * direction)
                node = int(np.searchsorted(self.base.task.graph.variables, self._links.variables[row]))
                yield from self.base.contributions(node, inner, (), 1)
            return
        terms = {"label": weight * (1.0 - last.alpha) * last.sources[row]}
        if correction is not None:
            terms["correction"] = error_weight * (1.0 - correction.errors.alpha) * correction.errors.sources[row]
        for name, term in terms.items():
            amount = float(direction @ term)
            yield Contribution("itself", (name,), (), amount, (FeatureContribution(name, "", "1", 1.0, amount),))

    def _neighbour(self, row: int) -> Neighbour:
        variable, label = int(self._links.variables[row]), int(self.labels[row])
        probabilities = self.propagation.probabilities[row]
        state = label if label >= 0 else int(probabilities.argmax())
        return Neighbour(
            self.grounding.variable_name(variable),
            self.grounding.find_block(variable).values[state],
            1.0 if label >= 0 else float(probabilities[state]),
            is_observed=label >= 0,
        )
