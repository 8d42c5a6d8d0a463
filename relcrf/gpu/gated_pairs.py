"""A few iterations of belief propagation on pairs with gated tables, and the exact adjoint, on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from relcrf.columns.offsets import entries_of_runs
from relcrf.gpu.device import allocate, launch, load_kernels, upload
from relcrf.gpu.flooding import upload_graph
from relcrf.gpu.row_sums import RowSums
from relcrf.graph.scopes import Scopes
from relcrf.kernels import gated_pairs
from relcrf.kernels.gated_losses import BeliefLoss
from relcrf.kernels.gated_pairs import GatedLayout, LossGradient, build_layout

NO_PAIRS = np.empty(0)
"""The tables and the gates of a layout without pairs."""


class _Iteration(NamedTuple):
    """The totals of nodes and the messages before an iteration, and the new messages, not normalised; arrays on the GPU."""

    total: Any
    message: Any
    new: Any


class _Derivatives(NamedTuple):
    """Derivatives of the loss, in arrays on the GPU; `own` is by the log potentials of nodes, `cells` by those of pairs."""

    own: Any
    total: Any
    message: Any
    cavity: Any
    cells: Any
    gate: Any
    tables: Any


@dataclass(frozen=True, eq=False)
class GpuGatedPairs:
    """Gated pairs on a GPU, with the functions of `kernels.gated_pairs` in float64.

    The structure is uploaded once; the messages of all iterations remain on the GPU. The loss of the final totals is
    computed on the CPU, as that of nodes without pairs.

    Args:
        ends: Nodes of each pair, shape (n_pairs, 2).

    Raises:
        UsageError: At the first use, if no GPU is found (E382).
    """

    layout: GatedLayout
    ends: np.ndarray

    def propagate(self, nodes: np.ndarray, tables: np.ndarray, gate: np.ndarray, n_iterations: int) -> np.ndarray:
        """Compute the beliefs; see `kernels.gated_pairs.propagate`."""
        total = self._run(nodes, tables, gate, n_iterations)[-1][-1].total.copy_to_host()
        return gated_pairs.propagate(self._nodes, total, NO_PAIRS, NO_PAIRS, 0, "float64")

    def compute_loss_gradient(
        self, nodes: np.ndarray, tables: np.ndarray, gate: np.ndarray, loss: BeliefLoss, n_iterations: int
    ) -> LossGradient:
        """Compute a loss of the beliefs, and its derivatives; see `kernels.gated_pairs.compute_loss_gradient`."""
        *pairs, iterations = self._run(nodes, tables, gate, n_iterations)
        total = iterations[-1].total.copy_to_host()
        found = gated_pairs.compute_loss_gradient(self._nodes, total, NO_PAIRS, NO_PAIRS, loss, 0, "float64")
        kernels, graph, d, zeros = load_kernels(), self._graph, self._derivatives, self._zeros
        for array, values in ((d.own, found.nodes), (d.total, found.nodes), (d.cavity, None), (d.cells, None)):
            array.copy_to_device(np.zeros(len(array)) if values is None else values)
        for iteration in reversed(iterations[:-1]):
            arguments = (*pairs, *iteration, d.message)
            launch(kernels.differentiate_messages, len(d.message), graph, d.total, d.cavity, d.message)
            launch(kernels.differentiate_cavities, len(d.cavity), graph, *arguments, d.cavity)
            launch(kernels.differentiate_tables, len(d.cells), graph, *self._cells, *arguments, d.cells)
            launch(kernels.add_messages, len(d.total), graph, zeros, d.cavity, d.total)
            launch(kernels.add_messages, len(d.own), graph, d.own, d.cavity, d.own)
        launch(kernels.differentiate_gates, len(d.gate), graph, self._cells[1], *pairs, d.cells, d.gate)
        self._sums.multiply(d.cells, d.tables)
        by_nodes, by_tables, by_gate = (array.copy_to_host() for array in (d.own, d.tables, d.gate))
        return found._replace(nodes=by_nodes, tables=by_tables, gate=by_gate)

    def _run(
        self, nodes: np.ndarray, tables: np.ndarray, gate: np.ndarray, n_iterations: int
    ) -> tuple[Any, Any, list[_Iteration]]:
        """Return the gates and the tables on the GPU, and all iterations; the last one contains the final totals only.

        Raises:
            ValueError: If the arrays do not fit the layout, or contain inf or nan.
        """
        gated_pairs.choose_arithmetic(self.layout, tables, gate)
        kernels, graph = load_kernels(), self._graph
        gates_on_gpu, tables_on_gpu, own = (upload(values, np.float64) for values in (gate, tables, nodes))
        while len(self._iterations) <= n_iterations:
            sizes = (len(nodes), self._n_entries, self._n_entries)
            self._iterations.append(_Iteration(*(allocate(size) for size in sizes)))
        iterations = self._iterations[: n_iterations + 1]
        iterations[0].message.copy_to_device(np.zeros(self._n_entries))
        launch(kernels.add_messages, len(nodes), graph, own, iterations[0].message, iterations[0].total)
        for (total, message, new), following in pairwise(iterations):
            arguments = (gates_on_gpu, tables_on_gpu, total, message, new)
            launch(kernels.compute_gated_messages, self._n_entries, graph, *arguments)
            launch(kernels.normalise_messages, self._n_entries, graph, new, following.message)
            launch(kernels.add_messages, len(nodes), graph, own, following.message, following.total)
        return gates_on_gpu, tables_on_gpu, iterations

    @cached_property
    def _scopes(self) -> Scopes:
        return Scopes(np.diff(self.layout.state_start), 2 * np.arange(len(self.ends) + 1), self.ends.ravel())

    @cached_property
    def _n_entries(self) -> int:
        return int(self._scopes.cardinality[self._scopes.node].sum())

    @cached_property
    def _nodes(self) -> GatedLayout:
        """The layout of the nodes without the pairs."""
        no_tables = np.zeros(1, dtype=np.int64)
        return build_layout(self.layout.state_start, np.empty((0, 2)), np.empty(0, dtype=np.int32), no_tables)

    @cached_property
    def _graph(self) -> Any:
        return upload_graph(self._scopes, self.layout.table_start[self.layout.slots.table_of])

    @cached_property
    def _cells(self) -> tuple[Any, Any]:
        """The pair of each cell of the pairs' tables, and the offset of each pair's cells, on the GPU."""
        start = self._scopes.table_start
        return upload(np.repeat(np.arange(len(self.ends)), np.diff(start)), np.int32), upload(start, np.int64)

    @cached_property
    def _sums(self) -> RowSums:
        """The sum over the pairs of each table."""
        table_cell = entries_of_runs(self.layout.table_start, self.layout.slots.table_of)
        entries = (np.ones(len(table_cell)), (table_cell, np.arange(len(table_cell))))
        return RowSums(csr_array(entries, shape=(int(self.layout.table_start[-1]), len(table_cell))))

    @cached_property
    def _iterations(self) -> list[_Iteration]:
        return []

    @cached_property
    def _derivatives(self) -> _Derivatives:
        n_states, n_entries, n_cells = int(self._scopes.state_start[-1]), self._n_entries, self._scopes.table_start[-1]
        sizes = (
            n_states,
            n_states,
            n_entries,
            n_entries,
            int(n_cells),
            len(self.ends),
            int(self.layout.table_start[-1]),
        )
        return _Derivatives(*(allocate(size) for size in sizes))

    @cached_property
    def _zeros(self) -> Any:
        return upload(np.zeros(int(self._scopes.state_start[-1])), np.float64)
