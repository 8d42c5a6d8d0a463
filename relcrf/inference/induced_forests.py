"""Covers of a graph's nodes by induced forests; each forest can be sampled exactly given the other nodes.

Source: Hamze & de Freitas, From Fields to Trees (2004). The node sets of a cover overlap, because each set is maximal.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.kernels import induced_forests as kernel
from relcrf.kernels.factors import Factors
from relcrf.kernels.forest_sampling import NodeSets

ForestArrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""The arrays of one set: node, parent, entry_start, slot, parent_slot; see `NodeSets`."""


def single_node_sets(factors: Factors) -> NodeSets:
    """Return one set for each node, in ascending order of nodes."""
    n_nodes = len(factors.cardinality)
    node = np.arange(n_nodes, dtype=np.int32)
    no_parent = np.full(n_nodes, -1, dtype=np.int32)
    no_parent_slot = np.full(len(factors.touch), -1)
    return _build_sets(
        factors, np.arange(n_nodes + 1), (node, no_parent, factors.touch_start, factors.touch, no_parent_slot)
    )


def forest_cover(factors: Factors, rng: np.random.Generator) -> NodeSets:
    """Return random induced forests that together contain every node; only one if the whole graph is a forest."""
    forests = list(_iter_forests(factors, rng))
    start = offsets([len(forest[0]) for forest in forests])
    concatenated = [np.concatenate(arrays) for arrays in zip(*forests, strict=True)] if forests else _empty_forest()
    entries = np.concatenate([np.zeros(0, dtype=np.int64), *(np.diff(forest[2]) for forest in forests)])
    node, parent, _, slot, parent_slot = concatenated
    return _build_sets(factors, start, (node, parent, offsets(entries), slot, parent_slot))


def sampling_scratch(factors: Factors, sets: NodeSets) -> tuple[np.ndarray, ...]:
    """Return the scratch arrays of `kernels.gibbs.run_sweeps`.

    They are two arrays for the states of all nodes, two for the joint states of a node and its parent, and one for the states
    of a node.
    """
    cardinality, n_states = factors.cardinality.astype(np.int64), int(factors.state_start[-1])
    children = np.flatnonzero(sets.parent >= 0)
    n_cells = int((cardinality[sets.node[children]] * cardinality[sets.parent[children]]).max(initial=0))
    sizes = n_states, n_states, n_cells, n_cells, int(cardinality.max(initial=1))
    return tuple(np.empty(size) for size in sizes)


def _iter_forests(factors: Factors, rng: np.random.Generator) -> Iterator[ForestArrays]:
    n_nodes = len(factors.cardinality)
    uncovered, in_forest = np.ones(n_nodes, dtype=bool), np.empty(n_nodes, dtype=bool)
    while uncovered.any():
        shuffled = rng.permutation(n_nodes)
        candidates = np.concatenate((shuffled[uncovered[shuffled]], shuffled[~uncovered[shuffled]]))
        kernel.grow_node_set(factors, candidates, in_forest)
        uncovered &= ~in_forest
        yield kernel.root_trees(factors, candidates, in_forest)


def _empty_forest() -> ForestArrays:
    none, start = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
    return none, none, start, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


def _build_sets(factors: Factors, start: np.ndarray, arrays: ForestArrays) -> NodeSets:
    """Build the node sets of a cover.

    The probabilities of a node are recorded only at the last position of the node. The probabilities of a factor are recorded
    only at one entry of the factor (see `NodeSets`), preferably in a set in which the factor joins two nodes.
    """
    node, parent, entry_start, slot, parent_slot = arrays
    counts, owns = np.zeros(len(node), dtype=bool), np.zeros(len(slot), dtype=bool)
    last = np.full(len(factors.cardinality), -1)
    last[node] = np.arange(len(node))
    counts[last] = True
    owner = np.full(len(factors.start) - 1, -1)
    single_entries = np.flatnonzero(parent_slot < 0)
    joining_entries = np.flatnonzero(parent_slot >= 0)
    owner[factors.factor[slot[single_entries]]] = single_entries
    owner[factors.factor[slot[joining_entries]]] = joining_entries
    owns[owner] = True
    return NodeSets(start, node, parent, entry_start, slot, parent_slot, counts, owns)
