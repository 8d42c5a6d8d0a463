"""Tests of L-BFGS, conjugate gradients and Newton-CG: minima, statuses, resumption, and the directions of the latter two."""

from dataclasses import replace
from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der, rosen_hess

from relcrf.learning.conjugate_gradient import ConjugateGradient
from relcrf.learning.lbfgs import Lbfgs, OptimiserState
from relcrf.learning.newton_cg import NewtonCg

OPTIMISERS = pytest.mark.parametrize("method", [Lbfgs, ConjugateGradient, NewtonCg])
N = 12


def logistic(seed, scales=1.0):
    """Return the loss of a logistic regression with an L2 penalty, and the inverse of its curvature at 0."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(200, N)) * scales, rng.integers(0, 2, size=200) * 2 - 1

    def objective(w):
        margin = y * (x @ w)
        gradient = -(x * (y / (1 + np.exp(margin)))[:, None]).sum(axis=0) + w
        return float(np.logaddexp(0, -margin).sum() + 0.5 * w @ w), gradient

    return objective, 1 / (0.25 * (x**2).sum(axis=0) + 1)


def quadratic(seed):
    """Return a quadratic function with condition number 1,000, its Hessian and a positive diagonal."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(N, N)))[0]
    hessian = basis * np.geomspace(1, 1000, N) @ basis.T
    return lambda w: (float(0.5 * w @ hessian @ w), hessian @ w), hessian, rng.uniform(0.1, 10, size=N)


def double_wells(x):
    """Return the value and gradient of a function with a maximum at 0 and 2**n minima near the points of -1 and 1."""
    coupling = np.roll(x, 1) + np.roll(x, -1)
    return float(((x**2 - 1) ** 2).sum() / 4 - 0.05 * x @ coupling), x**3 - x - 0.1 * coupling


def steps_of_linear_conjugate_gradients(hessian, inverse, start, n):
    """Return the points of preconditioned linear conjugate gradients on a quadratic function."""
    points, gradient = [start], hessian @ start
    direction = -inverse * gradient
    for _ in range(n):
        length = gradient @ (inverse * gradient) / (direction @ hessian @ direction)
        points.append(points[-1] + length * direction)
        new = hessian @ points[-1]
        direction = -inverse * new + new @ (inverse * new) / (gradient @ (inverse * gradient)) * direction
        gradient = new
    return points


def exact(method, **settings):
    return method(**{"tolerance": 1e-9, "value_tolerance": 0.0, "max_iterations": 1000, **settings})


@OPTIMISERS
@pytest.mark.parametrize("scales", [1.0, np.geomspace(0.1, 10, N)], ids=["equal", "different"])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_minimum_of_a_convex_function(method, scales, preconditioned):
    objective, inverse = logistic(0, scales)
    calls = []
    optimiser = exact(method, inverse_diagonal=inverse if preconditioned else None)
    counted = lambda w: (calls.append(1), objective(w))[1]  # noqa: E731
    state = optimiser.minimise(counted, optimiser.start(counted, np.zeros(N)))
    reference = minimize(objective, np.zeros(N), jac=True, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 1e-15})
    assert state.status == "converged"
    assert np.abs(objective(state.point)[1]).max() < 1e-6
    np.testing.assert_allclose(state.point, reference.x, atol=1e-6)
    assert state.evaluations == len(calls)


@OPTIMISERS
@pytest.mark.parametrize("seed", range(3))
def test_minimum_of_a_nonconvex_function(method, seed):
    start = 0.01 * np.random.default_rng(seed).normal(size=N)  # the Hessian at the start is negative definite
    optimiser = exact(method)
    state = optimiser.minimise(double_wells, optimiser.start(double_wells, start))
    curvature = np.diag(3 * state.point**2 - 1) - 0.1 * (np.roll(np.eye(N), 1, axis=0) + np.roll(np.eye(N), -1, axis=0))
    assert state.status == "converged" and state.gradient_norm < 1e-8
    assert np.linalg.eigvalsh(curvature).min() > 0


@OPTIMISERS
def test_rosenbrock(method):
    optimiser = exact(method)
    state = optimiser.minimise(
        lambda x: (rosen(x), rosen_der(x)), optimiser.start(lambda x: (rosen(x), rosen_der(x)), np.full(6, -1.2))
    )
    assert state.status == "converged" and state.gradient_norm < 1e-5
    assert np.linalg.eigvalsh(rosen_hess(state.point)).min() > 0


