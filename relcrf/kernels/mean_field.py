"""Structured mean field: each block of nodes has a joint distribution, computed from expected log potentials.

A *part* of a factor is the set of the factor's nodes that are in one block. A part with one node has the distribution
of this node. A part with several nodes has a joint table, which is stored after the nodes' tables in the flat array
`q`. The expectation of a factor is taken under the product of the distributions of its parts. Nodes of one block can
therefore be dependent; nodes of different blocks are independent.

An impossible cell (-inf) is a *violation*. Violations are not added to the expected log potentials but counted
separately: `violations` contains expected numbers of violations. A block's distribution includes only the joint states
with the fewest expected violations; the expected log potentials determine the probabilities of these states. This is
the limit, for large M, of the distribution in which impossible cells have log potential -M.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64, types

from relcrf.kernels.compile import kernel
from relcrf.kernels.factors import FACTORS, max_arity

TIE_TOLERANCE = 1e-9
"""Relative tolerance for comparing expected numbers of violations, which have rounding errors."""


class FactorParts(NamedTuple):
    """Blocks of nodes, and parts of factors (see the module docstring).

    Args:
        block_start, block_node: nodes of each block, in CSR form.
        block_part_start, block_part: parts of each block, in CSR form.
        factor_start: the parts of factor f are factor_start[f] .. factor_start[f + 1] - 1.
        factor: factor of each part.
        slot_start, slot: slots of each part, in CSR form. A slot is an index into `Factors.node`: a node of a factor.
        stride: stride of the node of each entry of `slot` in the part's table.
        diagonal: sum of the strides of each part, i.e. the step from the cell in which all nodes of the part have state
            x to the cell in which they all have state x + 1.
        table_start: offset of each part's table in `q`.
        part_of_slot: for each slot, the part to which it belongs.
        stride_of_slot: for each slot, the stride of its node in the table of this part.
    """

    block_start: np.ndarray
    block_node: np.ndarray
    block_part_start: np.ndarray
    block_part: np.ndarray
    factor_start: np.ndarray
    factor: np.ndarray
    slot_start: np.ndarray
    slot: np.ndarray
    stride: np.ndarray
    diagonal: np.ndarray
    table_start: np.ndarray
    part_of_slot: np.ndarray
    stride_of_slot: np.ndarray


PARTS = types.NamedUniTuple(int64[::1], len(FactorParts._fields), FactorParts)
"""The Numba type of `FactorParts`."""


@kernel()
def _add_expectation(weight, log_potential, cell, field, violations):
    if weight > 0.0:
        if log_potential == -np.inf:
            violations[cell] += weight
        else:
            field[cell] += weight * log_potential


@kernel()
def _add_pair_expectations(
    n_states, n_other_states, step, other_step, factor_table, cell, q, other, target, field, violations
):
    """Add a pair's expected log potential for each state of one node; the other node's distribution is at q[other:]."""
    for x in range(n_states):
        total = 0.0
        violation = 0.0
        for y in range(n_other_states):
            weight = q[other + y]
            if weight > 0.0:
                log_potential = factor_table[cell + x * step + y * other_step]
                if log_potential == -np.inf:
                    violation += weight
                else:
                    total += weight * log_potential
        field[target + x] += total
        violations[target + x] += violation


@kernel()
def _advance_joint_state(factors, parts, f, state, index):
    """Advance `state` and the parts' cells (`index`) to a factor's next joint state; return False if there is none."""
    start = factors.start[f]
    for k in range(factors.start[f + 1] - start - 1, -1, -1):
        part = parts.part_of_slot[start + k] - parts.factor_start[f]
        n = factors.cardinality[factors.node[start + k]]
        state[k] += 1
        index[part] += parts.stride_of_slot[start + k]
        if state[k] < n:
            return True
        index[part] -= parts.stride_of_slot[start + k] * n
        state[k] = 0
    return False


@kernel()
def _product_probability(parts, f, q, index, without):
    """Return the product of q over a factor's parts, each at its cell in `index`, except part `without` (-1: none)."""
    first = parts.factor_start[f]
    weight = 1.0
    for j in range(parts.factor_start[f + 1] - first):
        if j != without:
            weight *= q[parts.table_start[first + j] + index[j]]
    return weight


