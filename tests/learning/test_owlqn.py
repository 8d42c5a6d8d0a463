"""Tests of OWL-QN on convex functions with L1: minima, exact zeros, interruption, resumption and growth."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from objectives import through_a_run_folder
from scipy.special import expit

from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.owlqn import GradientOwlqn, Owlqn

EXACT = {"tolerance": 1e-9, "value_tolerance": 0.0, "max_iterations": 2000}


def logistic(x, y, l2=0.0):
    def objective(w):
        margin = y * (x @ w)
        gradient = l2 * w - x.T @ (y * expit(-margin))
        return float(np.logaddexp(0.0, -margin).sum() + 0.5 * l2 * (w @ w)), gradient

    return objective


def rows(seed, n=40, n_rows=200, *, shared=0.0, scales=1.0):
    """Return features with a `shared` part and standard deviations from 1 to 1 / `scales`, and noisy labels of -1 and
    1.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, n)) + shared * rng.normal(size=(n_rows, 1))
    x *= rng.permutation(np.geomspace(1.0, 1.0 / scales, n))
    w = np.where(rng.random(n) < 0.3, rng.normal(size=n), 0.0)
    return x, np.where(x @ w + rng.logistic(size=n_rows) > 0.0, 1.0, -1.0)


def strengths(x, y, share):
    """Return a fraction of the strength that makes all weights 0; the first weight is not penalised."""
    l1 = np.full(x.shape[1], share * np.abs(x.T @ y).max() / 2.0)
    l1[0] = 0.0
    return l1


def violation(objective, point, l1):
    """Return the violation of the optimality conditions at the point."""
    gradient = objective(point)[1]
    return np.where(point == 0.0, np.abs(gradient) - l1, np.abs(gradient + l1 * np.sign(point))).max()


def proximal_gradient(objective, n, l1, lipschitz):
    """Return the value of the minimum by FISTA with restarts, which is slow."""
    point, ahead, momentum = np.zeros(n), np.zeros(n), 1.0
    for _ in range(100_000):
        trial = ahead - objective(ahead)[1] / lipschitz
        following = np.sign(trial) * np.maximum(np.abs(trial) - l1 / lipschitz, 0.0)
        if lipschitz * np.abs(following - ahead).max() < 1e-7:
            break
        if (ahead - following) @ (following - point) > 0.0:
            momentum, ahead = 1.0, following
        else:
            faster = 0.5 + np.sqrt(0.25 + momentum**2)
            momentum, ahead = faster, following + (momentum - 1.0) / faster * (following - point)
        point = following
    else:
        raise AssertionError("the reference did not converge")
    return objective(following)[0] + l1 @ np.abs(following)


def coordinate_descent(matrix, vector, l1):
    """Minimise `x A x / 2 - b x + sum l1 |x|`."""
    x = np.zeros(len(vector))
    for _ in range(10_000):
        before = x.copy()
        for i, diagonal in enumerate(np.diagonal(matrix)):
            rest = vector[i] - matrix[i] @ x + diagonal * x[i]
            x[i] = np.sign(rest) * max(abs(rest) - l1[i], 0.0) / diagonal
        if np.abs(x - before).max() < 1e-13:
            break
    return x


def minimum(optimiser, objective, point, observe=lambda state: None):
    return optimiser.minimise(objective, optimiser.start(objective, point), observe)


KINDS = {
    "well": {},
    "correlated": {"shared": 2.0},
    "scales": {"scales": 100.0},
    "scales and correlated": {"shared": 2.0, "scales": 30.0},
    "more weights than rows": {"n": 120, "n_rows": 80},
}


