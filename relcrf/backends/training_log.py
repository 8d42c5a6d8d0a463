"""The optimiser's log: one entry for each iteration of each stage of a training run."""

from __future__ import annotations

from typing import Any

import numpy as np

from relcrf.backends.base import Monitor
from relcrf.learning.lbfgs import AnyState, OptimiserState
from relcrf.structure.search import SearchState


def log_entry(stage: str, state: OptimiserState) -> dict[str, Any]:
    """Return the entry of an iteration; for its values see `report.optimisation.split_stages`."""
    return {
        "stage": stage,
        "iteration": state.iteration,
        "value": state.value,
        "gradient": state.gradient_norm,
        "weights": int(np.count_nonzero(state.point)),
        **({"chosen": len(state.chosen)} if isinstance(state, SearchState) else {}),
    }


class LogMonitor(Monitor):
    """A monitor that records the log of one training run, and passes everything on to another monitor."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._log: list[dict[str, Any]] = []

    @property
    def log(self) -> list[dict[str, Any]]:
        return self._log

    def restore(self, stage: str, state_class: type[AnyState]) -> AnyState | None:
        return self._monitor.restore(stage, state_class)

    def start_point(self, stage: str) -> np.ndarray | None:
        return self._monitor.start_point(stage)

    def start_phase(self, name: str) -> None:
        self._monitor.start_phase(name)

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        self._log.append(log_entry(stage, state))
        self._monitor.step(stage, state, max_iterations)
