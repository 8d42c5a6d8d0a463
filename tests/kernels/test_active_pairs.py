"""Scores and gradients of active pair features, compared with explicit sums."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.kernels import threads
from relcrf.kernels.active_pairs import add_scores, gradient
from relcrf.kernels.keyed_cells import KeyedCells

N_VARIABLES = 40


def make_side(rng, n_samples, n_keys, fraction):
    """Return cells by key, and the same variables as a full table with -1 for missing ones."""
    full = rng.integers(N_VARIABLES, size=(n_samples, n_keys))
    if fraction < 1.0:
        columns = rng.random(n_keys) < 0.3  # some columns are complete, others have missing cells
        full[(rng.random(full.shape) >= fraction) & ~columns] = -1
    key, sample = np.nonzero(full.T >= 0)
    start = np.concatenate(([0], np.cumsum(np.bincount(key, minlength=n_keys))))
    variable = full[sample, key]
    hidden = rng.random(len(variable)) < 0.1 * (fraction < 1.0)  # a cell without a variable counts as missing
    full[sample[hidden], key[hidden]] = -1
    return KeyedCells.from_arrays(start, sample, np.where(hidden, -1, variable)), full


def reference(first, second, a, b, weight, residual, truth):
    score, gradient = np.zeros(N_VARIABLES), np.zeros(len(a))
    for f in range(len(a)):
        for v1, v2 in zip(first[:, a[f]], second[:, b[f]], strict=True):
            if v1 >= 0 and v2 >= 0:
                score[v1] += weight[f] * truth[v2]
                score[v2] += weight[f] * truth[v1]
                gradient[f] += residual[v1] * truth[v2] + residual[v2] * truth[v1]
    return score, gradient


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_samples, n_first, n_second = draw(st.integers(0, 20)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    fraction = draw(st.sampled_from((0.0, 0.3, 0.8, 1.0)))
    sides = make_side(rng, n_samples, n_first, fraction), make_side(rng, n_samples, n_second, fraction)
    n = draw(st.integers(0, 15))
    keys = rng.integers(n_first, size=n).astype(np.int32), rng.integers(n_second, size=n).astype(np.int32)
    return rng, n_samples, sides, keys


@settings(max_examples=200, deadline=None)
@given(problems(), st.sampled_from((np.float32, np.float64)))
def test_scores_and_gradient(problem, dtype):
    rng, n_samples, ((first, first_full), (second, second_full)), (a, b) = problem
    residual = rng.normal(size=N_VARIABLES).astype(dtype)
    truth = rng.random(N_VARIABLES).astype(dtype)
    weight, score = rng.normal(size=len(a)), rng.normal(size=N_VARIABLES).astype(dtype)
    expected_score, expected = reference(
        first_full, second_full, a, b, weight, residual.astype(float), truth.astype(float)
    )
    expected_score += score
    close = {"rtol": 0, "atol": 1e-11 if dtype is np.float64 else 1e-4}
    actual = gradient(first, second, n_samples, a, b, residual, truth)
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, **close)
    add_scores(first, second, n_samples, a, b, weight, truth, score)
    np.testing.assert_allclose(score, expected_score, **close)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_results_do_not_depend_on_number_of_threads(fraction, monkeypatch):
    rng = np.random.default_rng(0)
    side, _ = make_side(rng, 200, 30, fraction)
    a, b = rng.integers(30, size=(2, 500)).astype(np.int32)
    residual, truth, weight = rng.normal(size=N_VARIABLES), rng.random(N_VARIABLES), rng.normal(size=500)
    monkeypatch.setattr(threads, "MIN_PARALLEL_COST", 0)
    results = []
    for n_threads in (1, 2, 3):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
        score = np.zeros(N_VARIABLES)
        add_scores(side, side, 200, a, b, weight, truth, score)
        results.append((score.tobytes(), gradient(side, side, 200, a, b, residual, truth).tobytes()))
    assert results[0] == results[1] == results[2]


def test_gradient_is_derivative_of_scores():
    """Compare the gradient with the derivative of `residual @ score` with respect to the weights."""
    rng = np.random.default_rng(1)
    first, second = make_side(rng, 30, 5, 0.6)[0], make_side(rng, 30, 4, 1.0)[0]
    a, b = rng.integers(4, size=(2, 12)).astype(np.int32)
    residual, truth, weight = rng.normal(size=N_VARIABLES), rng.random(N_VARIABLES), rng.normal(size=12)
    score = np.zeros(N_VARIABLES)
    add_scores(first, second, 30, a, b, weight, truth, score)
    assert residual @ score == pytest.approx(weight @ gradient(first, second, 30, a, b, residual, truth))


def test_mismatched_shapes_and_types_are_rejected():
    side, keys = KeyedCells.from_arrays(np.array([0, 1]), np.zeros(1), np.zeros(1)), np.zeros(1, np.int32)
    for score in (np.zeros(2, np.float32), np.zeros(3), np.zeros(4)[::2]):
        with pytest.raises(ValueError, match=r"contiguous, of shape \(2,\) and type float64"):
            add_scores(side, side, 1, keys, keys, np.ones(1), np.ones(2), score)
    for residual in (np.zeros(2, np.float32), np.zeros(3)):
        with pytest.raises(ValueError, match=r"of shape \(2,\) and type float64"):
            gradient(side, side, 1, keys, keys, residual, np.ones(2))
