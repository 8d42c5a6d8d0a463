"""What every inference method is and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes


@dataclass(frozen=True)
class Verdict:
    """How far to trust a result.

    Args:
        status: `exact`; of iterative methods `converged`, `not converged`, `diverged`, and `interrupted` by Ctrl-C. While
            a method runs, its observer sees `running`.
        residual: the largest change in the last iteration, or what the method's docstring says.
    """

    status: str
    iterations: int = 0
    residual: float = 0.0

    def __str__(self) -> str:
        if self.status == "exact":
            return "exact"
        return f"{self.status} after {self.iterations:,} iterations, residual {self.residual:.2g}"

    @property
    def is_good(self) -> bool:
        return self.status in ("exact", "converged")


class UnsupportedGraphError(ValueError):
    """A method cannot take this graph: it has a shape or a size that is not for it."""


Observer = Callable[[Verdict], None]
"""Sees a method at work, after each round."""


def ignore_progress(verdict: Verdict) -> None:
    """Watches without a word."""


@dataclass(frozen=True)
class Marginals:
    """Probabilities, and the log partition.

    Args:
        log_partition: log of the sum over joint states, in nats, or the method's estimate; nan where it has none.
        nodes: flat as `Scopes.state_start` says.
        factors: flat as `Scopes.table_start` says; of an agreement, the probability that its nodes agree.
    """

    log_partition: float
    nodes: np.ndarray
    factors: np.ndarray
    verdict: Verdict


@dataclass(frozen=True)
class MapStates:
    """A joint state.

    Args:
        score: sum of its log potentials.
        states: shape (n_nodes,), int32.
        bound: no joint state scores more; inf where the method has no bound. Of an exact method, the score.
    """

    score: float
    states: np.ndarray
    bound: float
    verdict: Verdict


class AbstractInference(ABC):
    """A method made ready for one set of scopes; subclasses are frozen data classes whose other fields are settings."""

    scopes: Scopes

    @abstractmethod
    def marginals(self, potentials: Potentials) -> Marginals:
        """Marginals of nodes and factors, and the log partition."""

    @abstractmethod
    def map_states(self, potentials: Potentials) -> MapStates:
        """The most probable joint state, or the best that the method finds."""
