"""Tests of mini-batch methods: minima, exact resumption, and the reported status."""

from dataclasses import replace

import numpy as np
import pytest
from objectives import through_a_run_folder
from scipy.special import expit

from relcrf.learning.early_stopping import EarlyStoppingState, update_early_stopping
from relcrf.learning.hessian_products import hessian_vector_product
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.stochastic import Adam, MetaDescent

METHODS = [
    Adam(300, 30, learning_rate=0.05, max_iterations=60),
    MetaDescent(300, 30, learning_rate=0.5, max_iterations=60),
]
named = pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)


def quadratics(seed, n=300, scales=1.0):
    """Return one quadratic per example, all of the same shape, with minima around the returned point."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    hessian = basis @ np.diag(np.geomspace(scales, 1.0, 6)) @ basis.T
    centres = rng.normal(size=6) + 0.3 * rng.normal(size=(n, 6))

    def evaluate(w, batch):
        distance = w - centres[batch]
        return float(0.5 * np.einsum("ni,ij,nj->n", distance, hessian, distance).mean()), hessian @ distance.mean(
            axis=0
        )

    return evaluate, hessian, centres.mean(axis=0)


def logistic(seed, n=300, l2=0.01):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 12)) * np.geomspace(1.0, 0.2, 12)
    y = np.where(x @ rng.normal(size=12) + rng.logistic(size=n) > 0.0, 1.0, -1.0)

    def evaluate(w, batch):
        margin = y[batch] * (x[batch] @ w)
        gradient = -x[batch].T @ (y[batch] * expit(-margin)) / len(batch) + l2 * w
        return float(np.logaddexp(0.0, -margin).mean() + 0.5 * l2 * w @ w), gradient

    return evaluate


def minimum(method, evaluate, point, judge=lambda state: state):
    return method.minimise(evaluate, method.start(evaluate, point), judge)


@pytest.mark.parametrize("seed", range(3))
@named
def test_finds_the_minimum_of_all_quadratics(method, seed):
    evaluate, _, centre = quadratics(seed, scales=0.1)
    state = minimum(replace(method, max_iterations=200), evaluate, np.full(6, 3.0))
    np.testing.assert_allclose(state.point, centre, atol=0.01)
    assert state.value == pytest.approx(evaluate(centre, np.arange(300))[0], rel=0.01)


@pytest.mark.parametrize("seed", range(3))
@named
def test_the_optimum_of_logistic_regression(method, seed):
    evaluate = logistic(seed)
    every = np.arange(300)
    lbfgs = Lbfgs(tolerance=1e-10, value_tolerance=0.0)
    wanted = lbfgs.minimise(lambda w: evaluate(w, every), lbfgs.start(lambda w: evaluate(w, every), np.zeros(12)))
    state = minimum(replace(method, max_iterations=200), evaluate, np.zeros(12))
    assert evaluate(state.point, every)[0] == pytest.approx(wanted.value, rel=1e-4)
    np.testing.assert_allclose(state.point, wanted.point, atol=0.05)


@named
def test_one_batch_converges(method):
    evaluate, _, centre = quadratics(1)
    method = replace(method, batch_size=1000, max_iterations=2000, learning_rate=0.2)
    state = minimum(method, evaluate, np.zeros(6))
    assert (state.status, method.n_batches) == ("converged", 1)
    assert state.gradient_norm <= 1e-4 * state.initial_gradient_norm
    np.testing.assert_allclose(state.point, centre, atol=1e-3)


@named
@pytest.mark.parametrize("cosine_decay", [False, True])
@pytest.mark.parametrize("after", [1, 7])
def test_resumes_exactly_from_a_run_folder(method, cosine_decay, after, tmp_path):
    evaluate = logistic(4)
    method = replace(method, batch_size=37, cosine_decay=cosine_decay, max_iterations=15)

    def judge(state):
        state = state if isinstance(state, EarlyStoppingState) else EarlyStoppingState.from_state(state)
        return update_early_stopping(state, state.value, 1000)

    at_once = minimum(method, evaluate, np.zeros(12), judge)
    assert (at_once.status, at_once.iteration) == ("not converged", 15)
    state = method.start(evaluate, np.zeros(12))
    while state.iteration < after:
        state = judge(method.step(evaluate, state))
    resumed = method.minimise(evaluate, through_a_run_folder(state, tmp_path), judge)
    np.testing.assert_array_equal(resumed.point, at_once.point)
    np.testing.assert_array_equal(resumed.steps, at_once.steps)
    for fact in ("iteration", "value", "gradient_norm", "evaluations", "status", "best", "stalled"):
        assert getattr(resumed, fact) == getattr(at_once, fact)


def test_each_pass_shuffles_all_examples():
    method = Adam(103, 20, seed=5)
    first, second = method.batches(0), method.batches(1)
    assert [len(batch) for batch in first] == [18, 17, 17, 17, 17, 17]
    for batches in (first, second):
        np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(103))
    assert (np.concatenate(first) != np.concatenate(second)).any()
    np.testing.assert_array_equal(np.concatenate(method.batches(1)), np.concatenate(second))
    assert (np.concatenate(replace(method, seed=6).batches(0)) != np.concatenate(first)).any()


def test_pass_reports_means_over_all_examples():
    """With a rate of 0, the means over batches of unequal size equal those over all examples."""
    evaluate, _, _ = quadratics(2, n=103)
    still = MetaDescent(103, 20, learning_rate=1e-300)
    state = still.start(evaluate, np.ones(6))
    after = still.step(evaluate, state)
    value, gradient = evaluate(np.ones(6), np.arange(103))
    for found in (state, after):
        assert found.value == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(found.gradient, gradient, rtol=1e-12)
        assert found.gradient_norm == pytest.approx(np.abs(gradient).max(), rel=1e-12)
    assert (state.evaluations, after.evaluations) == (6, 6 + 6 + 2 * 5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_adam_is_scale_invariant(scale):
    evaluate, _, _ = quadratics(3)
    method = Adam(300, 300, learning_rate=0.1, cosine_decay=False, epsilon=0.0)

    def scaled(w, batch):
        value, gradient = evaluate(w, batch)
        return scale * value, scale * gradient

    start = np.full(6, 3.0)
    once = method.step(scaled, method.start(scaled, start))
    np.testing.assert_allclose(once.point, start - 0.1 * np.sign(once.gradient), rtol=1e-12)
    for _ in range(3):
        once = method.step(scaled, once)
    state = method.start(evaluate, start)
    for _ in range(4):
        state = method.step(evaluate, state)
    np.testing.assert_allclose(once.point, state.point, rtol=1e-9)


def test_adam_is_the_mean_over_the_root_of_squares():
    gradients = [np.array([1.0, -2.0]), np.array([3.0, 0.5])]
    method = Adam(2, 1, learning_rate=0.1, cosine_decay=False, beta1=0.5, beta2=0.75, epsilon=0.0)
    point, memory = np.zeros(2), method.initial_memory(np.zeros(2))
    for t, gradient in enumerate(gradients):
        point, memory, more = method.update(lambda w: (0.0, w), point, gradient, memory, t)
        assert more == 0
    # After the first step the means are the gradient itself; after the second they weigh 1 to 2, and 3 to 4.
    mean, square = (gradients[0] + 2 * gradients[1]) / 3, (3 * gradients[0] ** 2 + 4 * gradients[1] ** 2) / 7
    np.testing.assert_allclose(point, -0.1 * np.sign(gradients[0]) - 0.1 * mean / np.sqrt(square), rtol=1e-12)


def test_hessian_vector_product():
    evaluate, hessian, _ = quadratics(4, scales=1e-3)
    rng = np.random.default_rng(0)
    for scale in (1e-8, 1.0, 1e8):
        v = scale * rng.normal(size=6)
        found = hessian_vector_product(lambda w: evaluate(w, np.arange(40)), rng.normal(size=6), v)
        np.testing.assert_allclose(found, hessian @ v, rtol=1e-8, atol=1e-8 * scale)


def test_hessian_vector_product_of_a_nonquadratic():
    slope = logistic(5)
    w, v = np.linspace(-1.0, 1.0, 12), np.linspace(2.0, -1.0, 12)
    found = hessian_vector_product(lambda w: slope(w, np.arange(300)), w, v)
    step = 1e-4 * np.eye(12)
    hessian = [(slope(w + e, np.arange(300))[1] - slope(w - e, np.arange(300))[1]) / 2e-4 for e in step]
    np.testing.assert_allclose(found, np.array(hessian) @ v, atol=1e-7)


def test_meta_descent_is_the_recursion_with_the_exact_hessian():
    evaluate, hessian, _ = quadratics(5, scales=0.3)
    method = MetaDescent(
        300, 50, learning_rate=0.05, cosine_decay=False, meta_rate=0.4, memory_decay=0.9, max_iterations=4
    )
    state = minimum(method, evaluate, np.full(6, 2.0))
    w, gain, v = np.full(6, 2.0), np.full(6, 0.05), np.zeros(6)
    for iteration in range(4):
        for batch in method.batches(iteration):
            g = evaluate(w, batch)[1]
            gain = gain * np.clip(1.0 - 0.4 * g * v, 0.5, 2.0)
            w, v = w - gain * g, 0.9 * v - gain * (g + 0.9 * hessian @ v)
    np.testing.assert_allclose(state.point, w, rtol=1e-7)
    np.testing.assert_allclose(state.steps[0], gain, rtol=1e-7)
    assert gain.min() > 0.06  # they were too small, and have grown
    assert state.evaluations == 6 + 4 * 6 * 3 - 2


def test_gains_increase_a_rate_that_is_too_small():
    evaluate, _, centre = quadratics(6, scales=0.1)
    distance = {}
    for meta_rate in (0.0, 0.5):
        method = MetaDescent(300, 30, learning_rate=0.01, cosine_decay=False, meta_rate=meta_rate, max_iterations=20)
        distance[meta_rate] = np.abs(minimum(method, evaluate, np.full(6, 3.0)).point - centre).max()
    assert distance[0.5] < 0.1 * distance[0.0]


def test_cosine_decay():
    method = Adam(100, 10, learning_rate=0.5, max_iterations=40)
    assert [method.rate_at(t) for t in (0, 200, 400)] == pytest.approx([0.5, 0.25, 0.0])
    assert replace(method, cosine_decay=False).rate_at(399) == 0.5


@named
def test_fixed_weights_do_not_change(method):
    whole = logistic(7)
    learned = np.arange(12) % 3 != 0

    def evaluate(w, batch):
        value, gradient = whole(w, batch)
        return value, np.where(learned, gradient, 0.0)

    state = minimum(replace(method, max_iterations=3), evaluate, np.full(12, 0.7))
    np.testing.assert_array_equal(state.point[~learned], 0.7)
    assert (state.point[learned] != 0.7).all()


@named
def test_early_stopping(method):
    """The state stores the best point and the patience counter, and ends at the best point."""
    evaluate = logistic(8)
    held = np.arange(200, 300)
    seen = []

    def judge(state):
        seen.append(evaluate(state.point, held)[0])
        state = state if isinstance(state, EarlyStoppingState) else EarlyStoppingState.from_state(state)
        return update_early_stopping(state, seen[-1], 3)

    method = replace(method, n_examples=100, max_iterations=500, learning_rate=1.0, cosine_decay=False)
    state = minimum(method, evaluate, np.zeros(12), judge)
    assert (state.status, state.iteration) == ("stopped early", len(seen))
    assert len(seen) < 500
    assert evaluate(state.point, held)[0] == min(seen)
    assert seen[-4:].index(min(seen)) == 0


@named
def test_divergence_is_reported_at_the_last_finite_point(method):
    def evaluate(w, batch):
        """A bowl with a hole: beyond 2 there is no value."""
        return (np.nan if w[0] > 2.0 else float(-w.sum())), -np.ones(2)

    state = minimum(replace(method, learning_rate=0.05, tolerance=0.0), evaluate, np.zeros(2))
    assert state.status == "diverged"
    assert state.iteration > 1
    assert np.isnan(state.value)
    assert 1.0 < state.point[0] <= 2.0
    assert np.isfinite(state.steps).all()


@named
@pytest.mark.parametrize(("value", "slope"), [(np.nan, 1.0), (1.0, np.inf), (np.inf, 1.0), (1.0, np.nan)])
def test_nonfinite_start_has_diverged(method, value, slope):
    state = minimum(method, lambda w, batch: (value, np.array([slope, 2.0])), np.zeros(2))
    assert (state.status, state.iteration) == ("diverged", 0)


def test_too_large_rate_is_reported_as_diverged():
    evaluate, _, _ = quadratics(9)

    def steep(w, batch):
        with np.errstate(over="ignore", invalid="ignore"):
            value, gradient = evaluate(w, batch)
            return 100.0 * value, 100.0 * gradient

    state = minimum(MetaDescent(300, 30, learning_rate=1.0, cosine_decay=False, meta_rate=0.0), steep, np.zeros(6))
    assert state.status == "diverged"
    assert np.isfinite(state.point).all()


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"n_examples": 0}, {"learning_rate": 0.0}])
def test_invalid_settings_raise_value_error(wrong):
    with pytest.raises(ValueError, match="must be positive"):
        Adam(**{"n_examples": 10, **wrong})
