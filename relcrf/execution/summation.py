"""Sums over shards that are bitwise identical for every assignment of shards to workers.

A floating-point sum depends on the order of the additions. Here the order is defined by a binary tree over the positions of
the shards: the leaves are the shards, and the node of the positions [k * 2^j, (k + 1) * 2^j) is the sum of the nodes of the
left and the right half of these positions. A worker with a range of consecutive shards computes the largest nodes within this
range, at most two for each power of 2, and the caller adds these nodes. A worker thus returns few results even for many shards,
and rounding errors grow only with the logarithm of the number of shards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")
"""A result: a number, an array, or a tuple of results."""


@dataclass(frozen=True, slots=True)
class ShardSum(Generic[T]):
    """The sum of the results of the shards at the positions [start, start + size)."""

    start: int
    size: int
    result: T

    def __add__(self, right: ShardSum[T]) -> ShardSum[T]:
        return ShardSum(self.start, self.size + right.size, add_results(self.result, right.result))


def add_results(left: Any, right: Any) -> Any:
    """Add two results, elementwise if they are tuples.

    Raises:
        ValueError: The shapes differ. Results are not broadcast.
    """
    if isinstance(left, tuple) and isinstance(right, tuple):
        return tuple(add_results(*items) for items in zip(left, right, strict=True))
    if np.shape(left) != np.shape(right):
        raise ValueError(f"the results of two shards have the shapes {np.shape(left)} and {np.shape(right)}")
    return left + right


def merge_nodes(nodes: Iterable[ShardSum[T]]) -> list[ShardSum[T]]:
    """Merge nodes of the tree into the fewest nodes over the same shards.

    Args:
        nodes: Nodes over consecutive shards, in order. They are read one by one, so that only few nodes are in memory.
    """
    stack: list[ShardSum[T]] = []
    for node in nodes:
        while stack and stack[-1].size == node.size and stack[-1].start % (2 * node.size) == 0:
            node = stack.pop() + node
        stack.append(node)
    return stack


def sum_shards(nodes: Iterable[ShardSum[T]]) -> T:
    """Return the sum over all shards.

    Unless the number of shards is a power of 2, the tree has several topmost nodes; they are added from last to first.

    Raises:
        ValueError: `nodes` is empty, so the shape of the sum is unknown.
    """
    roots = merge_nodes(nodes)
    if not roots:
        raise ValueError("no shards to sum over")
    node = roots.pop()
    while roots:
        node = roots.pop() + node
    return node.result
