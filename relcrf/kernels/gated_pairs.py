"""A few iterations of belief propagation on pairs with gated tables, and the exact adjoint.

The log potential of pair p is `gate[p]` times the pair's table. Messages are initially uniform and are updated
synchronously. After T iterations, the belief of a node is proportional to its potential times its incoming messages.

The pairs are processed in *blocks* of whole connected components: the stored iterations of a block stay in the cache
until the backward pass reads them. The kernels of `gated_binary` (float32 or float64) are faster, but support only
binary nodes and a limited range of log potentials; those of `gated_linear` support any cardinality and a limited range,
and the kernels of `gated_tables` support all inputs. `choose_arithmetic` selects the kernels. The results are bitwise
identical for every number of threads.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012); Stoyanov, Ropson &
Eisner, Empirical risk minimization of graphical model parameters given approximate inference, decoding, and model
structure (2011).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from relcrf.kernels import gated_binary, gated_linear, gated_tables
from relcrf.kernels.gated_binary import MAX_RANGE32, MAX_RANGE64, BinaryNetwork
from relcrf.kernels.gated_layout import PairSlots, assign_slots
from relcrf.kernels.gated_linear import LinearNetwork, PairGroups, group_pairs
from relcrf.kernels.gated_losses import LINEAR, BeliefLoss
from relcrf.kernels.gated_tables import TableNetwork
from relcrf.kernels.threads import freeze, map_key_ranges, thread_scratch

N_RUNS = 32
"""Number of *runs* (ranges of blocks). Each run sums table derivatives separately, whatever the number of threads."""

Precision = Literal["float32", "float64"]
Arithmetic = Literal["binary float32", "binary float64", "linear float64", "tables float64"]
Network = BinaryNetwork | LinearNetwork | TableNetwork
_KERNELS: dict[type, Any] = {BinaryNetwork: gated_binary, LinearNetwork: gated_linear, TableNetwork: gated_tables}
"""The module with the kernels of each type of network."""


@dataclass(frozen=True, eq=False)
class GatedLayout:
    """Gated pairs and the order in which they are processed; see `build_layout`.

    Args:
        state_start: offset of each node's states, shape (n_nodes + 1,), int64.
        table_start: offset of each table, shape (n_tables + 1,), int64.
        slots: the pairs, block after block.
        run_start: first block of each run, followed by the number of blocks, shape (n_runs + 1,), int64.
        table_range: lowest table index of each run's pairs, and highest table index + 1, shape (n_runs, 2), int64.
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

    @cached_property
    def groups(self) -> PairGroups:
        """The pairs in groups of equal cardinalities."""
        return group_pairs(self.slots, self.state_start)


class LossGradient(NamedTuple):
    """A loss of beliefs, and its derivatives.

    Args:
        value: the loss.
        nodes: derivatives with respect to the nodes' log potentials, flat.
        tables: derivatives with respect to the cells of the tables, flat, summed over the pairs that share a table;
            always float64.
        gate: derivatives with respect to the gates, shape (n_pairs,).
        beliefs: the beliefs, flat.
    """

    value: float
    nodes: np.ndarray
    tables: np.ndarray
    gate: np.ndarray
    beliefs: np.ndarray


def build_layout(
    state_start: np.ndarray, ends: np.ndarray, table_of: np.ndarray, table_start: np.ndarray
) -> GatedLayout:
    """Build the layout of gated pairs: partition their connected components into blocks.

    Args:
        state_start: offset of each node's states, shape (n_nodes + 1,).
        ends: nodes of each pair, shape (n_pairs, 2); parallel pairs are allowed.
        table_of: table of each pair, shape (n_pairs,).
        table_start: offset of each table, row-major over (first node, second node), shape (n_tables + 1,).

    Raises:
        ValueError: if the offsets do not start at 0, a node has no states, a pair connects a node with itself or refers to
            a missing node or table, or the size of a table does not match the cardinalities of its pair.
    """
    cardinality = np.diff(state_start)
    ends = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
    table_of = np.asarray(table_of)
    n_nodes, n_tables = len(cardinality), len(table_start) - 1
    _check(len(table_of) == len(ends), "`ends` and `table_of` have different numbers of pairs")
    _check(state_start[0] == table_start[0] == 0, "the offsets of states and tables do not start at 0")
    _check(bool((cardinality > 0).all()), "a node has no state")
    _check(bool((ends >= 0).all() and (ends < n_nodes).all()), "a pair refers to a missing node")
    _check(bool((table_of >= 0).all() and (table_of < n_tables).all()), "a pair refers to a missing table")
    _check(bool((ends[:, 0] != ends[:, 1]).all()), "a pair connects a node with itself")
    sizes = np.diff(table_start)[table_of] if len(ends) else np.empty(0)
    _check(
        bool((sizes == cardinality[ends].prod(axis=1)).all()),
        "the size of a table does not match the cardinalities of its pair",
    )
    slots = assign_slots(n_nodes, ends, table_of)
    costs = np.concatenate(([0.0], np.cumsum(np.diff(slots.slot_start) + np.diff(slots.node_start))))
    run_start = np.unique(np.searchsorted(costs, costs[-1] * np.linspace(0, 1, N_RUNS + 1)))
    used = [slots.table_of[slots.pair[slice(*span)]] for span in pairwise(slots.slot_start[run_start])]
    table_range = np.array([(span.min(), span.max() + 1) if len(span) else (0, 0) for span in used]).reshape(-1, 2)
    starts = freeze(state_start, np.int64), freeze(table_start, np.int64)
    return GatedLayout(*starts, slots, run_start, table_range, bool((cardinality == 2).all()))


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _to_contrasts(tables: np.ndarray) -> np.ndarray:
    """Return log a, log b and log r (see `gated_binary`) of each table for gate 1, shape (n_tables, 3)."""
    t00, t01, t10, t11 = tables.T
    return np.column_stack((t01 - t00, t10 - t00, (t00 - t01) + (t11 - t10)))


