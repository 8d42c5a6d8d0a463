"""Pseudo-likelihood of a model with conjunctions of literals, chosen from candidate spaces that are never enumerated.

See `active_candidates.py` for the terms literal, candidate and space.

If all labels are observed, mean-field contrastive divergence with one step equals pseudo-likelihood, because the update
of each variable from its neighbours' labels gives its local conditional distribution (Lao & Zhu 2014, equations 8 to
11; Besag 1975).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.candidates import CandidateSet
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.triples import CompositeLiterals, PairOrTripleSpace
from relcrf.learning.active_candidates import ActiveCandidates
from relcrf.learning.candidate_objective import AbstractCandidateObjective, label_residual
from relcrf.learning.literals import Literals


@dataclass(frozen=True)
class NodeTables:
    """Some variables, shape (n,), with a flat table for each; `state_start` has shape (n + 1,)."""

    variables: np.ndarray
    state_start: np.ndarray
    tables: np.ndarray


@dataclass(frozen=True, eq=False)
class AbstractLiteralObjective(AbstractCandidateObjective):
    """An objective whose candidates are conjunctions of literals.

    Gradients of candidates are computed from two numbers per literal: its error and its signal (see
    `errors_and_signals`).

    Args:
        literals: The literals of the spaces, with their numbering.
        observed: Flat node tables with 1.0 at the label of each labelled node; uniform for unlabelled nodes.
        truth_values: Truth value of each literal of each variable in the data, 0.0 or 1.0, shape (literals.size,).
    """

    literals: Literals
    observed: np.ndarray
    truth_values: np.ndarray

    @cached_property
    def active(self) -> ActiveCandidates:
        """Return the chosen candidates as `ActiveCandidates`, which compute scores of literals and gradients."""
        return ActiveCandidates.from_set(self.literals, self.chosen)

    def candidate_curvature(self, candidates: CandidateSet) -> np.ndarray:
        return ActiveCandidates.from_set(self.literals, candidates).curvature(self.truth_values)

    def candidate_gradient(self, candidates: CandidateSet, errors: np.ndarray, signals: np.ndarray) -> np.ndarray:
        """Return the gradient of the given candidates' weights, from the result of `errors_and_signals`; shape (n,)."""
        return ActiveCandidates.from_set(self.literals, candidates).gradient(errors, signals)

    @abstractmethod
    def errors_and_signals(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return error and signal of each literal; a candidate's gradient is a sum of products of the two.

        The error of a literal is its probability minus its truth value, or 0 if the label is not trained on. The errors
        of the candidate's other literals are multiplied by the literal's signal: its truth value or, in contrastive
        divergence, the mean of its expectations before and after the updates.
        """

    def composite_errors(
        self, composites: CompositeLiterals, errors: np.ndarray, signals: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return errors and signals of the literals, each array followed by that of the composites of two literals."""
        return composites.append_errors(errors, signals), composites.append_truth_values(signals)


@dataclass(frozen=True, eq=False)
class LiteralLikelihood(AbstractLiteralObjective):
    """The negative log pseudo-likelihood of labels.

    Args:
        base: The variables, with each factor evaluated at the labels of its other variables (`blanket_graph`), without
            candidates.
        truth_values: Truth values of literals; expectations for unlabelled variables, which have no term in the sum.
    """

    @classmethod
    def build(
        cls,
        base: ReducedGraph,
        states: np.ndarray,
        spaces: tuple[PairOrTripleSpace, ...],
        external: NodeTables | None = None,
    ) -> LiteralLikelihood:
        """Return the objective with no chosen candidates, trained on all nodes.

        Args:
            states: Shape (n_nodes,), all observed.
            spaces: Spaces whose variables are nodes or external variables.
            external: Unlabelled variables and their probabilities.
        """
        observed = np.zeros(int(base.state_start[-1]))
        observed[base.state_start[:-1] + states] = 1.0
        literals = Literals.build(base, spaces, np.empty(0, dtype=np.int64) if external is None else external.variables)
        truth_values = literals.expectations(observed)
        if external is not None:
            truth_values = truth_values + literals.external_expectations(external.state_start, external.tables)
        trained = np.ones(base.n_nodes, dtype=bool)
        return cls(base, states, literals.spaces, CandidateSet.empty(), trained, literals, observed, truth_values)

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        value, residual = self.residual(point)
        base = np.zeros(self.n_base)
        self.base.add_node_counts(residual, base)
        errors = self.literals.expectations(residual)
        return value, np.concatenate((base, self.active.gradient(errors, self.truth_values)))

    def errors_and_signals(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.literals.expectations(self.residual(point)[1]), self.truth_values

    def residual(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the flat residuals of the conditional distributions; see `label_residual`."""
        tables = self.base.node_log_potentials(point[: self.n_base])
        scores = np.zeros(self.literals.size)
        self.active.add_scores(point[self.n_base :], self.truth_values, scores)
        self.literals.add_scores(scores, tables)
        return label_residual(self.base, tables, self.states, self.trained)
