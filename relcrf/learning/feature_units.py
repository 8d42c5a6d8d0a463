"""Minimisation in units in which each feature has a scale near 1, so that the units of the data do not matter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np

from relcrf.graph.feature_scales import EXTREME_RATIO
from relcrf.learning.lbfgs import AbstractGrowingMinimiser, AbstractMinimiser, AnyState, OptimiserState


def unit_scales(feature_scales: np.ndarray, l2: np.ndarray, l1: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the scale of each weight's feature; if a penalty dominates, a power of 2 by which the penalty is moderate.

    Args:
        feature_scales: See `graph.feature_scales.weight_scales`, shape (n,).
        l2, l1: Penalty strengths of each weight, shape (n,).
    """
    strength = np.maximum(np.sqrt(l2), l1)
    by_penalty = np.ldexp(1.0, np.frexp(strength / EXTREME_RATIO)[1])
    return np.where(strength > 0.0, np.maximum(feature_scales, by_penalty), feature_scales)


AnyMinimiser = TypeVar("AnyMinimiser", bound=AbstractMinimiser[Any])


def in_feature_units(minimiser: AnyMinimiser, scale: np.ndarray) -> AnyMinimiser:
    """Return a minimiser that works on the products of the weights and the scales of their features.

    The states that it accepts and returns contain the weights themselves. Only the differences `steps` and `changes` are in
    its own units. The scales are powers of 2, so that all conversions are exact.

    Args:
        minimiser: A minimiser whose settings, such as penalties, are in units of the features.
        scale: Scale of each weight's feature, shape (n,).
    """
    return minimiser if (scale == 1.0).all() else cast(AnyMinimiser, _RescaledMinimiser(minimiser, scale))


@dataclass(frozen=True, eq=False)
class _RescaledMinimiser(AbstractGrowingMinimiser):
    """See `in_feature_units`. Weights appended by `extend_state` have scale 1."""

    inner: Any
    scale: np.ndarray

    @property
    def tolerance(self) -> float:  # type: ignore[override]
        return float(self.inner.tolerance)

    @property
    def max_iterations(self) -> int:  # type: ignore[override]
        return int(self.inner.max_iterations)

    def start(self, objective: Any, point: np.ndarray) -> OptimiserState:
        state: OptimiserState = self.inner.start(self._rescaled(objective), self._scale_of(point) * point)
        return self._to_weights(state)

    def step(self, objective: Any, state: AnyState) -> AnyState:
        following: AnyState = self.inner.step(self._rescaled(objective), self._from_weights(state))
        return self._to_weights(following)

    def extend_state(self, state: AnyState, gradient: np.ndarray) -> AnyState:
        extended: AnyState = self.inner.extend_state(self._from_weights(state), gradient)
        return self._to_weights(extended)

    def reevaluate(self, objective: Any, state: AnyState) -> AnyState:
        evaluated: AnyState = self.inner.reevaluate(self._rescaled(objective), self._from_weights(state))
        return self._to_weights(evaluated)

    def _rescaled(self, objective: Any) -> Any:
        def evaluate(point: np.ndarray, *batch: Any) -> tuple[float, np.ndarray]:
            scale = self._scale_of(point)
            value, gradient = objective(point / scale, *batch)
            return value, gradient / scale

        return evaluate

    def _from_weights(self, state: AnyState) -> AnyState:
        scale = self._scale_of(state.point)
        return replace(state, point=state.point * scale, gradient=state.gradient / scale)

    def _to_weights(self, state: AnyState) -> AnyState:
        scale = self._scale_of(state.point)
        return replace(state, point=state.point / scale, gradient=state.gradient * scale)

    def _scale_of(self, point: np.ndarray) -> np.ndarray:
        """Return the scale of each weight of a point, which may have fewer or more weights than `scale`."""
        scale = np.ones(len(point))
        n = min(len(point), len(self.scale))
        scale[:n] = self.scale[:n]
        return scale
