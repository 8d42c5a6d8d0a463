import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relcrf.kernels.distinct import distinct, distinct_rows


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
