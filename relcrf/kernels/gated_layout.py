"""The processing order of gated pairs: each pair has a *slot*, and a *block* of slots contains whole components.

`GROUP_SIZE` connected components of the same shape, such as examples over one structure, are interleaved in a *bundle*.
Corresponding pairs of a bundle occupy `GROUP_SIZE` consecutive slots. Corresponding nodes are consecutive, so that
their values are read and written as vectors without gather and scatter. The components that are not in a bundle follow
the bundles, one after the other. In these components, pairs with the same first node are placed apart if possible,
because consecutive additions to the same sum would wait for each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, int32, int64, types

from relcrf.columns.offsets import offsets
from relcrf.kernels.compile import read_only
from relcrf.kernels.components import flatten, unite
from relcrf.kernels.threads import freeze

LANES = 64
"""Number of slots processed together. They fill several vectors, so that the latency of one operation is hidden."""

GROUP_SIZE = 16
"""Number of consecutive slots that are processed as one vector: one AVX-512 vector of float32, or two of float64."""

BLOCK_SIZE = 1024
"""Target number of pairs plus nodes per block: it fills all lanes, and stored iterations still fit a small cache."""


class PairSlots(NamedTuple):
    """Blocks of pairs in slots; each block has a multiple of `LANES` slots, and its last slots may be empty.

    Args:
        pair_start: number of pairs before each block, shape (n_blocks + 1,), int64.
        slot_start: first slot of each block, shape (n_blocks + 1,), int64.
        node_start: number of nodes before each block, shape (n_blocks + 1,), int64.
        pair: the pair in each slot, shape (n_slots,), int32; for an empty slot, the block's last pair.
        first, second: the two nodes of each slot's pair, as indices within the block, shape (n_slots,), int32. An empty
            slot refers to a dummy node, which follows the block's last node.
        contiguous: for each group of `GROUP_SIZE` slots, whether the indices of the first nodes are consecutive, and
            those of the second nodes too, shape (n_slots / GROUP_SIZE,), bool.
        shared_table: for each group of `GROUP_SIZE` slots, whether all pairs have one table; shape of `contiguous`.
        node: the nodes of each block, block after block, shape (n_nodes,), int32.
        table_of: the table of each pair, shape (n_pairs,), int32.
    """

    pair_start: np.ndarray
    slot_start: np.ndarray
    node_start: np.ndarray
    pair: np.ndarray
    first: np.ndarray
    second: np.ndarray
    contiguous: np.ndarray
    shared_table: np.ndarray
    node: np.ndarray
    table_of: np.ndarray


SLOTS = types.NamedTuple(
    [read_only(t[::1]) for t in (int64, int64, int64, int32, int32, int32, boolean, boolean, int32, int32)], PairSlots
)


def assign_slots(n_nodes: int, ends: np.ndarray, table_of: np.ndarray) -> PairSlots:
    """Assign pairs to slots.

    Args:
        ends: nodes of each pair, shape (n_pairs, 2), int64; no pair may connect a node with itself.
        table_of: table of each pair, shape (n_pairs,).
    """
    component, node_rank, pair_rank = _find_components(n_nodes, ends)
    bundle, lane = _bundle_components(component, ends, node_rank, pair_rank)
    size = np.bincount(bundle[component]) + np.bincount(
        bundle[component[ends[:, 0]]], minlength=bundle.max(initial=-1) + 1
    )
    _, block = np.unique((np.cumsum(size) - size) // BLOCK_SIZE, return_inverse=True)  # the block of each bundle
    n_blocks = int(block.max(initial=-1)) + 1

    node = np.lexsort((lane[component], node_rank, bundle[component]))
    node_start = offsets(np.bincount(block[bundle[component]], minlength=n_blocks))
    local = np.empty(n_nodes, dtype=np.int64)
    local[node] = np.arange(n_nodes) - node_start[block[bundle[component[node]]]]

    pair_component = component[ends[:, 0]]
    pair = np.lexsort((lane[pair_component], pair_rank, bundle[pair_component]))
    pair_block = block[bundle[pair_component[pair]]]
    n_pairs = np.bincount(pair_block, minlength=n_blocks)
    pair_start, slot_start = offsets(n_pairs), offsets(-(-n_pairs // LANES) * LANES)
    slot = np.arange(len(pair)) - pair_start[pair_block] + slot_start[pair_block]
    n_slots = np.diff(slot_start)
    slot_pair = pair[np.repeat(pair_start[1:], n_slots) - 1]
    first, second = np.repeat(np.diff(node_start), n_slots), np.repeat(np.diff(node_start), n_slots)
    slot_pair[slot], first[slot], second[slot] = pair, local[ends[pair, 0]], local[ends[pair, 1]]

    steps = [(end.reshape(-1, GROUP_SIZE) - np.arange(GROUP_SIZE)) for end in (first, second)]
    contiguous = np.logical_and(*((step == step[:, :1]).all(axis=1) for step in steps))
    tables = table_of[slot_pair].reshape(-1, GROUP_SIZE)
    shared_table = (tables == tables[:, :1]).all(axis=1)
    return PairSlots(
        *(freeze(start, np.int64) for start in (pair_start, slot_start, node_start)),
        *(freeze(numbers, np.int32) for numbers in (slot_pair, first, second)),
        *(freeze(flags, np.bool_) for flags in (contiguous, shared_table)),
        *(freeze(numbers, np.int32) for numbers in (node, table_of)),
    )


def _find_components(n_nodes: int, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the component of each node, and the rank of each node and of each pair within the component."""
    parent = np.arange(n_nodes, dtype=np.int32)
    first, second = (np.ascontiguousarray(end, dtype=np.int32) for end in ends.T)
    unite(parent, first, second, np.ones(n_nodes, dtype=np.bool_))
    flatten(parent)
    _, component = np.unique(parent, return_inverse=True)
    repeats = _rank_within_groups(first)  # number of earlier pairs with the same first node
    order = np.lexsort((first, repeats, component[first]))
    pair_rank = np.empty(len(first), dtype=np.int64)
    pair_rank[order] = _rank_within_groups(component[first[order]])
    return component, _rank_within_groups(component), pair_rank


