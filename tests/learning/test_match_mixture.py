"""The mixture of matches and other pairs, compared with a plain EM over single pairs and with a general optimiser."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from relcrf.learning.match_mixture import NO_LEVEL, LevelPatterns, MatchEm

N_LEVELS = (3, 2, 3)
MATCH = ((0.05, 0.15, 0.8), (0.1, 0.9), (0.2, 0.1, 0.7))
OTHER = ((0.8, 0.15, 0.05), (0.7, 0.3), (0.9, 0.08, 0.02))


def sample(n, share, seed, missing=0.0):
    """Return the states of pairs, shape (n,), and the levels of their three comparisons."""
    rng = np.random.default_rng(seed)
    state = (rng.random(n) < share).astype(int)
    levels = []
    for m, u in zip(MATCH, OTHER, strict=True):
        drawn = np.where(state == 1, rng.choice(len(m), size=n, p=m), rng.choice(len(u), size=n, p=u))
        levels.append(np.where(rng.random(n) < missing, NO_LEVEL, drawn))
    return state, levels


def count(levels, labels=None, parameters=(0, 1, 2), n_levels=N_LEVELS, given=None):
    n = len(levels[0])
    return LevelPatterns.count(
        levels,
        parameters,
        n_levels,
        np.zeros(n) if given is None else given,
        np.full(n, -1) if labels is None else labels,
        np.ones(n),
    )


def plain_step(share, logs, levels, labels, parameters, given, smoothing):
    """Return share and log-probabilities after one step of EM, in loops over single pairs."""
    frequency = [[0.5] * len(one[0]) for one in logs]
    for pair, c in itertools.product(range(len(labels)), range(len(levels))):
        if levels[c][pair] != NO_LEVEL:
            frequency[parameters[c]][levels[c][pair]] += 1
    counts = [
        [[smoothing * f / sum(row) for f in row] for _ in (0, 1)] for row in frequency
    ]  # by parameter, state and level
    totals = [1e-6, 1e-6]
    for pair, label in enumerate(labels):
        odds = math.log(share / (1 - share)) + given[pair]
        for c, level in enumerate(column[pair] for column in levels):
            if level != NO_LEVEL:
                odds += logs[parameters[c]][1][level] - logs[parameters[c]][0][level]
        matched = 1 / (1 + math.exp(-odds)) if label < 0 else float(label)
        for state, weight in enumerate((1 - matched, matched)):
            totals[state] += weight
            for c, column in enumerate(levels):
                if column[pair] != NO_LEVEL:
                    counts[parameters[c]][state][column[pair]] += weight
    new = [[[math.log(x / sum(row)) for x in row] for row in one] for one in counts]
    return totals[1] / sum(totals), new


@pytest.mark.parametrize("case", ["plain", "missing", "labels", "shared", "given"])
def test_a_step_equals_a_plain_step_over_single_pairs(case):
    state, levels = sample(200, 0.3, seed=1, missing=0.2 if case == "missing" else 0.0)
    labels = np.where(np.arange(200) % 7 == 0, state, -1) if case == "labels" else np.full(200, -1)
    given = np.where(np.arange(200) % 2 == 0, 0.7, -0.3) if case == "given" else np.zeros(200)
    parameters, n_levels = ((0, 1, 0), (3, 2)) if case == "shared" else ((0, 1, 2), N_LEVELS)
    patterns = count(levels, labels, parameters, n_levels, given)
    assert patterns.counts.sum() == 200 and len(patterns.levels) < 200
    em = MatchEm(smoothing=1.5)
    first = em._start(patterns, patterns.agreement(), 0.1)
    found = em.maximise(patterns, em.responsibilities(patterns, first))
    logs = [one.tolist() for one in first.levels]
    share, expected = plain_step(first.share, logs, levels, labels.tolist(), parameters, given, 1.5)
    assert found.share == pytest.approx(share, rel=1e-9)
    for one, other in zip(found.levels, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_every_step_increases_the_likelihood():
    state, levels = sample(2000, 0.1, seed=2, missing=0.1)
    patterns = count(levels, np.where(np.arange(2000) < 20, state, -1))
    values = []
    MatchEm(tolerance=1e-9).run(
        patterns, MatchEm()._start(patterns, patterns.agreement(), 0.1), lambda m: values.append(m.log_likelihood)
    )
    assert len(values) > 10 and (np.diff(values) > -1e-8).all()


def test_the_fit_is_the_maximum_of_a_general_optimiser():
    _, levels = sample(3000, 0.2, seed=3)
    patterns = count(levels)
    em = MatchEm(tolerance=1e-10, max_iterations=20000)
    best = em.fit(patterns)

    def mixture(x):
        logs, start = [], 1
        for n in N_LEVELS:
            rows = x[start : start + 2 * n].reshape(2, n)
            logs.append(rows - np.logaddexp.reduce(rows, axis=1)[:, None])
            start += 2 * n
        return type(best)(1 / (1 + math.exp(-x[0])), tuple(logs))

    start = np.concatenate([[best.prior_log_odds], *[one.ravel() for one in best.levels]])
    shaken = start + np.random.default_rng(0).normal(scale=0.3, size=len(start))
    found = minimize(lambda x: -em.log_likelihood(patterns, mixture(x)), shaken, method="BFGS", options={"gtol": 1e-4})
    assert -found.fun == pytest.approx(best.log_likelihood, abs=1e-4)
    np.testing.assert_allclose(mixture(found.x).share, best.share, atol=1e-3)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_it_recovers_the_parameters_without_labels(share):
    _, levels = sample(200_000, share, seed=4)
    best = MatchEm().fit(count(levels))
    assert best.share == pytest.approx(share, rel=0.1)
    for m, u, weights in zip(MATCH, OTHER, best.match_weights, strict=True):
        np.testing.assert_allclose(weights, np.log(np.array(m) / np.array(u)), atol=0.35)
    assert best.status == "converged"


def test_labels_decide_which_state_is_a_match():
    """With labels of both states, matches may be the pairs that agree less."""
    state, levels = sample(5000, 0.3, seed=5)
    labels = np.where(np.arange(5000) < 100, 1 - state, -1)
    assert MatchEm().fit(count(levels)).share == pytest.approx(0.3, abs=0.05)
    assert MatchEm().fit(count(levels, labels)).share == pytest.approx(0.7, abs=0.05)


def test_pairs_without_differences_have_no_fit():
    assert MatchEm().fit(count([np.zeros(50, dtype=int)], parameters=(0,), n_levels=(2,))) is None
