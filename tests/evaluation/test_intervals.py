"""Confidence intervals have the nominal coverage, with clusters and with overlapping training sets."""

import numpy as np
import pytest

from relcrf.evaluation.intervals import RESAMPLES, Clusters, effective_count, fold_interval, percentile_interval
from relcrf.evaluation.measures import ScoredLabels
from relcrf.evaluation.predictions import FoldPrediction, Predictions
from relcrf.grounding.variables import VariableBlock


def test_cluster_intervals_are_wider_than_label_intervals():
    rng = np.random.default_rng(0)
    component = np.repeat(np.arange(40), 25)
    values = rng.normal(size=40)[component] + 0.1 * rng.normal(size=1000)
    by_component = Clusters.from_variables(np.arange(1000), component)
    assert by_component.unit == "components"
    by_label = Clusters(np.arange(1000), "labels")
    widths = []
    for clusters in (by_component, by_label):
        low, high = percentile_interval([float(w @ values / w.sum()) for w in clusters.bootstrap_weights()])
        assert low < values.mean() < high
        widths.append(high - low)
    assert widths[0] == pytest.approx(2 * 1.96 * values.reshape(40, 25).mean(axis=1).std() / np.sqrt(40), rel=0.15)
    assert widths[0] > 3 * widths[1]


def test_bootstrap_interval_covers_the_mean():
    hits = 0
    for seed in range(100):
        values = np.random.default_rng(seed).normal(size=100)
        clusters = Clusters(np.arange(100), "labels")
        low, high = percentile_interval([float(w @ values / w.sum()) for w in clusters.bootstrap_weights(seed)])
        hits += low < 0.0 < high
    assert 88 <= hits <= 99


def test_dominating_component_falls_back_to_labels():
    assert Clusters.from_variables(np.arange(50), np.zeros(50, dtype=int)).unit == "labels"
    mostly_one = np.concatenate([np.zeros(900, dtype=int), np.arange(1, 101)])
    assert Clusters.from_variables(np.arange(1000), mostly_one).unit == "labels"
    twice = Clusters.from_variables(np.array([0, 1, 0, 1]), np.zeros(4, dtype=int))
    assert twice.index.tolist() == [0, 1, 0, 1]  # both predictions of a variable are resampled together
    assert (
        effective_count(np.array([5, 5, 5])) == pytest.approx(3.0) and effective_count(np.array([], dtype=int)) == 0.0
    )


def test_fold_interval():
    low, high = fold_interval([1.0, 2.0, 3.0], 0.5)
    # the t quantile for 2 degrees of freedom is 4.3027; the variance is 1, times 1/3 + 1/2
    assert (low, high) == pytest.approx((2 - 4.3027 * np.sqrt(5 / 6), 2 + 4.3027 * np.sqrt(5 / 6)), abs=1e-4)
    assert all(np.isnan(fold_interval([1.0, float("nan")], 0.5)))
    assert all(np.isnan(percentile_interval([float("nan")])))


def test_calibration_error_lies_in_its_interval():
    """The calibration error of a calibrated system is larger in nearly every resample, which the interval corrects."""
    rng = np.random.default_rng(4)
    confidence = rng.uniform(0.5, 1.0, 200)
    # the accuracy of each bin equals its confidence
    truth = np.zeros(200, dtype=np.int64)
    for low in np.arange(0.5, 1.0, 0.1):
        own = np.flatnonzero((confidence >= low) & (confidence < low + 0.1))
        truth[own[: round(float((1 - confidence[own]).sum()))]] = 1
    scored = ScoredLabels(np.column_stack((confidence, 1 - confidence)), truth)
    block = VariableBlock("a", None, 0, 200, ("x", "y"), (), ())
    predicted = FoldPrediction("1", np.arange(200), np.arange(0, 402, 2), scored.probabilities.ravel(), truth)
    predictions = Predictions((block,), np.arange(200), np.array([[200]]), {"s": [predicted]}, {})
    found = predictions.estimates("s", "a")["calibration_error"]
    assert 0.0 <= found.low <= found.value <= found.high < 0.1
    resamples = [
        scored.measures(w)["calibration_error"] for w in Clusters(np.arange(200), "labels").bootstrap_weights()
    ]
    assert np.quantile(resamples, 0.025) > found.value


def test_resampled_means_of_groups_equal_plain_means():
    rng = np.random.default_rng(0)
    clusters = Clusters(rng.integers(6, size=30), "components")
    values, group = rng.normal(size=(30, 2)), rng.integers(-1, 3, size=30)
    group[clusters.index == 0] = 3  # absent from the resamples that do not draw the first cluster
    expected = np.full((RESAMPLES, 5, 2), np.nan)
    for means, weights in zip(expected, clusters.bootstrap_weights(), strict=True):
        for number in range(4):
            items = np.repeat(np.flatnonzero(group == number), weights[group == number].astype(int))
            if len(items):
                means[number] = values[items].mean(axis=0)
    assert np.isnan(expected[:, 3]).any()
    np.testing.assert_allclose(clusters.resampled_means(values, group, 5), expected)
    np.testing.assert_allclose(clusters.resampled_means(values), clusters.resampled_means(values, 0 * group))
