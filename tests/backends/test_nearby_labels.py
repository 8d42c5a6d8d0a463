"""Prediction sets that are calibrated on the nearest held-out labels: an independent search, coverage of regions, errors."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

from relcrf.backends import nearby_labels
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.backends.nearby_labels import count_nearest, nearby_min_probabilities, require_labels_in_data
from relcrf.errors import UsageError


def make_adjacency(n, pairs):
    first, second = pairs.T
    ends = np.concatenate((first, second)), np.concatenate((second, first))
    return csr_array(coo_array((np.ones(2 * len(pairs), dtype=bool), ends), shape=(n, n)))


def make_labels(variables, probabilities, whole=False):
    n = len(variables)
    return CalibrationLabels(
        variables, np.zeros(n, dtype=int), probabilities, np.arange(n), "components" if whole else "labels", whole
    )


def naive_thresholds(labels, adjacency, variable, coverages):
    """Return the threshold of one variable for each coverage by breadth-first search and by trying each probability.

    A threshold without enough labels is nan.
    """
    distance, frontier = {variable: 0}, [variable]
    while frontier:
        found = []
        for each in frontier:
            for other in adjacency.indices[adjacency.indptr[each] : adjacency.indptr[each + 1]].tolist():
                if other not in distance:
                    distance[other] = distance[each] + 1
                    found.append(other)
        frontier = found
    far = len(adjacency.indptr)
    distances = np.array([distance.get(each, far) for each in labels.variables.tolist()])
    return [naive_threshold(labels, distances, far, coverage) for coverage in coverages]


def naive_threshold(labels, distances, far, coverage):
    m = count_nearest(coverage)
    radius = next((r for r in range(1, far) if (distances <= r).sum() >= m), None)
    if radius is None:
        return float("nan")
    is_inner, is_last = distances < radius, distances == radius
    weights = is_inner + is_last * (m - is_inner.sum()) / is_last.sum()
    probabilities = np.unique(labels.probabilities)
    return max(p for p in probabilities if weights[labels.probabilities >= p].sum() >= coverage * (m + 1) - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_thresholds_equal_those_of_a_naive_search(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 300))
    pairs = rng.integers(n, size=(int(n * rng.uniform(0.4, 2.0)), 2))
    adjacency = make_adjacency(n, pairs[pairs[:, 0] != pairs[:, 1]])
    is_label = rng.random(n) < 0.5
    labels = make_labels(np.flatnonzero(is_label), np.round(rng.random(is_label.sum()), 2))
    others, coverages = np.flatnonzero(~is_label), (0.5, 0.75)
    expected = np.array([naive_thresholds(labels, adjacency, variable, coverages) for variable in others.tolist()])
    for cells in (1, 1 << 20):
        monkeypatch.setattr(nearby_labels, "CELLS_PER_BLOCK", cells)
        for column, coverage in enumerate(coverages):
            found = nearby_min_probabilities(labels, adjacency, others, coverage)
            np.testing.assert_allclose(found, expected[:, column])


def test_number_of_nearest_labels():
    assert [count_nearest(coverage) for coverage in (0.5, 0.8, 0.9, 0.95)] == [20, 50, 100, 200]


def test_search_ends_where_labels_are_sparse(monkeypatch):
    n = 200
    adjacency = make_adjacency(n, np.stack((np.arange(n - 1), np.arange(1, n)), axis=1))
    labels = make_labels(np.arange(0, n, 2), np.linspace(0.1, 0.9, n // 2))
    assert np.isfinite(nearby_min_probabilities(labels, adjacency, np.array([101]), 0.5)).all()
    monkeypatch.setattr(nearby_labels, "MAX_NEIGHBOURHOOD", 10)
    near = nearby_min_probabilities(labels, adjacency, np.array([101]), 0.5)
    assert np.isnan(near).all()
    sets = labels.prediction_sets(np.array([[0.4, 0.35, 0.25]]), 0.5, nearby=near)
    np.testing.assert_array_equal(sets, labels.prediction_sets(np.array([[0.4, 0.35, 0.25]]), 0.5))


def test_each_region_is_covered():
    """Half of a graph has poor probabilities: one threshold covers it too rarely, and the nearest labels cover it."""
    coverage, by_region = 0.8, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = 2000
        region = np.arange(n) // (n // 2)
        pairs = rng.integers(n, size=(6 * n, 2))
        adjacency = make_adjacency(n, pairs[region[pairs[:, 0]] == region[pairs[:, 1]]])
        scores = rng.normal(size=(n, 3)) * 3.0
        truth = (scores / np.where(region == 1, 6.0, 1.0)[:, None] + rng.gumbel(size=(n, 3))).argmax(axis=1)
        probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        is_label = rng.random(n) < 0.5
        labels = make_labels(np.flatnonzero(is_label), probabilities[is_label, truth[is_label]])
        others = np.flatnonzero(~is_label)
        near = nearby_min_probabilities(labels, adjacency, others, coverage)
        rows = np.arange(len(others))
        for nearby in (None, near):
            contains = labels.prediction_sets(probabilities[others], coverage, nearby=nearby)[rows, truth[others]]
            by_region.append([contains[region[others] == each].mean() for each in (0, 1)])
    everywhere, nearest = np.array(by_region).reshape(20, 2, 2).mean(axis=0)
    assert everywhere[1] < 0.72
    assert abs(nearest[1] - coverage) < 0.03
    assert nearest[0] >= coverage - 0.01  # a set always contains the most probable state


def test_errors():
    adjacency = make_adjacency(4, np.array([[0, 1], [2, 3]]))
    labels = make_labels(np.array([1, 3]), np.array([0.5, 0.6]), whole=True)
    with pytest.raises(UsageError) as error:
        nearby_min_probabilities(labels, adjacency, np.array([0]), 0.9)
    assert error.value.diagnostics[0].code == "E375"
    with pytest.raises(UsageError) as error:
        count_nearest(1.0)
    assert error.value.diagnostics[0].code == "E376"
    require_labels_in_data(labels, np.zeros(4, dtype=int))
    for states in (np.zeros(3, dtype=int), np.array([0, -1, 0, 0]), np.array([0, 0, 0, 1])):
        with pytest.raises(UsageError) as error:
            require_labels_in_data(labels, states)
        assert error.value.diagnostics[0].code == "E375"
