"""Mean field over blocks of nodes: each block's distribution from the expected log potentials of its factors.

What a factor has in one block is a *part*. A part of one node has as its distribution the node's; one of more nodes has a
table of its own, behind those of the nodes in the flat array `q`. A factor's expectation is taken under the product of
its parts, so that a block sees other blocks as they are, and its own nodes jointly.

The mass of impossible cells is not added but counted beside: `broken` is the expected number of broken rules. It comes
first, as if an impossible cell were -M for an M beyond all bounds: a block takes only joint states of fewest broken
rules, and among these goes by the log potentials.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64, types

from relcrf.kernels.compile import kernel
from relcrf.kernels.factors import FACTORS, max_arity

TIE_TOLERANCE = 1e-9
"""Expected numbers of broken rules that differ by less than this share of them are the same: they are rounded sums."""


class FactorParts(NamedTuple):
    """Blocks, and the factors cut by them.

    Args:
        block_start, block_node: the nodes of each block, as CSR.
        block_part_start, block_part: the parts of each block, as CSR.
        factor_start: the parts of factor f are factor_start[f] .. factor_start[f + 1] - 1.
        factor: of each part. place_start, place: its places in the scopes' `node`, as CSR.
        stride: shape of `place`: how far one step of each place's state moves in the part's table.
        diagonal: of each part, how far one step of all its places moves in its table.
        table_start: where each part's table begins in `q`.
        part_of: the part of each place of the scopes' `node`. stride_of: `stride` in the scopes' order.
    """

    block_start: np.ndarray
    block_node: np.ndarray
    block_part_start: np.ndarray
    block_part: np.ndarray
    factor_start: np.ndarray
    factor: np.ndarray
    place_start: np.ndarray
    place: np.ndarray
    stride: np.ndarray
    diagonal: np.ndarray
    table_start: np.ndarray
    part_of: np.ndarray
    stride_of: np.ndarray


PARTS = types.NamedUniTuple(int64[::1], len(FactorParts._fields), FactorParts)
"""The type of `FactorParts` as they are made."""


@kernel()
def _add_expectation(weight, log_potential, at, field, broken):
    if weight > 0.0:
        if log_potential == -np.inf:
            broken[at] += weight
        else:
            field[at] += weight * log_potential


@kernel()
def _add_pair_expectations(n_mine, n_other, step_mine, step_other, factor_table, cell, q, other, target, field, broken):
    """The expected log potential of a pair for each state of one of its nodes, the other's distribution at q[other]."""
    for x in range(n_mine):
        total = 0.0
        rules = 0.0
        for y in range(n_other):
            weight = q[other + y]
            if weight > 0.0:
                log_potential = factor_table[cell + x * step_mine + y * step_other]
                if log_potential == -np.inf:
                    rules += weight
                else:
                    total += weight * log_potential
        field[target + x] += total
        broken[target + x] += rules


@kernel()
def _advance_joint_state(factors, parts, f, state, index):
    """The next joint state of a factor, the last node fastest, and in `index` its parts' cells; False after the last."""
    start = factors.start[f]
    for k in range(factors.start[f + 1] - start - 1, -1, -1):
        part = parts.part_of[start + k] - parts.factor_start[f]
        n = factors.cardinality[factors.node[start + k]]
        state[k] += 1
        index[part] += parts.stride_of[start + k]
        if state[k] < n:
            return True
        index[part] -= parts.stride_of[start + k] * n
        state[k] = 0
    return False


@kernel()
def _product_probability(parts, f, q, index, without):
    """The product of the probabilities of a factor's parts at the cells of `index`, but of the one `without`, if any."""
    first = parts.factor_start[f]
    weight = 1.0
    for j in range(parts.factor_start[f + 1] - first):
        if j != without:
            weight *= q[parts.table_start[first + j] + index[j]]
    return weight


@kernel()
def _locate_agreement(parts, f, x, index):
    """Writes the cells of a factor's parts in which all its nodes have state x."""
    first = parts.factor_start[f]
    for j in range(parts.factor_start[f + 1] - first):
        index[j] = x * parts.diagonal[first + j]


