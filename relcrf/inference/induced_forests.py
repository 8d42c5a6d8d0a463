"""Covers of a graph's nodes by sets that are forests, each of which can be drawn exactly given the other nodes.

Source: Hamze & de Freitas, From Fields to Trees (2004). The sets of a cover overlap: each is as large as it can be.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.kernels import induced_forests as kernel
from relcrf.kernels.factors import Factors
from relcrf.kernels.sampling import Sets

Part = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""A set: node, parent, entry_start, place, other; see `Sets`."""


def single_nodes(factors: Factors) -> Sets:
    """Each node a set of its own, in ascending order."""
    n_nodes = len(factors.cardinality)
    node = np.arange(n_nodes, dtype=np.int32)
    none = np.full(n_nodes, -1, dtype=np.int32), factors.touch_start, factors.touch, np.full(len(factors.touch), -1)
    return _sets(factors, np.arange(n_nodes + 1), (node, *none))


def forest_cover(factors: Factors, rng: np.random.Generator) -> Sets:
    """Sets that together have every node, drawn at random. A graph that is a forest is one set."""
    parts = list(_parts(factors, rng))
    start = offsets([len(part[0]) for part in parts])
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)] if parts else _no_part()
    entries = np.concatenate([np.zeros(0, dtype=np.int64), *(np.diff(part[2]) for part in parts)])
    node, parent, _, place, other = joined
    return _sets(factors, start, (node, parent, offsets(entries), place, other))


def _parts(factors: Factors, rng: np.random.Generator) -> Iterator[Part]:
    n_nodes = len(factors.cardinality)
    left, inside = np.ones(n_nodes, dtype=bool), np.empty(n_nodes, dtype=bool)
    while left.any():
        shuffled = rng.permutation(n_nodes)
        candidates = np.concatenate((shuffled[left[shuffled]], shuffled[~left[shuffled]]))
        kernel.grow(factors, candidates, inside)
        left &= ~inside
        yield kernel.rooted(factors, candidates, inside)


def _no_part() -> Part:
    none, start = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
    return none, none, start, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


def _sets(factors: Factors, start: np.ndarray, part: Part) -> Sets:
    """Of what a cover has several times the last counts; a factor where it joins two nodes rather than elsewhere."""
    node, parent, entry_start, place, other = part
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
    return Sets(start, node, parent, entry_start, place, other, counts, owns)
