"""Intervals hold what they promise: 95 % of the time, with clusters and with folds that overlap."""

import numpy as np
import pytest

from relcrf.evaluation.intervals import Clusters, effective_count, fold_interval, percentile_interval
from relcrf.evaluation.measures import ScoredLabels
from relcrf.evaluation.predictions import FoldPrediction, Predictions
from relcrf.grounding.variables import VariableBlock


def test_clusters_are_wider_than_labels():
    rng = np.random.default_rng(0)
    component = np.repeat(np.arange(40), 25)
    values = rng.normal(size=40)[component] + 0.1 * rng.normal(size=1000)
    by_component = Clusters.from_variables(np.arange(1000), component)
    assert by_component.unit == "components"
    alone = Clusters(np.arange(1000), "labels")
    widths = []
    for clusters in (by_component, alone):
        low, high = percentile_interval([float(w @ values / w.sum()) for w in clusters.bootstrap_weights()])
        assert low < values.mean() < high
        widths.append(high - low)
    assert widths[0] == pytest.approx(2 * 1.96 * values.reshape(40, 25).mean(axis=1).std() / np.sqrt(40), rel=0.15)
    assert widths[0] > 3 * widths[1]


def test_a_bootstrap_covers_the_truth():
    hits = 0
    for seed in range(100):
        values = np.random.default_rng(seed).normal(size=100)
        clusters = Clusters(np.arange(100), "labels")
        low, high = percentile_interval([float(w @ values / w.sum()) for w in clusters.bootstrap_weights(seed)])
        hits += low < 0.0 < high
    assert 88 <= hits <= 99


def test_one_component_is_no_sample():
    assert Clusters.from_variables(np.arange(50), np.zeros(50, dtype=int)).unit == "labels"
    mostly_one = np.concatenate([np.zeros(900, dtype=int), np.arange(1, 101)])
    assert Clusters.from_variables(np.arange(1000), mostly_one).unit == "labels"
    twice = Clusters.from_variables(np.array([0, 1, 0, 1]), np.zeros(4, dtype=int))
    assert twice.index.tolist() == [0, 1, 0, 1]  # of a variable that was held out twice both are drawn together
    assert (
        effective_count(np.array([5, 5, 5])) == pytest.approx(3.0) and effective_count(np.array([], dtype=int)) == 0.0
    )


def test_folds():
    low, high = fold_interval([1.0, 2.0, 3.0], 0.5)
    # t of 2 degrees of freedom is 4.3027; the variance is 1, times 1/3 + 1/2
    assert (low, high) == pytest.approx((2 - 4.3027 * np.sqrt(5 / 6), 2 + 4.3027 * np.sqrt(5 / 6)), abs=1e-4)
    assert all(np.isnan(fold_interval([1.0, float("nan")], 0.5)))
    assert all(np.isnan(percentile_interval([float("nan")])))


def test_a_calibration_error_lies_in_its_interval():
    """Of a well calibrated system it is larger in nearly every draw, which are rougher than the sample."""
    rng = np.random.default_rng(4)
    confidence = rng.uniform(0.5, 1.0, 200)
    # as many are right in each bin as it says
    truth = np.zeros(200, dtype=np.int64)
    for low in np.arange(0.5, 1.0, 0.1):
        own = np.flatnonzero((confidence >= low) & (confidence < low + 0.1))
        truth[own[: round(float((1 - confidence[own]).sum()))]] = 1
    scored = ScoredLabels(np.column_stack((confidence, 1 - confidence)), truth)
    block = VariableBlock("a", None, 0, 200, ("x", "y"), (), ())
    said = FoldPrediction("1", np.arange(200), np.arange(0, 402, 2), scored.probabilities.ravel(), truth)
    predictions = Predictions((block,), np.arange(200), np.array([[200]]), {"s": [said]})
    found = predictions.estimates("s", "a")["calibration_error"]
    assert 0.0 <= found.low <= found.value <= found.high < 0.1
    draws = [scored.measures(w)["calibration_error"] for w in Clusters(np.arange(200), "labels").bootstrap_weights()]
    assert np.quantile(draws, 0.025) > found.value
