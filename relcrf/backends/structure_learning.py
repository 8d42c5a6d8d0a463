"""Stages of structure learning that an interrupted training resumes."""

from __future__ import annotations

import numpy as np

from relcrf.backends.base import Monitor
from relcrf.graph.candidates import CandidateSet
from relcrf.structure.search import SearchState, StructureSearch


class StageRunner:
    """The stages of one training, one after the other; each begins where the one before has ended.

    Args:
        point, chosen: where the first begins.
        max_iterations: of each stage.
    """

    def __init__(self, monitor: Monitor, max_iterations: int, point: np.ndarray, chosen: CandidateSet) -> None:
        self.monitor, self.max_iterations = monitor, max_iterations
        self.point, self.chosen, self.seconds = point, chosen, 0.0
        self.completed: list[tuple[str, SearchState]] = []

    def run(self, name: str, search: StructureSearch) -> SearchState:
        """Run a stage from where the monitor remembers it, or else from its beginning."""
        state = self.monitor.restore(name, SearchState) or search.initial_state(self.point, self.chosen, self.seconds)
        state = search.run(state, lambda state: self.monitor.step(name, state, self.max_iterations))
        self.point, self.chosen, self.seconds = state.point, state.chosen, state.seconds
        self.completed.append((name, state))
        return state
