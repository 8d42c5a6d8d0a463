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

import html
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

from relcrf.backends.base import InferenceResult
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.numeric_targets import require_no_numbers
from relcrf.backends.problems import query_problem
from relcrf.data.frame import Frame
from relcrf.errors import DataError, DataLocation, Diagnostic, UsageError
from relcrf.evaluation.label_influence import label_influence
from relcrf.evaluation.splits import argument_with_column
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock, read_argument_codes
from relcrf.inference.influence import node_entropies
from relcrf.inference.result import Verdict
from relcrf.learning.shared_features import SharedFeatureGain, similarity_features

MIN_EFFECT = 0.01
"""Reduction of a variable's entropy, in nats, from which a label affects its prediction."""

N_NEIGHBOURS = 2
"""Number of most influenced variables that a reason names."""


@dataclass(frozen=True)
class LabelRequest:
    """A variable to label.

    Args:
        answer, probability: The most probable state and its probability.
        gain: Expected reduction of the sum of entropies by this label, given the labels before it, in nats.
        own, graph, weights: The parts of the gain: the variable itself, and other variables through the graph and through
            shared weights.
        n_affected: Number of other variables whose entropy falls by at least `MIN_EFFECT`.
        neighbours: The variables that the label influences most through the graph, and their gains.
    """

    variable: str
    answer: str
    probability: float
    gain: float
    cost: float
    own: float
    graph: float
    weights: float
    n_affected: int
    neighbours: tuple[tuple[str, float], ...]

    @property
    def reason(self) -> str:
        """The largest parts of the gain, in a few words."""
        parts = [(self.own, "uncertain itself"), (self.weights, "similar to many")]
        if self.neighbours:
            parts.append((self.graph, "informs " + ", ".join(name for name, _ in self.neighbours)))
        shown = [text for amount, text in sorted(parts, key=lambda part: -part[0]) if amount >= 0.2 * self.gain]
        return "; ".join(shown)


