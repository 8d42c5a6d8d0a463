"""The tournament tree from which `kernels.schedules.send_by_residual` reads the largest key."""

from __future__ import annotations

import numpy as np


def build_tournament(keys: np.ndarray) -> np.ndarray:
    """Return the tournament tree of nonnegative keys.

    The keys are the leaves, each parent is the maximum of its two children, and the root is at index 1.
    """
    n = 1 << max(len(keys) - 1, 0).bit_length()
    largest = np.zeros(2 * n)
    largest[n : n + len(keys)] = keys
    while n > 1:
        largest[n // 2 : n] = largest[n : 2 * n].reshape(-1, 2).max(axis=1)
        n //= 2
    return largest
