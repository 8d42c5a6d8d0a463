"""Active learning of numbers: the unknown numbers whose values would reduce the variances of all unknown numbers most.

The gain of a number is the reduction of the sum of the variances of all unknown numbers, each in units of the variance of its
attribute: the sum is that of the expected squared errors, and numbers of several attributes can be added. The logarithms of
variances, which are entropies, would have no finite sum: a known number has the entropy minus infinity. The reduction does not
depend on the value, see `inference/gaussian_design.py`. The variances contain the uncertainty of the weights of means
(`backends/mean_uncertainty.py`), but not that of the weights of precisions and links.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.mean_uncertainty import mean_uncertainty
from relcrf.backends.number_inference import JointPosterior, infer_posterior
from relcrf.backends.number_model import NumberModel
from relcrf.backends.problems import query_problem
from relcrf.evaluation.active_learning import LabelRequests
from relcrf.evaluation.active_learning import ask as ask_for_labels
from relcrf.evaluation.label_requests import (
    N_NEIGHBOURS,
    AbstractRequest,
    AbstractRequests,
    find_affordable,
    find_candidates,
)
from relcrf.evaluation.number_evidence import format_number
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.gaussian_design import VarianceReduction, VarianceSelection
from relcrf.inference.gaussian_estimates import N_SAMPLES, EstimatedInverse

MIN_REDUCTION = 0.02
"""Fraction of the variance of a number from which its reduction affects the prediction; the deviation falls by 1 %."""


@dataclass(frozen=True, kw_only=True)
class NumberRequest(AbstractRequest):
    """An unknown number; the gain is the reduction of the sum of variances, in units of the variance of the attribute.

    Args:
        mean, deviation: The predicted mean, and the standard deviation with the uncertainty of the weights.
    """

    mean: float
    deviation: float
    shared_text = "informs weights"

    @property
    def prediction_cells(self) -> tuple[str, ...]:
        return format_number(self.mean, self.deviation), format_number(self.deviation, self.deviation)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NumberRequests(AbstractRequests):
    """A batch of unknown numbers.

    Args:
        expected_rmse, expected_rmse_after: Expected root mean squared error of all unknown numbers of the attribute, now and
            with the values of the batch.
    """

    requests: tuple[NumberRequest, ...]
    expected_rmse: float
    expected_rmse_after: float
    prediction_columns = ("mean", "deviation")
    unit = "variances"

    @property
    def expectation(self) -> dict[str, float]:
        return {"expected_rmse": self.expected_rmse, "expected_rmse_after": self.expected_rmse_after}

    @property
    def summary(self) -> str:
        now, after = (
            format_number(rmse, self.expected_rmse) for rmse in (self.expected_rmse, self.expected_rmse_after)
        )
        return f"expected root mean squared error: {now} now, {after} with these labels"

    def _predictions(self) -> dict[str, np.ndarray]:
        return {
            name: np.array([getattr(request, name) for request in self.requests], dtype=float)
            for name in ("mean", "deviation")
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
) -> LabelRequests | NumberRequests:
    """Select unlabelled variables by the gain of their labels per unit of cost.

    For the arguments and errors see `active_learning.ask`, which selects categories and tuples.

    Raises:
        DataError: Training saw no numbers (E225).
    """
    if not block.is_numeric:
        return ask_for_labels(
            learned, grounding, budget, block, hidden=hidden, candidates=candidates, cost=cost, **settings
        )
    started = time.perf_counter()
    system = learned.configure_backend(**settings)
    grounding, vectors, problem = query_problem(learned, grounding, hidden)
    variables, costs = find_candidates(grounding, problem, block, candidates, cost, budget)
    posterior = infer_posterior(problem, vectors, system.infer)
    l2, n_training = float(learned.summary["numeric_l2"]), int(learned.summary["numbers"])
    uncertainty = mean_uncertainty(problem, vectors, posterior, l2, n_training)
    numbers = posterior.inferred.numbers
    assert numbers is not None
    unknown = posterior.numeric.variables[~posterior.is_known]
    is_free = problem.roles[unknown] == Role.FREE
    unit = _attribute_variances(problem, vectors)[posterior.numeric.attribute[~posterior.is_known]]
    weights = np.where(is_free, 1.0 / unit, 0.0)
    selection = build_selection(posterior, uncertainty.coordinates, weights)
    of_block = is_free & np.isin(unknown, np.arange(block.start, block.start + block.count))
    now = selection.variances.copy()
    steps = list(select(selection, np.searchsorted(unknown, variables), costs, budget))
    requests = []
    for row, variances, reduction in steps:
        variable = int(unknown[row])
        mean = float(numbers.means[np.searchsorted(numbers.variables, variable)])
        cost_of_label = float(costs[np.searchsorted(variables, variable)])
        requests.append(
            _describe(grounding, unknown, row, reduction, weights * variances, mean, float(now[row]), cost_of_label)
        )
    remarks = [posterior.inferred.verdict.remark, uncertainty.remark]
    if isinstance(posterior.inverse, EstimatedInverse):
        remarks.append(f"candidates are compared by gains that are estimated from {N_SAMPLES} samples")
    return NumberRequests(
        grounding=grounding,
        block=block,
        variables=unknown[[row for row, _, _ in steps]],
        requests=tuple(requests),
        n_candidates=len(variables),
        verdict=replace(posterior.inferred.verdict, remark="; ".join(filter(None, remarks))),
        seconds=time.perf_counter() - started,
        expected_rmse=float(np.sqrt(now[of_block].mean())),
        expected_rmse_after=float(np.sqrt(selection.variances[of_block].mean())),
    )


def build_selection(posterior: JointPosterior, coordinates: np.ndarray, weights: np.ndarray) -> VarianceSelection:
    """Return the selection among the numbers that are not `is_known` in a posterior.

    A number that depends on unknown categories has the variance of the mixture; that part of it which the other numbers do not
    share is noise.

    Args:
        coordinates: See `MeanUncertainty`.
        weights: Weight of the variance of each number, shape (n,).
    """
    rows, row = ~posterior.is_known, posterior.states.row
    scale = posterior.scales[rows]
    means = posterior.state_means + posterior.state_scales * posterior.deviations[row]
    spread = posterior.expect((means - posterior.expect(means)[row]) ** 2)[rows]
    noise = spread + (posterior.expect(posterior.state_scales**2)[rows] - scale**2) * posterior.inverse.variances
    return VarianceSelection(posterior.inverse, scale, np.maximum(noise, 0.0), coordinates, weights)


def select(
    selection: VarianceSelection, rows: np.ndarray, costs: np.ndarray, budget: float
) -> Iterator[tuple[int, np.ndarray, VarianceReduction]]:
    """Yield the candidates with the largest gain per cost, each given those before it, within the budget.

    Args:
        rows: The candidates, shape (n,).

    Yields:
        The row, the variances of all numbers before its value is known, and their reductions.
    """
    is_left = np.ones(len(rows), dtype=bool)
    while (affordable := find_affordable(costs, is_left, budget)).any():
        best = int(np.where(affordable, selection.gains[rows] / costs, -np.inf).argmax())
        is_left[best] = False
        before = selection.variances
        yield int(rows[best]), before, selection.add(int(rows[best]))


def _attribute_variances(problem: Problem, vectors: dict[str, np.ndarray]) -> np.ndarray:
    """Return the variance of the known numbers of each numeric attribute; the learned one if no two of them differ."""
    targets = problem.numbers
    assert targets is not None
    variances = np.exp(-NumberModel.from_vectors(vectors).weights.offset[:, 1])
    for k, (start, stop) in enumerate(targets.graph.numeric):
        known = targets.values[start:stop][problem.roles[start:stop] == Role.CLAMPED]
        if len(known) and np.ptp(known) > 0.0:  # the variance of equal numbers may be a rounding error
            variances[k] = known.var()
    return np.asarray(variances)


def _describe(
    grounding: Grounding,
    unknown: np.ndarray,
    row: int,
    reduction: VarianceReduction,
    uncertain: np.ndarray,
    mean: float,
    variance: float,
    cost: float,
) -> NumberRequest:
    """Return the request for a number.

    Args:
        unknown: The variable of each row, shape (n,).
        uncertain: The weighted variances before the value is known, shape (n,); 0 if they are not in the sum.
    """
    total, linked = reduction.total, reduction.linked.copy()
    own, total[row], linked[row] = float(total[row]), 0.0, 0.0
    is_affected = (uncertain > 0.0) & (total > 0.0) & (total >= MIN_REDUCTION * uncertain)
    order = np.argsort(-linked, kind="stable")[:N_NEIGHBOURS]
    neighbours = order[is_affected[order] & (linked[order] > 0.0)]
    names = grounding.variable_names(unknown[neighbours]).tolist()
    return NumberRequest(
        variable=grounding.variable_name(int(unknown[row])),
        gain=own + float(total.sum()),
        cost=cost,
        own=own,
        graph=float(linked.sum()),
        weights=float((total - linked).sum()),
        n_affected=int(is_affected.sum()),
        neighbours=tuple(zip(names, linked[neighbours].tolist(), strict=True)),
        mean=mean,
        deviation=float(np.sqrt(variance)),
    )
