"""Marginal MAP: the most probable joint state of some nodes, where all other nodes are summed out.

Source: Dechter, Bucket elimination: a unifying framework for reasoning (1999), section 7, for the constrained elimination order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.graph.conditioning import condition
from relcrf.graph.scopes import Potentials
from relcrf.inference.approximate import QUICK_ITERATIONS
from relcrf.inference.auto import Auto
from relcrf.inference.clique_tree import CliqueTooLargeError
from relcrf.inference.coordinate_ascent import modes
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.result import MapStates, Verdict, worst_verdict


@dataclass(frozen=True, eq=False)
class MarginalMap:
    """The most probable joint state of the nodes that are not summed.

    A junction tree whose summed nodes are eliminated first gives the exact result. If its cliques are too large, the better one
    of two joint states is returned: the most probable states of single nodes, and the states in the most probable joint state
    of all nodes. The score, the log of the sum over the other nodes, is then that of `Auto`, and the bound is the upper bound of
    the log partition function. After Ctrl-C, the score is that of a few rounds of propagation.

    Args:
        auto: The method for joint states and sums, with the limits of the junction trees.
        summed: Mask of the nodes that are summed, shape (n_nodes,).
    """

    auto: Auto
    summed: np.ndarray

    @cached_property
    def _junction_tree(self) -> JunctionTree:
        return JunctionTree(self.auto.scopes, self.auto.memory, self.auto.max_cells, self.summed)

    def map_states(self, potentials: Potentials) -> MapStates:
        """Compute the joint state; summed nodes have state -1.

        Raises:
            ValueError: If a joint state could not be scored, because the approximation diverged.
        """
        try:
            return self._junction_tree.map_states(potentials)
        except CliqueTooLargeError:
            return self._approximate(potentials)

    def _approximate(self, potentials: Potentials) -> MapStates:
        auto, scopes = self.auto, self.auto.scopes
        whole = auto.marginals(potentials)
        if whole.log_partition == -np.inf:
            return MapStates(-np.inf, np.where(self.summed, -1, 0).astype(np.int32), -np.inf, whole.verdict)
        candidates, verdicts = [modes(whole.nodes, scopes.state_start)], [whole.verdict]
        if whole.verdict.status != "interrupted":
            joint = auto.map_states(potentials)
            candidates.append(joint.states)
            verdicts.append(joint.verdict)
        if worst_verdict(verdicts).status == "interrupted":
            auto = replace(auto, max_cells=Auto.max_cells, max_iterations=QUICK_ITERATIONS)
            auto = replace(auto, bound_cells=0, restarts=0, sweeps=0)
        best, best_score, is_exact = None, -np.inf, False
        for candidate in candidates:
            states = np.where(self.summed, -1, candidate)
            left = condition(scopes, potentials, states)
            if left.constant == -np.inf:
                continue
            found = replace(auto, scopes=left.scopes).partition(left.potentials)
            if found.log_partition + left.constant > best_score:
                best, best_score = states, found.log_partition + left.constant
                is_exact = found.verdict.status == "exact"
            verdicts.append(found.verdict)
        if best is None:
            raise ValueError("it found no joint state with positive probability")
        remark = "a heuristic chose the states" + ("" if is_exact else ", and their score is an estimate")
        bound = max(whole.partition.upper, best_score)
        status = "interrupted" if worst_verdict(verdicts).status == "interrupted" else "not converged"
        verdict = Verdict(status, whole.verdict.iterations, whole.verdict.residual, remark)
        return MapStates(best_score, best.astype(np.int32), bound, verdict)
