"""A proximal quasi-Newton method for a smooth function plus group norms, which set whole groups of weights to 0.

Each step minimises the sum of a quadratic model of the smooth function and the exact penalty (Lee, Sun & Saunders,
Proximal Newton-type methods for minimizing composite functions, 2014). The limited-memory Hessian estimate has the
compact form of Nocedal & Wright, Numerical Optimization (2006), 7.2. The sum is minimised by accelerated proximal
gradient descent (Beck & Teboulle 2009) with adaptive restarts (O'Donoghue & Candes 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.learning.lbfgs import (
    ROUNDING_TOLERANCE,
    SUFFICIENT_DECREASE,
    AbstractQuasiNewton,
    AnyState,
    LineSearchResult,
    Objective,
    OptimiserState,
    has_positive_curvature,
)

INNER_TOLERANCE = 0.1
"""Maximum violation after the minimisation of a quadratic model, as a fraction of that before the minimisation."""

INNER_ITERATIONS = 200
"""Maximum number of iterations to minimise the quadratic model of a step."""

MAX_EVALUATIONS = 20
"""Maximum number of evaluations of one line search."""


FAST_BACKTRACKING = 8
"""Number of evaluations of a line search after which each one shortens the step by a factor of 10."""


@dataclass(frozen=True, eq=False)
class WeightGroups:
    """Contiguous groups of weights with the penalty `sum over groups of strength * |weights of the group|`.

    Args:
        start: Start of each group and end of the last group, shape (n_groups + 1,), int64; no group is empty.
        strength: Penalty strength of each group, shape (n_groups,), non-negative; infinite to fix the weights at 0.
    """

    start: np.ndarray
    strength: np.ndarray

    @classmethod
    def from_sizes(cls, sizes: np.ndarray, strength: np.ndarray) -> WeightGroups:
        """Return groups of the given sizes, shape (n_groups,)."""
        return cls(offsets(sizes), strength)

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.diff(self.start)

    def expand(self, values: np.ndarray) -> np.ndarray:
        """Repeat each group's value for all weights of the group."""
        return np.asarray(np.repeat(values, self.sizes))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of the values of each group, shape (n_groups,)."""
        return np.asarray(np.add.reduceat(values, self.start[:-1]))

    def norms(self, values: np.ndarray) -> np.ndarray:
        """Return the Euclidean norm of the values of each group, shape (n_groups,)."""
        return np.asarray(np.sqrt(self.sums(values * values)))

    def penalty(self, point: np.ndarray) -> float:
        norms = self.norms(point)
        nonzero = norms > 0.0
        return float(self.strength[nonzero] @ norms[nonzero])

    def shrink(self, point: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """Apply the proximal operator: reduce the norm of each group by `rate * strength`, but not below 0.

        Args:
            rate: Step size of each group, positive, shape (n_groups,).
        """
        norms, decrease = self.norms(point), rate * self.strength
        remaining = np.divide(norms - decrease, norms, out=np.zeros(len(norms)), where=norms > decrease)
        return np.asarray(point * self.expand(remaining))

    def violations(self, point: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the violation of each group's optimality condition (Karush, Kuhn & Tucker), shape (n_groups,).

        The violation is the norm of the subgradient nearest to 0, divided by the square root of the group's size.

        Args:
            gradient: Gradient of the smooth part, shape (n,).
        """
        norms = self.norms(point)
        nonzero = norms > 0.0
        penalty_slope = np.divide(self.strength, norms, out=np.zeros(len(norms)), where=nonzero)
        subgradient_norms = self.norms(gradient + self.expand(penalty_slope) * point)
        return np.asarray(
            np.where(nonzero, subgradient_norms, np.maximum(subgradient_norms - self.strength, 0.0))
            / np.sqrt(self.sizes)
        )