@kernel((FACTORS, PARTS, float64[::1]))
def initialise_parts(factors, parts, q):
    """Sets the tables of all parts of more than one node as if their nodes were independent."""
    for part in range(len(parts.factor)):
        first = parts.place_start[part]
        last = parts.place_start[part + 1]
        if last - first > 1:
            size = parts.stride[first] * factors.cardinality[factors.node[parts.place[first]]]
            for cell in range(size):
                weight = 1.0
                for p in range(first, last):
                    v = factors.node[parts.place[p]]
                    weight *= q[factors.state_start[v] + cell // parts.stride[p] % factors.cardinality[v]]
                q[parts.table_start[part] + cell] = weight


@kernel()
def add_part_field(factors, parts, factor_table, part, q, index, state, field, broken):
    """Adds to a part's table in `field` its factor's expected log potential given the part's state; likewise `broken`.

    Args:
        index, state: scratch, as long as the largest arity.
    """
    f = parts.factor[part]
    mine = part - parts.factor_start[f]
    target = parts.table_start[part]
    cell = factors.table_start[f]
    if factors.agreement[f]:
        for x in range(factors.cardinality[factors.node[factors.start[f]]]):
            _locate_agreement(parts, f, x, index)
            _add_expectation(
                _product_probability(parts, f, q, index, mine), factor_table[cell], target + index[mine], field, broken
            )
        return
    index[:] = 0
    state[:] = 0
    left = True
    while left:
        _add_expectation(
            _product_probability(parts, f, q, index, mine), factor_table[cell], target + index[mine], field, broken
        )
        cell += 1
        left = _advance_joint_state(factors, parts, f, state, index)


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
def compute_fields(factors, parts, node_table, factor_table, b, q, index, state, field, broken):
    """Overwrites a block's nodes and parts in `field` by expected log potentials, in `broken` by expected broken rules."""
    # Arrays are taken out of their tuples once: to do so costs as much as a small pair.
    cardinality, state_start, node, start = factors.cardinality, factors.state_start, factors.node, factors.start
    agreement, factor_start, place_start = factors.agreement, parts.factor_start, parts.place_start
    touch_start, factor_of, part_of, table_start = factors.touch_start, parts.factor, parts.part_of, parts.table_start
    cells, stride, place, block_part = factors.table_start, parts.stride, parts.place, parts.block_part
    first_part, last_part = parts.block_part_start[b], parts.block_part_start[b + 1]
    for i in range(parts.block_start[b], parts.block_start[b + 1]):
        v = parts.block_node[i]
        for at in range(state_start[v], state_start[v + 1]):
            field[at] = node_table[at]
            broken[at] = 0.0
            if node_table[at] == -np.inf:  # worse than all that the node's factors can break
                field[at] = 0.0
                broken[at] = 1.0 + touch_start[v + 1] - touch_start[v]
    for i in range(first_part, last_part):
        part = block_part[i]
        p = place_start[part]
        if place_start[part + 1] - p > 1:
            for at in range(table_start[part], table_start[part] + stride[p] * cardinality[node[place[p]]]):
                field[at] = 0.0
                broken[at] = 0.0
    for i in range(first_part, last_part):
        part = block_part[i]
        f = factor_of[part]
        first = start[f]
        if agreement[f] or start[f + 1] - first != 2 or place_start[part + 1] - place_start[part] == 2:
            add_part_field(factors, parts, factor_table, part, q, index, state, field, broken)
            continue
        n_rows = cardinality[node[first]]
        n_columns = cardinality[node[first + 1]]
        other = table_start[2 * factor_start[f] + 1 - part]
        if part_of[first] == part:
            _add_pair_expectations(
                n_rows, n_columns, n_columns, 1, factor_table, cells[f], q, other, table_start[part], field, broken
            )
        else:
            _add_pair_expectations(
                n_columns, n_rows, 1, n_columns, factor_table, cells[f], q, other, table_start[part], field, broken
            )


@kernel()
def normalise(first, last, value, broken, hard):
    """Makes of log potentials, in place, a distribution over the states of fewest broken rules; returns its entropy.

    Args:
        first, last: the states are first .. last - 1 of `value` and `broken`.
        hard: all on a best one of them.
    """
    limit = broken[first]
    for x in range(first, last):
        limit = min(limit, broken[x])
    limit *= 1.0 + TIE_TOLERANCE
    best = -1
    for x in range(first, last):
        if broken[x] <= limit and (best < 0 or value[x] > value[best]):
            best = x
    if hard:
        for x in range(first, last):
            value[x] = 0.0
        value[best] = 1.0
        return 0.0
    top = value[best]
    total = 0.0
    for x in range(first, last):
        value[x] = np.exp(value[x] - top) if broken[x] <= limit else 0.0
        total += value[x]
    entropy = 0.0
    for x in range(first, last):
        value[x] /= total
        if value[x] > 0.0:
            entropy -= value[x] * np.log(value[x])
    return entropy


@kernel()
def _sum_node_fields(factors, parts, b, size, field, value):
    """Adds up `field` of a block's nodes and parts at each of its joint states, the last node fastest; into `value`."""
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
    """For each joint state of a block the cell of a part's table; into `cell`.

    Args:
        step: for each node how far its state moves in the block's joint states; of other blocks' nodes not read.
    """
    for at in range(size):
        cell[at] = parts.table_start[part]
    for p in range(parts.place_start[part], parts.place_start[part + 1]):
        v = factors.node[parts.place[p]]
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
def update_blocks(factors, parts, node_table, factor_table, first, last, hard, q, field, broken, step, out, entropy):
    """New distributions of the blocks first .. last - 1, by going through each one's joint states.

    Args:
        hard: see `normalise`.
        q: distributions that the blocks see of each other; may be `out`, and then each sees the new ones before it.
        field, broken: scratch of the shape of `q`. step: scratch, shape (n_nodes,), int64.
        out: distributions; overwritten where these blocks have theirs. entropy: shape (n_blocks,); likewise.
    """
    largest = 1
    for b in range(first, last):
        size = 1
        for i in range(parts.block_start[b], parts.block_start[b + 1]):
            size *= factors.cardinality[parts.block_node[i]]
        largest = max(largest, size)
    value = np.empty(largest)
    count = np.empty(largest)
    cell = np.empty(largest, dtype=np.int64)
    index = np.empty(max_arity(factors), dtype=np.int64)
    state = np.empty(max_arity(factors), dtype=np.int64)
    for b in range(first, last):
        compute_fields(factors, parts, node_table, factor_table, b, q, index, state, field, broken)
        if parts.block_start[b + 1] - parts.block_start[b] == 1:
            v = parts.block_node[parts.block_start[b]]
            for at in range(factors.state_start[v], factors.state_start[v + 1]):
                out[at] = field[at]
            entropy[b] = normalise(factors.state_start[v], factors.state_start[v + 1], out, broken, hard)
            continue
        size = 1
        for i in range(parts.block_start[b + 1] - 1, parts.block_start[b] - 1, -1):
            step[parts.block_node[i]] = size
            size *= factors.cardinality[parts.block_node[i]]
        _sum_node_fields(factors, parts, b, size, field, value)
        _sum_node_fields(factors, parts, b, size, broken, count)
        for i in range(parts.block_part_start[b], parts.block_part_start[b + 1]):
            part = parts.block_part[i]
            if parts.place_start[part + 1] - parts.place_start[part] > 1:
                _locate_part_cells(factors, parts, b, size, part, step, cell)
                for at in range(size):
                    value[at] += field[cell[at]]
                    count[at] += broken[cell[at]]
        entropy[b] = normalise(0, size, value, count, hard)
        for i in range(parts.block_start[b], parts.block_start[b + 1]):
            v = parts.block_node[i]
            for at in range(factors.state_start[v], factors.state_start[v + 1]):
                out[at] = 0.0
            for at in range(size):
                out[factors.state_start[v] + at // step[v] % factors.cardinality[v]] += value[at]
        for i in range(parts.block_part_start[b], parts.block_part_start[b + 1]):
            part = parts.block_part[i]
            if parts.place_start[part + 1] - parts.place_start[part] > 1:
                _locate_part_cells(factors, parts, b, size, part, step, cell)
                for at in range(size):
                    out[cell[at]] = 0.0
                for at in range(size):
                    out[cell[at]] += value[at]


@kernel((FACTORS, PARTS, float64[::1], float64[::1], float64[::1]))
def compute_marginals(factors, parts, factor_table, q, out):
    """Factor marginals as products of their parts; of an agreement the probability that its nodes agree.

    Returns:
        sum of the expected finite log potentials, expected number of broken rules.
    """
    index = np.empty(max_arity(factors), dtype=np.int64)
    state = np.empty(max_arity(factors), dtype=np.int64)
    energy = 0.0
    total = 0.0
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
            left = True
            while left:
                out[cell] = _product_probability(parts, f, q, index, -1)
                cell += 1
                left = _advance_joint_state(factors, parts, f, state, index)
        for at in range(factors.table_start[f], factors.table_start[f + 1]):
            if out[at] > 0.0:
                if factor_table[at] == -np.inf:
                    total += out[at]
                else:
                    energy += out[at] * factor_table[at]
    return energy, total
