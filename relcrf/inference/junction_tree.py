"""Exact inference for graphs with small cliques, by a junction tree of each component.

Source: Lauritzen & Spiegelhalter (1988). The upward pass sends the messages of Shenoy & Shafer (1990) in the log domain. In the
downward pass, each clique's table is a distribution given the separator to its parent. The elimination order is min-fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.clique_tree import CliqueTree, build_clique_tree
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Verdict
from relcrf.kernels import junction_tree as kernel

MAX_RANDOM_NUMBERS = 1 << 22
"""Maximum number of random numbers in memory."""


@dataclass(frozen=True)
class JunctionTree(AbstractInference):
    """Exact sum-product, max-product and sampling. The cliques are computed once and reused for any potentials.

    Args:
        memory: Memory limit of all clique tables in bytes; messages take up to half as much additional memory.

    Raises:
        CliqueTooLargeError: A ValueError, at the first call and before allocation, if the tables would exceed the limit.
    """

    scopes: Scopes
    memory: int = 1 << 30

    @cached_property
    def clique_tree(self) -> CliqueTree:
        """Return the clique tree; for components that are too large, it contains only the required memory."""
        return build_clique_tree(self.scopes, self.memory)

    def _upward_pass(self, potentials: Potentials, *, maximum: bool) -> tuple[float, np.ndarray, np.ndarray]:
        self.clique_tree.check_memory()
        total, table, message = kernel.up(self.clique_tree.cliques, self.scopes.kernel_factors, *potentials, maximum)
        return float(total), table, message

    def marginals(self, potentials: Potentials) -> Marginals:
        log_partition, table, message = self._upward_pass(potentials, maximum=False)
        value = 0.0 if log_partition > -np.inf else np.nan
        nodes, factors = np.full(len(potentials.nodes), value), np.full(len(potentials.factors), value)
        if log_partition > -np.inf:
            kernel.down(self.clique_tree.cliques, self.scopes.kernel_factors, table, message, nodes, factors)
        return Marginals(log_partition, nodes, factors, Verdict("exact"))

    def map_states(self, potentials: Potentials) -> MapStates:
        score, table, _ = self._upward_pass(potentials, maximum=True)
        states = kernel.best_states(self.clique_tree.cliques, self.scopes.cardinality, table)
        return MapStates(score, states, score, Verdict("exact"))

    def sample(self, potentials: Potentials, n: int, seed: int) -> np.ndarray:
        """Draw independent joint states from the exact distribution, shape (n, n_nodes), int32.

        Raises:
            ValueError: If all joint states are impossible.
        """
        log_partition, table, message = self._upward_pass(potentials, maximum=False)
        if log_partition == -np.inf:
            raise ValueError("cannot sample: all joint states are impossible")
        out = np.empty((n, self.scopes.n_nodes), dtype=np.int32)
        rng = np.random.default_rng(seed)
        n_cliques = self.clique_tree.n_cliques
        step = max(1, MAX_RANDOM_NUMBERS // max(1, n_cliques))
        for first in range(0, n, step):
            chunk = out[first : first + step]
            uniform = rng.random((len(chunk), n_cliques))
            kernel.draw_states(self.clique_tree.cliques, self.scopes.cardinality, table, message, uniform, chunk)
        return out
