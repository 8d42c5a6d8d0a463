"""Start offsets of consecutive runs of entries, as in CSR form, and the indices of the entries of some runs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def offsets(counts: npt.ArrayLike) -> np.ndarray:
    """Return the start of each run, followed by the end of the last run.

    Args:
        counts: Length of each run. Shape (n,), integers or booleans.

    Returns:
        The cumulative sums, starting with 0. Shape (n + 1,), int64.
    """
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def entries_of_runs(start: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """Return the indices of all entries of some runs, run after run.

    Args:
        start: Start of each run, followed by the end of the last run. Shape (n + 1,).
        runs: Indices of the runs. Shape (m,).
    """
    sizes = start[runs + 1] - start[runs]
    ends = np.cumsum(sizes)
    return np.asarray(np.repeat(start[runs] - ends + sizes, sizes) + np.arange(int(sizes.sum())))
