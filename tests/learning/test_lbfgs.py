"""Tests of L-BFGS: it needs about as many evaluations as SciPy. See also `test_smooth_optimisers.py`."""

import numpy as np
import pytest
from scipy.optimize import minimize

from relcrf.learning.lbfgs import MEMORY_BYTES, Lbfgs, memory_length


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


def test_memory_of_many_weights_is_limited():
    assert (memory_length(0), memory_length(100_000)) == (40, 40)
    assert memory_length(MEMORY_BYTES // (2 * 8 * 25)) == 25  # two vectors of float64 for each step
    assert memory_length(10**9) == 10