@OPTIMISERS
@pytest.mark.parametrize("function", [logistic(1)[0], double_wells], ids=["convex", "nonconvex"])
def test_resumes_with_identical_bits(method, function):
    start, optimiser = np.linspace(-0.3, 0.2, N), exact(method)
    states = []
    whole = optimiser.minimise(function, optimiser.start(function, start), states.append)
    for interrupted in states[:: max(1, len(states) // 4)]:
        file = BytesIO()
        np.savez(file, **interrupted.to_arrays())
        file.seek(0)
        resumed = optimiser.minimise(function, OptimiserState.from_arrays(np.load(file)))
        np.testing.assert_array_equal(resumed.point, whole.point)
        assert (resumed.iteration, resumed.evaluations, resumed.status) == (
            whole.iteration,
            whole.evaluations,
            whole.status,
        )


@OPTIMISERS
def test_statuses(method):
    objective, _ = logistic(2)

    def run(optimiser, function=objective):
        return optimiser.minimise(function, optimiser.start(function, np.zeros(N)))

    limited = run(exact(method, max_iterations=2))
    assert (limited.status, limited.iteration) == ("not converged", 2)
    assert run(exact(method), lambda w: (0.0, np.zeros(N))).iteration == 0
    assert run(exact(method), lambda w: (np.nan, np.ones(N))).status == "diverged"
    assert run(exact(method, tolerance=0.0, value_tolerance=1e-3)).status == "converged"


@OPTIMISERS
def test_ends_when_an_iteration_changes_little(method):
    """The last iteration is the first one that changes the value by less than `min_decrease`, by the slope and in truth."""
    objective, limit = logistic(0)[0], 1e-3
    states, optimiser = [], exact(method)
    optimiser.minimise(objective, optimiser.start(objective, np.zeros(N)), states.append)
    steps = list(pairwise(states))
    changes = [max(a.value - b.value, 0.5 * (a.point - b.point) @ a.gradient) for a, b in steps]
    expected = next(b for (_, b), change in zip(steps, changes, strict=True) if change < limit)
    state = replace(optimiser, min_decrease=limit)
    final = state.minimise(objective, state.start(objective, np.zeros(N)))
    assert final.status == "converged" and 2 < expected.iteration < states[-1].iteration
    np.testing.assert_array_equal(final.point, expected.point)


def test_does_not_end_while_a_weight_would_move():
    """A small decrease is no minimum if the gradient of a weight, relative to its curvature, implies a large step."""
    objective = logistic(0)[0]
    optimiser = exact(Lbfgs, min_decrease=10.0)
    early = optimiser.minimise(objective, optimiser.start(objective, np.zeros(N)))
    careful = replace(optimiser, curvature=np.full(N, 1.0))
    late = careful.minimise(objective, careful.start(objective, np.zeros(N)))
    assert np.abs(early.gradient).max() > 0.1 and np.abs(late.gradient).max() < 0.01
    assert late.iteration > early.iteration


def test_memory_of_another_stage_predicts_the_decrease():
    """From a minimum with a memory, a run ends without an evaluation; without a memory, it evaluates once."""
    objective = logistic(0)[0]
    optimiser = exact(Lbfgs, min_decrease=1e-6)
    learned = optimiser.minimise(objective, optimiser.start(objective, np.zeros(N)))
    start = replace(optimiser.start(objective, learned.point), initial_gradient_norm=learned.initial_gradient_norm)
    assert optimiser.minimise(objective, start).evaluations > 1
    final = optimiser.minimise(objective, replace(start, steps=learned.steps, changes=learned.changes))
    assert (final.status, final.iteration, final.evaluations) == ("converged", 0, 1)
    moved = replace(optimiser.start(objective, learned.point + 0.1), steps=learned.steps, changes=learned.changes)
    assert optimiser.minimise(objective, moved).iteration > 0


@pytest.mark.parametrize("preconditioned", [False, True])
def test_exact_searches_give_linear_conjugate_gradients(monkeypatch, preconditioned):
    monkeypatch.setattr(ConjugateGradient, "wolfe_curvature", 1e-9)
    objective, hessian, diagonal = quadratic(3)
    start = np.random.default_rng(4).normal(size=N)
    optimiser = exact(ConjugateGradient, inverse_diagonal=diagonal if preconditioned else None, max_iterations=6)
    points = []
    optimiser.minimise(objective, optimiser.start(objective, start), lambda state: points.append(state.point))
    inverse = diagonal if preconditioned else np.ones(N)
    expected = steps_of_linear_conjugate_gradients(hessian, inverse, start, 6)[1:]
    np.testing.assert_allclose(points[:6], expected, atol=1e-6)


def test_conjugate_gradient_directions_descend_after_any_step():
    rng = np.random.default_rng(5)
    state = OptimiserState(np.zeros(N), 0.0, np.ones(N), 1.0, (), (), 1.0)
    optimiser = ConjugateGradient(inverse_diagonal=rng.uniform(0.1, 10, size=N))
    for _ in range(200):
        step, change, gradient = rng.normal(size=(3, N)) * rng.uniform(0.01, 10, size=(3, 1))
        change *= np.sign(step @ change)
        if step @ (gradient - change) < 0:  # the previous direction was a descent direction
            direction = optimiser.direction(replace(state, steps=(step,), changes=(change,)), gradient)
            assert direction @ gradient < 0


def test_newton_step_is_a_truncated_conjugate_gradient_solution():
    objective, hessian, diagonal = quadratic(6)
    start = np.random.default_rng(7).normal(size=N)
    optimiser = exact(NewtonCg, inverse_diagonal=diagonal, max_iterations=1)
    state = optimiser.minimise(objective, optimiser.start(objective, start))
    points = steps_of_linear_conjugate_gradients(hessian, diagonal, start, N)
    norms = [float((hessian @ point) @ (diagonal * (hessian @ point))) for point in points]
    truncated = next(k for k in range(1, N) if norms[k] <= 0.25 * norms[0])
    np.testing.assert_allclose(state.point, points[truncated], atol=1e-4)
    assert state.evaluations == 1 + truncated + 1


def test_newton_converges_superlinearly():
    objective, _ = logistic(8)
    optimiser = exact(NewtonCg, tolerance=1e-12)
    norms = [1.0]
    state = optimiser.start(objective, np.zeros(N))
    start = state.gradient_norm
    optimiser.minimise(objective, state, lambda state: norms.append(state.gradient_norm / start))
    ratios = np.array(norms[1:]) / norms[:-1]
    assert len(norms) <= 9 and ratios[-3:-1].max() < 0.1
