"""The start offsets of runs that are stored one after another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def offsets(counts: npt.ArrayLike) -> np.ndarray:
    """Return the start of each run, followed by the end of the last one.

    Args:
        counts: Length of each run. Shape (n,), integers or booleans.

    Returns:
        The cumulative sums, starting with 0. Shape (n + 1,), int64.
    """
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
