"""The interface and the results of inference methods."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes


@dataclass(frozen=True)
class Verdict:
    """The convergence status of a result.

    Args:
        status: `exact`, or for iterative methods `converged`, `not converged`, `diverged` or `interrupted` (by Ctrl-C).
            Observers receive `running` while the method runs.
        iterations: Number of iterations of the method.
        residual: Largest change in the last iteration, unless the method documents another residual.
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
    """The error that a method does not support the structure or the size of a graph."""


Observer = Callable[[Verdict], None]
"""A callback that receives the current verdict after each step of an iterative method."""


def ignore_progress(verdict: Verdict) -> None:
    """Ignore the verdict; the default observer."""


@dataclass(frozen=True)
class Marginals:
    """Marginal probabilities and the log partition function.

    Args:
        log_partition: Log partition function in nats, or the method's estimate of it; nan if the method does not compute it.
        nodes: Flat node tables, with offsets `Scopes.state_start`.
        factors: Flat factor tables, with offsets `Scopes.table_start`; for an agreement factor, the probability of agreement.
        verdict: Convergence status.
        bound: Upper bound of the log partition function, if the method returns one in addition to an estimate; otherwise inf.
    """

    log_partition: float
    nodes: np.ndarray
    factors: np.ndarray
    verdict: Verdict
    bound: float = field(default=math.inf, kw_only=True)


@dataclass(frozen=True)
class MapStates:
    """A joint state of high probability; exact methods return a joint state of maximum probability.

    Args:
        score: Sum of the log potentials of the joint state.
        states: State of each node, shape (n_nodes,), int32.
        bound: Upper bound of the scores of all joint states; equal to the score for exact methods, inf if there is no bound.
        verdict: Convergence status.
    """

    score: float
    states: np.ndarray
    bound: float
    verdict: Verdict


class AbstractInference(ABC):
    """An inference method for given scopes. The other fields of a subclass, a frozen dataclass, are settings."""

    scopes: Scopes

    @abstractmethod
    def marginals(self, potentials: Potentials) -> Marginals:
        """Compute marginals of nodes and factors, and the log partition function."""

    @abstractmethod
    def map_states(self, potentials: Potentials) -> MapStates:
        """Compute the most probable joint state, or an approximation of it."""
