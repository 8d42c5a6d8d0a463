"""Offsets of adjacent runs."""

import numpy as np
import pytest

from relcrf.columns.offsets import offsets


@pytest.mark.parametrize(
    "counts, start",
    [
        ([], [0]),
        ([3], [0, 3]),
        (np.array([2, 0, 5], dtype=np.int8), [0, 2, 2, 7]),
        (np.array([100] * 3, dtype=np.int8), [0, 100, 200, 300]),
        (np.array([True, False, True]), [0, 1, 1, 2]),
    ],
)
def test_offsets_are_cumulative_sums_from_zero(counts, start):
    assert offsets(counts).tolist() == start
    assert offsets(counts).dtype == np.int64
