"""Flooding belief propagation on a GPU, for graphs whose factors have two nodes each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.gpu.device import allocate, launch, load_kernels, upload
from relcrf.graph.scopes import Potentials, Scopes

MAX_PARTIAL_MAXIMA = 1 << 14
"""Maximum number of threads that search for the largest change; the host then compares as many numbers in 10 microseconds."""


def upload_graph(scopes: Scopes, table_start: np.ndarray) -> Any:
    """Return the structure of a pairwise graph, a `kernels.PairGraph`; factor f has the table at `table_start[f]`."""
    factors, sizes = scopes.kernel_factors, scopes.cardinality[scopes.node]
    message_start = offsets(sizes)
    return load_kernels().PairGraph(
        slot=upload(np.repeat(np.arange(len(sizes)), sizes), np.int32),
        message_start=upload(message_start, np.int64),
        first_state=upload(scopes.state_start[scopes.node], np.int64),
        table_start=upload(table_start, np.int64),
        agreement=upload(scopes.is_agreement, np.bool_),
        node=upload(np.repeat(np.arange(scopes.n_nodes), scopes.cardinality), np.int32),
        state_start=upload(scopes.state_start, np.int64),
        incoming_start=upload(factors.touch_start, np.int64),
        incoming=upload(message_start[factors.touch], np.int64),
    )


@dataclass(frozen=True, eq=False)
class PairFlooding:
    """Flooding belief propagation on a GPU.

    The structure of the graph is uploaded once, the potentials once per propagation; messages remain on the GPU.

    Raises:
        UsageError: At the first use, if no GPU is found (E382).
    """

    scopes: Scopes

    def start(self, potentials: Potentials, maximum: bool, damping: float) -> Callable[[int], float]:
        """Start a propagation with uniform messages.

        Returns:
            A function that runs a number of rounds, and returns the largest change of an entry in the last round.
        """
        kernels, graph, state = load_kernels(), self._graph, self._state
        state.nodes.copy_to_device(potentials.nodes)
        state.logs.copy_to_device(potentials.factors)
        state.message.copy_to_device(np.zeros(len(state.message)))
        launch(kernels.scale_tables, self.scopes.n_factors, graph, state)
        launch(kernels.combine_messages, len(state.product), graph, state)
        n_entries = len(state.message)

        def run(rounds: int) -> float:
            for _ in range(rounds):
                launch(kernels.compute_cavities, n_entries, graph, state)
                launch(kernels.compute_messages, n_entries, graph, state, maximum)
                launch(kernels.update_messages, n_entries, graph, state, damping)
                launch(kernels.combine_messages, len(state.product), graph, state)
            launch(kernels.find_largest, len(self._maxima), state.change, self._maxima)
            return float(self._maxima.copy_to_host().max(initial=0.0))

        return run

    def messages(self) -> np.ndarray:
        """Return the log messages, in the layout of `MessageState.message`."""
        return np.asarray(self._state.message.copy_to_host())

    def beliefs(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Return minus the Bethe free energy, and the beliefs of nodes and factors; see `kernels.beliefs`."""
        kernels, scopes, graph, state = load_kernels(), self.scopes, self._graph, self._state
        nodes, of_nodes = allocate(len(state.product)), allocate(scopes.n_nodes)
        factors, of_factors = allocate(len(state.logs)), allocate(scopes.n_factors)
        # Ctrl-C may have interrupted a round between the messages and their product.
        launch(kernels.combine_messages, len(state.product), graph, state)
        launch(kernels.compute_factor_beliefs, scopes.n_factors, graph, state, factors, of_factors)
        launch(kernels.compute_node_beliefs, len(state.product), graph, state, nodes)
        launch(kernels.normalise, scopes.n_nodes, graph.state_start, nodes, of_nodes)
        count = 1.0 - np.bincount(scopes.node, minlength=scopes.n_nodes)
        with np.errstate(invalid="ignore"):  # without possible states, both sums are infinite
            value = of_factors.copy_to_host().sum() + (count * of_nodes.copy_to_host()).sum()
        return float(value), nodes.copy_to_host(), factors.copy_to_host()

    @cached_property
    def _graph(self) -> Any:
        return upload_graph(self.scopes, self.scopes.table_start)

    @cached_property
    def _state(self) -> Any:
        scopes = self.scopes
        n_states, n_cells = int(scopes.state_start[-1]), int(scopes.table_start[-1])
        n_entries = int(scopes.cardinality[scopes.node].sum())
        return load_kernels().PairState(
            nodes=allocate(n_states),
            scale=allocate(scopes.n_factors),
            logs=allocate(n_cells),
            linear=allocate(n_cells),
            message=allocate(n_entries),
            product=allocate(n_states),
            n_impossible=allocate(n_states, np.int32),
            cavity=allocate(n_entries),
            linear_cavity=allocate(n_entries),
            new=allocate(n_entries),
            change=allocate(n_entries),
        )

    @cached_property
    def _maxima(self) -> Any:
        return allocate(min(len(self._state.message), MAX_PARTIAL_MAXIMA))
