"""The best sparse products of errors and signals, compared with dense matrices."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from relcrf.kernels import induction, threads
from relcrf.kernels.induction import ALL, ASCENDING, DIFFERENT, top_products, top_products_dense

RELATIONS = (ALL, ASCENDING, DIFFERENT)


def csr_arrays(dense):
    """Return the CSR arrays of a dense matrix, as `top_products` expects."""
    matrix = csr_matrix(dense)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(float)


def sparse_arguments(first_error, first_signal, second_error, second_signal):
    return csr_arrays(first_error.T), csr_arrays(first_signal.T), csr_arrays(second_error), csr_arrays(second_signal)


def reference(first_error, first_signal, second_error, second_signal, relation, least, n_best):
    """Return the best pairs by sorting all of them."""
    h = first_signal.T @ second_error + first_error.T @ second_signal
    pairs = []
    for a, b in np.ndindex(h.shape):
        related = (True, a < b, a != b)[relation]
        if related and abs(h[a, b]) > least:
            pairs.append((-abs(h[a, b]), a, b))
    pairs = sorted(pairs)[:n_best]
    return [a for _, a, _ in pairs], [b for _, _, b in pairs], [h[a, b] for _, a, b in pairs]


def assert_same(found, expected):
    a, b, h = found
    assert a.dtype == b.dtype == np.int32
    assert a.tolist() == expected[0]
    assert b.tolist() == expected[1]
    assert h.tolist() == expected[2]


@st.composite
def sides(draw):
    """Draw integer matrices, so that sums are exact and have ties; some cells, rows or whole sides are empty."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_samples, n_first, n_second = draw(st.integers(0, 12)), draw(st.integers(0, 9)), draw(st.integers(0, 200))
    filled = draw(st.sampled_from((0.0, 0.05, 0.4, 1.0)))

    def matrix(n_keys):
        return rng.integers(-2, 3, size=(n_samples, n_keys)) * (rng.random((n_samples, n_keys)) < filled) * 1.0

    return matrix(n_first), matrix(n_first), matrix(n_second), matrix(n_second)


@settings(max_examples=200, deadline=None)
@given(sides(), st.sampled_from(RELATIONS), st.sampled_from((0.0, 1.0, 2.5)), st.integers(0, 40))
def test_best_pairs_match_reference(matrices, relation, least, n_best):
    expected = reference(*matrices, relation, least, n_best)
    assert_same(top_products(*sparse_arguments(*matrices), relation, least, n_best), expected)
    assert_same(top_products_dense(*matrices, relation, least, n_best), expected)


@pytest.mark.parametrize("relation", RELATIONS)
def test_side_paired_with_itself(relation):
    rng = np.random.default_rng(0)
    error, signal = rng.normal(size=(2, 60, 25)) * (rng.random((2, 60, 25)) < 0.3)
    a, b, h = top_products(*sparse_arguments(error, signal, error, signal), relation, 0.5, 30)
    expected = reference(error, signal, error, signal, relation, 0.5, 30)
    if relation == ASCENDING:  # otherwise each pair occurs twice, with sums that differ in the last bit
        assert (a.tolist(), b.tolist()) == expected[:2]
    np.testing.assert_allclose(h, expected[2], rtol=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("n_keys", [300, 40_000])
def test_results_do_not_depend_on_number_of_threads(relation, n_keys, monkeypatch):
    """Test wide tables, where only changed sums are scanned, and narrow ones, where all are."""
    rng = np.random.default_rng(1)
    key = rng.integers(n_keys, size=(4, 4000))
    sample = np.repeat(np.arange(200), 20)
    error, signal, *second = (csr_matrix((rng.normal(size=4000), (sample, k)), shape=(200, n_keys)) for k in key)
    arguments = (*(csr_arrays(m.T) for m in (error, signal)), *(csr_arrays(m) for m in second))
    monkeypatch.setattr(threads, "MIN_PARALLEL_COST", 0)
    found = []
    for n_threads in (1, 2, 3):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
        found.append(top_products(*arguments, relation, 0.1, 1000))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert one.tobytes() == same.tobytes()
    a, b, h = found[0]
    full = (signal.T @ second[0] + error.T @ second[1]).tocsr()
    np.testing.assert_allclose(h, np.asarray(full[a, b]).ravel(), rtol=1e-10)
    related = full.tocoo()
    keep = (np.ones(related.nnz, bool), related.row < related.col, related.row != related.col)[relation]
    best = np.sort(np.abs(related.data[keep]))[::-1][:1000]
    np.testing.assert_allclose(np.abs(h), best, rtol=1e-10)


def test_dense_products_in_many_blocks(monkeypatch):
    monkeypatch.setattr(induction, "BLOCK_SIZE", 7)
    rng = np.random.default_rng(2)
    matrices = [rng.integers(-3, 4, size=(9, n)) * 1.0 for n in (30, 30, 45, 45)]
    for relation in RELATIONS:
        for n_best in (0, 5, 10_000):
            assert_same(
                top_products_dense(*matrices, relation, 2.0, n_best), reference(*matrices, relation, 2.0, n_best)
            )


def test_invalid_arguments_are_rejected():
    rng = np.random.default_rng(3)
    small, large = rng.normal(size=(4, 3)), rng.normal(size=(5, 4))
    with pytest.raises(ValueError, match="samples beyond the 4 of the second side"):
        top_products(*sparse_arguments(large, large, small, small), ALL, 0.0, 1)
    with pytest.raises(ValueError, match="different shapes"):
        top_products(*sparse_arguments(small, large[:4], small, small), ALL, 0.0, 1)
    with pytest.raises(ValueError, match="different shapes"):
        top_products(*sparse_arguments(small, small, small, large), ALL, 0.0, 1)
    for products, matrices in ((top_products, sparse_arguments(*[small] * 4)), (top_products_dense, [small] * 4)):
        with pytest.raises(ValueError, match="not be negative"):
            products(*matrices, ALL, -1.0, 1)


def test_nan_sums_are_ignored():
    signal = np.array([[np.nan, 1.0]])
    error = np.array([[0.0, 2.0]])
    a, b, h = top_products(*sparse_arguments(error, signal, error, signal), ALL, 0.0, 10)
    assert list(zip(a.tolist(), b.tolist(), h.tolist(), strict=True)) == [(1, 1, 4.0)]


@settings(max_examples=100, deadline=None)
@given(sides(), st.integers(0, 2**32), st.sampled_from((0.0, 2.5)), st.integers(0, 40))
def test_limits_of_each_key(matrices, seed, least, n_best):
    rng = np.random.default_rng(seed)
    n_first, n_second = matrices[0].shape[1], matrices[2].shape[1]
    limits = rng.integers(-1, n_second + 1, size=(n_first, int(rng.integers(2, 8))))
    limits[:, 1] = np.maximum(limits[:, 1], 0)
    h = matrices[1].T @ matrices[2] + matrices[0].T @ matrices[3]
    pairs = sorted(
        (-abs(h[a, b]), a, b)
        for a, b in np.ndindex(h.shape)
        if limits[a, 0] < b < limits[a, 1] and b not in limits[a, 2:] and abs(h[a, b]) > least
    )[:n_best]
    expected = [a for _, a, _ in pairs], [b for _, _, b in pairs], [h[a, b] for _, a, b in pairs]
    assert_same(top_products(*sparse_arguments(*matrices), ALL, least, n_best, limits), expected)
    assert_same(top_products_dense(*matrices, ALL, least, n_best, limits), expected)
