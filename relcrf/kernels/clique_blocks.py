"""Tables of the cliques of junction trees, computed in blocks from their inputs; see `kernels/junction_tree.py`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import kernel

MAX_BLOCK = 4096
"""Maximum number of cells of a block; the block and the patterns of a few inputs fit into the cache of a core."""

SCALAR, CONTIGUOUS, SCATTERED = 0, 1, 2
"""Patterns of an input in a block: one cell, the cells in the order of the block, or cells at any positions."""


class CliqueForest(NamedTuple):
    """The junction trees of a graph.

    Args:
        start, node: nodes of each clique, in CSR form: own nodes first, then the nodes that the clique shares with its parent.
        n_own: number of own nodes of each clique, shape (n_cliques,).
        n_columns, n_rows: number of joint states of the own nodes, and of the shared nodes, shape (n_cliques,).
        parent: parent of each clique, shape (n_cliques,), -1 at roots.
        is_agreement: mask of the cliques whose only input is an agreement, shape (n_cliques,).
        message: index of each clique's message in `values`, shape (n_cliques,). A message has one cell for each row.
        input_start, source: index of the first cell of each input in `values`, in CSR form.
        stride_start, stride: strides of each input for the nodes of the clique, in CSR form; 0 for nodes without an influence.
    """

    start: np.ndarray
    node: np.ndarray
    n_own: np.ndarray
    n_columns: np.ndarray
    n_rows: np.ndarray
    parent: np.ndarray
    is_agreement: np.ndarray
    message: np.ndarray
    input_start: np.ndarray
    source: np.ndarray
    stride_start: np.ndarray
    stride: np.ndarray


class BlockScratch(NamedTuple):
    """BlockScratch arrays for the loops over the blocks of a clique's table.

    Args:
        pattern, position: pattern of each input, and the offset of the current block in the input, shape (n_inputs,).
        local: for scattered inputs, the offset of each cell of the block, shape (n_inputs, n_block).
        counter: current state of each node, shape (n_nodes,).
        loops: nodes of the loops over blocks, from the innermost to the outermost loop, shape (n_nodes,).
        block, mass: one number for each cell of a block.
    """

    pattern: np.ndarray
    position: np.ndarray
    local: np.ndarray
    counter: np.ndarray
    loops: np.ndarray
    block: np.ndarray
    mass: np.ndarray


FLAT, INT, LONG = float64[::1], int32[::1], int64[::1]
CLIQUES = types.NamedTuple((LONG, INT, *[LONG] * 4, boolean[::1], *[LONG] * 5), CliqueForest)


@kernel((LONG, INT, LONG, LONG, INT, LONG, LONG, LONG))
def compute_strides(start, node, input_start, scope_start, scope_node, scope_stride, stride_start, stride):
    """Write the strides of all inputs for the nodes of the cliques.

    Args:
        scope_start, scope_node, scope_stride: nodes of each input and their strides, in CSR form.
        stride_start, stride: as in `CliqueForest`; `stride` is overwritten.
    """
    axis = np.empty(1 + (node.max() if len(node) else 0), dtype=np.int64)
    for c in range(len(start) - 1):
        for at in range(start[c], start[c + 1]):
            axis[node[at]] = at - start[c]
        for i in range(input_start[c], input_start[c + 1]):
            for at in range(stride_start[i], stride_start[i + 1]):
                stride[at] = 0
            for at in range(scope_start[i], scope_start[i + 1]):
                stride[stride_start[i] + axis[scope_node[at]]] = scope_stride[at]


@kernel()
def allocate_scratch(cliques, first, last):
    max_inputs = max_nodes = max_cells = 1
    for c in range(first, last):
        max_inputs = max(max_inputs, cliques.input_start[c + 1] - cliques.input_start[c])
        max_nodes = max(max_nodes, cliques.start[c + 1] - cliques.start[c])
        max_cells = max(max_cells, cliques.n_rows[c] * cliques.n_columns[c])
    n_block = min(max_cells, MAX_BLOCK)
    return BlockScratch(
        np.empty(max_inputs, dtype=np.int64),
        np.empty(max_inputs, dtype=np.int64),
        np.empty((max_inputs, n_block), dtype=np.int32),
        np.empty(max_nodes, dtype=np.int64),
        np.empty(max_nodes, dtype=np.int64),
        np.empty(n_block),
        np.empty(n_block),
    )


@kernel()
def plan_blocks(cliques, c, cardinality, scratch):
    """Divide a clique's table into blocks of consecutive cells; find the pattern of each input in a block.

    A block covers all states of the last nodes of the clique. The loops over the other nodes run over blocks; the loops over
    own nodes are innermost, so that all blocks of the same rows follow one another.

    Returns:
        The number of cells of a block, the number of rows of a block, the number of loops, and how many of them are loops
        over own nodes.
    """
    begin, end, n_own = cliques.start[c], cliques.start[c + 1], cliques.n_own[c]
    n_nodes = end - begin
    n_block = n_rows = 1
    inner = n_nodes  # the nodes of the block are inner .. n_nodes - 1
    while inner > 0 and n_block * cardinality[cliques.node[begin + inner - 1]] <= MAX_BLOCK:
        inner -= 1
        n_block *= cardinality[cliques.node[begin + inner]]
        if inner >= n_own:
            n_rows = n_block
    n_loops = n_own_loops = 0
    for a in range(min(inner, n_own) - 1, -1, -1):
        scratch.loops[n_loops] = a
        n_loops += 1
    n_own_loops = n_loops
    for a in range(inner - 1, n_own - 1, -1):
        scratch.loops[n_loops] = a
        n_loops += 1
    counter = scratch.counter
    for i in range(cliques.input_start[c], cliques.input_start[c + 1]):
        stride = cliques.stride[cliques.stride_start[i] : cliques.stride_start[i + 1]]
        k = i - cliques.input_start[c]
        is_scalar, is_contiguous, step = True, True, 1
        for a in range(n_nodes - 1, inner - 1, -1):
            size = cardinality[cliques.node[begin + a]]
            if size > 1:
                is_scalar &= stride[a] == 0
                is_contiguous &= stride[a] == step
            step *= size
        scratch.pattern[k] = SCALAR if is_scalar else CONTIGUOUS if is_contiguous else SCATTERED
        if is_scalar or is_contiguous:
            continue
        for a in range(inner, n_nodes):
            counter[a] = 0
        local = scratch.local[k]
        offset = 0
        for j in range(n_block):
            local[j] = offset
            for a in range(n_nodes - 1, inner - 1, -1):
                counter[a] += 1
                offset += stride[a]
                if counter[a] < cardinality[cliques.node[begin + a]]:
                    break
                offset -= stride[a] * counter[a]
                counter[a] = 0
    return n_block, n_rows, n_loops, n_own_loops


@kernel()
def start_loops(cliques, c, cardinality, row, n_loops, n_own_loops, scratch):
    """Set the loops to the first block of a number of rows, counted in the loops over shared nodes."""
    begin = cliques.start[c]
    first = cliques.input_start[c]
    for k in range(cliques.input_start[c + 1] - first):
        scratch.position[k] = 0
    for k in range(n_loops):
        a = scratch.loops[k]
        scratch.counter[a] = 0
        if k >= n_own_loops:
            size = cardinality[cliques.node[begin + a]]
            scratch.counter[a] = row % size
            row //= size
            for i in range(cliques.input_start[c + 1] - first):
                scratch.position[i] += scratch.counter[a] * cliques.stride[cliques.stride_start[first + i] + a]


@kernel()
def advance_loops(cliques, c, cardinality, n_loops, n_own_loops, scratch):
    """Advance to the next block.

    Returns:
        Whether the next block has other rows, i.e. all loops over own nodes have ended.
    """
    begin, first = cliques.start[c], cliques.input_start[c]
    n_inputs = cliques.input_start[c + 1] - first
    for k in range(n_loops):
        a = scratch.loops[k]
        size = cardinality[cliques.node[begin + a]]
        scratch.counter[a] += 1
        if scratch.counter[a] < size:
            for i in range(n_inputs):
                scratch.position[i] += cliques.stride[cliques.stride_start[first + i] + a]
            return k >= n_own_loops
        scratch.counter[a] = 0
        for i in range(n_inputs):
            scratch.position[i] -= (size - 1) * cliques.stride[cliques.stride_start[first + i] + a]
    return True


@kernel()
def compute_block(cliques, c, values, is_log, n_block, scratch):
    """Compute the current block of a clique's table: the product of the inputs, or the sum of their logs."""
    block, local = scratch.block, scratch.local
    constant = 0.0 if is_log else 1.0
    is_empty = True
    for i in range(cliques.input_start[c], cliques.input_start[c + 1]):
        k = i - cliques.input_start[c]
        base = cliques.source[i] + scratch.position[k]
        pattern = scratch.pattern[k]
        if pattern == SCALAR:
            if is_log:
                constant += values[base]
            else:
                constant *= values[base]
        elif pattern == CONTIGUOUS:
            cells = values[base : base + n_block]
            if is_empty:
                for j in range(n_block):
                    block[j] = cells[j]
            elif is_log:
                for j in range(n_block):
                    block[j] += cells[j]
            else:
                for j in range(n_block):
                    block[j] *= cells[j]
            is_empty = False
        else:
            index = local[k]
            if is_empty:
                for j in range(n_block):
                    block[j] = values[base + index[j]]
            elif is_log:
                for j in range(n_block):
                    block[j] += values[base + index[j]]
            else:
                for j in range(n_block):
                    block[j] *= values[base + index[j]]
            is_empty = False
    if is_empty:
        for j in range(n_block):
            block[j] = constant
    elif is_log:
        for j in range(n_block):
            block[j] += constant
    elif constant != 1.0:
        for j in range(n_block):
            block[j] *= constant