@pytest.mark.parametrize("share", [0.3, 0.03])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_logistic_regression(seed, kind, share):
    x, y = rows(seed, **KINDS[kind])
    objective, l1 = logistic(x, y), strengths(x, y, share)
    state = minimum(Owlqn(**EXACT, l1=l1), objective, np.zeros(len(l1)))
    assert state.status == "converged"
    assert state.gradient_norm <= 1e-9 * state.initial_gradient_norm
    assert violation(objective, state.point, l1) < 1e-6
    zeros = np.count_nonzero(state.point == 0.0)
    assert 0 < zeros < len(l1)
    assert state.value == pytest.approx(objective(state.point)[0] + l1 @ np.abs(state.point), rel=1e-14)
    reference = proximal_gradient(objective, len(l1), l1, 0.25 * np.linalg.norm(x, 2) ** 2)
    assert state.value == pytest.approx(reference, rel=0.0, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_suffice(kind):
    """The values are misleading: they increase towards the minimum."""
    x, y = rows(0, **KINDS[kind])
    objective, l1 = logistic(x, y, l2=0.1), strengths(x, y, 0.1)

    def misleading(w):
        value, gradient = objective(w)
        return -value, gradient

    state = minimum(GradientOwlqn(tolerance=1e-7, max_iterations=2000, l1=l1), misleading, np.zeros(len(l1)))
    assert state.status == "converged"
    wanted = minimum(Owlqn(**EXACT, l1=l1), objective, np.zeros(len(l1)))
    np.testing.assert_allclose(state.point, wanted.point, atol=1e-4)
    np.testing.assert_array_equal(state.point == 0.0, wanted.point == 0.0)


@pytest.mark.parametrize("turn", [0.0, 0.1])
def test_fields_without_a_potential(turn):
    """The Jacobian is asymmetric, so that no function has this gradient."""
    rng = np.random.default_rng(1)
    root, rotation = rng.normal(size=(2, 30, 30))
    jacobian = root @ root.T / 30 + 0.1 * np.eye(30) + turn * (rotation - rotation.T) / np.sqrt(30)
    target, l1 = rng.normal(size=30), np.full(30, 0.5)

    def field(w):
        return 0.0, jacobian @ w - target

    state = minimum(GradientOwlqn(tolerance=1e-7, max_iterations=2000, l1=l1), field, np.zeros(30))
    assert state.status == "converged" and 0 < np.count_nonzero(state.point) < 30
    assert violation(field, state.point, l1) < 1e-6


def test_correlated_features_converge_quickly():
    # The direction of the paper, restricted to the signs of the pseudo-gradient, took 1,116 evaluations here.
    x, y = rows(1, n=300, shared=1.0)
    objective, l1 = logistic(x, y), strengths(x, y, 0.03)
    state = minimum(Owlqn(tolerance=1e-6, value_tolerance=0.0, l1=l1), objective, np.zeros(300))
    assert state.status == "converged"
    assert state.evaluations < 200


def test_inverse_diagonal_evens_the_scales_out():
    x, y = rows(1, scales=100.0)
    objective, l1 = logistic(x, y), strengths(x, y, 0.01)
    plain = Owlqn(**EXACT, l1=l1)
    scaled = replace(plain, inverse_diagonal=1.0 / (x * x).sum(axis=0))
    without, within = (minimum(optimiser, objective, np.zeros(40)) for optimiser in (plain, scaled))
    assert within.value == pytest.approx(without.value, rel=1e-12)
    assert within.iteration < 0.5 * without.iteration


def test_without_l1_it_is_lbfgs():
    objective = logistic(*rows(3), l2=1.0)
    state = minimum(Owlqn(**EXACT, l1=np.zeros(40)), objective, np.zeros(40))
    reference = minimum(Lbfgs(**EXACT), objective, np.zeros(40))
    np.testing.assert_allclose(state.point, reference.point, rtol=0.0, atol=1e-8)


def test_strong_l1_needs_no_iteration():
    x, y = rows(4)
    objective, largest = logistic(x, y), np.abs(x.T @ y).max() / 2.0
    state = minimum(Owlqn(l1=np.full(40, largest)), objective, np.zeros(40))
    assert (state.status, state.iteration, state.evaluations) == ("converged", 0, 1)
    assert not state.point.any()
    state = minimum(Owlqn(l1=np.full(40, 0.99 * largest)), objective, np.zeros(40))
    assert state.point.any()


def test_strong_l1_brings_every_weight_back_to_zero():
    x, y = rows(5)
    state = minimum(Owlqn(**EXACT, l1=np.full(40, np.abs(x).sum())), logistic(x, y), np.linspace(-2.0, 2.0, 40))
    assert state.status == "converged"
    np.testing.assert_array_equal(state.point, 0.0)


def test_no_weight_changes_its_sign_without_stopping_at_zero():
    x, y = rows(6, shared=1.0)
    objective, l1 = logistic(x, y), strengths(x, y, 0.02)
    start = np.random.default_rng(0).normal(size=40)
    path = [np.sign(start)]
    state = minimum(Owlqn(**EXACT, l1=l1), objective, start, lambda state: path.append(np.sign(state.point)))
    assert violation(objective, state.point, l1) < 1e-6
    jumps = np.array([before * after for before, after in pairwise(path)])
    assert jumps[:, 1:].min() == 0.0
    assert (path[0] * path[-1])[1:].min() == -1.0, "some weight has changed its sign, by way of 0"


def test_only_penalised_weights_stop_at_zero():
    def objective(w):
        return float(0.5 * (w + 5.0) @ (w + 5.0)), w + 5.0

    path = []
    minimum(Owlqn(**EXACT, l1=np.array([1.0, 0.0])), objective, np.full(2, 2.0), lambda state: path.append(state.point))
    np.testing.assert_allclose(path[-1], [-4.0, -5.0], atol=1e-8)
    penalised, free = np.transpose(path)
    assert (penalised == 0.0).any()
    assert not (free == 0.0).any()


def test_a_projected_step_that_leads_upwards_is_shortened():
    slopes = np.array([1.0, 1.0])
    optimiser = Owlqn(l1=np.array([1.0, 0.0]))

    def linear(w):
        return float(slopes @ w), slopes

    # The first weight stops at 0, and the direction of the second is an ascent direction.
    state = optimiser.start(linear, np.array([0.1, 0.0]))
    steepest = optimiser.steepest(state.point, state.gradient)
    found = optimiser.search_along(
        lambda w: (linear(w)[0] + abs(w[0]), slopes), state, steepest, np.array([-1.0, 1.0]), 1.0
    )
    assert found is not None
    assert found[1] < state.value
    assert found[0][0] == 0.0


def test_fixed_weights_do_not_change():
    x, y = rows(7)
    learned = np.arange(40) % 4 != 0
    start, l1 = np.where(learned, 0.0, 0.7), np.where(learned, 3.0, 0.0)
    whole = logistic(x, y)

    def objective(w):
        value, gradient = whole(w)
        return value, np.where(learned, gradient, 0.0)

    state = minimum(Owlqn(**EXACT, l1=l1), objective, start)
    np.testing.assert_array_equal(state.point[~learned], 0.7)
    assert violation(objective, state.point, l1) < 1e-6
    assert state.point[learned].any()


@pytest.mark.parametrize("after", [1, 7, 20])
def test_resumes_exactly_from_a_run_folder(after, tmp_path):
    x, y = rows(8, shared=1.0)
    objective = logistic(x, y)
    optimiser = Owlqn(**EXACT, l1=strengths(x, y, 0.03), inverse_diagonal=1.0 / (x * x).sum(axis=0))
    at_once = minimum(optimiser, objective, np.zeros(40))
    assert at_once.status == "converged"
    assert at_once.iteration > 20
    state = optimiser.start(objective, np.zeros(40))
    while state.iteration < after:
        state = optimiser.step(objective, state)
    restored = through_a_run_folder(state, tmp_path)
    assert restored.gradient_norm == state.gradient_norm
    resumed = optimiser.minimise(objective, restored)
    np.testing.assert_array_equal(resumed.point, at_once.point)
    np.testing.assert_array_equal(resumed.gradient, at_once.gradient)
    assert replace(resumed, point=0, gradient=0, steps=0, changes=0) == replace(
        at_once, point=0, gradient=0, steps=0, changes=0
    )


def test_grows_to_the_same_minimum():
    x, y = rows(9, shared=1.0)
    l1 = strengths(x, y, 0.02)
    whole = minimum(Owlqn(**EXACT, l1=l1), logistic(x, y), np.zeros(40))
    few = Owlqn(max_iterations=6, l1=l1[:10])
    state = minimum(few, logistic(x[:, :10], y), np.zeros(10))
    for n in (11, 25, 40):
        before, old = state, len(state.point)
        optimiser = replace(few, l1=l1[:n])
        objective = logistic(x[:, :n], y)
        value, gradient = objective(np.pad(before.point, (0, n - old)))
        state = replace(optimiser.extend_state(before, gradient[old:]), iteration=0)
        assert state.status == "running"
        assert state.value == pytest.approx(value + l1[:old] @ np.abs(before.point), rel=1e-12)
        np.testing.assert_allclose(state.gradient, gradient, rtol=1e-9, atol=1e-12)
        assert state.initial_gradient_norm >= before.initial_gradient_norm
        assert len(state.steps) == len(before.steps) > 0
        for short, long in zip((*before.steps, *before.changes), (*state.steps, *state.changes), strict=True):
            np.testing.assert_array_equal(long[:old], short)
            np.testing.assert_array_equal(long[old:], 0.0)
        state = optimiser.minimise(objective, state)
    state = replace(optimiser, **EXACT).minimise(logistic(x, y), replace(state, status="running", iteration=0))
    assert state.status == "converged"
    np.testing.assert_allclose(state.point, whole.point, rtol=0.0, atol=1e-7)


def grow_by_tens(x, y, l1, keep):
    """Return the state at the minimum, and the evaluations after each ten features and in total."""
    point, state, evaluations = np.zeros(0), None, 0
    for n in range(10, len(l1) + 1, 10):
        objective, point = logistic(x[:, :n], y), np.pad(point, (0, 10))
        most = 3 if n < len(l1) else 2000
        optimiser = Owlqn(tolerance=1e-6, value_tolerance=0.0, max_iterations=most, l1=l1[:n])
        grows = keep and state is not None
        if grows:
            state = replace(optimiser.extend_state(state, objective(point)[1][n - 10 :]), iteration=0, evaluations=1)
        else:
            state = optimiser.start(objective, point)
        state = optimiser.minimise(objective, state)
        point, evaluations = state.point, evaluations + state.evaluations
    return state, evaluations


def test_growing_keeps_curvature_information():
    spent = {True: 0, False: 0}
    for seed in range(5):
        x, y = rows(seed, n=100, n_rows=500, shared=1.0, scales=30.0)
        l1 = strengths(x, y, 0.03)
        ends = {}
        for keep in spent:
            ends[keep], evaluations = grow_by_tens(x, y, l1, keep)
            spent[keep] += evaluations
        assert ends[True].status == ends[False].status == "converged"
        assert ends[True].value == pytest.approx(ends[False].value, rel=1e-9)
    assert spent[True] < 0.9 * spent[False], spent


@pytest.mark.parametrize(
    ("value", "slope"), [(np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan), (1.0, np.inf)], ids=lambda number: str(number)
)
@pytest.mark.parametrize("optimiser", [Owlqn(l1=np.ones(3)), Lbfgs()], ids=lambda optimiser: type(optimiser).__name__)
def test_a_start_that_is_not_finite_has_diverged(optimiser, value, slope):
    gradient = np.array([0.0, slope, 1.0])
    state = minimum(optimiser, lambda w: (value, gradient), np.zeros(3))
    assert (state.status, state.iteration) == ("diverged", 0)


@pytest.mark.parametrize("outside", [np.inf, np.nan])
def test_backs_away_from_points_that_are_not_finite(outside):
    def barrier(w):
        inside = np.abs(w).max() < 1.0
        values.append(float(-np.log1p(-w * w).sum() - 3.0 * w.sum()) if inside else outside)
        return values[-1], 2.0 * w / (1.0 - w * w) - 3.0 if inside else w

    values = []
    state = minimum(Owlqn(**EXACT, l1=np.array([1.0, 4.0])), barrier, np.zeros(2))
    assert not np.isfinite(values).all()
    # 2 w / (1 - w^2) = 3 - 1
    np.testing.assert_allclose(state.point, [(np.sqrt(5.0) - 1.0) / 2.0, 0.0], rtol=0.0, atol=1e-9)


def test_reports_missing_convergence():
    x, y = rows(11)
    optimiser = Owlqn(max_iterations=2, l1=strengths(x, y, 0.03))
    state = minimum(optimiser, logistic(x, y), np.zeros(40))
    assert (state.status, state.iteration) == ("not converged", 2)


def test_stops_when_the_value_barely_decreases():
    x, y = rows(12, shared=2.0)
    objective, l1 = logistic(x, y), strengths(x, y, 0.03)
    best = minimum(Owlqn(**EXACT, l1=l1), objective, np.zeros(40))
    state = minimum(Owlqn(tolerance=0.0, value_tolerance=1e-6, l1=l1), objective, np.zeros(40))
    assert state.status == "converged"
    assert state.iteration < best.iteration
    assert best.value <= state.value < best.value * (1.0 + 1e-4)


def thousandths(low, high):
    """Return values that are 0 or well above rounding."""
    return st.integers(1000 * low, 1000 * high).map(lambda number: number / 1000.0)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 8))