def _bundle_components(
    component: np.ndarray, ends: np.ndarray, node_rank: np.ndarray, pair_rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return each component's bundle and index in the bundle; an unbundled component is a bundle by itself."""
    n = int(component.max(initial=-1)) + 1
    n_nodes, n_pairs = np.bincount(component, minlength=n), np.bincount(component[ends[:, 0]], minlength=n)
    shape = _hash_shapes(n, component[ends[:, 0]], np.column_stack((pair_rank, node_rank[ends])), n_nodes)
    rank = _rank_within_groups(shape)
    bundled = rank < np.bincount(shape)[shape] // GROUP_SIZE * GROUP_SIZE if n else np.empty(0, dtype=np.bool_)
    bundled &= n_pairs > 0
    number = np.where(bundled, rank // GROUP_SIZE, rank)
    order = np.lexsort((number, shape, ~bundled))
    keys = np.column_stack((~bundled, shape, number))[order]
    bundle = np.empty(n, dtype=np.int64)
    bundle[order] = np.cumsum(np.concatenate(([0], (keys[1:] != keys[:-1]).any(axis=1))))[:n]
    return bundle, np.where(bundled, rank % GROUP_SIZE, 0)


def _hash_shapes(n: int, component: np.ndarray, rows: np.ndarray, n_nodes: np.ndarray) -> np.ndarray:
    """Return a number for each of n components; components with equal numbers almost always have equal shapes.

    A component's shape, i.e. its number of nodes and its `rows`, is hashed. A collision is harmless: a bundle of
    components with different shapes is slower, but correct.
    """
    hashed = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        hashed = (hashed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    total = np.zeros(n, dtype=np.uint64)
    np.add.at(total, component, hashed)
    key = (total ^ n_nodes.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    shape: np.ndarray = np.unique(key, return_inverse=True)[1]
    return shape


def _rank_within_groups(group: np.ndarray) -> np.ndarray:
    """Return, for each element, the number of earlier elements in the same group, shape (n,)."""
    order = np.argsort(group, kind="stable")
    start = offsets(np.bincount(group))[:-1]
    out = np.empty(len(group), dtype=np.int64)
    out[order] = np.arange(len(group)) - start[group[order]]
    return out