@kernel()
def visit_table(cliques, c, cardinality, values, is_log, collect, counter, table):
    """Compute the whole table of a small clique or, if `collect`, add the table to all inputs in `values`."""
    begin, end = cliques.start[c], cliques.start[c + 1]
    n_cells = cliques.n_rows[c] * cliques.n_columns[c]
    node, stride = cliques.node, cliques.stride
    n_inner = cardinality[node[end - 1]]
    for i in range(cliques.input_start[c], cliques.input_start[c + 1]):
        for at in range(begin, end):
            counter[at - begin] = 0
        is_first = i == cliques.input_start[c]
        cell, first_stride = cliques.source[i], cliques.stride_start[i]
        step = stride[first_stride + end - 1 - begin]
        for j in range(0, n_cells, n_inner):
            if collect:
                for x in range(n_inner):
                    values[cell + x * step] += table[j + x]
            elif is_first:
                for x in range(n_inner):
                    table[j + x] = values[cell + x * step]
            elif is_log:
                for x in range(n_inner):
                    table[j + x] += values[cell + x * step]
            else:
                for x in range(n_inner):
                    table[j + x] *= values[cell + x * step]
            for a in range(end - begin - 2, -1, -1):
                counter[a] += 1
                cell += stride[first_stride + a]
                if counter[a] < cardinality[node[begin + a]]:
                    break
                cell -= stride[first_stride + a] * counter[a]
                counter[a] = 0
