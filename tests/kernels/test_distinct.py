import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relcrf.kernels.distinct import distinct, distinct_rows, number_rows


@given(hnp.arrays(st.sampled_from([np.int32, np.int64, np.float64]), hnp.array_shapes(max_dims=2, min_side=0)))
def test_distinct_are_those_of_numpy(values):
    values = np.nan_to_num(values)
    found = distinct(values)
    np.testing.assert_array_equal(found, np.unique(values))
    assert found.dtype == values.dtype and not np.shares_memory(found, values)


@given(hnp.arrays(np.int32, st.tuples(st.integers(0, 20), st.integers(1, 3)), elements=st.integers(0, 1000)))
def test_distinct_rows_are_those_of_numpy(rows):
    found = distinct_rows(rows)
    np.testing.assert_array_equal(found, np.unique(rows, axis=0))
    assert found.dtype == rows.dtype


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(0, 20), st.integers(1, 4)), elements=st.integers(-3, 3)),
    st.sampled_from([1, 1 << 20, 1 << 40]),
)
def test_rows_have_the_numbers_that_numpy_gives(rows, scale):
    """With wide columns, too, whose rows are more than numbers can tell apart at once."""
    expected = np.unique(rows, axis=0, return_inverse=True)[1]
    np.testing.assert_array_equal(number_rows(*(scale * rows).T), expected.reshape(-1))