@dataclass(frozen=True, eq=False, repr=False)
class LabelRequests:
    """A batch of variables to label, best first. Notebooks display it as a table.

    Args:
        block: The attribute or relation whose labels are requested.
        variables: Index of each variable of `requests`, shape (n,).
        n_candidates: Number of variables among which the batch was selected.
        expected_errors, expected_errors_after: Expected number of wrong predictions of all query variables, now and with the
            labels of the batch.
        verdict: The convergence status of inference.
    """

    grounding: Grounding
    block: VariableBlock
    variables: np.ndarray
    requests: tuple[LabelRequest, ...]
    n_candidates: int
    expected_errors: float
    expected_errors_after: float
    verdict: Verdict
    seconds: float

    def __repr__(self) -> str:
        return f"LabelRequests({len(self.requests):,} of {self.n_candidates:,} variables of {self.block.name})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.table().to_html(bars=('gain',))}"

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def total_cost(self) -> float:
        """The sum of the costs of all requests."""
        return sum(request.cost for request in self.requests)

    def table(self) -> Frame:
        """Return one row per request: the variable's arguments, an empty column for the label, the prediction and the gain."""
        arguments = zip(self.block.argument_names, self.grounding.argument_texts(self.block), strict=True)
        columns: dict[str, np.ndarray] = {}

        def add(name: str, values: Any, kind: type) -> None:
            while name in columns:  # an attribute may have the name of another column
                name += "_"
            columns[name] = np.array(values, dtype=kind)

        for name, texts in arguments:
            add(name, texts[self.variables - self.block.start], object)
        add(self.block.attribute or "value", [""] * len(self), object)
        add("predicted", [request.answer for request in self.requests], object)
        for name in ("probability", "gain", "cost"):
            add(name, [getattr(request, name) for request in self.requests], float)
        add("affects", [request.n_affected for request in self.requests], int)
        add("reason", [request.reason for request in self.requests], object)
        return Frame(columns)

    def as_dict(self) -> dict[str, Any]:
        """Return the batch as a JSON object."""
        return {
            "attribute": self.block.name,
            "requests": [{**asdict(request), "reason": request.reason} for request in self.requests],
            "candidates": self.n_candidates,
            "expected_errors": self.expected_errors,
            "expected_errors_after": self.expected_errors_after,
            "verdict": asdict(self.verdict),
            "seconds": self.seconds,
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
    require_no_numbers(learned.spec, "the choice of labels")
    started = time.perf_counter()
    system = learned.configure_backend(**settings)
    grounding, vectors, problem = query_problem(learned, grounding, hidden)
    allowed = (problem.roles == Role.FREE) & _block_mask(grounding, block)
    variables = np.flatnonzero(allowed if candidates is None else allowed & candidates)
    if not len(variables):
        message = f"{block.name} has no variable without a label"
        hint = "add entities without a label, or hide some labels, e.g. --hide 0.1"
        raise DataError(Diagnostic("E446", message, hint=hint))
    costs = np.ones(len(variables)) if cost is None else _read_costs(grounding, block, cost, variables - block.start)
    if budget < costs.min():
        message = f"the budget of {budget:g} is less than the smallest cost of a label, {costs.min():g}"
        raise UsageError(Diagnostic("E448", message, hint="raise --budget"))
    inferred = system.infer(problem, vectors)
    entropy, error = np.zeros(len(problem.roles)), np.zeros(len(problem.roles))
    entropy[inferred.variables] = node_entropies(inferred.marginals, inferred.state_start)
    error[inferred.variables] = 1.0 - np.maximum.reduceat(inferred.marginals, inferred.state_start[:-1])
    entropy[grounding.latent], error[grounding.latent] = 0.0, 0.0
    influence = label_influence(system, problem, vectors, variables)
    influence = csr_array(influence.multiply(entropy > 0.0))
    in_use = np.flatnonzero(~grounding.latent & (problem.roles != Role.ABSENT))
    features, log_states = similarity_features(problem.graph, in_use), np.log(problem.graph.cardinality)
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
        grounding,
        block,
        chosen,
        requests,
        len(variables),
        float(error.sum()),
        float(after.sum()),
        inferred.verdict,
        time.perf_counter() - started,
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


def _block_mask(grounding: Grounding, block: VariableBlock) -> np.ndarray:
    mask = np.zeros(len(grounding.states), dtype=bool)
    mask[block.start : block.start + block.count] = True
    return mask


def _read_costs(grounding: Grounding, block: VariableBlock, column: str, members: np.ndarray) -> np.ndarray:
    """Return the costs of some variables of a block; the cost of a tuple is that of its first entity with this column.

    Args:
        members: Indices of the variables in the block, shape (n,).
    """
    bound = grounding.bound
    argument = argument_with_column(grounding, block, column)
    if argument is None:
        message = f"'{block.name}' has no entity as argument, and therefore no column of costs"
        raise DataError(Diagnostic("E447", message, hint="omit --cost-column"))
    entity = block.argument_types[argument]
    codes = read_argument_codes(bound, block)[argument][members]
    texts = bound.raw_column(entity, column)
    values = np.array([_parse_cost(text) for text in texts.tolist()])
    wrong = np.flatnonzero(~(values[codes] > 0.0))
    if len(wrong):
        first = int(codes[wrong[0]])
        table = bound.find_table(entity)
        message = f"the cost '{texts[first]}' of {entity}({bound.texts(entity)[first]}) is not a positive number"
        location = None if table is None else DataLocation(table.location)
        raise DataError(
            Diagnostic("E447", message, location, f"correct column '{column}', or name another with --cost-column")
        )
    return np.asarray(values[codes])


def _parse_cost(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


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
        while (affordable := is_left & (costs <= budget)).any():
            shared = np.zeros(len(costs)) if self.shared is None else self.shared.gains[self.shared_rows]
            gains = np.where(affordable, (self._graph_gains + shared) / costs, -np.inf)
            row = int(gains.argmax())
            is_left[row] = False
            budget -= costs[row]
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