def test_diagonal_quadratics_have_a_closed_form(data, n):
    scale = 10.0 ** data.draw(arrays(float, n, elements=thousandths(-2, 2)))
    target, start = (data.draw(arrays(float, n, elements=thousandths(-8, 8))) for _ in range(2))
    l1 = data.draw(arrays(float, n, elements=thousandths(0, 8)))

    def objective(w):
        return float(0.5 * scale @ (w * w) - target @ w), scale * w - target

    state = minimum(Owlqn(**EXACT, l1=l1), objective, start)
    assert state.status == "converged"
    exact = 1e-9 * state.initial_gradient_norm + 1e-12
    assert violation(objective, state.point, l1) <= exact
    expected = np.sign(target) * np.maximum(np.abs(target) - l1, 0.0) / scale
    np.testing.assert_allclose(state.point, expected, rtol=0.0, atol=2.0 * exact / scale.min())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.floats(0.0, 1.5))
def test_quadratics_against_coordinate_descent(seed, n, strength):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n + 1, n))
    matrix, vector = root.T @ root + 0.1 * np.eye(n), rng.normal(size=n)
    l1 = strength * rng.random(n)

    def objective(w):
        return float(0.5 * w @ matrix @ w - vector @ w), matrix @ w - vector

    state = minimum(Owlqn(**EXACT, l1=l1), objective, rng.normal(size=n))
    assert state.status == "converged"
    np.testing.assert_allclose(state.point, coordinate_descent(matrix, vector, l1), rtol=0.0, atol=1e-7)
