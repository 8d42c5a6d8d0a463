"""Tests of proximal adaptive gradients: minima of OWL-QN, resumption, growth, and fields without a potential."""

from dataclasses import replace

import numpy as np
import pytest
from objectives import through_a_run_folder
from scipy.special import expit

from relcrf.learning.owlqn import Owlqn, pseudo_gradient
from relcrf.learning.proximal import ProximalAdaGrad

EXACT = {"tolerance": 1e-7, "max_iterations": 5000}


def problem(seed, n=30, shared=0.0):
    """Return an L1 logistic regression: value and gradient, and strengths; the first weight is not penalised."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, n)) + shared * rng.normal(size=(200, 1))
    x *= rng.permutation(np.geomspace(1.0, 0.1, n))
    y = np.where(x @ np.where(rng.random(n) < 0.3, rng.normal(size=n), 0.0) + rng.logistic(size=200) > 0.0, 1.0, -1.0)

    def objective(w):
        margin = y * (x[:, : len(w)] @ w)
        return float(np.logaddexp(0.0, -margin).sum()), -x[:, : len(w)].T @ (y * expit(-margin))

    l1 = np.full(n, 0.03 * np.abs(x.T @ y).max())
    l1[0] = 0.0
    return objective, l1


def minimum(optimiser, objective, start):
    return optimiser.minimise(objective, optimiser.start(objective, start))


@pytest.mark.parametrize(("seed", "shared"), [(0, 0.0), (1, 0.0), (2, 1.0)])
def test_the_same_optimum_as_owlqn(seed, shared):
    objective, l1 = problem(seed, shared=shared)
    wanted = minimum(Owlqn(1e-9, 0.0, 2000, l1=l1), objective, np.zeros(30))
    state = minimum(ProximalAdaGrad(**EXACT, l1=l1), objective, np.linspace(-1.0, 1.0, 30))
    assert state.status == "converged"
    np.testing.assert_allclose(state.point, wanted.point, rtol=0.0, atol=1e-4)
    assert state.value == pytest.approx(wanted.value, rel=1e-9)
    assert 0 < (state.point == 0.0).sum() < 30
    np.testing.assert_array_equal(state.point == 0.0, wanted.point == 0.0)
    assert state.gradient_norm == np.abs(pseudo_gradient(state.point, state.gradient, l1)).max()


def test_finds_the_zero_of_a_rotational_field():
    turn = np.array([[1.0, 0.9], [-0.9, 1.0]])
    target = np.array([1.0, -2.0])

    def objective(w):
        return 0.0, turn @ (w - target)

    np.testing.assert_allclose(
        minimum(ProximalAdaGrad(**EXACT, l1=np.zeros(2)), objective, np.zeros(2)).point, target, atol=1e-6
    )
    state = minimum(ProximalAdaGrad(**EXACT, l1=np.array([0.0, 50.0])), objective, np.ones(2))
    assert state.status == "converged"
    np.testing.assert_allclose(state.point, [1.0 - 0.9 * 2.0, 0.0], atol=1e-4)


def test_fixed_weights_do_not_change():
    whole, l1 = problem(3)
    learned = np.arange(30) % 4 != 0

    def objective(w):
        value, gradient = whole(w)
        return value, np.where(learned, gradient, 0.0)

    state = minimum(ProximalAdaGrad(**EXACT, l1=np.where(learned, l1, 0.0)), objective, np.where(learned, 0.0, 0.7))
    assert state.status == "converged"
    np.testing.assert_array_equal(state.point[~learned], 0.7)
    assert state.point[learned].any()


@pytest.mark.parametrize("after", [1, 20])
def test_resumes_exactly_from_a_run_folder(after, tmp_path):
    objective, l1 = problem(4)
    optimiser = ProximalAdaGrad(**EXACT, l1=l1)
    at_once = minimum(optimiser, objective, np.zeros(30))
    assert at_once.iteration > 20
    state = optimiser.start(objective, np.zeros(30))
    while state.iteration < after:
        state = optimiser.step(objective, state)
    restored = through_a_run_folder(state, tmp_path)
    resumed = optimiser.minimise(objective, restored)
    np.testing.assert_array_equal(resumed.point, at_once.point)
    np.testing.assert_array_equal(resumed.steps[0], at_once.steps[0])
    assert (resumed.iteration, resumed.value) == (at_once.iteration, at_once.value)


def test_grows_to_the_same_minimum():
    objective, l1 = problem(5)
    few = ProximalAdaGrad(max_iterations=6, l1=l1[:10])
    state = minimum(few, objective, np.zeros(10))
    for n in (11, 30):
        before, old = state, len(state.point)
        optimiser = replace(few, l1=l1[:n])
        value, gradient = objective(np.pad(before.point, (0, n - old)))
        state = replace(optimiser.extend_state(before, gradient[old:]), iteration=0)
        assert state.status == "running"
        assert state.value == pytest.approx(value + l1[:old] @ np.abs(before.point), rel=1e-12)
        np.testing.assert_allclose(state.gradient, gradient, rtol=1e-9, atol=1e-12)
        assert state.initial_gradient_norm >= before.initial_gradient_norm
        for short, long in zip(before.steps, state.steps, strict=True):
            np.testing.assert_array_equal(long, np.pad(short, (0, n - old)))
        state = optimiser.minimise(objective, state)
    state = replace(optimiser, **EXACT).minimise(objective, replace(state, status="running", iteration=0))
    wanted = minimum(Owlqn(1e-9, 0.0, 2000, l1=l1), objective, np.zeros(30))
    assert state.status == "converged"
    np.testing.assert_allclose(state.point, wanted.point, rtol=0.0, atol=1e-4)


def test_reports_final_status():
    objective, l1 = problem(6)
    assert minimum(ProximalAdaGrad(max_iterations=3, l1=l1), objective, np.zeros(30)).status == "not converged"
    strong = minimum(ProximalAdaGrad(l1=np.full(30, 1e3)), objective, np.zeros(30))
    assert (strong.status, strong.iteration) == ("converged", 0)
    for value, slope in ((np.nan, 1.0), (1.0, np.inf)):
        state = minimum(
            ProximalAdaGrad(l1=np.ones(2)), lambda w, v=value, s=slope: (v, np.array([s, 2.0])), np.zeros(2)
        )
        assert (state.status, state.iteration) == ("diverged", 0)
