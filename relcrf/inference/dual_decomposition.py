"""The most probable joint state with a bound on how far from it one is, by dual coordinate ascent.

Source: the dual is that of Globerson & Jaakkola, Fixing max-product (2007); the passes in a fixed order, forward and back, are
those of Kolmogorov, Convergent tree-reweighted message passing (2006), and, for factors of any size, of his A new look at
reweighted message passing (2015). We hand on equal shares to the factors ahead and keep nothing back, so that one pass
solves a forest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

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
"""Share of the score at which the gap to the bound is rounding, and the joint state a best one."""


@dataclass(frozen=True, eq=False)
class DualDecomposition(AbstractInference):
    """Most probable states of any graph, and an upper bound of every joint state's score. It has no marginals.

    Each round passes over the nodes forward and back, decodes a joint state and lets it ascend; the best is kept. The bound
    never rises. The verdict is `exact` where it meets the score, `converged` where it no longer falls (then
    `bound - score` is how far from optimal the state can be), with its last fall as the residual.

    Args:
        tolerance: fall of the bound in a round, as a share of its size or absolute, whichever is larger.
        max_iterations: rounds.
    """

    scopes: Scopes
    tolerance: float = 1e-7
    max_iterations: int = 500
    observe: Observer = field(default=ignore_progress)

    def marginals(self, potentials: Potentials) -> Marginals:
        """None.

        Raises:
            ValueError: always.
        """
        raise ValueError("dual decomposition finds most probable states and has no marginals")

    def map_states(self, potentials: Potentials) -> MapStates:
        factors, (order, forward, backward, message_start) = self.scopes.kernel_factors, self._pass_layout
        message = np.zeros(int(message_start[-1]))
        alive = potentials.nodes > -np.inf
        best = _BestState(
            ascend_states(factors, potentials, np.zeros(self.scopes.n_nodes, dtype=np.int32)), -np.inf, np.inf
        )

        def round_(rounds: int) -> float:
            nonlocal best
            fall = 0.0
            for _ in range(rounds):
                passing = (*potentials, order, forward, message_start, message, alive)
                if not kernel.update_messages(factors, *passing):
                    best = _BestState(best.states, -np.inf, -np.inf)
                    return 0.0
                states = np.empty(self.scopes.n_nodes, dtype=np.int32)
                kernel.decode(factors, *potentials, order, message_start, message, alive.copy(), states)
                if not kernel.update_messages(
                    factors, *potentials, order[::-1].copy(), backward, message_start, message, alive
                ):
                    best = _BestState(best.states, -np.inf, -np.inf)
                    return 0.0
                bound = kernel.upper_bound(factors, *potentials, message_start, message, alive)
                states = ascend_states(factors, potentials, states)
                fall = (best.bound - bound) / max(1.0, abs(bound))
                best = best.with_round(states, self.scopes.score(potentials, states), bound)
                if best.is_optimal:
                    return 0.0
            return min(fall, 1.0)  # the first round falls from nothing

        verdict = iterate(round_, self.tolerance, self.max_iterations, self.observe)
        if best.is_optimal:
            verdict = Verdict("exact", verdict.iterations, 0.0)
        score = self.scopes.score(potentials, best.states)
        if score == -np.inf and verdict.status == "converged":  # to a bound, and to no joint state that can be
            verdict = Verdict("not converged", verdict.iterations, verdict.residual)
        return MapStates(score, best.states, max(best.bound, score), verdict)

    @cached_property
    def _pass_layout(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The order, children first; for both ways which places' factors go on; where the places' messages begin."""
        scopes, order = self.scopes, _breadth_first(self.scopes)[::-1].copy()
        sizes = scopes.cardinality[scopes.node].astype(np.int64)
        message_start = offsets(sizes)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        rank = rank[scopes.node]
        last = np.repeat(np.maximum.reduceat(rank, scopes.start[:-1]), scopes.arity)
        first = np.repeat(np.minimum.reduceat(rank, scopes.start[:-1]), scopes.arity)
        return order, rank < last, rank > first, message_start


def _breadth_first(scopes: Scopes) -> np.ndarray:
    """Return the nodes in breadth-first order over their factors, shape (n_nodes,)."""
    factors, n = scopes.kernel_factors, scopes.n_nodes
    roots = np.unique(label_scope_components(scopes))
    # Nodes, then factors, and one more that is next to the lowest node of each component.
    start = np.concatenate((factors.touch_start, offsets(scopes.arity)[1:] + len(scopes.node)))
    start = np.append(start, start[-1] + len(roots))
    after = np.concatenate((n + factors.factor[factors.touch], scopes.node, roots))
    links = csr_array((np.ones(len(after)), after, start), shape=(len(start) - 1,) * 2)
    order = breadth_first_order(links, len(start) - 2, return_predecessors=False)
    return np.asarray(order[order < n], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _BestState:
    """The best joint state so far, its score, and the bound."""

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
