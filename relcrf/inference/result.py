"""The interface and the results of inference methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials


@dataclass(frozen=True)
class Verdict:
    """The convergence status of a result.

    Args:
        status: `exact`, or for iterative methods `converged`, `not converged`, `diverged` or `interrupted` (by Ctrl-C).
            Observers receive `running` while the method runs.
        iterations: Number of iterations of the method.
        residual: Largest change in the last iteration, unless the method documents another residual.
        remark: A sentence without a full stop about the reliability of the result, or nothing.
    """

    status: str
    iterations: int = 0
    residual: float = 0.0
    remark: str = ""

    def __str__(self) -> str:
        text = self.status
        if self.status != "exact":
            text = f"{self.status} after {self.iterations:,} iterations, residual {self.residual:.2g}"
        return f"{text}; {self.remark}" if self.remark else text

    @property
    def is_good(self) -> bool:
        return self.status in ("exact", "converged")

    def raise_if_interrupted(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C has interrupted the method, for callers that cannot use an unfinished result."""
        if self.status == "interrupted":
            raise KeyboardInterrupt


STATUS_ORDER = ("exact", "converged", "not converged", "diverged", "interrupted")
"""Statuses of verdicts from best to worst; an interruption is the worst, so that no caller continues after Ctrl-C."""


def worst_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on results that are combined: the worst status, the largest numbers, and all remarks."""
    if not verdicts:
        return Verdict("exact")
    status = max((v.status for v in verdicts), key=STATUS_ORDER.index)
    remark = "; ".join(dict.fromkeys(v.remark for v in verdicts if v.remark))
    return Verdict(status, max(v.iterations for v in verdicts), max(v.residual for v in verdicts), remark)


class UnsupportedGraphError(ValueError):
    """The error that a method does not support the structure or the size of a graph."""


Observer = Callable[[Verdict], None]
"""A callback that receives the current verdict after each step of an iterative method."""


def ignore_progress(verdict: Verdict) -> None:
    """Ignore the verdict; the default observer."""


@dataclass(frozen=True)
class PartitionFunction:
    """The log partition function in nats, or an estimate of it, with bounds and the convergence status."""

    log_partition: float
    verdict: Verdict
    lower: float = -np.inf
    upper: float = np.inf


@dataclass(frozen=True)
class Marginals:
    """Marginal probabilities and the log partition function.

    Args:
        log_partition: Log partition function in nats, or the method's estimate of it; nan if the method does not compute it.
        nodes: Flat node tables, with offsets `Scopes.state_start`.
        factors: Flat factor tables, with offsets `Scopes.table_start`; for an agreement factor, the probability of agreement.
        verdict: Convergence status.
        lower, upper: Bounds of the log partition function, if the method knows any.
    """

    log_partition: float
    nodes: np.ndarray
    factors: np.ndarray
    verdict: Verdict
    lower: float = -np.inf
    upper: float = np.inf

    @property
    def partition(self) -> PartitionFunction:
        """Return the log partition function with its bounds; both are the exact value if the verdict is `exact`."""
        is_exact = self.verdict.status == "exact"
        lower, upper = (self.log_partition,) * 2 if is_exact else (self.lower, self.upper)
        return PartitionFunction(self.log_partition, self.verdict, lower, upper)


@dataclass(frozen=True)
class MapStates:
    """A joint state of high probability; exact methods return a joint state of maximum probability.

    Args:
        score: Sum of the log potentials of the joint state.
        states: State of each node, shape (n_nodes,), int32.
        bound: Upper bound of the scores of all joint states; equal to the score for exact methods, inf if unknown.
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

    def node_marginals(self, potentials: Potentials) -> Marginals:
        """Compute marginals of nodes, and the log partition function; some methods then leave `factors` empty."""
        return self.marginals(potentials)

    def shared_marginals(self, potentials: SharedPotentials, with_factors: bool = True) -> Marginals:
        """Compute marginals for factors that share tables; some methods do not write out a table for each factor.

        Returns:
            Marginals of nodes, and the sums of the factor tables over the factors with the same table, in the layout of
            `potentials.tables`; without `with_factors`, as `node_marginals`.
        """
        if not with_factors:
            return self.node_marginals(potentials.expand())
        found = self.marginals(potentials.expand())
        return replace(found, factors=potentials.sum_tables(found.factors))

    def coarse(self, near: SharedPotentials | None = None) -> AbstractInference:
        """Return the method with less accurate results that take less time; most methods return themselves.

        Args:
            near: Potentials that resemble those for which the method will be called; it may start from their messages.
        """
        return self

    def partition(self, potentials: Potentials) -> PartitionFunction:
        """Compute the log partition function; some methods need less time than for marginals."""
        return self.marginals(potentials).partition

    @abstractmethod
    def map_states(self, potentials: Potentials) -> MapStates:
        """Compute the most probable joint state, or an approximation of it."""
