"""Sums over shards that have the same bits however the shards were dealt to workers.

Floating-point sums depend on their order. Here the order is a binary tree over the shards' positions, whatever computes it: its
leaves are the shards, and the node over the positions [k * 2^j, (k + 1) * 2^j) is its left half plus its right half. A
worker with any run of consecutive shards adds up the nodes that lie within its run, at most two for each power of 2, and the
driver the rest. So a worker sends back a few gradients however many shards it has, and rounding grows only with the
logarithm of the number of shards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Node:
    """The sum over the shards at [start, start + size): a value, and a gradient of shape (n_weights,)."""

    start: int
    size: int
    value: float
    gradient: np.ndarray

    def __add__(self, right: Node) -> Node:
        return Node(self.start, self.size + right.size, self.value + right.value, self.gradient + right.gradient)


def joined(nodes: Iterable[Node]) -> list[Node]:
    """The fewest nodes of the tree with the same shards.

    Args:
        nodes: of consecutive runs of shards, in the order of the shards. Read one by one: only some are held at a time.
    """
    stack: list[Node] = []
    for node in nodes:
        while stack and stack[-1].size == node.size and stack[-1].start % (2 * node.size) == 0:
            node = stack.pop() + node
        stack.append(node)
    return stack


def total(nodes: Iterable[Node], n_weights: int) -> tuple[float, np.ndarray]:
    """Value and gradient, shape (n_weights,), over all shards; zeros where there is none.

    The tree of a number of shards that is no power of 2 has no root: its topmost nodes are added from the last to the first.
    """
    rest = joined(nodes)
    if not rest:
        return 0.0, np.zeros(n_weights)
    node = rest.pop()
    while rest:
        node = rest.pop() + node
    return node.value, node.gradient
