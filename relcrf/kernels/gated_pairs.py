"""Belief propagation on pairs whose tables are raised to gates, a few iterations of it, and the exact adjoint of that.

The log potential of pair p is `gate[p]` times its table's. Messages are uniform at first and all are sent at once; after the
last of T iterations the belief of a node is in proportion to its own potential times what came in.

Work goes by *blocks*, of whole connected components: what a block's iterations leave behind stays in the cache until the
way back needs it. Where all nodes are binary, `gated_binary` does the work, in float32 where it is asked to and all gates
times all tables are within its range, else in float64; what is beyond that, and other cardinalities, goes to `gated_tables`.
`arithmetic` says which. No bit depends on the number of threads.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012); Stoyanov, Ropson & Eisner,
Empirical risk minimization of graphical model parameters given approximate inference, decoding, and model structure (2011).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from relcrf.kernels import gated_binary, gated_tables
from relcrf.kernels.gated_binary import MAX_RANGE32, MAX_RANGE64, BinaryNetwork
from relcrf.kernels.gated_layout import PairSlots, assign_slots
from relcrf.kernels.gated_losses import LINEAR, BeliefLoss
from relcrf.kernels.gated_tables import TableNetwork
from relcrf.kernels.threads import freeze, map_key_ranges, thread_scratch

N_RUNS = 32
"""Into so many stretches the blocks are cut, whatever the number of threads; each adds up its own derivatives of tables."""

Precision = Literal["float32", "float64"]
Arithmetic = Literal["binary float32", "binary float64", "tables float64"]


@dataclass(frozen=True, eq=False)
class GatedLayout:
    """Gated pairs and their order of work; `build_layout` makes one.

    Args:
        state_start: where each node's states begin, shape (n_nodes + 1,), int64.
        table_start: where each table begins, shape (n_tables + 1,), int64.
        slots: the pairs by blocks.
        run_start: the blocks' stretches, shape (n_runs + 1,), int64.
        table_range: from which to which table each run's pairs use, shape (n_runs, 2), int64.
        is_binary: whether all nodes have two states.
    """

    state_start: np.ndarray
    table_start: np.ndarray
    slots: PairSlots
    run_start: np.ndarray
    table_range: np.ndarray
    is_binary: bool

    @property
    def n_nodes(self) -> int:
        return len(self.state_start) - 1

    @property
    def n_pairs(self) -> int:
        return len(self.slots.table_of)

    @property
    def n_tables(self) -> int:
        return len(self.table_start) - 1


class LossGradient(NamedTuple):
    """A loss and its derivatives.

    Args:
        value: the loss.
        nodes: by the nodes' log potentials, flat. tables: by the cells of the tables, flat, summed over the pairs that share
            them; always float64. gate: one a pair.
        beliefs: the probabilities that the loss is of, flat.
    """

    value: float
    nodes: np.ndarray
    tables: np.ndarray
    gate: np.ndarray
    beliefs: np.ndarray


def build_layout(
    state_start: np.ndarray, ends: np.ndarray, table_of: np.ndarray, table_start: np.ndarray
) -> GatedLayout:
    """Finds the components and cuts them into blocks.

    Args:
        state_start: where each node's states begin, shape (n_nodes + 1,).
        ends: the nodes of each pair, shape (n_pairs, 2); pairs may be parallel.
        table_of: each pair's table, shape (n_pairs,).
        table_start: where each table begins, row-major over (first node, second node), shape (n_tables + 1,).

    Raises:
        ValueError: starts that do not begin at 0, a node without states, a pair of a node with itself or with one that is not
            there, or a table that is not of its pair's cardinalities.
    """
    cardinality = np.diff(state_start)
    ends = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
    table_of = np.asarray(table_of)
    n_nodes, n_tables = len(cardinality), len(table_start) - 1
    _check(len(table_of) == len(ends), "there are other numbers of pairs in `ends` and `table_of`")
    _check(state_start[0] == table_start[0] == 0, "states and tables do not begin at 0")
    _check(bool((cardinality > 0).all()), "a node has no state")
    _check(bool((ends >= 0).all() and (ends < n_nodes).all()), "a pair has a node that is not there")
    _check(bool((table_of >= 0).all() and (table_of < n_tables).all()), "a pair has a table that is not there")
    _check(bool((ends[:, 0] != ends[:, 1]).all()), "a pair joins a node with itself")
    sizes = np.diff(table_start)[table_of] if len(ends) else np.empty(0)
    _check(bool((sizes == cardinality[ends].prod(axis=1)).all()), "a table is not of the size of its pair")
    slots = assign_slots(n_nodes, ends, table_of)
    work = np.concatenate(([0.0], np.cumsum(np.diff(slots.slot_start) + np.diff(slots.node_start))))
    runs = np.unique(np.searchsorted(work, work[-1] * np.linspace(0, 1, N_RUNS + 1)))
    used = [slots.table_of[slots.pair[slice(*part)]] for part in pairwise(slots.slot_start[runs])]
    reach = np.array([(part.min(), part.max() + 1) if len(part) else (0, 0) for part in used]).reshape(-1, 2)
    starts = freeze(state_start, np.int64), freeze(table_start, np.int64)
    return GatedLayout(*starts, slots, runs, reach, bool((cardinality == 2).all()))


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _to_contrasts(tables: np.ndarray) -> np.ndarray:
    """Of binary tables, shape (n_tables, 4): the logs of a, b and r at gate 1, shape (n_tables, 3); see `gated_binary`."""
    t00, t01, t10, t11 = tables.T
    return np.column_stack((t01 - t00, t10 - t00, (t00 - t01) + (t11 - t10)))


def choose_arithmetic(
    layout: GatedLayout, tables: np.ndarray, gate: np.ndarray, precision: Precision = "float32"
) -> Arithmetic:
    """How `propagate` and `adjoint` will count: the first of the three that can.

    "binary float32", if it is asked for, needs that the largest gate times the largest difference within a row or column of
    any table is at most `MAX_RANGE32`; "binary float64", at most `MAX_RANGE64`.

    Raises:
        ValueError: the arrays do not fit the layout, or some number is inf or nan.
    """
    shapes = (int(layout.table_start[-1]),), (layout.n_pairs,)
    _check((tables.shape, gate.shape) == shapes, "tables or gates do not fit the layout")
    _check(bool(np.isfinite(tables).all()), "a table has a log potential that is not finite")
    largest = max(gate.max(initial=0.0), -gate.min(initial=0.0))
    _check(bool(np.isfinite(largest)), "a gate is not finite")
    if not layout.is_binary:
        return "tables float64"
    t00, t01, t10, t11 = np.asarray(tables, dtype=np.float64).reshape(-1, 4).T
    differences = (t01 - t00, t10 - t00, t11 - t01, t11 - t10)
    width = float(largest) * max(float(np.abs(d).max(initial=0.0)) for d in differences)
    if width <= MAX_RANGE32 and precision == "float32":
        return "binary float32"
    return "binary float64" if width <= MAX_RANGE64 else "tables float64"


def _check_nodes(layout: GatedLayout, nodes: np.ndarray) -> None:
    _check(nodes.shape == (int(layout.state_start[-1]),), "log potentials of nodes do not fit the layout")
    if np.isfinite(nodes).all():
        return
    _check(not np.isnan(nodes).any() and bool((nodes < np.inf).all()), "a log potential of a node is inf or nan")
    best = np.maximum.reduceat(nodes, layout.state_start[:-1]) if layout.n_nodes else nodes
    _check(bool((best > -np.inf).all()), "a node has no possible state")


def propagate(
    layout: GatedLayout,
    nodes: np.ndarray,
    tables: np.ndarray,
    gate: np.ndarray,
    n_iterations: int = 3,
    precision: Precision = "float32",
) -> np.ndarray:
    """Beliefs after some iterations.

    Args:
        nodes: log potentials, flat over states, shape (state_start[-1],); -inf is what cannot be.
        tables: log potentials, flat, shape (table_start[-1],), finite.
        gate: the exponents, shape (n_pairs,).
        precision: of the beliefs, and of the arithmetic where that can be; see `arithmetic`.

    Returns:
        probabilities, flat over states, shape (state_start[-1],).

    Raises:
        ValueError: as of `arithmetic`; a log potential of a node is inf or nan, or all of one node are -inf.
    """
    chosen = choose_arithmetic(layout, tables, gate, precision)
    network = _build_network(layout, nodes, tables, gate, n_iterations, chosen)
    beliefs = np.empty(len(nodes), dtype=network.gate.dtype)

    def run(lo: int, hi: int) -> None:
        blocks = layout.run_start[lo], layout.run_start[hi]
        if isinstance(network, TableNetwork):
            gated_tables.propagate_blocks(*blocks, network, beliefs)
        else:
            room = thread_scratch(gated_binary.scratch_size(layout.slots, 1), beliefs.dtype)
            gated_binary.propagate_blocks(*blocks, network, room, beliefs)

    list(map_key_ranges(_run_costs(layout, n_iterations), run))
    return beliefs.astype(precision, copy=False)


def _build_network(
    layout: GatedLayout, nodes: np.ndarray, tables: np.ndarray, gate: np.ndarray, n_iterations: int, chosen: Arithmetic
) -> TableNetwork | BinaryNetwork:
    """Return what the kernels of an arithmetic work on."""
    _check_nodes(layout, nodes)
    if chosen == "tables float64":
        n, t, g = (freeze(values, np.float64) for values in (nodes, tables, gate))
        return TableNetwork(layout.slots, layout.state_start, layout.table_start, n, t, g, n_iterations)
    contrasts = _to_contrasts(np.asarray(tables, dtype=np.float64).reshape(-1, 4)).ravel()
    kind = np.float32 if chosen == "binary float32" else np.float64
    n, c, g = (freeze(values, kind) for values in (nodes, contrasts, gate))
    return BinaryNetwork(layout.slots, n, c, g, n_iterations)


def _run_costs(layout: GatedLayout, n_iterations: int) -> np.ndarray:
    """Of each run, in numbers that are read."""
    slots = layout.slots
    size = 16 * slots.slot_start[layout.run_start] * (n_iterations + 1) + slots.node_start[layout.run_start]
    return np.diff(size)


def compute_loss_gradient(
    layout: GatedLayout,
    nodes: np.ndarray,
    tables: np.ndarray,
    gate: np.ndarray,
    loss: BeliefLoss,
    n_iterations: int = 3,
    precision: Precision = "float32",
) -> LossGradient:
    """A loss of the beliefs of `propagate`, and its exact derivatives by all that they are made of.

    Args:
        loss: see `gated_losses`. The others as of `propagate`.

    Raises:
        ValueError: as of `propagate`; the loss does not fit the layout.
    """
    _check_loss(layout, loss)
    chosen = choose_arithmetic(layout, tables, gate, precision)
    network = _build_network(layout, nodes, tables, gate, n_iterations, chosen)
    general = isinstance(network, TableNetwork)
    kind = network.gate.dtype
    beliefs, d_nodes, d_gate = (np.zeros(n, dtype=kind) for n in (len(nodes), len(nodes), len(gate)))
    cell = layout.table_start if general else 3 * np.arange(layout.n_tables + 1)
    d_cells = np.zeros(int(cell[-1]))
    kernel: Callable[..., float] = gated_tables.differentiate_blocks if general else gated_binary.differentiate_blocks

    def one(at: int, room: tuple[np.ndarray, ...]) -> tuple[float, int, np.ndarray]:
        origin, stop = (int(cell[table]) for table in layout.table_range[at])
        own = np.zeros(stop - origin)
        blocks = layout.run_start[at], layout.run_start[at + 1]
        value = kernel(*blocks, network, *room, loss, d_nodes, own, origin, d_gate, beliefs)
        return value, origin, own

    def several(lo: int, hi: int) -> list[tuple[float, int, np.ndarray]]:
        room = () if general else (thread_scratch(gated_binary.scratch_size(layout.slots, n_iterations), kind),)
        return [one(at, room) for at in range(lo, hi)]

    value = 0.0
    for run in map_key_ranges(_run_costs(layout, n_iterations), several):
        for part, origin, own in run:
            value += part
            d_cells[origin : origin + len(own)] += own
    d_tables = d_cells if general else _from_contrasts(d_cells.reshape(-1, 3))
    d_nodes, d_gate, beliefs = (numbers.astype(precision, copy=False) for numbers in (d_nodes, d_gate, beliefs))
    return LossGradient(value, d_nodes, d_tables, d_gate, beliefs)


def _from_contrasts(d_contrasts: np.ndarray) -> np.ndarray:
    """The adjoint of `_to_contrasts`, flat."""
    d_a, d_b, d_r = d_contrasts.T
    return np.column_stack((d_r - d_a - d_b, d_a - d_r, d_b - d_r, d_r)).ravel()


def _check_loss(layout: GatedLayout, loss: BeliefLoss) -> None:
    if loss.kind == LINEAR:
        _check(loss.slope.shape == (int(layout.state_start[-1]),), "the slopes do not fit the layout")
        return
    fits = (loss.observed.shape, loss.weight.shape) == ((layout.n_nodes,),) * 2
    _check(fits, "observed states or weights do not fit the layout")
    right = (loss.observed >= 0) & (loss.observed < np.diff(layout.state_start))
    _check(bool(right.all()), "an observed state is not one of its node's")
