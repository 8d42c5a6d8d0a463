"""The order in which gated pairs are worked on: blocks of whole components, in slots.

A component is a *shape* with numbers: `GROUP` components of one shape, as many examples over one structure are, stand side by
side in a *bundle*, so that of each of its pairs there are `GROUP`, one after the other, and of each of its nodes too. Those
need no gathering. What is left over, or alone in its shape, comes after all bundles, one component after the other. There
pairs with the same first node are kept apart, since each addition to a sum waits for the one before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, int32, int64, types

from relcrf.columns.offsets import offsets
from relcrf.kernels.compile import read_only
from relcrf.kernels.components import flatten, unite
from relcrf.kernels.lane_vectors import GROUP_SIZE
from relcrf.kernels.threads import freeze

LANES = 64
"""Slots that are worked on together: several vectors, so that the machine need not wait for one at a time."""

BLOCK_SIZE = 1024
"""Pairs and nodes of small components that make a block: they fill lanes, and what they leave behind fits a small cache."""


class PairSlots(NamedTuple):
    """Blocks of pairs by their slots; a block's number of slots is a multiple of `LANES`, and the last may be empty.

    Args:
        pair_start: how many pairs come before each block's, shape (n_blocks + 1,), int64.
        slot_start: where its slots begin, shape (n_blocks + 1,), int64.
        node_start: how many nodes come before its own, shape (n_blocks + 1,), int64.
        pair: the pair in each slot, shape (n_slots,), int32; of an empty one, the block's last.
        first, second: its nodes, counted within the block, shape (n_slots,), int32; of an empty slot, one more than there are.
        in_step: of each `GROUP` slots, whether first and second nodes follow each other, shape (n_slots / GROUP,), bool.
        one_table: whether all have the same table, shape (n_slots / GROUP,), bool.
        node: the nodes of all blocks, shape (n_nodes,), int32.
        table_of: of each pair, shape (n_pairs,), int32.
    """

    pair_start: np.ndarray
    slot_start: np.ndarray
    node_start: np.ndarray
    pair: np.ndarray
    first: np.ndarray
    second: np.ndarray
    in_step: np.ndarray
    one_table: np.ndarray
    node: np.ndarray
    table_of: np.ndarray


SLOTS = types.NamedTuple(
    [read_only(t[::1]) for t in (int64, int64, int64, int32, int32, int32, boolean, boolean, int32, int32)], PairSlots
)


def assign_slots(n_nodes: int, ends: np.ndarray, table_of: np.ndarray) -> PairSlots:
    """Orders pairs whose ends have shape (n_pairs, 2), int64; none may be of a node with itself."""
    component, node_place, pair_place = _find_components(n_nodes, ends)
    unit, lane = _bundle_components(component, ends, node_place, pair_place)
    size = np.bincount(unit[component]) + np.bincount(unit[component[ends[:, 0]]], minlength=unit.max(initial=-1) + 1)
    _, block = np.unique((np.cumsum(size) - size) // BLOCK_SIZE, return_inverse=True)  # of each unit
    n_blocks = int(block.max(initial=-1)) + 1

    node = np.lexsort((lane[component], node_place, unit[component]))
    node_start = offsets(np.bincount(block[unit[component]], minlength=n_blocks))
    local = np.empty(n_nodes, dtype=np.int64)
    local[node] = np.arange(n_nodes) - node_start[block[unit[component[node]]]]

    of_pair = component[ends[:, 0]]
    pair = np.lexsort((lane[of_pair], pair_place, unit[of_pair]))
    pair_block = block[unit[of_pair[pair]]]
    n_pairs = np.bincount(pair_block, minlength=n_blocks)
    pair_start, slot_start = offsets(n_pairs), offsets(-(-n_pairs // LANES) * LANES)
    slot = np.arange(len(pair)) - pair_start[pair_block] + slot_start[pair_block]
    n_slots = np.diff(slot_start)
    in_slot = pair[np.repeat(pair_start[1:], n_slots) - 1]
    first, second = np.repeat(np.diff(node_start), n_slots), np.repeat(np.diff(node_start), n_slots)
    in_slot[slot], first[slot], second[slot] = pair, local[ends[pair, 0]], local[ends[pair, 1]]

    steps = [(end.reshape(-1, GROUP_SIZE) - np.arange(GROUP_SIZE)) for end in (first, second)]
    in_step = np.logical_and(*((step == step[:, :1]).all(axis=1) for step in steps))
    tables = table_of[in_slot].reshape(-1, GROUP_SIZE)
    one_table = (tables == tables[:, :1]).all(axis=1)
    return PairSlots(
        *(freeze(start, np.int64) for start in (pair_start, slot_start, node_start)),
        *(freeze(numbers, np.int32) for numbers in (in_slot, first, second)),
        *(freeze(flags, np.bool_) for flags in (in_step, one_table)),
        *(freeze(numbers, np.int32) for numbers in (node, table_of)),
    )


def _find_components(n_nodes: int, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each node its component, and its place therein; of each pair, its place in the component, as they are worked on."""
    parent = np.arange(n_nodes, dtype=np.int32)
    first, second = (np.ascontiguousarray(end, dtype=np.int32) for end in ends.T)
    unite(parent, first, second, np.ones(n_nodes, dtype=np.bool_))
    flatten(parent)
    _, component = np.unique(parent, return_inverse=True)
    apart = _rank_within_groups(first)  # how many pairs with the same first node come before
    order = np.lexsort((first, apart, component[first]))
    pair_place = np.empty(len(first), dtype=np.int64)
    pair_place[order] = _rank_within_groups(component[first[order]])
    return component, _rank_within_groups(component), pair_place


