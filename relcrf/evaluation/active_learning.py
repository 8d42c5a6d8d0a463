"""Active learning: the variables whose labels would reduce the uncertainty of all predictions most.

The gain of a label is the expected reduction of the sum of the entropies of all query variables. It has three parts:

- the entropy of the variable itself;
- the information about other variables through the factors of the graph, given the weights (`label_influence.py`);
- the information about other variables through the weights that they share (`learning/shared_features.py`). Few labels do not
  determine the weights, so that the entropies given the weights are too small and miss this part.

A batch is selected greedily. The part of the graph is discounted by the information that the labels selected before contain
about the same variables: jointly, they contain at least the largest information of one of them. The part of the weights is
conditioned on the labels selected before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.number_inference import infer_posterior
from relcrf.backends.problems import query_problem
from relcrf.evaluation.label_influence import label_influence
from relcrf.evaluation.label_requests import (
    N_NEIGHBOURS,
    AbstractRequest,
    AbstractRequests,
    find_affordable,
    find_candidates,
)
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.influence import node_entropies
from relcrf.learning.shared_features import SharedFeatureGain, similarity_features

MIN_EFFECT = 0.01
"""Reduction of a variable's entropy, in nats, from which a label affects its prediction."""


@dataclass(frozen=True, kw_only=True)
class LabelRequest(AbstractRequest):
    """A category or a tuple to label; the gain is the expected reduction of the sum of entropies, in nats.

    Args:
        answer, probability: The most probable state and its probability.
    """

    answer: str
    probability: float
    shared_text = "similar to many"

    @property
    def prediction_cells(self) -> tuple[str, ...]:
        return self.answer, f"{self.probability:.2f}"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelRequests(AbstractRequests):
    """A batch of categories or tuples to label.

    Args:
        expected_errors, expected_errors_after: Expected number of wrong predictions of all query variables, now and with the
            labels of the batch.
    """

    requests: tuple[LabelRequest, ...]
    expected_errors: float
    expected_errors_after: float
    prediction_columns = ("prediction", "p")
    unit = "nats"

    @property
    def expectation(self) -> dict[str, float]:
        return {"expected_errors": self.expected_errors, "expected_errors_after": self.expected_errors_after}

    @property
    def summary(self) -> str:
        return (
            f"expected wrong predictions: {self.expected_errors:,.1f} now, "
            f"{self.expected_errors_after:,.1f} with these labels"
        )

    def _predictions(self) -> dict[str, np.ndarray]:
        return {
            "predicted": np.array([request.answer for request in self.requests], dtype=object),
            "probability": np.array([request.probability for request in self.requests], dtype=float),
        }


def ask(
    learned: LearnedModel,
    grounding: Grounding,
    budget: float,
    block: VariableBlock,
    *,
    hidden: np.ndarray | None = None,
    candidates: np.ndarray | None = None,
    cost: str | None = None,
    **settings: Any,
) -> LabelRequests:
    """Select unlabelled variables by the expected gain of their labels per unit of cost.

    Args:
        budget: Sum of the costs of all requests, which is their number without `cost`.
        block: The attribute or relation whose labels are requested.
        hidden: Mask of the variables whose labels are ignored, shape (n_variables,), bool.
        candidates: Mask of the variables that may be requested, shape (n_variables,), bool; None for all.
        cost: Numeric column of the entity's table that contains the cost of each label.
        settings: Backend settings that override the settings of the training run.

    Raises:
        DataError: There is no variable to label (E446); a cost is missing or not positive (E447); the column does not
            exist (E212).
        UsageError: The budget is less than every cost (E448); the backend does not report influence (E368).
    """
    started = time.perf_counter()
    system = learned.configure_backend(**settings)
    grounding, vectors, problem = query_problem(learned, grounding, hidden)
    variables, costs = find_candidates(grounding, problem, block, candidates, cost, budget)
    features_graph = problem.graph
    if problem.numbers is None:
        inferred = system.infer(problem, vectors)
    else:  # numbers are evidence about categories
        posterior = infer_posterior(problem, vectors, system.infer)
        inferred, problem, vectors = posterior.inferred, posterior.problem, posterior.vectors
    inferred.verdict.raise_if_interrupted()
    entropy, error = np.zeros(len(problem.roles)), np.zeros(len(problem.roles))
    entropy[inferred.variables] = node_entropies(inferred.marginals, inferred.state_start)
    error[inferred.variables] = 1.0 - np.maximum.reduceat(inferred.marginals, inferred.state_start[:-1])
    entropy[grounding.latent], error[grounding.latent] = 0.0, 0.0
    influence = label_influence(system, problem, vectors, variables)
    influence = csr_array(influence.multiply(entropy > 0.0))
    in_use = np.flatnonzero(~grounding.latent & (problem.roles != Role.ABSENT))
    features, log_states = similarity_features(features_graph, in_use), np.log(features_graph.cardinality)
    shared = None
    if features.nnz:
        shared = SharedFeatureGain.from_features(features, log_states[in_use], problem.roles[in_use] == Role.CLAMPED)
    selection = LabelSelection.build(influence, variables, entropy, log_states, shared, in_use)
    steps = list(selection.select(costs, budget))
    requests = tuple(_describe(grounding, block, inferred, int(variables[step.row]), step, costs) for step in steps)
    chosen = variables[[step.row for step in steps]]
    after = error * selection.remaining_fraction
    after[chosen] = 0.0
    return LabelRequests(
        grounding=grounding,
        block=block,
        variables=chosen,
        requests=requests,
        n_candidates=len(variables),
        verdict=inferred.verdict,
        seconds=time.perf_counter() - started,
        expected_errors=float(error.sum()),
        expected_errors_after=float(after.sum()),
    )


