"""Resumable stages of structure learning."""

from __future__ import annotations

import numpy as np

from relcrf.backends.base import Monitor
from relcrf.graph.candidates import CandidateSet
from relcrf.structure.search import SearchState, StructureSearch


class StageRunner:
    """A runner of consecutive training stages; each stage starts from the result of the previous stage.

    Args:
        point, chosen: Weights and candidates at the start of the first stage.
        max_iterations: Maximum number of iterations of each stage.
    """

    def __init__(self, monitor: Monitor, max_iterations: int, point: np.ndarray, chosen: CandidateSet) -> None:
        self.monitor, self.max_iterations = monitor, max_iterations
        self.point, self.chosen, self.seconds = point, chosen, 0.0
        self.completed: list[tuple[str, SearchState]] = []

    def run(self, name: str, search: StructureSearch) -> SearchState:
        """Run a stage from the state that the monitor restores, or else from the result of the previous stage."""
        state = self.monitor.restore(name, SearchState) or search.initial_state(self.point, self.chosen, self.seconds)
        state = search.run(state, lambda state: self.monitor.step(name, state, self.max_iterations))
        self.point, self.chosen, self.seconds = state.point, state.chosen, state.seconds
        self.completed.append((name, state))
        return state
