"""Proximal quasi-Newton for a smooth function plus the norms of groups of weights, which makes whole groups exactly 0.

Sources: Lee, Sun & Saunders, Proximal Newton-type methods for minimizing composite functions (2014): the model of the next
step is the smooth part's quadratic estimate and the penalty as it is; Nocedal & Wright, Numerical Optimization (2006), 7.2:
the Hessian's estimate of limited memory in compact form; Beck & Teboulle (2009) with the restarts of O'Donoghue & Candes
(2015) for the minimum of that model, which costs no evaluation of the function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.learning.lbfgs import ROUNDING, AbstractGrowing, AnyState, Found, Objective, State, is_curved


@dataclass(frozen=True, eq=False)
class Groups:
    """Weights that lie in groups, one after the other, and the penalty `sum over groups of strength * |weights of the group|`.

    Args:
        start: where each begins, and the end, shape (n_groups + 1,), int64; none is empty.
        strength: 0 or more, shape (n_groups,); infinite where the weights stay 0.
    """

    start: np.ndarray
    strength: np.ndarray

    @classmethod
    def of(cls, sizes: np.ndarray, strength: np.ndarray) -> Groups:
        """Return groups of some sizes, shape (n_groups,)."""
        return cls(offsets(sizes), strength)

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.diff(self.start)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """A value for each group as one for each weight."""
        return np.asarray(np.repeat(values, self.sizes))

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sums over the weights of each group, shape (n_groups,)."""
        return np.asarray(np.add.reduceat(values, self.start[:-1])) if len(self.sizes) else np.empty(0)

    def norms(self, values: np.ndarray) -> np.ndarray:
        """Euclidean norms of the values of each group, shape (n_groups,)."""
        return np.asarray(np.sqrt(self.totals(values * values)))

    def penalty(self, point: np.ndarray) -> float:
        norms = self.norms(point)
        there = norms > 0.0
        return float(self.strength[there] @ norms[there])

    def shrunk(self, point: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """The proximal step: each group's norm falls by its rate times its strength, and no lower than to 0.

        Args:
            rate: above 0, shape (n_groups,).
        """
        norms, fall = self.norms(point), rate * self.strength
        left = np.divide(norms - fall, norms, out=np.zeros(len(norms)), where=norms > fall)
        return np.asarray(point * self.spread(left))

    def violations(self, point: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """How far each group is from its condition of the minimum (Karush, Kuhn & Tucker), shape (n_groups,).

        It is the norm of the subgradient nearest to 0 over the square root of the group's size: what a strength over that root
        compares with.

        Args:
            gradient: of the smooth part, shape (n,).
        """
        norms = self.norms(point)
        there = norms > 0.0
        pull = np.divide(self.strength, norms, out=np.zeros(len(norms)), where=there)
        inside = self.norms(gradient + self.spread(pull) * point)
        return np.asarray(np.where(there, inside, np.maximum(inside - self.strength, 0.0)) / np.sqrt(self.sizes))


@dataclass(frozen=True)
class GroupLasso(AbstractGrowing):
    """Minimises `f(w) + sum over groups of strength |w_g|`; the objective that its methods take is f, with its gradient.

    In its states, `value` has the penalty in it and `gradient` has not; `gradient_norm` is the largest of `Groups.violations`,
    and `first_gradient` is `scale`.

    Args:
        tolerance: converged when no group violates its condition by more than this share of `scale`.
        max_iterations: then the status is `not converged`; where no lower point is found before it has converged, it is
            `stalled`.
        memory: pairs of differences that are kept.
        scale: what `tolerance` is a share of, such as the strength of a group of one weight.
        diagonal: an estimate of the Hessian's diagonal, shape (n,), above 0.
        exactness: the share of the violations that the minimum of a step's model may leave.
        inner_iterations: of the search for that minimum.
        decrease: the share of the decrease that the model promises which a step must reach (Armijo).
        max_evaluations: of one line search.
    """

    groups: Groups
    diagonal: np.ndarray
    scale: float
    tolerance: float = 1e-2
    max_iterations: int = 500
    memory: int = 10
    exactness: float = 0.1
    inner_iterations: int = 200
    decrease: float = 1e-4
    max_evaluations: int = 20

    def norm(self, point: np.ndarray, gradient: np.ndarray) -> float:
        return float(self.groups.violations(point, gradient).max(initial=0.0))

    def start(self, objective: Objective, point: np.ndarray) -> State:
        value, gradient = objective(point)
        norm = self.norm(point, gradient)
        return State(point, value + self.groups.penalty(point), gradient, norm, (), (), self.scale)

    def grown(self, state: AnyState, gradient: np.ndarray) -> AnyState:
        return replace(super().grown(state, gradient), first_gradient=state.first_gradient)

    def step(self, objective: Objective, state: AnyState) -> AnyState:
        state = self.judged(state)
        if state.status != "running":
            return state
        model = _Quadratic.of(self._metric, state.steps, state.changes)
        target = self._minimum(model, state)
        found = self._search(objective, state, target - state.point)
        if found is None:
            # Without a memory, the step was as plain as can be: what is left is lost in rounding.
            return replace(state, steps=(), changes=()) if state.steps else replace(state, status="stalled")
        point, value, gradient, evaluations = found
        step, change = point - state.point, gradient - state.gradient
        steps, changes = state.steps, state.changes
        if is_curved(step, change):
            steps, changes = (*steps, step)[-self.memory :], (*changes, change)[-self.memory :]
        return self.judged(
            replace(
                state,
                point=point,
                value=value,
                gradient=gradient,
                gradient_norm=self.norm(point, gradient),
                steps=steps,
                changes=changes,
                iteration=state.iteration + 1,
                evaluations=state.evaluations + evaluations,
            )
        )

    @cached_property
    def _metric(self) -> np.ndarray:
        """The diagonal with one value a group, as shrinking groups needs it."""
        return self.groups.spread(self.groups.totals(self.diagonal) / self.groups.sizes)

    def _minimum(self, model: _Quadratic, state: State) -> np.ndarray:
        """Where the model of the function at a state is the least, to `exactness`: accelerated proximal descent."""
        rates = 1.0 / (model.bound * self._metric)
        of_groups = rates[self.groups.start[:-1]]
        enough = self.exactness * state.gradient_norm
        point = ahead = state.point
        momentum = 1.0
        slope = state.gradient
        for _ in range(self.inner_iterations):
            following = self.groups.shrunk(ahead - rates * slope, of_groups)
            if float((ahead - following) @ ((following - point) / rates)) > 0.0:
                momentum = 1.0  # it has begun to swing
            faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = following + (momentum - 1.0) / faster * (following - point)
            point, momentum = following, faster
            slope = state.gradient + model.product(ahead - state.point)
            if self.norm(ahead, slope) <= enough:
                break
        return point

    def _search(self, objective: Objective, state: State, direction: np.ndarray) -> Found | None:
        """A lower point on the way to the model's minimum; None where there is none."""
        whole = state.point + direction
        length, penalty = 1.0, self.groups.penalty(state.point)
        promised = float(state.gradient @ direction) + self.groups.penalty(whole) - penalty
        for evaluation in range(1, self.max_evaluations + 1):
            point = whole if length == 1.0 else state.point + length * direction
            value, gradient = objective(point)
            value += self.groups.penalty(point)
            if np.isfinite(value):
                if value <= state.value + self.decrease * length * promised:
                    return point, value, gradient, evaluation
                # Near the minimum the value's rounding hides its decrease; the violations still tell.
                hidden = abs(value - state.value) <= ROUNDING * abs(state.value)
                if hidden and self.norm(point, gradient) < state.gradient_norm:
                    return point, value, gradient, evaluation
                excess = value - state.value - length * promised
                length *= float(np.clip(-0.5 * length * promised / excess, 0.1, 0.5)) if excess > 0.0 else 0.5
            else:
                length *= 0.1
        return None


@dataclass(frozen=True)
class _Quadratic:
    """An estimate B of a Hessian of limited memory in the compact form `B = scale * metric - factors middle factors'`.

    Args:
        metric: shape (n,). factors: shape (n, 2m). middle: shape (2m, 2m).
        bound: no less than the largest eigenvalue of B in the metric.
    """

    metric: np.ndarray
    factors: np.ndarray
    middle: np.ndarray
    scale: float
    bound: float

    @classmethod
    def of(cls, metric: np.ndarray, steps: tuple[np.ndarray, ...], changes: tuple[np.ndarray, ...]) -> _Quadratic:
        curved = [pair for pair in zip(steps, changes, strict=True) if is_curved(*pair)]
        if not curved:
            return cls(metric, np.empty((len(metric), 0)), np.empty((0, 0)), 1.0, 1.0)
        s, y = (np.array(part).T for part in zip(*curved, strict=True))
        scale = float(y[:, -1] @ (y[:, -1] / metric)) / float(s[:, -1] @ y[:, -1])
        scaled = scale * metric[:, None] * s
        both = s.T @ y
        lower = np.tril(both, -1)
        middle = np.linalg.inv(np.block([[s.T @ scaled, lower], [lower.T, -np.diag(np.diag(both))]]))
        factors = np.concatenate((scaled, y), axis=1)
        added = np.linalg.eigvals(-middle @ (factors.T @ (factors / metric[:, None])))
        return cls(metric, factors, middle, scale, scale + max(float(added.real.max()), 0.0))

    def product(self, vector: np.ndarray) -> np.ndarray:
        """B times a vector, shape (n,)."""
        low_rank: np.ndarray = self.factors @ (self.middle @ (self.factors.T @ vector))
        return np.asarray(self.scale * self.metric * vector - low_rank)
