"""Pseudo-likelihood of models with conjunctions of literals, chosen from candidate spaces that are not enumerated.

See `active_candidates.py` for the terms literal, candidate and space.

If all labels are observed, mean-field contrastive divergence with one step equals pseudo-likelihood, because updating a
variable from the labels of its neighbours gives the conditional distribution of this variable (Lao & Zhu 2014,
equations 8 to 11; Besag 1975).
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
    """Distributions of variables: the probabilities of `variables[i]` start at `tables[state_start[i]]`."""

    variables: np.ndarray
    state_start: np.ndarray
    tables: np.ndarray


@dataclass(frozen=True, eq=False)
class AbstractLiteralObjective(AbstractCandidateObjective):
    """An objective whose candidates are conjunctions of literals.

    The gradient of a candidate's weight is computed from two numbers per literal, an error and a signal (see
    `errors_and_signals`).

    Args:
        literals: The literals of the spaces, with an index for each literal.
        observed: Flat node tables: 1.0 for each label and 0.0 for other states; uniform for unlabelled nodes.
        truth_values: Truth value of each literal for the labels, 0.0 or 1.0, shape (literals.size,).
    """

    literals: Literals
    observed: np.ndarray
    truth_values: np.ndarray

    @cached_property
    def active(self) -> ActiveCandidates:
        """Return the chosen candidates as `ActiveCandidates`."""
        return ActiveCandidates.from_set(self.literals, self.chosen)

    def candidate_curvature(self, candidates: CandidateSet) -> np.ndarray:
        return ActiveCandidates.from_set(self.literals, candidates).curvature(self.truth_values)

    def candidate_gradient(self, candidates: CandidateSet, errors: np.ndarray, signals: np.ndarray) -> np.ndarray:
        """Return the gradient of the given candidates' weights, from the result of `errors_and_signals`; shape (n,)."""
        return ActiveCandidates.from_set(self.literals, candidates).gradient(errors, signals)

    @abstractmethod
    def errors_and_signals(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the error and the signal of each literal, shape (literals.size,) each.

        The error of a literal is its probability minus its truth value, or 0 if the label is not trained on. The signal
        is the truth value or, in contrastive divergence, the mean of the expectations before and after the updates. For
        a pair of literals a and b, each sample adds `error_a signal_b + error_b signal_a` to the gradient.
        """

    def composite_errors(
        self, composites: CompositeLiterals, errors: np.ndarray, signals: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the errors and the signals of all literals, each array extended by the values of the composites."""
        return composites.append_errors(errors, signals), composites.append_truth_values(signals)


@dataclass(frozen=True, eq=False)
class LiteralLikelihood(AbstractLiteralObjective):
    """The negative log pseudo-likelihood of labels.

    Args:
        base: The labelled variables, without candidates; each factor of a variable is evaluated at the labels of the
            variable's neighbours (`blanket_graph`).
        truth_values: Truth value of each literal; the expectation of a literal if the variable is unlabelled.
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
            states: Label of each node, shape (n_nodes,); all nodes are labelled.
            spaces: Spaces whose variables are nodes or external variables.
            external: Distributions of unlabelled variables; these variables have no term in the objective.
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
