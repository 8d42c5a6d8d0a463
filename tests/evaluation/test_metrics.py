"""Metrics by hand."""

import math

import numpy as np
import pytest

from relcrf.evaluation.metrics import Score, average, score


def test_score():
    found = score(np.array([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5]]), np.array([0, 0, 1]))
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.log_likelihood == pytest.approx((math.log(0.7) + math.log(0.4) + math.log(0.5)) / 3)
    assert found.n == 3


def test_an_impossible_truth_does_not_hide_the_rest():
    assert math.isfinite(score(np.array([[1.0, 0.0]]), np.array([1])).log_likelihood)


def test_average_weighs_folds_by_their_size():
    found = average([Score(1.0, -0.1, 1), Score(0.0, -0.4, 3), Score(float("nan"), float("nan"), 0)])
    assert (found.accuracy, found.n) == (0.25, 4)
    assert found.log_likelihood == pytest.approx(-0.325)
    assert average([]).n == 0