def choose_arithmetic(
    layout: GatedLayout, tables: np.ndarray, gate: np.ndarray, precision: Precision = "float32"
) -> Arithmetic:
    """Return the arithmetic that `propagate` and `compute_loss_gradient` use.

    Let the range be the largest absolute gate times the largest difference of two cells in a row or column of a table.
    If all nodes are binary, the result is "binary float32" for precision float32 and a range of at most `MAX_RANGE32`,
    otherwise "binary float64" for a range of at most `MAX_RANGE64`. Otherwise, it is "linear float64" if the largest absolute
    gate times the difference of the largest and the smallest cell is at most `gated_linear.MAX_RANGE`. In all other cases
    it is "tables float64".

    Raises:
        ValueError: if the arrays do not fit the layout, or contain inf or nan.
    """
    shapes = (int(layout.table_start[-1]),), (layout.n_pairs,)
    _check((tables.shape, gate.shape) == shapes, "tables or gates do not fit the layout")
    _check(bool(np.isfinite(tables).all()), "a table has a log potential that is not finite")
    largest = max(gate.max(initial=0.0), -gate.min(initial=0.0))
    _check(bool(np.isfinite(largest)), "a gate is not finite")
    if not layout.is_binary:
        is_narrow = len(tables) == 0 or float(largest) * float(np.ptp(tables)) <= gated_linear.MAX_RANGE
        return "linear float64" if is_narrow else "tables float64"
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
    """Compute the beliefs after some iterations of belief propagation.

    Args:
        nodes: log potentials, flat over states, shape (state_start[-1],); -inf for impossible states.
        tables: finite log potentials, flat, shape (table_start[-1],).
        gate: gate of each pair, i.e. the number by which its table is multiplied, shape (n_pairs,).
        precision: type of the beliefs and, if the inputs permit, of the arithmetic; see `choose_arithmetic`.

    Returns:
        The beliefs, flat over states, shape (state_start[-1],).

    Raises:
        ValueError: as for `choose_arithmetic`; or if a log potential of a node is inf or nan, or all log potentials of a
            node are -inf.
    """
    arithmetic = choose_arithmetic(layout, tables, gate, precision)
    network = _build_network(layout, nodes, tables, gate, n_iterations, arithmetic)
    beliefs = np.empty(len(nodes), dtype=network.gate.dtype)

    def process_runs(lo: int, hi: int) -> None:
        blocks = layout.run_start[lo], layout.run_start[hi]
        if isinstance(network, TableNetwork):
            gated_tables.propagate_blocks(*blocks, network, beliefs)
            return
        scratch = thread_scratch(_scratch_size(layout, network, 0), beliefs.dtype)
        _KERNELS[type(network)].propagate_blocks(*blocks, network, scratch, beliefs)

    list(map_key_ranges(_run_costs(layout, n_iterations), process_runs))
    return beliefs.astype(precision, copy=False)


