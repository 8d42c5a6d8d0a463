"""Exact inference on any graph whose cliques stay small: a junction tree for each component.

Source: Lauritzen & Spiegelhalter (1988); messages as in Shenoy & Shafer (1990), in the log domain, upwards; downwards each
clique is a distribution given what it shares with its parent. The order of elimination is min-fill.
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
"""Random numbers that are held at a time."""


@dataclass(frozen=True)
class JunctionTree(AbstractInference):
    """Sum-product, max-product and exact draws; the cliques are found once and serve any potentials.

    Args:
        memory: bytes that the tables of all cliques may take; messages take up to half as much again.

    Raises:
        CliqueTooLargeError: a ValueError, at the first call, where they need more; nothing large has been made then.
    """

    scopes: Scopes
    memory: int = 1 << 30

    @cached_property
    def clique_tree(self) -> CliqueTree:
        """What it costs, also where it is refused."""
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
        """Independent exact draws of joint states, shape (n, n_nodes), int32.

        Raises:
            ValueError: where no joint state is possible.
        """
        log_partition, table, message = self._upward_pass(potentials, maximum=False)
        if log_partition == -np.inf:
            raise ValueError("no joint state is possible: there is nothing to draw")
        out = np.empty((n, self.scopes.n_nodes), dtype=np.int32)
        rng = np.random.default_rng(seed)
        n_cliques = self.clique_tree.n_cliques
        step = max(1, MAX_RANDOM_NUMBERS // max(1, n_cliques))
        for first in range(0, n, step):
            some = out[first : first + step]
            uniform = rng.random((len(some), n_cliques))
            kernel.draw_states(self.clique_tree.cliques, self.scopes.cardinality, table, message, uniform, some)
        return out
