"""Stable order of rows compared with `numpy.lexsort`, with and without counting."""

import numpy as np
import pytest

from relcrf.kernels import counting_sort


@pytest.mark.parametrize("min_counted", [1, 1 << 14])
@pytest.mark.parametrize(("n", "n_keys"), [(0, 1), (1, 5), (200, 3), (200, 10_000)])
def test_stable_order(n, n_keys, min_counted, monkeypatch):
    monkeypatch.setattr(counting_sort, "MIN_COUNTED", min_counted)
    rng = np.random.default_rng(n)
    first, second = rng.integers(n_keys, size=(2, n)).astype(np.int32)
    found = counting_sort.stable_order(first, second, n_keys=n_keys)
    assert found.dtype == np.int32
    assert np.array_equal(found, np.lexsort((second, first)))
    assert np.array_equal(counting_sort.stable_order(second, n_keys=n_keys), np.argsort(second, kind="stable"))
