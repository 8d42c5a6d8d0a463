"""Covers of a graph's nodes by sets that are forests, each of which can be drawn exactly given the other nodes.

Source: Hamze & de Freitas, From Fields to Trees (2004). The sets of a cover overlap: each is as large as it can be.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.kernels import induced_forests as kernel
from relcrf.kernels.factors import Factors
from relcrf.kernels.forest_sampling import NodeSets

ForestArrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""A set: node, parent, entry_start, place, other; see `NodeSets`."""


def single_node_sets(factors: Factors) -> NodeSets:
    """Each node a set of its own, in ascending order."""
    n_nodes = len(factors.cardinality)
    node = np.arange(n_nodes, dtype=np.int32)
    none = np.full(n_nodes, -1, dtype=np.int32), factors.touch_start, factors.touch, np.full(len(factors.touch), -1)
    return _build_sets(factors, np.arange(n_nodes + 1), (node, *none))


def forest_cover(factors: Factors, rng: np.random.Generator) -> NodeSets:
    """Sets that together have every node, drawn at random. A graph that is a forest is one set."""
    parts = list(_iter_forests(factors, rng))
    start = offsets([len(part[0]) for part in parts])
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)] if parts else _empty_forest()
    entries = np.concatenate([np.zeros(0, dtype=np.int64), *(np.diff(part[2]) for part in parts)])
    node, parent, _, place, other = joined
    return _build_sets(factors, start, (node, parent, offsets(entries), place, other))


def _iter_forests(factors: Factors, rng: np.random.Generator) -> Iterator[ForestArrays]:
    n_nodes = len(factors.cardinality)
    left, inside = np.ones(n_nodes, dtype=bool), np.empty(n_nodes, dtype=bool)
    while left.any():
        shuffled = rng.permutation(n_nodes)
        candidates = np.concatenate((shuffled[left[shuffled]], shuffled[~left[shuffled]]))
        kernel.grow_node_set(factors, candidates, inside)
        left &= ~inside
        yield kernel.root_trees(factors, candidates, inside)


def _empty_forest() -> ForestArrays:
    none, start = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
    return none, none, start, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


def _build_sets(factors: Factors, start: np.ndarray, arrays: ForestArrays) -> NodeSets:
    """Of what a cover has several times the last counts; a factor where it joins two nodes rather than elsewhere."""
    node, parent, entry_start, place, other = arrays
    counts, owns = np.zeros(len(node), dtype=bool), np.zeros(len(place), dtype=bool)
    last = np.full(len(factors.cardinality), -1)
    last[node] = np.arange(len(node))
    counts[last] = True
    owner = np.full(len(factors.start) - 1, -1)
    alone = np.flatnonzero(other < 0)
    joins = np.flatnonzero(other >= 0)
    owner[factors.factor[place[alone]]] = alone
    owner[factors.factor[place[joins]]] = joins
    owns[owner] = True
    return NodeSets(start, node, parent, entry_start, place, other, counts, owns)
