"""Sums over shards that have the same bits however the shards were dealt to workers.

Floating-point sums depend on their order. Here the order is a binary tree over the shards' positions, whatever computes it: its
leaves are the shards, and the node over the positions [k * 2^j, (k + 1) * 2^j) is its left half plus its right half. A
worker with any run of consecutive shards adds up the nodes that lie within its run, at most two for each power of 2, and the
driver the rest. So a worker sends back a few results however many shards it has, and rounding grows only with the
logarithm of the number of shards.
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
    """The sum of the results of the shards at [start, start + size)."""

    start: int
    size: int
    result: T

    def __add__(self, right: ShardSum[T]) -> ShardSum[T]:
        return ShardSum(self.start, self.size + right.size, add_results(self.result, right.result))


def add_results(left: Any, right: Any) -> Any:
    """Add two results, item by item where they are tuples.

    Raises:
        ValueError: where their shapes differ, which NumPy would broadcast.
    """
    if isinstance(left, tuple) and isinstance(right, tuple):
        return tuple(add_results(*items) for items in zip(left, right, strict=True))
    if np.shape(left) != np.shape(right):
        raise ValueError(f"the results of two shards have the shapes {np.shape(left)} and {np.shape(right)}")
    return left + right


def merge_nodes(nodes: Iterable[ShardSum[T]]) -> list[ShardSum[T]]:
    """Return the fewest nodes of the tree with the same shards.

    Args:
        nodes: of consecutive runs of shards, in the order of the shards. Read one by one: only some are held at a time.
    """
    stack: list[ShardSum[T]] = []
    for node in nodes:
        while stack and stack[-1].size == node.size and stack[-1].start % (2 * node.size) == 0:
            node = stack.pop() + node
        stack.append(node)
    return stack


def sum_shards(nodes: Iterable[ShardSum[T]]) -> T:
    """Return the sum over all shards.

    The tree of a number of shards that is no power of 2 has no root: its topmost nodes are added from the last to the first.

    Raises:
        ValueError: where there is no shard, and so no shape.
    """
    rest = merge_nodes(nodes)
    if not rest:
        raise ValueError("there is no shard to sum over")
    node = rest.pop()
    while rest:
        node = rest.pop() + node
    return node.result
