"""Tempered predictions against a brute-force search for the temperature."""

import numpy as np
import pytest

from relcrf.columns.offsets import offsets
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.evaluation.tempering import MAX_TEMPERATURE, MIN_TEMPERATURE, PSEUDO_LABELS, temper


def prediction(rng, n, sharpness):
    """Return predictions of variables with 2 to 4 states whose labels have the probabilities of sharpness 1."""
    sizes = rng.integers(2, 5, size=n)
    tables, truth = [], []
    for size in sizes:
        logits = rng.normal(scale=1.5, size=size)
        p = np.exp(logits) / np.exp(logits).sum()
        truth.append(rng.choice(size, p=p))
        tables.append(p**sharpness / (p**sharpness).sum())
    return FoldPrediction("1", np.arange(n), offsets(sizes), np.concatenate(tables), np.array(truth))


def brute_force(predictions, temperature):
    """Return the log-probability of each label at a temperature, mixed with the mean log-probability of the states.

    Args:
        temperature: A temperature, or several: the result has a column for each.
    """
    out, n = [], sum(len(one.truth) for one in predictions)
    for one in predictions:
        for k, label in enumerate(one.truth):
            p = np.power.outer(one.probabilities[one.state_start[k] : one.state_start[k + 1]], 1.0 / temperature)
            log_p = np.log(p / p.sum(axis=0))
            out.append((n * log_p[label] + PSEUDO_LABELS * log_p.mean(axis=0)) / (n + PSEUDO_LABELS))
    return np.array(out)


@pytest.mark.parametrize("sharpness", [1.0, 2.0, 3.5])
def test_temperature_equals_brute_force(sharpness):
    rng = np.random.default_rng(0)
    folds = [prediction(rng, n, sharpness) for n in (150, 1, 90)]
    found = temper(folds)
    grid = np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, 400)
    best = grid[brute_force(folds, grid).mean(axis=0).argmax()]
    assert found.temperature == pytest.approx(best, rel=0.01)
    assert found.temperature == pytest.approx(sharpness, rel=0.3)
    np.testing.assert_allclose(found.log_probabilities, brute_force(folds, found.temperature), atol=1e-9)
    assert found.untempered_mean == pytest.approx(brute_force(folds, 1.0).mean())
    assert found.mean == pytest.approx(brute_force(folds, found.temperature).mean())


@pytest.mark.parametrize(("sharpness", "limit"), [(0.3, MIN_TEMPERATURE), (20.0, MAX_TEMPERATURE)])
def test_temperature_is_limited(sharpness, limit):
    found = temper([prediction(np.random.default_rng(1), 200, sharpness)])
    assert found.temperature == pytest.approx(limit, rel=1e-3)


def test_probabilities_of_0_are_finite():
    certain = FoldPrediction("1", np.arange(2), np.array([0, 2, 4]), np.array([0.0, 1.0, 1.0, 0.0]), np.array([0, 0]))
    found = temper([certain])
    assert np.isfinite(found.log_probabilities).all() and found.temperature == pytest.approx(MAX_TEMPERATURE, rel=1e-3)
