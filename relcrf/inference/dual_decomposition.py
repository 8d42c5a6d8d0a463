"""Most probable joint states, with an upper bound of the best score, by coordinate ascent on the dual.

Source: Globerson & Jaakkola, Fixing max-product (2007), for the dual; Kolmogorov, Convergent tree-reweighted message passing
(2006), for the sequential forward and backward passes; Kolmogorov, A new look at reweighted message passing (2015), for factors
of any size. In a pass, each node distributes its whole potential equally among its factors that contain a later node; one pass
is therefore exact on a forest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from relcrf.columns.offsets import offsets
from relcrf.graph.scope_components import label_scope_components
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.coordinate_ascent import ascend_states
from relcrf.inference.iteration import iterate
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, ignore_progress
from relcrf.kernels import dual_decomposition as kernel

GAP_TOLERANCE = 1e-9
"""Relative gap between bound and score up to which the gap is a rounding error and the joint state is optimal."""


@dataclass(frozen=True, eq=False)
class DualDecomposition(AbstractInference):
    """Most probable states of any graph, with an upper bound of the scores of all joint states, but without marginals.

    Each round passes over the nodes forward and backward, decodes a joint state and improves it by coordinate ascent; the best
    state is returned. The bound never increases. The verdict is `exact` if the bound equals the score, and `converged` if the
    bound no longer decreases; the state is then suboptimal by at most `bound - score`. The residual is the last relative
    decrease of the bound.

    Args:
        tolerance: Decrease of the bound per round at convergence, relative to max(1, |bound|).
        max_iterations: Maximum number of rounds.
        observe: Callback that receives the current verdict after each round.
    """

    scopes: Scopes
    tolerance: float = 1e-7
    max_iterations: int = 500
    observe: Observer = field(default=ignore_progress)

    def marginals(self, potentials: Potentials) -> Marginals:
        """Raise ValueError: the method does not compute marginals."""
        raise ValueError("dual decomposition does not compute marginals, only most probable states")

    def map_states(self, potentials: Potentials) -> MapStates:
        factors = self.scopes.kernel_factors
        ascent = DualAscent(self.scopes, potentials, self._pass_layout)
        best = _BestState(
            ascend_states(factors, potentials, np.zeros(self.scopes.n_nodes, dtype=np.int32)), -np.inf, np.inf
        )

        def run_rounds(rounds: int) -> float:
            nonlocal best
            decrease = 0.0
            for _ in range(rounds):
                states = ascent.run_round()
                if states is None:
                    best = _BestState(best.states, -np.inf, -np.inf)
                    return 0.0
                bound = ascent.compute_bound()
                states = ascend_states(factors, potentials, states)
                decrease = (best.bound - bound) / max(1.0, abs(bound))
                best = best.with_round(states, self.scopes.score(potentials, states), bound)
                if best.is_optimal:
                    return 0.0
            return min(decrease, 1.0)  # the first decrease is infinite

        verdict = iterate(run_rounds, self.tolerance, self.max_iterations, self.observe)
        if best.is_optimal:
            verdict = Verdict("exact", verdict.iterations, 0.0)
        score = self.scopes.score(potentials, best.states)
        if score == -np.inf and verdict.status == "converged":  # the state is impossible
            verdict = Verdict("not converged", verdict.iterations, verdict.residual)
        return MapStates(score, best.states, max(best.bound, score), verdict)

    @cached_property
    def _pass_layout(self) -> PassLayout:
        return PassLayout.of_scopes(self.scopes)


class PassLayout(NamedTuple):
    """The layout of the passes over the nodes.

    Args:
        order: Nodes in the order of a forward pass, shape (n_nodes,).
        forward, backward: Masks of `scopes.node`: the factor has a later node; an earlier node.
        message_start: Offset of each slot's message, shape (len(scopes.node) + 1,).
    """

    order: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    message_start: np.ndarray

    @staticmethod
    def of_scopes(scopes: Scopes) -> PassLayout:
        order = _breadth_first(scopes)[::-1].copy()
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        rank = rank[scopes.node]
        last = np.repeat(np.maximum.reduceat(rank, scopes.start[:-1]), scopes.arity)
        first = np.repeat(np.minimum.reduceat(rank, scopes.start[:-1]), scopes.arity)
        return PassLayout(order, rank < last, rank > first, offsets(scopes.cardinality[scopes.node].astype(np.int64)))


class DualAscent:
    """The messages of dual coordinate ascent, which reparametrise the potentials and define an upper bound of all scores.

    Attributes:
        message: Messages of all slots, flat.
        alive: Mask of the states that have not been found to be impossible, flat.
    """

    def __init__(self, scopes: Scopes, potentials: Potentials, layout: PassLayout) -> None:
        self._factors, self._potentials, self._layout = scopes.kernel_factors, potentials, layout
        self._reverse_order = layout.order[::-1].copy()
        self.message = np.zeros(int(layout.message_start[-1]))
        self.alive = potentials.nodes > -np.inf

    def run_round(self) -> np.ndarray | None:
        """Run a forward and a backward pass; return the state decoded between them, None if no joint state is possible."""
        arguments, layout = (self._factors, *self._potentials), self._layout
        passes = (layout.message_start, self.message, self.alive)
        if not kernel.update_messages(*arguments, layout.order, layout.forward, *passes):
            return None
        states = np.empty(len(layout.order), dtype=np.int32)
        kernel.decode(*arguments, layout.order, layout.message_start, self.message, self.alive.copy(), states)
        if not kernel.update_messages(*arguments, self._reverse_order, layout.backward, *passes):
            return None
        return states

    def compute_bound(self) -> float:
        """Return the upper bound of the scores of all joint states."""
        layout = self._layout
        return float(
            kernel.upper_bound(self._factors, *self._potentials, layout.message_start, self.message, self.alive)
        )


def _breadth_first(scopes: Scopes) -> np.ndarray:
    """Return the nodes in breadth-first order of the graph of nodes and factors, shape (n_nodes,)."""
    factors, n = scopes.kernel_factors, scopes.n_nodes
    roots = np.unique(label_scope_components(scopes))
    # Vertices: nodes, factors, and a super-root adjacent to the lowest node of each component.
    start = np.concatenate((factors.touch_start, offsets(scopes.arity)[1:] + len(scopes.node)))
    start = np.append(start, start[-1] + len(roots))
    neighbour = np.concatenate((n + factors.factor[factors.touch], scopes.node, roots))
    links = csr_array((np.ones(len(neighbour)), neighbour, start), shape=(len(start) - 1,) * 2)
    order = breadth_first_order(links, len(start) - 2, return_predecessors=False)
    return np.asarray(order[order < n], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _BestState:
    """The best joint state so far, the score of this state, and the upper bound of all scores."""

    states: np.ndarray
    score: float
    bound: float

    def with_round(self, states: np.ndarray, score: float, bound: float) -> _BestState:
        if score <= self.score:
            states, score = self.states, self.score
        return _BestState(states, score, min(self.bound, bound))

    @property
    def is_optimal(self) -> bool:
        if self.score == -np.inf:
            return self.bound == -np.inf
        return self.bound - self.score <= GAP_TOLERANCE * max(1.0, abs(self.score))
