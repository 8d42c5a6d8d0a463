"""Measures equal those of scikit-learn, with and without weights; the calibration error of a small example."""

import math

import numpy as np
import pytest
from sklearn import metrics

from relcrf.evaluation.measures import MEASURES, ScoredLabels, score


def sample(k, seed, n=300):
    rng = np.random.default_rng(seed)
    truth = rng.integers(k, size=n)
    scores = rng.normal(size=(n, k)) + 1.2 * np.eye(k)[truth]
    scores = np.round(scores, 1)  # ties
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return ScoredLabels(probabilities, truth), rng.integers(4, size=n).astype(float)


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_measures_equal_scikit_learn(k, weighted):
    scored, weights = sample(k, k)
    sample_weight = weights if weighted else None
    found = scored.measures(sample_weight)
    p, y = scored.probabilities, scored.truth
    modes = p.argmax(axis=1)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, modes, sample_weight=sample_weight))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(y, p, sample_weight=sample_weight))
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(y, modes, average="macro", sample_weight=sample_weight))
    squares = ((p - np.eye(k)[y]) ** 2).sum(axis=1) / (2 if k == 2 else 1)
    assert found["brier"] == pytest.approx(np.average(squares, weights=sample_weight))
    if k == 2:
        assert found["brier"] == pytest.approx(metrics.brier_score_loss(y, p[:, 1], sample_weight=sample_weight))
        assert found["roc_auc"] == pytest.approx(metrics.roc_auc_score(y, p[:, 1], sample_weight=sample_weight))
        assert found["pr_auc"] == pytest.approx(
            metrics.average_precision_score(y, p[:, 1], sample_weight=sample_weight)
        )
    else:
        each = [metrics.roc_auc_score(y == state, p[:, state], sample_weight=sample_weight) for state in range(k)]
        assert found["roc_auc"] == pytest.approx(np.mean(each))
        assert np.isnan(found["pr_auc"])


def test_weights_are_repetitions():
    scored, weights = sample(3, 0)
    repetitions = weights.astype(int)
    repeated = ScoredLabels(np.repeat(scored.probabilities, repetitions, axis=0), np.repeat(scored.truth, repetitions))
    found, expected = scored.measures(weights), repeated.measures()
    assert {name: found[name] for name in MEASURES if name != "pr_auc"} == pytest.approx(
        {name: expected[name] for name in MEASURES if name != "pr_auc"}
    )


def test_calibration_error_of_two_bins():
    p = np.array([0.55, 0.55, 0.92, 0.94, 1.0])
    scored = ScoredLabels(np.column_stack([1 - p, p]), np.array([1, 0, 1, 1, 0]))
    # two items are in the bin from 0.5 to 0.6, three in the bin from 0.9
    expected = (abs(1.1 - 1) + abs(2.86 - 2)) / 5
    assert scored.measures()["calibration_error"] == pytest.approx(expected)


def test_undefined_measures_are_nan():
    one = ScoredLabels(np.array([[0.9, 0.1]]), np.array([0])).measures()
    assert np.isnan(one["roc_auc"]) and np.isnan(one["pr_auc"]) and one["accuracy"] == 1.0
    nothing = ScoredLabels(np.empty((0, 2)), np.empty(0, dtype=int)).measures()
    assert all(np.isnan(value) for value in nothing.values())
    assert np.isfinite(ScoredLabels(np.array([[1.0, 0.0]]), np.array([1])).measures()["log_loss"])


def test_score():
    found = score(np.array([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5]]), np.array([0, 0, 1]))
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.log_likelihood == pytest.approx((math.log(0.7) + math.log(0.4) + math.log(0.5)) / 3)
    assert found.n == 3


def test_impossible_label_has_finite_log_likelihood():
    assert math.isfinite(score(np.array([[1.0, 0.0]]), np.array([1])).log_likelihood)
