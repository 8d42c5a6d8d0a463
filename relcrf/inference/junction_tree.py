"""Exact inference for graphs with small cliques, by a junction tree of each component.

Source: Lauritzen & Spiegelhalter (1988). Only messages are stored (Shenoy & Shafer 1990): the table of a clique is computed in
blocks, in the upward pass and again in the downward pass. Numbers are in the linear domain if their range permits, otherwise
they are logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.clique_tree import CliqueTree, build_clique_tree
from relcrf.inference.result import AbstractInference, MapStates, Marginals, PartitionFunction, Verdict
from relcrf.kernels import junction_tree as kernel
from relcrf.kernels.junction_tree import LINEAR_SUM, LOG_MAX, LOG_SUM
from relcrf.kernels.threads import map_lanes

MAX_RANDOM_NUMBERS = 1 << 22
"""Maximum number of random numbers in memory."""

MAX_LINEAR_SPREAD = 650.0
"""Maximum spread of a clique's table, in nats, in the linear domain; float64 supports about 708."""

N_LANES = 4
"""Number of parts of a large clique's rows that are distributed over threads; the results do not depend on it."""

MIN_THREADED_CELLS = 1 << 22
"""Minimum number of cells of a clique whose rows are distributed over threads."""


class _UpwardPass(NamedTuple):
    """The result of the upward pass.

    Args:
        total: Log partition function or best score.
        values, scale: Tables, messages and scales; see `kernel.up`.
        spread: Upper bound of the spread of the tables in the linear domain, in nats.
        domain: Domain of the tables.
    """

    total: float
    values: np.ndarray
    scale: np.ndarray
    spread: float
    domain: int