def _bundle_components(
    component: np.ndarray, ends: np.ndarray, node_place: np.ndarray, pair_place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of each component, the bundle that it is in, or itself where it is in none, bundles first; and its lane."""
    n = int(component.max(initial=-1)) + 1
    n_nodes, n_pairs = np.bincount(component, minlength=n), np.bincount(component[ends[:, 0]], minlength=n)
    shape = _hash_shapes(n, component[ends[:, 0]], np.column_stack((pair_place, node_place[ends])), n_nodes)
    place = _rank_within_groups(shape)
    bundled = place < np.bincount(shape)[shape] // GROUP_SIZE * GROUP_SIZE if n else np.empty(0, dtype=np.bool_)
    bundled &= n_pairs > 0
    number = np.where(bundled, place // GROUP_SIZE, place)
    order = np.lexsort((number, shape, ~bundled))
    keys = np.column_stack((~bundled, shape, number))[order]
    unit = np.empty(n, dtype=np.int64)
    unit[order] = np.cumsum(np.concatenate(([0], (keys[1:] != keys[:-1]).any(axis=1))))[:n]
    return unit, np.where(bundled, place % GROUP_SIZE, 0)


def _hash_shapes(n: int, component: np.ndarray, rows: np.ndarray, n_nodes: np.ndarray) -> np.ndarray:
    """A number for each of n components, most often the same only if they have as many nodes and the same rows.

    A sum of mixed-up rows will do: components of different shapes in one bundle are slow, and right.
    """
    mixed = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    total = np.zeros(n, dtype=np.uint64)
    np.add.at(total, component, mixed)
    key = (total ^ n_nodes.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    shape: np.ndarray = np.unique(key, return_inverse=True)[1]
    return shape


def _rank_within_groups(group: np.ndarray) -> np.ndarray:
    """How many elements of the same group come before each, shape (n,)."""
    order = np.argsort(group, kind="stable")
    start = offsets(np.bincount(group))[:-1]
    out = np.empty(len(group), dtype=np.int64)
    out[order] = np.arange(len(group)) - start[group[order]]
    return out
