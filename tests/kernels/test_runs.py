"""Copies of runs of numbers, compared with NumPy."""

import numpy as np
import pytest

from relcrf.columns.offsets import offsets
from relcrf.kernels.runs import gather, scatter


@pytest.mark.parametrize("longest", [1, 2, 4, 8, 16, 32, 70])
def test_runs_are_copied_in_the_order_of_positions_and_back(longest):
    rng = np.random.default_rng(longest)
    length = rng.integers(longest + 1, size=50)
    length[7] = longest
    run_start, values = offsets(length), rng.normal(size=length.sum())
    run = rng.permutation(50).astype(np.int32)
    run[[3, 20]] = -1
    start = offsets(np.where(run >= 0, length[run], 0))
    for lo, hi in ((0, 50), (10, 30), (5, 5)):
        out = np.full(start[hi] - start[lo] + 1, np.nan)
        gather(lo, hi, run, start, run_start, values, out)
        expected = [values[run_start[r] : run_start[r + 1]] for r in run[lo:hi] if r >= 0]
        np.testing.assert_array_equal(out, np.concatenate((*expected, [np.nan])))
        restored, copied = np.full(len(values) + 1, np.nan), np.full(len(values) + 1, np.nan)
        scatter(lo, hi, run, start, run_start, out, restored)
        for r in run[lo:hi][run[lo:hi] >= 0]:
            copied[run_start[r] : run_start[r + 1]] = values[run_start[r] : run_start[r + 1]]
        np.testing.assert_array_equal(restored, copied)