@kernel()
def _locate_agreement(parts, f, x, index):
    """Write to `index`, for each part of a factor, the cell in which all nodes of the part have state x."""
    first = parts.factor_start[f]
    for j in range(parts.factor_start[f + 1] - first):
        index[j] = x * parts.diagonal[first + j]


@kernel((FACTORS, PARTS, float64[::1]))
def initialise_parts(factors, parts, q):
    """Initialise the table of each part that has several nodes with the product of the nodes' distributions."""
    for part in range(len(parts.factor)):
        first = parts.slot_start[part]
        last = parts.slot_start[part + 1]
        if last - first > 1:
            size = parts.stride[first] * factors.cardinality[factors.node[parts.slot[first]]]
            for cell in range(size):
                weight = 1.0
                for p in range(first, last):
                    v = factors.node[parts.slot[p]]
                    weight *= q[factors.state_start[v] + cell // parts.stride[p] % factors.cardinality[v]]
                q[parts.table_start[part] + cell] = weight


@kernel()
def add_part_field(factors, parts, factor_table, part, q, index, state, field, violations):
    """Compute the expected log potential and violations of a part's factor, given each joint state of the part.

    Args:
        index, state: scratch, as long as the largest arity.
        field, violations: the expected log potentials and violations are added to these arrays, laid out as `q`.
    """
    f = parts.factor[part]
    own = part - parts.factor_start[f]
    target = parts.table_start[part]
    cell = factors.table_start[f]
    if factors.agreement[f]:
        for x in range(factors.cardinality[factors.node[factors.start[f]]]):
            _locate_agreement(parts, f, x, index)
            _add_expectation(
                _product_probability(parts, f, q, index, own),
                factor_table[cell],
                target + index[own],
                field,
                violations,
            )
        return
    index[:] = 0
    state[:] = 0
    has_next = True
    while has_next:
        _add_expectation(
            _product_probability(parts, f, q, index, own), factor_table[cell], target + index[own], field, violations
        )
        cell += 1
        has_next = _advance_joint_state(factors, parts, f, state, index)


@kernel(
    (
        FACTORS,
        PARTS,
        float64[::1],
        float64[::1],
        int64,
        float64[::1],
        int64[::1],
        int64[::1],
        float64[::1],
        float64[::1],
    )
)
def compute_fields(factors, parts, node_table, factor_table, b, q, index, state, field, violations):
    """Compute the expected log potential (`field`) and violations of each state of a block's nodes and parts."""
    # Unpack the tuples once: accessing their arrays costs as much as a small pair.
    cardinality, state_start, node, start = factors.cardinality, factors.state_start, factors.node, factors.start
    agreement, factor_start, slot_start = factors.agreement, parts.factor_start, parts.slot_start
    touch_start, factor_of, part_of_slot, table_start = (
        factors.touch_start,
        parts.factor,
        parts.part_of_slot,
        parts.table_start,
    )
    factor_table_start, stride, slot, block_part = factors.table_start, parts.stride, parts.slot, parts.block_part
    first_part, last_part = parts.block_part_start[b], parts.block_part_start[b + 1]
    for i in range(parts.block_start[b], parts.block_start[b + 1]):
        v = parts.block_node[i]
        for at in range(state_start[v], state_start[v + 1]):
            field[at] = node_table[at]
            violations[at] = 0.0
            if node_table[at] == -np.inf:  # more violations than the node's factors can have
                field[at] = 0.0
                violations[at] = 1.0 + touch_start[v + 1] - touch_start[v]
    for i in range(first_part, last_part):
        part = block_part[i]
        p = slot_start[part]
        if slot_start[part + 1] - p > 1:
            for at in range(table_start[part], table_start[part] + stride[p] * cardinality[node[slot[p]]]):
                field[at] = 0.0
                violations[at] = 0.0
    for i in range(first_part, last_part):
        part = block_part[i]
        f = factor_of[part]
        first = start[f]
        if agreement[f] or start[f + 1] - first != 2 or slot_start[part + 1] - slot_start[part] == 2:
            add_part_field(factors, parts, factor_table, part, q, index, state, field, violations)
            continue
        n_rows = cardinality[node[first]]
        n_columns = cardinality[node[first + 1]]
        other = table_start[2 * factor_start[f] + 1 - part]
        if part_of_slot[first] == part:
            _add_pair_expectations(
                n_rows,
                n_columns,
                n_columns,
                1,
                factor_table,
                factor_table_start[f],
                q,
                other,
                table_start[part],
                field,
                violations,
            )
        else:
            _add_pair_expectations(
                n_columns,
                n_rows,
                1,
                n_columns,
                factor_table,
                factor_table_start[f],
                q,
                other,
                table_start[part],
                field,
                violations,
            )


@kernel()
def normalise(first, last, value, violations, hard):
    """Convert log potentials in place to a distribution over the states with the fewest violations; return the entropy.

    Args:
        first, last: the states are first .. last - 1 of `value` and `violations`.
        hard: whether to assign probability 1 to the best of the states with the fewest violations.
    """
    limit = violations[first]
    for x in range(first, last):
        limit = min(limit, violations[x])
    limit *= 1.0 + TIE_TOLERANCE
    best = -1
    for x in range(first, last):
        if violations[x] <= limit and (best < 0 or value[x] > value[best]):
            best = x
    if hard:
        for x in range(first, last):
            value[x] = 0.0
        value[best] = 1.0
        return 0.0
    top = value[best]
    total = 0.0
    for x in range(first, last):
        value[x] = np.exp(value[x] - top) if violations[x] <= limit else 0.0
        total += value[x]
    entropy = 0.0
    for x in range(first, last):
        value[x] /= total
        if value[x] > 0.0:
            entropy -= value[x] * np.log(value[x])
    return entropy


@kernel()
def _sum_node_fields(factors, parts, b, size, field, value):
    """Write to `value`, for each joint state of a block (last node fastest), the sum of `field` over the nodes."""
    for at in range(size):
        value[at] = 0.0
    inner = size
    for i in range(parts.block_start[b], parts.block_start[b + 1]):
        v = parts.block_node[i]
        n = factors.cardinality[v]
        inner //= n
        for at in range(size):
            value[at] += field[factors.state_start[v] + at // inner % n]


@kernel()
def _locate_part_cells(factors, parts, b, size, part, step, cell):
    """Write to `cell`, for each joint state of a block, the index in `q` of the matching cell of a part's table.

    Args:
        step: stride of each node in the block's joint states; not read for nodes of other blocks.
    """
    for at in range(size):
        cell[at] = parts.table_start[part]
    for p in range(parts.slot_start[part], parts.slot_start[part + 1]):
        v = factors.node[parts.slot[p]]
        for at in range(size):
            cell[at] += at // step[v] % factors.cardinality[v] * parts.stride[p]


@kernel(
    (
        FACTORS,
        PARTS,
        float64[::1],
        float64[::1],
        int64,
        int64,
        boolean,
        *[float64[::1]] * 3,
        int64[::1],
        *[float64[::1]] * 2,
    )
)
def update_blocks(
    factors, parts, node_table, factor_table, first, last, hard, q, field, violations, step, out, entropy
):
    """Update the distributions of the blocks first .. last - 1, by enumeration of the joint states of each block.

    Args:
        hard: see `normalise`.
        q: the current distributions. If `q` is the same array as `out`, the update of a block uses the new
            distributions of the blocks before it.
        field, violations: scratch of the shape of `q`.
        step: scratch, shape (n_nodes,), int64.
        out: new distributions, in the layout of `q`; overwritten for these blocks.
        entropy: entropy of each block, shape (n_blocks,); overwritten for these blocks.
    """
    largest = 1
    for b in range(first, last):
        size = 1
        for i in range(parts.block_start[b], parts.block_start[b + 1]):
            size *= factors.cardinality[parts.block_node[i]]
        largest = max(largest, size)
    value = np.empty(largest)
    violation_count = np.empty(largest)
    cell = np.empty(largest, dtype=np.int64)
    index = np.empty(max_arity(factors), dtype=np.int64)
    state = np.empty(max_arity(factors), dtype=np.int64)
    for b in range(first, last):
        compute_fields(factors, parts, node_table, factor_table, b, q, index, state, field, violations)
        if parts.block_start[b + 1] - parts.block_start[b] == 1:
            v = parts.block_node[parts.block_start[b]]
            for at in range(factors.state_start[v], factors.state_start[v + 1]):
                out[at] = field[at]
            entropy[b] = normalise(factors.state_start[v], factors.state_start[v + 1], out, violations, hard)
            continue
        size = 1
        for i in range(parts.block_start[b + 1] - 1, parts.block_start[b] - 1, -1):
            step[parts.block_node[i]] = size
            size *= factors.cardinality[parts.block_node[i]]
        _sum_node_fields(factors, parts, b, size, field, value)
        _sum_node_fields(factors, parts, b, size, violations, violation_count)
        for i in range(parts.block_part_start[b], parts.block_part_start[b + 1]):
            part = parts.block_part[i]
            if parts.slot_start[part + 1] - parts.slot_start[part] > 1:
                _locate_part_cells(factors, parts, b, size, part, step, cell)
                for at in range(size):
                    value[at] += field[cell[at]]
                    violation_count[at] += violations[cell[at]]
        entropy[b] = normalise(0, size, value, violation_count, hard)
        for i in range(parts.block_start[b], parts.block_start[b + 1]):
            v = parts.block_node[i]
            for at in range(factors.state_start[v], factors.state_start[v + 1]):
                out[at] = 0.0
            for at in range(size):
                out[factors.state_start[v] + at // step[v] % factors.cardinality[v]] += value[at]
        for i in range(parts.block_part_start[b], parts.block_part_start[b + 1]):
            part = parts.block_part[i]
            if parts.slot_start[part + 1] - parts.slot_start[part] > 1:
                _locate_part_cells(factors, parts, b, size, part, step, cell)
                for at in range(size):
                    out[cell[at]] = 0.0
                for at in range(size):
                    out[cell[at]] += value[at]


@kernel((FACTORS, PARTS, float64[::1], float64[::1], float64[::1]))
def compute_marginals(factors, parts, factor_table, q, out):
    """Compute factor marginals as products of part distributions; for an agreement, the probability of equal states.

    Returns:
        The sum of the expected finite log potentials of all factors, and the expected number of violations.
    """
    index = np.empty(max_arity(factors), dtype=np.int64)
    state = np.empty(max_arity(factors), dtype=np.int64)
    energy = 0.0
    violations = 0.0
    for f in range(len(factors.start) - 1):
        cell = factors.table_start[f]
        if factors.agreement[f]:
            out[cell] = 0.0
            for x in range(factors.cardinality[factors.node[factors.start[f]]]):
                _locate_agreement(parts, f, x, index)
                out[cell] += _product_probability(parts, f, q, index, -1)
            out[cell] = min(out[cell], 1.0)
        else:
            index[:] = 0
            state[:] = 0
            has_next = True
            while has_next:
                out[cell] = _product_probability(parts, f, q, index, -1)
                cell += 1
                has_next = _advance_joint_state(factors, parts, f, state, index)
        for at in range(factors.table_start[f], factors.table_start[f + 1]):
            if out[at] > 0.0:
                if factor_table[at] == -np.inf:
                    violations += out[at]
                else:
                    energy += out[at] * factor_table[at]
    return energy, violations