def _describe(
    grounding: Grounding,
    block: VariableBlock,
    inferred: InferenceResult,
    variable: int,
    step: SelectedLabel,
    costs: np.ndarray,
) -> LabelRequest:
    node = int(np.searchsorted(inferred.variables, variable))
    marginal = inferred.marginals[inferred.state_start[node] : inferred.state_start[node + 1]]
    names = grounding.variable_names(step.neighbours).tolist()
    return LabelRequest(
        variable=grounding.variable_name(variable),
        answer=block.values[int(marginal.argmax())],
        probability=float(marginal.max()),
        gain=step.own + step.graph + step.weights,
        cost=float(costs[step.row]),
        own=step.own,
        graph=step.graph,
        weights=step.weights,
        n_affected=step.n_affected,
        neighbours=tuple(zip(names, step.neighbour_gains.tolist(), strict=True)),
    )


@dataclass(frozen=True, eq=False)
class SelectedLabel:
    """One step of the selection.

    Args:
        row: Index of the candidate.
        own, graph, weights: See `LabelRequest`.
        neighbours, neighbour_gains: The most influenced variables, and their gains in nats.
    """

    row: int
    own: float
    graph: float
    weights: float
    n_affected: int
    neighbours: np.ndarray
    neighbour_gains: np.ndarray


@dataclass(eq=False)
class LabelSelection:
    """The greedy selection of a batch.

    Args:
        information: Information of each candidate about each variable, including itself, shape (n, n_variables).
        variables: The candidates, shape (n,).
        entropy: Entropy of each variable, shape (n_variables,).
        log_states: Logarithm of the number of states of each variable, which is at stake in `shared`.
        shared: The gains through shared weights; None if the model has no features.
        shared_rows: The row in `shared` of each candidate, shape (n,).
        shared_variables: The variable of each row of `shared`, ascending.
    """

    information: csr_array
    variables: np.ndarray
    entropy: np.ndarray
    log_states: np.ndarray
    shared: SharedFeatureGain | None
    shared_rows: np.ndarray
    shared_variables: np.ndarray

    def __post_init__(self) -> None:
        self._columns = csc_array(self.information)
        self._covered = np.zeros_like(self.entropy)
        self._taught = np.zeros_like(self.entropy)
        self._graph_gains = np.asarray(self.information.sum(axis=1)).ravel()

    @classmethod
    def build(
        cls,
        influence: csr_array,
        variables: np.ndarray,
        entropy: np.ndarray,
        log_states: np.ndarray,
        shared: SharedFeatureGain | None,
        shared_variables: np.ndarray,
    ) -> LabelSelection:
        """Add the information of the candidates about themselves to their information about other variables."""
        own = (entropy[variables], (np.arange(len(variables)), variables))
        information = csr_array(influence + csr_array(coo_array(own, shape=influence.shape)))
        rows = np.searchsorted(shared_variables, variables)
        return cls(information, variables, entropy, log_states, shared, rows, shared_variables)

    def select(self, costs: np.ndarray, budget: float) -> Iterator[SelectedLabel]:
        """Yield the candidates with the largest gain per cost, each given the candidates before it, within the budget."""
        is_left = np.ones(len(costs), dtype=bool)
        while (affordable := find_affordable(costs, is_left, budget)).any():
            shared = np.zeros(len(costs)) if self.shared is None else self.shared.gains[self.shared_rows]
            gains = np.where(affordable, (self._graph_gains + shared) / costs, -np.inf)
            row = int(gains.argmax())
            is_left[row] = False
            yield self._add(row)

    def _add(self, row: int) -> SelectedLabel:
        """Condition on the label of a candidate, and return its gains."""
        cells = slice(self.information.indptr[row], self.information.indptr[row + 1])
        columns, values = self.information.indices[cells], self.information.data[cells]
        added = np.maximum(values - self._covered[columns], 0.0)
        effect = np.zeros_like(self.entropy)
        effect[columns] = added
        own = float(effect[self.variables[row]])
        effect[self.variables[row]] = 0.0
        graph = float(effect.sum())
        order = np.argsort(-effect[columns], kind="stable")[:N_NEIGHBOURS]
        neighbours = columns[order[effect[columns[order]] >= MIN_EFFECT]]
        neighbour_gains = effect[neighbours]
        self._cover(columns, values)
        weights = 0.0
        if self.shared is not None:
            taught = self.shared.explained_by(int(self.shared_rows[row]))
            weights = float(taught.sum())
            self.shared.add_label(int(self.shared_rows[row]))
            effect[self.shared_variables] += taught
            self._taught[self.shared_variables] += taught
        n_affected = int((effect >= MIN_EFFECT).sum())
        return SelectedLabel(row, own, graph, weights, n_affected, neighbours, neighbour_gains)

    def _cover(self, columns: np.ndarray, values: np.ndarray) -> None:
        """Raise the information that is known about some variables, and lower the gains of other candidates."""
        for column, value in zip(columns.tolist(), values.tolist(), strict=True):
            before = self._covered[column]
            if value <= before:
                continue
            cells = slice(self._columns.indptr[column], self._columns.indptr[column + 1])
            known = self._columns.data[cells]
            self._graph_gains[self._columns.indices[cells]] -= np.maximum(np.minimum(known, value) - before, 0.0)
            self._covered[column] = value

    @property
    def remaining_fraction(self) -> np.ndarray:
        """The fraction of each variable's uncertainty that the selected labels leave, shape (n_variables,)."""
        left = 1.0 - self._covered / np.maximum(self.entropy, 1e-300)
        return np.asarray(
            np.clip(left, 0.0, 1.0) * np.clip(1.0 - self._taught / np.maximum(self.log_states, 1e-300), 0.0, 1.0)
        )
