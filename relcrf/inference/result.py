"""What every inference method returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Verdict:
    """How far to trust a result. `exact`, or for iterative methods `converged`, `not converged`, `diverged`."""

    status: str
    iterations: int = 0
    residual: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.status in ("exact", "converged")


@dataclass(frozen=True)
class Marginals:
    """Answers on a reduced graph.

    Args:
        log_partition: log of the sum over joint states, in nats.
        nodes: marginals, flat as the graph's node tables.
        edges: marginals, flat as the graph's edge tables.
    """

    log_partition: float
    nodes: np.ndarray
    edges: np.ndarray
    verdict: Verdict


@dataclass(frozen=True)
class MapStates:
    """A most probable joint state, shape (n_nodes,), and its score."""

    score: float
    states: np.ndarray
    verdict: Verdict
