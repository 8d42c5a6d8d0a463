"""Tests of proximal quasi-Newton on convex functions with group norms: minima, exact zeros, resumption and growth."""

from dataclasses import replace

import numpy as np
import pytest
from objectives import through_a_run_folder
from scipy.special import expit

from relcrf.learning.group_lasso import GroupLasso, WeightGroups


def logistic(seed, sizes, n_rows=300, shared=0.5):
    """Return rows of features with a shared part, where every third group matters, and the groups."""
    rng = np.random.default_rng(seed)
    start = np.concatenate(([0], np.cumsum(sizes)))
    x = rng.normal(size=(n_rows, start[-1])) + shared * rng.normal(size=(n_rows, 1))
    w = rng.normal(size=start[-1]) * np.repeat(np.arange(len(sizes)) % 3 == 0, sizes)
    y = np.where(x @ w + rng.logistic(size=n_rows) > 0.0, 1.0, -1.0)

    def objective(point):
        margin = y * (x @ point)
        return float(np.logaddexp(0.0, -margin).sum()), -x.T @ (y * expit(-margin))

    strength = 20.0 * np.sqrt(np.array(sizes, dtype=float))
    strength[0] = 0.0
    return objective, WeightGroups(start, strength), 0.25 * (x**2).sum(axis=0)


SIZES = [1, 3, 5, 5, 25, 1, 4, 9]


def plain_descent(objective, groups, rate, steps=20_000):
    """Return the minimum by proximal gradient descent alone."""
    point = np.zeros(groups.start[-1])
    rates = np.full(len(groups.sizes), rate)
    for _ in range(steps):
        point = groups.shrink(point - rate * objective(point)[1], rates)
    return point


@pytest.mark.parametrize("seed", range(3))
def test_the_minimum_is_that_of_plain_descent(seed):
    objective, groups, diagonal = logistic(seed, SIZES)
    found = GroupLasso(groups=groups, diagonal=diagonal, scale=1.0, tolerance=1e-7)
    state = found.minimise(objective, found.start(objective, np.zeros(len(diagonal))))
    slow = plain_descent(objective, groups, 1.0 / diagonal.sum())
    assert state.status == "converged" and state.evaluations < 100
    np.testing.assert_allclose(state.point, slow, atol=1e-5)
    norms = groups.norms(state.point)
    assert ((norms == 0.0) == (groups.norms(slow) == 0.0)).all()
    assert 0 < (norms == 0.0).sum() < len(norms)
    assert state.value == pytest.approx(objective(slow)[0] + groups.penalty(slow), rel=1e-9)


def test_stopping_rule_is_the_optimality_conditions():
    objective, groups, diagonal = logistic(4, SIZES)
    found = GroupLasso(groups=groups, diagonal=diagonal, scale=2.0, tolerance=1e-3)
    state = found.minimise(objective, found.start(objective, np.zeros(len(diagonal))))
    gradient = objective(state.point)[1]
    for group, (begin, end) in enumerate(zip(groups.start[:-1], groups.start[1:], strict=True)):
        w, g, strength = state.point[begin:end], gradient[begin:end], groups.strength[group]
        pulled = g + strength * w / max(np.linalg.norm(w), 1e-300)
        # At 0 any vector of that length is a subgradient.
        violation = np.linalg.norm(pulled) - (0.0 if w.any() else min(strength, np.linalg.norm(g)))
        assert violation / np.sqrt(end - begin) <= state.gradient_norm + 1e-12
    assert state.gradient_norm <= 2e-3


def test_reports_missing_convergence():
    objective, groups, diagonal = logistic(0, SIZES)
    found = GroupLasso(groups=groups, diagonal=diagonal, scale=1.0, max_iterations=2)
    assert found.minimise(objective, found.start(objective, np.zeros(len(diagonal)))).status == "not converged"

    def broken(point):
        value, gradient = objective(point)
        return value + 1000.0 * point.any(), gradient

    assert found.minimise(broken, found.start(broken, np.zeros(len(diagonal)))).status == "stalled"


def test_weights_of_infinite_strength_stay_zero():
    objective, groups, diagonal = logistic(1, SIZES)
    shut = WeightGroups(groups.start, np.where(np.arange(len(SIZES)) == 3, np.inf, groups.strength))
    found = GroupLasso(groups=shut, diagonal=diagonal, scale=1.0)
    state = found.minimise(objective, found.start(objective, np.zeros(len(diagonal))))
    assert state.status == "converged" and not state.point[groups.start[3] : groups.start[4]].any()
    assert np.isfinite(state.value)


def test_interrupted_run_resumes_exactly(tmp_path):
    objective, groups, diagonal = logistic(2, SIZES)
    found = GroupLasso(groups=groups, diagonal=diagonal, scale=1.0, tolerance=1e-6)
    state = found.start(objective, np.zeros(len(diagonal)))
    for _ in range(4):
        state = found.step(objective, state)
    restored = through_a_run_folder(state, tmp_path)
    whole, again = (found.minimise(objective, part) for part in (state, restored))
    np.testing.assert_array_equal(whole.point, again.point)
    assert whole.iteration == again.iteration


def test_extended_state_continues_with_more_groups():
    objective, groups, diagonal = logistic(3, SIZES)
    few = groups.start[5]

    def first(point):
        value, gradient = objective(np.concatenate((point, np.zeros(len(diagonal) - few))))
        return value, gradient[:few]

    part = GroupLasso(
        groups=WeightGroups(groups.start[:6], groups.strength[:5]), diagonal=diagonal[:few], scale=1.0, tolerance=1e-7
    )
    state = part.minimise(first, part.start(first, np.zeros(few)))
    whole = GroupLasso(groups=groups, diagonal=diagonal, scale=1.0, tolerance=1e-7)
    longer = np.concatenate((state.point, np.zeros(len(diagonal) - few)))
    grown = whole.extend_state(state, objective(longer)[1][few:])
    assert len(grown.steps) == len(state.steps) and grown.status == "running"
    anew = whole.minimise(objective, whole.start(objective, np.zeros(len(diagonal))))
    np.testing.assert_allclose(whole.minimise(objective, replace(grown)).point, anew.point, atol=1e-5)