@dataclass(frozen=True, eq=False)
class JunctionTree(AbstractInference):
    """Exact sum-product, max-product and sampling. The cliques are computed once and reused for any potentials.

    Args:
        memory: Memory limit of all messages, in bytes.
        max_cells: Maximum number of cells of all cliques; 2**30 cells take about 10 seconds.
        summed: Mask of the nodes over which `map_states` sums instead of maximising (marginal MAP), shape (n_nodes,); None for
            no node. These nodes are eliminated first, which may need larger cliques.

    Raises:
        CliqueTooLargeError: A ValueError, at the first call and before allocation, if the cliques exceed a limit.
    """

    scopes: Scopes
    memory: int = 1 << 32
    max_cells: int = 1 << 32
    summed: np.ndarray | None = None

    @cached_property
    def _stage(self) -> np.ndarray:
        """Return 0 for nodes that are summed before others are maximised, and 1 for the others; all 0 if no node is summed."""
        n_nodes = self.scopes.n_nodes
        return (
            np.zeros(n_nodes, dtype=np.int64) if self.summed is None else np.where(self.summed, 0, 1).astype(np.int64)
        )

    @cached_property
    def clique_tree(self) -> CliqueTree:
        """Return the clique tree; for components that are too large, it contains only the error."""
        return build_clique_tree(self.scopes, self._stage, self.memory, self.max_cells)

    @property
    def _n_summed_cliques(self) -> int:
        """Return the number of cliques up to the last one with a summed own node."""
        if self.summed is None:
            return 0
        cliques = self.clique_tree.cliques
        own = np.flatnonzero((cliques.n_own > 0) & self.summed[cliques.node[cliques.start[:-1]]])
        return int(own.max(initial=-1)) + 1

    def _sum_product(self, potentials: Potentials) -> _UpwardPass:
        """Run the upward pass of sum-product in the linear domain or, if numbers could underflow, with logs."""
        found = self._upward_pass(potentials, LINEAR_SUM)
        return found if found.spread <= MAX_LINEAR_SPREAD else self._upward_pass(potentials, LOG_SUM)

    def _upward_pass(self, potentials: Potentials, domain: int) -> _UpwardPass:
        self.clique_tree.check_limits()
        cliques, cells = self.clique_tree.cliques, self.clique_tree.clique_cells
        n_cliques, n_tables = len(cells), len(potentials.nodes) + len(potentials.factors)
        values = np.empty(n_tables + int(cliques.n_rows.sum()))
        values[: len(potentials.nodes)], values[len(potentials.nodes) : n_tables] = potentials
        total, scale, spread = 0.0, np.zeros(n_cliques), np.zeros(n_cliques)
        if domain == LINEAR_SUM:
            total = self._scale_tables(values[:n_tables], spread)
        # The cliques of summed nodes precede all others.
        n_summed = self._n_summed_cliques if domain == LOG_MAX else 0
        for begin, end, each in ((0, n_summed, LOG_SUM), (n_summed, n_cliques, domain)):
            arguments = (cliques, self.scopes.cardinality, values, each)
            first = begin
            for c in (begin + np.flatnonzero(cells[begin:end] >= MIN_THREADED_CELLS)).tolist():
                kernel.up(*arguments, first, c, 0, 1, scale, spread)

                def send(lane: int, _: int, c: int = c, arguments: Any = arguments) -> None:
                    kernel.up(*arguments, c, c + 1, lane, N_LANES, scale, spread)

                map_lanes(N_LANES, int(cells[c]), send)
                kernel.scale_message(cliques, c, values, each, scale, spread)
                first = c + 1
            kernel.up(*arguments, first, end, 0, 1, scale, spread)
        roots = cliques.message[cliques.parent < 0]
        total += float(scale.sum()) if domain == LINEAR_SUM else float(values[roots].sum())
        return _UpwardPass(total, values, scale, float(spread.max(initial=0.0)), domain)

    def _scale_tables(self, values: np.ndarray, spread: np.ndarray) -> float:
        """Replace log potentials by potentials, divided by the maximum of their table; the value of an agreement remains.

        Args:
            values: Tables of all nodes and factors; updated in place.
            spread: Zeros, overwritten by the sum of the spreads of the tables of each clique; see `kernel.up`.

        Returns:
            The sum of the logs of the maxima; -inf if a table has no positive potential.
        """
        scopes, cliques = self.scopes, self.clique_tree.cliques
        starts = np.concatenate((scopes.state_start[:-1], scopes.state_start[-1] + scopes.table_start[:-1]))
        if not len(starts):
            return 0.0
        is_agreement = np.concatenate((np.zeros(scopes.n_nodes, dtype=np.bool_), scopes.is_agreement))
        top = np.maximum.reduceat(values, starts)
        least = np.minimum.reduceat(np.where(values == -np.inf, np.inf, values), starts)
        top, least = (
            np.where(is_agreement, np.maximum(top, 0.0), top),
            np.where(is_agreement, np.minimum(least, 0.0), least),
        )
        shift = np.where(is_agreement | (top == -np.inf), 0.0, top)
        is_table = cliques.source < len(values)
        clique = np.repeat(np.arange(len(spread)), np.diff(cliques.input_start))[is_table]
        table = np.searchsorted(starts, cliques.source[is_table])
        np.add.at(spread, clique, np.where(top > -np.inf, top - least, 0.0)[table])
        sizes = np.diff(starts, append=len(values))
        np.exp(values - np.repeat(shift, sizes), out=values, where=~np.repeat(is_agreement, sizes))
        return float(np.where(is_agreement, 0.0, top).sum())

    def marginals(self, potentials: Potentials) -> Marginals:
        found = self._sum_product(potentials)
        n_states, n_tables = len(potentials.nodes), len(potentials.nodes) + len(potentials.factors)
        if found.total == -np.inf:
            sums = np.full(n_tables, np.nan)
        else:
            sums = np.zeros(len(found.values))
            arguments = (found.values, found.domain != LINEAR_SUM, found.scale, sums)
            kernel.down(self.clique_tree.cliques, self.scopes.cardinality, *arguments)
        return Marginals(found.total, sums[:n_states].copy(), sums[n_states:n_tables].copy(), Verdict("exact"))

    def partition(self, potentials: Potentials) -> PartitionFunction:
        total = self._sum_product(potentials).total
        return PartitionFunction(total, Verdict("exact"), total, total)

    def map_states(self, potentials: Potentials) -> MapStates:
        """Compute the most probable joint state; summed nodes have state -1, and the score is the log of a sum over them."""
        found = self._upward_pass(potentials, LOG_MAX)
        states = kernel.best_states(self.clique_tree.cliques, self.scopes.cardinality, found.values)
        if self.summed is not None:
            states[self.summed] = -1
        return MapStates(found.total, states, found.total, Verdict("exact"))

    def sample(self, potentials: Potentials, n: int, seed: int) -> np.ndarray:
        """Draw independent joint states from the exact distribution, shape (n, n_nodes), int32.

        Raises:
            ValueError: If all joint states are impossible.
        """
        found = self._sum_product(potentials)
        if found.total == -np.inf:
            raise ValueError("cannot sample: all joint states are impossible")
        out = np.empty((n, self.scopes.n_nodes), dtype=np.int32)
        rng = np.random.default_rng(seed)
        n_cliques = self.clique_tree.n_cliques
        step = max(1, MAX_RANDOM_NUMBERS // max(1, n_cliques))
        for first in range(0, n, step):
            chunk = out[first : first + step]
            uniform = rng.random((len(chunk), n_cliques))
            arguments = (found.values, found.domain != LINEAR_SUM, uniform, chunk)
            kernel.draw_states(self.clique_tree.cliques, self.scopes.cardinality, *arguments)
        return out
