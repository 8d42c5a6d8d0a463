"""Tests of L-BFGS: it finds SciPy's minima, and resumes from a saved state with bitwise identical results."""

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from relcrf.learning.lbfgs import Lbfgs


def logistic(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(200, 12)), rng.integers(0, 2, size=200) * 2 - 1

    def objective(w):
        margin = y * (x @ w)
        gradient = -(x * (y / (1 + np.exp(margin)))[:, None]).sum(axis=0) + w
        return float(np.logaddexp(0, -margin).sum() + 0.5 * w @ w), gradient

    return objective


@pytest.mark.parametrize("seed", range(5))
def test_logistic_regression(seed):
    objective = logistic(seed)
    optimiser = Lbfgs(tolerance=1e-8, value_tolerance=0.0)
    state = optimiser.minimise(objective, optimiser.start(objective, np.zeros(12)))
    reference = minimize(objective, np.zeros(12), jac=True, method="L-BFGS-B", options={"gtol": 1e-10})
    assert state.status == "converged"
    assert state.value == pytest.approx(reference.fun, rel=1e-9)
    assert state.evaluations <= 2 * reference.nfev + 5


def test_rosenbrock():
    def objective(x):
        return float(rosen(x)), rosen_der(x)

    optimiser = Lbfgs(tolerance=1e-9, value_tolerance=0.0, max_iterations=500)
    state = optimiser.minimise(objective, optimiser.start(objective, np.full(10, -1.0)))
    assert state.value < 1e-10 or state.value == pytest.approx(minimize(rosen, np.full(10, -1.0), jac=rosen_der).fun)


def test_resumes_exactly():
    objective = logistic(1)
    whole = Lbfgs(max_iterations=9, tolerance=1e-12, value_tolerance=0.0)
    at_once = whole.minimise(objective, whole.start(objective, np.zeros(12)))
    half = Lbfgs(max_iterations=4, tolerance=1e-12, value_tolerance=0.0)
    stopped = half.minimise(objective, half.start(objective, np.zeros(12)))
    import dataclasses

    resumed = whole.minimise(objective, dataclasses.replace(stopped, status="running"))
    np.testing.assert_array_equal(resumed.point, at_once.point)
    assert resumed.iteration == at_once.iteration == 9


def test_reports_missing_convergence():
    objective = logistic(2)
    optimiser = Lbfgs(max_iterations=2)
    assert optimiser.minimise(objective, optimiser.start(objective, np.zeros(12))).status == "not converged"