def _build_network(
    layout: GatedLayout,
    nodes: np.ndarray,
    tables: np.ndarray,
    gate: np.ndarray,
    n_iterations: int,
    arithmetic: Arithmetic,
) -> Network:
    """Build the network that the kernels of the given arithmetic take as argument."""
    _check_nodes(layout, nodes)
    if arithmetic in ("linear float64", "tables float64"):
        n, t, g = (freeze(values, np.float64) for values in (nodes, tables, gate))
        starts = layout.state_start, layout.table_start
        if arithmetic == "tables float64":
            return TableNetwork(layout.slots, *starts, n, t, g, n_iterations)
        return LinearNetwork(layout.groups, *starts, layout.slots.table_of, n, t, g, n_iterations)
    contrasts = _to_contrasts(np.asarray(tables, dtype=np.float64).reshape(-1, 4)).ravel()
    dtype = np.float32 if arithmetic == "binary float32" else np.float64
    n, c, g = (freeze(values, dtype) for values in (nodes, contrasts, gate))
    return BinaryNetwork(layout.slots, n, c, g, n_iterations)


def _scratch_size(layout: GatedLayout, network: BinaryNetwork | LinearNetwork, n_iterations: int) -> int:
    """Return the length of the scratch array of `differentiate_blocks`; for 0 iterations, of `propagate_blocks`."""
    if isinstance(network, LinearNetwork):
        return gated_linear.n_stored(network.groups, max(2 * n_iterations, 1))
    return gated_binary.scratch_size(layout.slots, n_iterations)


def _run_costs(layout: GatedLayout, n_iterations: int) -> np.ndarray:
    """Estimate the cost of each run as the number of values that the kernels read for this run."""
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
    """Compute a loss of the beliefs of `propagate`, and the loss's exact derivatives by nodes, tables and gates.

    Args:
        loss: see `gated_losses`. The other arguments are the arguments of `propagate`.

    Raises:
        ValueError: as for `propagate`; or if the loss does not fit the layout.
    """
    _check_loss(layout, loss)
    arithmetic = choose_arithmetic(layout, tables, gate, precision)
    network = _build_network(layout, nodes, tables, gate, n_iterations, arithmetic)
    uses_tables = not isinstance(network, BinaryNetwork)
    dtype = network.gate.dtype
    beliefs, d_nodes, d_gate = (np.zeros(n, dtype=dtype) for n in (len(nodes), len(nodes), len(gate)))
    cell = layout.table_start if uses_tables else 3 * np.arange(layout.n_tables + 1)
    d_cells = np.zeros(int(cell[-1]))
    kernel: Callable[..., float] = _KERNELS[type(network)].differentiate_blocks

    def process_run(run: int, scratch_arrays: tuple[np.ndarray, ...]) -> tuple[float, int, np.ndarray]:
        origin, stop = (int(cell[table]) for table in layout.table_range[run])
        run_gradient = np.zeros(stop - origin)
        blocks = layout.run_start[run], layout.run_start[run + 1]
        value = kernel(*blocks, network, *scratch_arrays, loss, d_nodes, run_gradient, origin, d_gate, beliefs)
        return value, origin, run_gradient

    def process_runs(lo: int, hi: int) -> list[tuple[float, int, np.ndarray]]:
        scratch_arrays: tuple[np.ndarray, ...] = ()
        if not isinstance(network, TableNetwork):
            scratch_arrays = (thread_scratch(_scratch_size(layout, network, n_iterations), dtype),)
        return [process_run(run, scratch_arrays) for run in range(lo, hi)]

    value = 0.0
    for results in map_key_ranges(_run_costs(layout, n_iterations), process_runs):
        for run_value, origin, run_gradient in results:
            value += run_value
            d_cells[origin : origin + len(run_gradient)] += run_gradient
    d_tables = d_cells if uses_tables else _from_contrasts(d_cells.reshape(-1, 3))
    d_nodes, d_gate, beliefs = (numbers.astype(precision, copy=False) for numbers in (d_nodes, d_gate, beliefs))
    return LossGradient(value, d_nodes, d_tables, d_gate, beliefs)


def _from_contrasts(d_contrasts: np.ndarray) -> np.ndarray:
    """Compute derivatives w.r.t. tables, flat, from derivatives w.r.t. contrasts: the adjoint of `_to_contrasts`."""
    d_a, d_b, d_r = d_contrasts.T
    return np.column_stack((d_r - d_a - d_b, d_a - d_r, d_b - d_r, d_r)).ravel()


def _check_loss(layout: GatedLayout, loss: BeliefLoss) -> None:
    if loss.kind == LINEAR:
        _check(loss.slope.shape == (int(layout.state_start[-1]),), "the slopes do not fit the layout")
        return
    fits = (loss.observed.shape, loss.weight.shape) == ((layout.n_nodes,),) * 2
    _check(fits, "observed states or weights do not fit the layout")
    is_valid = (loss.observed >= 0) & (loss.observed < np.diff(layout.state_start))
    _check(bool(is_valid.all()), "an observed state is not a state of its node")
