"""Requests for labels or numbers: what `relcrf ask` returns for variables of any kind, and its candidates with their costs."""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import Problem
from relcrf.data.frame import Frame, frame_of
from relcrf.errors import DataError, DataLocation, Diagnostic, UsageError
from relcrf.evaluation.splits import argument_with_column
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock, read_argument_codes
from relcrf.inference.result import Verdict

N_NEIGHBOURS = 2
"""Number of most influenced variables that a reason names."""

BUDGET_TOLERANCE = 1e-9
"""Relative tolerance of sums of costs: three labels for 0.2 each cost 0.6."""


@dataclass(frozen=True, kw_only=True)
class AbstractRequest:
    """A variable to label.

    Args:
        gain: Expected reduction of the uncertainty of all predictions by this label, given the labels before it.
        own, graph, weights: The parts of the gain: the variable itself, and other variables through the graph and through
            shared weights.
        n_affected: Number of other variables whose prediction becomes more certain.
        neighbours: The variables that the label influences most through the graph, and their gains.
    """

    variable: str
    gain: float
    cost: float
    own: float
    graph: float
    weights: float
    n_affected: int
    neighbours: tuple[tuple[str, float], ...]
    shared_text: ClassVar[str]
    """The reason for a large part through shared weights."""

    @property
    def reason(self) -> str:
        """The largest parts of the gain, in a few words."""
        parts = [(self.own, "uncertain itself"), (self.weights, self.shared_text)]
        if self.neighbours:
            parts.append((self.graph, "informs " + ", ".join(name for name, _ in self.neighbours)))
        shown = [text for amount, text in sorted(parts, key=lambda part: -part[0]) if amount >= 0.2 * self.gain]
        return "; ".join(shown)

    @property
    @abstractmethod
    def prediction_cells(self) -> tuple[str, ...]:
        """The prediction as cells of a printed table, see `AbstractRequests.prediction_columns`."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AbstractRequests:
    """A batch of variables to label, best first. Notebooks display it as a table.

    Args:
        block: The attribute or relation whose labels are requested.
        variables: Index of each variable of `requests`, shape (n,).
        n_candidates: Number of variables among which the batch was selected.
        verdict: The convergence status of inference.
    """

    grounding: Grounding
    block: VariableBlock
    variables: np.ndarray
    requests: Sequence[AbstractRequest]
    n_candidates: int
    verdict: Verdict
    seconds: float
    prediction_columns: ClassVar[tuple[str, ...]]
    """Headers of the cells of a prediction."""
    unit: ClassVar[str]
    """The unit of gains."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.requests):,} of {self.n_candidates:,} variables of {self.block.name})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.table().to_html(bars=('gain',))}"

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def total_cost(self) -> float:
        """The sum of the costs of all requests."""
        return sum(request.cost for request in self.requests)

    @property
    @abstractmethod
    def expectation(self) -> dict[str, float]:
        """The expected error of the predictions, now and with the labels of the batch, by name."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """The expected errors as a sentence without a full stop."""

    @abstractmethod
    def _predictions(self) -> dict[str, np.ndarray]:
        """Return the columns of the predictions, shape (n,) each."""

    def table(self) -> Frame:
        """Return one row per request: the variable's arguments, an empty column for the label, the prediction and the gain."""
        arguments = zip(self.block.argument_names, self.grounding.argument_texts(self.block), strict=True)
        requests = self.requests
        columns = [(name, texts[self.variables - self.block.start]) for name, texts in arguments]
        columns.append((self.block.attribute or "value", np.full(len(requests), "", dtype=object)))
        columns += self._predictions().items()
        columns += [(name, np.array([getattr(each, name) for each in requests], float)) for name in ("gain", "cost")]
        columns.append(("affects", np.array([each.n_affected for each in requests], dtype=int)))
        columns.append(("reason", np.array([each.reason for each in requests], dtype=object)))
        return frame_of(columns)

    def as_dict(self) -> dict[str, Any]:
        """Return the batch as a JSON object."""
        return {
            "attribute": self.block.name,
            "requests": [{**asdict(request), "reason": request.reason} for request in self.requests],
            "candidates": self.n_candidates,
            **self.expectation,
            "verdict": asdict(self.verdict),
            "seconds": self.seconds,
        }


def find_candidates(
    grounding: Grounding,
    problem: Problem,
    block: VariableBlock,
    candidates: np.ndarray | None,
    cost: str | None,
    budget: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the variables that may be requested, and their costs, shape (n,) each; for the arguments see `ask`.

    Raises:
        DataError, UsageError: See `ask`.
    """
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
    return variables, costs


def find_affordable(costs: np.ndarray, is_left: np.ndarray, budget: float) -> np.ndarray:
    """Return the mask of the candidates whose cost does not exceed what the selected ones leave of the budget, shape (n,).

    Args:
        is_left: Mask of the candidates that are not selected, shape (n,).
    """
    rest = budget - costs[~is_left].sum()
    return np.asarray(is_left & (costs <= rest + BUDGET_TOLERANCE * budget))


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
