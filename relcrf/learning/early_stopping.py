"""Early stopping: training ends when the loss of held-out labels has not improved for several iterations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np

from relcrf.learning.lbfgs import OptimiserState


@dataclass(frozen=True, kw_only=True)
class EarlyStoppingState(OptimiserState):
    """An optimiser state that also stores the best point so far.

    Args:
        best: The smallest loss of held-out labels so far; NaN before the first evaluation.
        best_point: The point with this loss, shape (n,).
        stalled: Number of iterations since the best point.
    """

    best: float
    best_point: np.ndarray
    stalled: int

    @classmethod
    def from_state(cls, state: OptimiserState, **fields: Any) -> Self:
        """Return an initial state; `fields` contains the additional fields of a subclass."""
        return cls(**vars(state), best=np.nan, best_point=np.empty(0), stalled=0, **fields)

    def with_best(self, loss: float) -> Self:
        """Return the state with the current point as the best point."""
        return replace(self, best=loss, best_point=self.point, stalled=0)

    def at_best(self) -> Self:
        """Return the state with the best point as the current point."""
        return replace(self, point=self.best_point)


AnyStoppingState = TypeVar("AnyStoppingState", bound=EarlyStoppingState)


def update_early_stopping(state: AnyStoppingState, loss: float, patience: int) -> AnyStoppingState:
    """Return the state updated with the held-out loss; if training ends, the best point becomes the current point.

    Args:
        patience: Number of iterations without improvement after which the status is `stopped early`.
    """
    improved = np.isnan(state.best) or loss < state.best
    state = state.with_best(loss) if improved else replace(state, stalled=state.stalled + 1)
    if state.status == "running" and state.stalled < patience:
        return state
    status = "stopped early" if state.status == "running" else state.status
    return replace(state.at_best(), status=status)