@dataclass(frozen=True)
class GroupLasso(AbstractQuasiNewton):
    """A minimiser of `f(w) + sum over groups of strength |w_g|`.

    In the optimiser states, `gradient_norm` is the maximum of `WeightGroups.violations`, and `initial_gradient_norm` is
    `scale`.

    Args:
        tolerance: The run converges when no group violates its optimality condition by more than this fraction of
            `scale`.
        max_iterations: Maximum number of iterations, after which the status is `not converged`. The status is `stalled`
            if no lower value is found before convergence.
        scale: The reference value of `tolerance`, for example the penalty strength of a group of one weight.
        diagonal: An estimate of the Hessian's diagonal, positive, shape (n,).
    """

    tolerance: float = 1e-2
    value_tolerance: float = 0.0
    max_iterations: int = 500
    groups: WeightGroups = field(kw_only=True)
    diagonal: np.ndarray = field(kw_only=True)
    scale: float = field(kw_only=True)
    exhausted_status: ClassVar[str] = "stalled"

    def norm(self, point: np.ndarray, gradient: np.ndarray) -> float:
        return float(self.groups.violations(point, gradient).max(initial=0.0))

    def penalty(self, point: np.ndarray) -> float:
        return self.groups.penalty(point)

    def start(self, objective: Objective, point: np.ndarray) -> OptimiserState:
        return replace(super().start(objective, point), initial_gradient_norm=self.scale)

    def extend_state(self, state: AnyState, gradient: np.ndarray) -> AnyState:
        return replace(super().extend_state(state, gradient), initial_gradient_norm=state.initial_gradient_norm)

    def step(self, objective: Objective, state: AnyState) -> AnyState:
        return self.update_status(super().step(objective, state))

    def search(self, objective: Objective, state: OptimiserState) -> LineSearchResult | None:
        target = self._minimise_model(_QuadraticModel.from_differences(self._metric, state.steps, state.changes), state)
        return self._search_towards(target, objective, state)

    @cached_property
    def _metric(self) -> np.ndarray:
        """Return the diagonal, averaged within each group: the proximal operator requires equal entries in a group."""
        return self.groups.expand(self.groups.sums(self.diagonal) / self.groups.sizes)

    def _minimise_model(self, model: _QuadraticModel, state: OptimiserState) -> np.ndarray:
        """Return the minimum of the quadratic model plus the penalty, up to `INNER_TOLERANCE`, shape (n,)."""
        rates = 1.0 / (model.bound * self._metric)
        group_rates = rates[self.groups.start[:-1]]
        tolerance = INNER_TOLERANCE * state.gradient_norm
        point = ahead = state.point
        momentum = 1.0
        slope = state.gradient
        for _ in range(INNER_ITERATIONS):
            following = self.groups.shrink(ahead - rates * slope, group_rates)
            if float((ahead - following) @ ((following - point) / rates)) > 0.0:
                momentum = 1.0  # restart: the momentum points away from the descent direction
            next_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = following + (momentum - 1.0) / next_momentum * (following - point)
            point, momentum = following, next_momentum
            slope = state.gradient + model.product(ahead - state.point)
            if self.norm(ahead, slope) <= tolerance:
                break
        return point

    def _search_towards(
        self, target: np.ndarray, objective: Objective, state: OptimiserState
    ) -> LineSearchResult | None:
        """Search the line from the current point to `target` for a lower value; return None if none is found."""
        direction = target - state.point
        predicted = float(state.gradient @ direction) + self.penalty(target) - self.penalty(state.point)
        length = 1.0
        for evaluation in range(1, MAX_EVALUATIONS + 1):
            point = target if length == 1.0 else state.point + length * direction
            value, gradient = objective(point)
            if np.isfinite(value):
                if value <= state.value + SUFFICIENT_DECREASE * length * predicted:
                    return point, value, gradient, evaluation
                # Near the minimum, rounding hides the decrease of the value; test the violations instead.
                hidden = abs(value - state.value) <= ROUNDING_TOLERANCE * abs(state.value)
                if hidden and self.norm(point, gradient) < state.gradient_norm:
                    return point, value, gradient, evaluation
                excess = value - state.value - length * predicted
                # An extreme feature causes a slope that no step of ordinary length can continue: shorten faster then.
                longest = 0.5 if evaluation < FAST_BACKTRACKING else 0.1
                length *= float(np.clip(-0.5 * length * predicted / excess, 0.1, longest)) if excess > 0.0 else longest
            else:
                length *= 0.1
        return None


@dataclass(frozen=True)
class _QuadraticModel:
    """A limited-memory Hessian estimate B in the compact form `B = scale * metric - factors middle factors'`.

    Args:
        metric: A diagonal matrix, stored with shape (n,).
        factors: Shape (n, 2m), where m is the number of pairs of a step and a gradient change.
        middle: Shape (2m, 2m).
        scale: Multiplier of the metric.
        bound: An upper bound on the largest eigenvalue of `metric^-1 B`.
    """

    metric: np.ndarray
    factors: np.ndarray
    middle: np.ndarray
    scale: float
    bound: float

    @classmethod
    def from_differences(
        cls, metric: np.ndarray, steps: tuple[np.ndarray, ...], changes: tuple[np.ndarray, ...]
    ) -> _QuadraticModel:
        curved = [pair for pair in zip(steps, changes, strict=True) if has_positive_curvature(*pair)]
        if not curved:
            return cls(metric, np.empty((len(metric), 0)), np.empty((0, 0)), 1.0, 1.0)
        s, y = (np.array(vectors).T for vectors in zip(*curved, strict=True))
        scale = float(y[:, -1] @ (y[:, -1] / metric)) / float(s[:, -1] @ y[:, -1])
        scaled = scale * metric[:, None] * s
        products = s.T @ y
        lower = np.tril(products, -1)
        middle = np.linalg.inv(np.block([[s.T @ scaled, lower], [lower.T, -np.diag(np.diag(products))]]))
        factors = np.concatenate((scaled, y), axis=1)
        eigenvalues = np.linalg.eigvals(-middle @ (factors.T @ (factors / metric[:, None])))
        return cls(metric, factors, middle, scale, scale + max(float(eigenvalues.real.max()), 0.0))

    def product(self, vector: np.ndarray) -> np.ndarray:
        """Return B times a vector, shape (n,)."""
        low_rank: np.ndarray = self.factors @ (self.middle @ (self.factors.T @ vector))
        return np.asarray(self.scale * self.metric * vector - low_rank)
