"""Early stopping: learning ends when held-out labels have not become more probable for a while."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np

from relcrf.learning.lbfgs import OptimiserState


@dataclass(frozen=True, kw_only=True)
class EarlyStoppingState(OptimiserState):
    """A state that remembers the best point so far.

    Args:
        best: the smallest loss of held-out labels; NaN before the first.
        best_point: where it was, shape (n,).
        stalled: iterations since.
    """

    best: float
    best_point: np.ndarray
    stalled: int

    @classmethod
    def from_state(cls, state: OptimiserState, **fields: Any) -> Self:
        """Return a state to begin with; `fields` are those of a derived class."""
        return cls(**vars(state), best=np.nan, best_point=np.empty(0), stalled=0, **fields)

    def with_best(self, loss: float) -> Self:
        """Return the state with its point as the best."""
        return replace(self, best=loss, best_point=self.point, stalled=0)

    def at_best(self) -> Self:
        """Return the state at the best point."""
        return replace(self, point=self.best_point)


AnyStoppingState = TypeVar("AnyStoppingState", bound=EarlyStoppingState)


def update_early_stopping(state: AnyStoppingState, loss: float, patience: int) -> AnyStoppingState:
    """Return the state with what its loss of held-out labels shows; when it ends, it is at the best point.

    Args:
        patience: iterations without progress after which the status is `stopped early`.
    """
    improved = np.isnan(state.best) or loss < state.best
    state = state.with_best(loss) if improved else replace(state, stalled=state.stalled + 1)
    if state.status == "running" and state.stalled < patience:
        return state
    status = "stopped early" if state.status == "running" else state.status
    return replace(state.at_best(), status=status)
