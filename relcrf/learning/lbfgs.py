"""Limited-memory BFGS whose whole state can be saved, so that an interrupted run goes on bit for bit.

Source: Nocedal & Wright, Numerical Optimization (2006), algorithms 7.4 (two-loop recursion), 3.5 and 3.6 (strong Wolfe
line search).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""Value and gradient at a point of shape (n,)."""


ROUNDING = 1e-13
"""Relative differences of values that sums of many terms in double precision cannot tell from 0."""


@dataclass(frozen=True)
class State:
    """All that the next iteration needs, and what a reader wants to know.

    Args:
        point, gradient: shape (n,). value: the objective there.
        steps, changes: differences of points and of gradients, oldest first; m arrays of shape (n,).
        first_gradient: largest absolute gradient at the start, the scale of the stopping rule.
        status: `running`, `converged`, or why it stopped.
    """

    point: np.ndarray
    value: float
    gradient: np.ndarray
    steps: tuple[np.ndarray, ...]
    changes: tuple[np.ndarray, ...]
    first_gradient: float
    iteration: int = 0
    evaluations: int = 1
    status: str = "running"

    @property
    def gradient_norm(self) -> float:
        """Largest absolute component of the gradient."""
        return float(np.abs(self.gradient).max(initial=0.0))


@dataclass(frozen=True)
class Lbfgs:
    """Minimises a smooth function.

    Args:
        tolerance: converged when the largest gradient component is below this share of the one at the start.
        value_tolerance: converged when an iteration lowers the value by less than this share of it.
        max_iterations: then the status is `not converged`.
        memory: pairs of differences that are kept.
        inverse_diagonal: an estimate of the inverse of the Hessian's diagonal, shape (n,); None is the identity. Its scale
            does not matter, its proportions do: weights of rare and of frequent features then move in step.
    """

    tolerance: float = 1e-5
    value_tolerance: float = 1e-8
    max_iterations: int = 200
    memory: int = 10
    inverse_diagonal: np.ndarray | None = None
    line_search: LineSearch = field(default_factory=lambda: LineSearch())

    def start(self, objective: Objective, point: np.ndarray) -> State:
        value, gradient = objective(point)
        largest = float(np.abs(gradient).max(initial=0.0))
        return State(point, value, gradient, (), (), largest)

    def minimise(
        self, objective: Objective, state: State, observe: Callable[[State], None] = lambda state: None
    ) -> State:
        """Iterates until the status is no longer `running`; `observe` sees the state after each iteration."""
        while state.status == "running":
            state = self.step(objective, state)
            observe(state)
        return state

    def step(self, objective: Objective, state: State) -> State:
        """One iteration."""
        if not np.isfinite(state.value):
            return replace(state, status="diverged")
        if state.gradient_norm <= self.tolerance * max(state.first_gradient, 1e-12):
            return replace(state, status="converged")
        if state.iteration >= self.max_iterations:
            return replace(state, status="not converged")
        direction = -_apply_inverse_hessian(state, self.inverse_diagonal)
        slope = float(direction @ state.gradient)
        if slope >= 0:
            direction, slope = -state.gradient, -float(state.gradient @ state.gradient)
        # Without curvature yet, the first step has length 1 at most.
        first = 1.0 if len(state.steps) else min(1.0, 1.0 / float(np.linalg.norm(direction)))
        found = self.line_search(objective, state, direction, slope, first)
        if found is None:
            if len(state.steps):
                return replace(state, steps=(), changes=())
            # Steepest descent finds nothing lower: this is the minimum to the precision of the arithmetic.
            return replace(state, status="converged")
        point, value, gradient, evaluations = found
        step, change = point - state.point, gradient - state.gradient
        steps, changes = state.steps, state.changes
        if float(step @ change) > 1e-12 * float(change @ change):
            steps = (*steps, step)[-self.memory :]
            changes = (*changes, change)[-self.memory :]
        small = state.value - value <= self.value_tolerance * max(abs(state.value), abs(value), 1.0)
        return State(
            point,
            value,
            gradient,
            steps,
            changes,
            state.first_gradient,
            state.iteration + 1,
            state.evaluations + evaluations,
            "converged" if small else "running",
        )


def _apply_inverse_hessian(state: State, inverse_diagonal: np.ndarray | None) -> np.ndarray:
    """Two-loop recursion: the inverse Hessian's estimate times the gradient."""
    result = state.gradient.copy()
    factors = []
    for step, change in zip(state.steps[::-1], state.changes[::-1], strict=True):
        factor = float(step @ result) / float(step @ change)
        result -= factor * change
        factors.append(factor)
    if inverse_diagonal is not None:
        result *= inverse_diagonal
    if len(state.steps):
        step, change = state.steps[-1], state.changes[-1]
        scaled = change if inverse_diagonal is None else inverse_diagonal * change
        result *= float(step @ change) / float(change @ scaled)
    for step, change, factor in zip(state.steps, state.changes, reversed(factors), strict=True):
        result += (factor - float(change @ result) / float(step @ change)) * step
    return result


@dataclass(frozen=True)
class LineSearch:
    """Finds a step that fulfils the strong Wolfe conditions with constants `decrease` and `curvature`."""

    decrease: float = 1e-4
    curvature: float = 0.9
    max_evaluations: int = 30

    def __call__(
        self, objective: Objective, state: State, direction: np.ndarray, slope: float, first: float
    ) -> tuple[np.ndarray, float, np.ndarray, int] | None:
        """The new point, value, gradient and the evaluations spent; None where no lower point was found."""
        low, low_value, low_slope = 0.0, state.value, slope
        high: float | None = None
        length = first
        best: tuple[np.ndarray, float, np.ndarray] | None = None
        for evaluation in range(1, self.max_evaluations + 1):
            point = state.point + length * direction
            value, gradient = objective(point)
            here = float(gradient @ direction) if np.isfinite(value) else 0.0
            enough = np.isfinite(value) and value <= state.value + self.decrease * length * slope
            if enough and (best is None or value < best[1]):
                best = (point, value, gradient)
            # Near the minimum the value's rounding hides its decrease; the slopes still tell (approximate Wolfe,
            # Hager & Zhang 2005, equation 23).
            if abs(value - state.value) <= ROUNDING * abs(state.value) and abs(here) <= -self.curvature * slope:
                return point, value, gradient, evaluation
            if not enough or (low > 0.0 and value >= low_value):
                high = length
            elif abs(here) <= -self.curvature * slope:
                return point, value, gradient, evaluation
            elif here >= 0.0:
                high, low, low_value, low_slope = low, length, value, here
            else:
                if high is not None and here * (high - low) >= 0.0:
                    high = low
                low, low_value, low_slope = length, value, here
            if high is None:
                length = 2.0 * length
                continue
            length = _between(low, low_value, low_slope, high, length, value)
            if abs(high - low) <= 1e-14 * max(1.0, abs(high)):
                break
        return None if best is None else (*best, self.max_evaluations)


def _between(low: float, low_value: float, low_slope: float, high: float, length: float, value: float) -> float:
    """The minimum of the parabola through the lower end, kept well inside the bracket; else its middle."""
    middle = 0.5 * (low + high)
    if length == high and np.isfinite(value):
        width = high - low
        bend = value - low_value - low_slope * width
        if bend > 0.0:
            trial = low - 0.5 * low_slope * width * width / bend
            near, far = min(low, high), max(low, high)
            if near + 0.1 * (far - near) <= trial <= far - 0.1 * (far - near):
                return trial
    return middle
