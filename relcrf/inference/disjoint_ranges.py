"""A division of pairs of nodes into ranges without common nodes, which threads can process in place at the same time."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

N_PARTS = 8
"""Number of parts of the nodes, a power of 2. A step processes all parts, two per range, so half as many threads can work."""


def disjoint_ranges(ends: np.ndarray, block: int) -> tuple[np.ndarray, list[list[int]]]:
    """Divide pairs into ranges, and ranges into steps, so that the ranges of one step have no node in common.

    Consecutive nodes form `N_PARTS` parts with about equally many pairs. In step s, the part i meets the part i XOR s, so that
    any two parts meet in one step, as in a round-robin tournament. The first step includes the pairs within the parts.

    Args:
        ends: Nodes of each pair, shape (n_pairs, 2).
        block: Number of pairs of a block. Ranges consist of whole blocks; the remaining pairs come last and are in no range.

    Returns:
        The order of the pairs, and the bounds of the consecutive ranges of each step, in blocks of this order.
    """
    n_pairs_of_nodes = np.bincount(ends.ravel())
    before = np.cumsum(n_pairs_of_nodes) - n_pairs_of_nodes
    part = (before * N_PARTS // max(ends.size, 1)).astype(np.uint8)[ends]
    low, step = part.min(axis=1), np.maximum(part[:, 0] ^ part[:, 1], 1) - 1
    n_per_step = N_PARTS // 2
    range_of_pair = step * np.uint8(n_per_step) + _ranks()[step, low]
    order = np.argsort(range_of_pair, kind="stable")
    n_ranges = (N_PARTS - 1) * n_per_step
    ranges = np.split(order, np.cumsum(np.bincount(range_of_pair, minlength=n_ranges))[:-1])
    n_blocks = [len(pairs) // block for pairs in ranges]
    in_blocks = [pairs[: n * block] for pairs, n in zip(ranges, n_blocks, strict=True)]
    remaining = [pairs[n * block :] for pairs, n in zip(ranges, n_blocks, strict=True)]
    bounds = [0, *accumulate(n_blocks)]
    steps = [bounds[first : first + n_per_step + 1] for first in range(0, n_ranges, n_per_step)]
    return np.concatenate(in_blocks + remaining), [step for step in steps if step[0] < step[-1]]


def _ranks() -> np.ndarray:
    """Return the range of the pairs of each step whose lower part, or only part, is i; shape (steps, parts)."""
    part = np.arange(N_PARTS)
    lower = np.minimum(part, part ^ np.arange(1, N_PARTS)[:, None])
    ranks = np.array([np.unique(row, return_inverse=True)[1] for row in lower])
    return ranks.astype(np.uint8)
