"""Distinct values and row numbers, compared with `np.unique`."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relcrf.kernels.distinct import distinct, distinct_rows, number_rows


@given(hnp.arrays(st.sampled_from([np.int32, np.int64, np.float64]), hnp.array_shapes(max_dims=2, min_side=0)))
def test_distinct_equals_numpy_unique(values):
    values = np.nan_to_num(values)
    actual = distinct(values)
    np.testing.assert_array_equal(actual, np.unique(values))
    assert actual.dtype == values.dtype and not np.shares_memory(actual, values)


@given(hnp.arrays(np.int32, st.tuples(st.integers(0, 20), st.integers(1, 3)), elements=st.integers(0, 1000)))
def test_distinct_rows_equal_numpy_unique(rows):
    actual = distinct_rows(rows)
    np.testing.assert_array_equal(actual, np.unique(rows, axis=0))
    assert actual.dtype == rows.dtype


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(0, 20), st.integers(1, 4)), elements=st.integers(-3, 3)),
    st.sampled_from([1, 1 << 20, 1 << 40]),
)
def test_row_numbers_equal_numpy_inverse(rows, scale):
    """Test also columns with ranges so wide that their combination exceeds an int64."""
    expected = np.unique(rows, axis=0, return_inverse=True)[1]
    np.testing.assert_array_equal(number_rows(*(scale * rows).T), expected.reshape(-1))
