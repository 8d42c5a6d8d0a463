"""Exact inference on any graph whose cliques stay small: a junction tree for each component.

Source: Lauritzen & Spiegelhalter (1988); messages as in Shenoy & Shafer (1990), in the log domain, upwards; downwards each
clique is a distribution given what it shares with its parent. The order of elimination is min-fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.clique_tree import CliqueTree, clique_tree
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Verdict
from relcrf.kernels import junction_tree as kernel

DRAWS = 1 << 22
"""Random numbers that are held at a time."""


@dataclass(frozen=True)
class JunctionTree(AbstractInference):
    """Sum-product, max-product and exact draws; the cliques are found once and serve any potentials.

    Args:
        memory: bytes that the tables of all cliques may take; messages take up to half as much again.

    Raises:
        CliqueTooLarge: a ValueError, at the first call, where they need more; nothing large has been made then.
    """

    scopes: Scopes
    memory: int = 1 << 30

    @cached_property
    def cliques(self) -> CliqueTree:
        """What it costs, also where it is refused."""
        return clique_tree(self.scopes, self.memory)

    @cached_property
    def _columns(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """The tree, and the scopes, as the kernels take them."""
        scopes, tree = self.scopes, self.cliques
        tree.require_memory()
        agreement = np.zeros(scopes.n_factors, dtype=bool) if scopes.agreement is None else scopes.agreement
        cliques = (tree.n_shared, tree.n_rows, tree.n_columns, tree.cell_start, tree.message_start, tree.parent)
        shapes = (scopes.start, scopes.node, scopes.stride, agreement, scopes.table_start)
        of_nodes = (tree.clique_start, tree.clique_node, scopes.cardinality)
        return cliques, (*of_nodes, scopes.state_start, tree.factor_start, tree.factor, *shapes)

    def _up(self, potentials: Potentials, *, maximum: bool) -> tuple[float, np.ndarray, np.ndarray]:
        cliques, scopes = self._columns
        total, table, message = kernel.up(self.cliques.largest, maximum, *cliques, *scopes, *potentials)
        return float(total), table, message

    def marginals(self, potentials: Potentials) -> Marginals:
        log_partition, table, message = self._up(potentials, maximum=False)
        value = 0.0 if log_partition > -np.inf else np.nan
        nodes, factors = np.full(len(potentials.nodes), value), np.full(len(potentials.factors), value)
        if log_partition > -np.inf:
            cliques, scopes = self._columns
            kernel.down(self.cliques.largest, table, message, *cliques, *scopes, nodes, factors)
        return Marginals(log_partition, nodes, factors, Verdict("exact"))

    def map_states(self, potentials: Potentials) -> MapStates:
        score, table, _ = self._up(potentials, maximum=True)
        tree = self.cliques
        of_nodes = (tree.clique_start, tree.clique_node, self.scopes.cardinality)
        states = kernel.best_states(table, tree.n_shared, tree.n_columns, tree.cell_start, *of_nodes)
        return MapStates(score, states, score, Verdict("exact"))

    def sample(self, potentials: Potentials, n: int, seed: int) -> np.ndarray:
        """Independent exact draws of joint states, shape (n, n_nodes), int32.

        Raises:
            ValueError: where no joint state is possible.
        """
        log_partition, table, message = self._up(potentials, maximum=False)
        if log_partition == -np.inf:
            raise ValueError("no joint state is possible: there is nothing to draw")
        tree = self.cliques
        out = np.empty((n, self.scopes.n_nodes), dtype=np.int32)
        rng = np.random.default_rng(seed)
        of_nodes = (tree.clique_start, tree.clique_node, self.scopes.cardinality)
        starts = (tree.n_shared, tree.n_columns, tree.cell_start, tree.message_start)
        step = max(1, DRAWS // max(1, tree.n_cliques))
        for first in range(0, n, step):
            some = out[first : first + step]
            kernel.draw(rng.random((len(some), tree.n_cliques)), table, message, *starts, *of_nodes, some)
        return out
