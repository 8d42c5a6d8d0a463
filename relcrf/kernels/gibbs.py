"""Blocked Gibbs sampling: each set of nodes is drawn from its exact conditional distribution given all other nodes."""

from __future__ import annotations

from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import allocation_free_kernel, inline_kernel
from relcrf.kernels.factors import FACTORS, common_state, row_offset
from relcrf.kernels.forest_sampling import (
    NODE_SETS,
    condition_on_parent,
    fill_pair_table,
    filter_upward,
    sample_downward,
)

SWEEP_TYPES = (
    (FACTORS, NODE_SETS, float64[::1], float64[::1], float64[:, ::1], boolean, int32[::1])
    + (float64[::1],) * 4
    + (int64[::1], types.UniTuple(float64[::1], 5))
)
"""The Numba types of the arguments of `run_sweeps`."""


@inline_kernel
def _add_conditionals(factors, sets, factor_table, s, states, belief, pair, out, joint, probability, recorded, tables):
    """Compute probabilities of the nodes and factors of set `s`, given all other nodes, after `filter_upward`.

    Args:
        probability: overwritten by the state probabilities of all nodes of the set, flat.
        recorded: overwritten by the state probabilities of the nodes that the set records (see `NodeSets`), flat.
        tables: array to which the cell probabilities of the recorded factors are added (see `NodeSets`). An agreement
            (see `factors`) has one cell.
    """
    # Unpack the tuples once: accessing their arrays costs as much as a small factor.
    factor, start, node, stride = factors.factor, factors.start, factors.node, factors.stride
    agreement, table_start, cardinality = factors.agreement, factors.table_start, factors.cardinality
    state_start, member, parent, entry_start = factors.state_start, sets.node, sets.parent, sets.entry_start
    slots, parent_slots, records_factor, records_node = (
        sets.slot,
        sets.parent_slot,
        sets.records_factor,
        sets.records_node,
    )
    for k in range(sets.start[s], sets.start[s + 1]):
        v = member[k]
        p = parent[k]
        n = cardinality[v]
        first = state_start[v]
        n_parent = 0
        if p < 0:
            condition_on_parent(first, n, belief, pair, -1, states[v], out)
            for x in range(n):
                probability[first + x] = out[x]
        else:
            n_parent = cardinality[p]
            fill_pair_table(factors, sets, factor_table, k, n, n_parent, states, pair)
            for x in range(n):
                probability[first + x] = 0.0
            for y in range(n_parent):
                parent_probability = probability[state_start[p] + y]
                if parent_probability > 0.0:
                    condition_on_parent(first, n, belief, pair, y, states[v], out)
                for x in range(n):
                    joint[y * n + x] = parent_probability * out[x] if parent_probability > 0.0 else 0.0
                    probability[first + x] += joint[y * n + x]
        if records_node[k]:
            for at in range(first, first + n):
                recorded[at] = probability[at]
        for e in range(entry_start[k], entry_start[k + 1]):
            if not records_factor[e]:
                continue
            slot = slots[e]
            parent_slot = parent_slots[e]
            f = factor[slot]
            if agreement[f]:
                common = common_state(start[f], start[f + 1], slot, parent_slot, node, states)
                for x in range(n):
                    if common == -2 or common == x:
                        value = joint[x * n + x] if parent_slot >= 0 else probability[first + x]
                        tables[table_start[f]] += value
                continue
            cell = table_start[f] + row_offset(start[f], start[f + 1], slot, parent_slot, node, stride, states)
            for x in range(n):
                at = cell + x * stride[slot]
                if parent_slot < 0:
                    tables[at] += probability[first + x]
                else:
                    for y in range(n_parent):
                        tables[at + y * stride[parent_slot]] += joint[y * n + x]


@allocation_free_kernel(*SWEEP_TYPES)
def run_sweeps(
    factors,
    sets,
    node_table,
    factor_table,
    uniform,
    record,
    states,
    recorded,
    total,
    square,
    tables,
    n_recorded,
    scratch,
):
    """Draw all sets in turn, once for each row of `uniform`.

    Args:
        uniform: random numbers in [0, 1), shape (n_sweeps, len(sets.node)).
        record: whether to accumulate the conditional probabilities of nodes and factors, each given all nodes outside
            the drawn set (Rao-Blackwell).
        states: states of all nodes; updated in place.
        recorded: scratch, flat over the states of all nodes.
        total, square: node probabilities, and squares of node probabilities, are added to these flat arrays.
        tables: factor probabilities are added to it.
        n_recorded: the number of recorded sweeps is added to it, shape (1,).
    """
    belief, probability, pair, joint, out = scratch
    for sweep in range(len(uniform)):
        for s in range(len(sets.start) - 1):
            filter_upward(factors, sets, node_table, factor_table, s, states, belief, pair)
            if record:
                _add_conditionals(
                    factors, sets, factor_table, s, states, belief, pair, out, joint, probability, recorded, tables
                )
            sample_downward(factors, sets, factor_table, s, uniform[sweep, sets.start[s] :], belief, pair, out, states)
        if record:
            n_recorded[0] += 1
            for at in range(len(recorded)):
                total[at] += recorded[at]
                square[at] += recorded[at] * recorded[at]
