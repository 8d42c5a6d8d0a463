"""Measures of clusters equal an enumeration of all pairs and records, and scikit-learn's V-measure."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import homogeneity_completeness_v_measure

from relcrf.evaluation.cluster_measures import cluster_measures


def sample(seed, n=80):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 12, n)
    return truth, np.where(rng.random(n) < 0.7, truth, rng.integers(0, 15, n))


def f1(precision, recall):
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("seed", range(5))
def test_measures_equal_an_enumeration(seed):
    truth, predicted = sample(seed)
    found = {name: one.value for name, one in cluster_measures(truth, predicted, resamples=1).items()}
    pairs = list(combinations(range(len(truth)), 2))
    matching = {(i, j) for i, j in pairs if truth[i] == truth[j]}
    joined = {(i, j) for i, j in pairs if predicted[i] == predicted[j]}
    precision, recall = len(matching & joined) / len(joined), len(matching & joined) / len(matching)
    assert found["pairwise_precision"] == pytest.approx(precision)
    assert found["pairwise_recall"] == pytest.approx(recall)
    assert found["pairwise_f1"] == pytest.approx(f1(precision, recall))
    both = [((truth == truth[i]) & (predicted == predicted[i])).sum() for i in range(len(truth))]
    precision = np.mean([both[i] / (predicted == predicted[i]).sum() for i in range(len(truth))])
    recall = np.mean([both[i] / (truth == truth[i]).sum() for i in range(len(truth))])
    assert found["b_cubed_precision"] == pytest.approx(precision)
    assert found["b_cubed_recall"] == pytest.approx(recall)
    assert found["b_cubed_f1"] == pytest.approx(f1(precision, recall))
    expected = homogeneity_completeness_v_measure(truth, predicted)
    assert [found[name] for name in ("homogeneity", "completeness", "v_measure")] == pytest.approx(expected)


def test_perfect_and_trivial_clusters():
    truth = np.array([0, 0, 1, 1, 2])
    assert {one.value for one in cluster_measures(truth, truth + 7).values()} == {1.0}
    one_cluster = cluster_measures(truth, np.zeros(5, dtype=int))
    assert one_cluster["pairwise_recall"].value == one_cluster["completeness"].value == 1.0
    assert one_cluster["v_measure"].value == 0.0
    singletons = cluster_measures(truth, np.arange(5))
    assert np.isnan(singletons["pairwise_precision"].value)
    assert singletons["pairwise_recall"].value == singletons["pairwise_f1"].value == 0.0
    assert singletons["homogeneity"].value == 1.0


def test_records_without_truth_are_not_counted():
    truth, predicted = sample(0)
    known = truth != 3
    found = cluster_measures(np.where(known, truth, -1), predicted, resamples=5)
    assert found == cluster_measures(truth[known], predicted[known], resamples=5)
    nothing = cluster_measures(np.array([-1]), np.array([0]))
    assert np.isnan(nothing["b_cubed_f1"].value) and np.isnan(nothing["v_measure"].low)


def test_intervals_contain_the_value_and_are_reproducible():
    truth, predicted = sample(1, 2000)
    found = cluster_measures(truth, predicted)
    assert found == cluster_measures(truth, predicted, seed=0)
    assert found != cluster_measures(truth, predicted, seed=1)
    for name, one in found.items():
        assert one.low < one.value < one.high, name


def test_the_intervals_of_a_single_true_cluster_are_points():
    truth, predicted = sample(2)
    for measure in cluster_measures(np.zeros_like(truth), predicted).values():
        assert measure.low == pytest.approx(measure.value) and measure.high == pytest.approx(measure.value)
