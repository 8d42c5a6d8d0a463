"""Prediction sets that are calibrated on held-out labels: thresholds, coverage by simulation, and their JSON form."""

import numpy as np
import pytest

from relcrf.backends.calibration_labels import (
    CalibrationLabels,
    calibration_numbers,
    calibration_sections,
    parse_calibration_labels,
)
from relcrf.errors import UsageError

DRAWS = 200


def make_labels(probabilities, groups=None, unit="labels", whole=False, states=None):
    n = len(probabilities)
    groups = np.arange(n) if groups is None else np.asarray(groups)
    states = np.zeros(n, dtype=int) if states is None else states
    return CalibrationLabels(np.arange(n), states, np.asarray(probabilities, dtype=float), groups, unit, whole)


def naive_threshold(labels, coverage):
    """Return the largest probability at which the labels above it have the weight `coverage`, by its definition."""
    n_groups = len(set(labels.groups.tolist()))
    sizes = {group: (labels.groups == group).sum() for group in labels.groups.tolist()}
    for candidate in sorted(labels.probabilities, reverse=True):
        weight = sum(
            1 / ((n_groups + 1) * sizes[group])
            for group, p in zip(labels.groups.tolist(), labels.probabilities, strict=True)
            if p >= candidate
        )
        if weight >= coverage - 1e-12:
            return candidate
    return 0.0


@pytest.mark.parametrize("seed", range(20))
def test_threshold_equals_its_definition(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    groups = rng.integers(1 + n // int(rng.integers(1, 5)), size=n)
    labels = make_labels(np.round(rng.random(n), 2), groups)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        assert labels.min_probability(coverage) == pytest.approx(naive_threshold(labels, coverage), abs=1e-12)


def test_nine_labels_are_enough_for_a_coverage_of_nine_tenths_and_eight_are_not():
    assert make_labels(np.linspace(0.1, 0.9, 9)).min_probability(0.9) == pytest.approx(0.1)
    eight = make_labels(np.linspace(0.1, 0.8, 8))
    assert eight.min_probability(0.9) == 0.0
    assert eight.prediction_sets(np.array([[1.0, 0.0, 0.0]]), 0.9).all()
    assert make_labels([]).min_probability(0.9) == 0.0


def test_sets_contain_the_most_probable_state():
    labels = make_labels(np.full(99, 0.95))
    sets = labels.prediction_sets(np.array([[0.5, 0.3, 0.2], [0.97, 0.02, 0.01]]), 0.9)
    np.testing.assert_array_equal(sets, [[True, False, False], [True, False, False]])
    assert labels.prediction_sets(np.empty((0, 3)), 0.9).shape == (0, 3)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.5, 90.0, float("nan")])
def test_impossible_coverage_is_rejected(coverage):
    with pytest.raises(UsageError) as error:
        make_labels([0.5]).min_probability(coverage)
    assert error.value.diagnostics[0].code == "E376"


def overconfident(rng, effect, n_states=4):
    """Draw labels and the overconfident, biased probabilities of a poor model, given one random effect per label."""
    scores = rng.normal(size=(len(effect), n_states)) + effect[:, None] * np.array([1.0, -1.0, 0.0, 0.0])
    truth = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    wrong = 3.0 * scores - 4.0 * effect[:, None] * np.array([1.0, -1.0, 0.0, 0.0])
    probabilities = np.exp(wrong - wrong.max(axis=1, keepdims=True))
    return truth, probabilities / probabilities.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_coverage_of_exchangeable_labels(coverage):
    """The sets of a poor model have the nominal coverage, although its probabilities are far from calibrated."""
    rng = np.random.default_rng(0)
    covered, stated = [], []
    for _ in range(DRAWS):
        truth, probabilities = overconfident(rng, np.zeros(199 + 100))
        known = probabilities[np.arange(199), truth[:199]]
        sets = make_labels(known).prediction_sets(probabilities[199:], coverage)
        covered.append(sets[np.arange(100), truth[199:]].mean())
        stated.append(
            probabilities[199:].max(axis=1).mean() - (probabilities[199:].argmax(axis=1) == truth[199:]).mean()
        )
    assert np.mean(covered) == pytest.approx(coverage, abs=0.02)
    assert np.mean(stated) > 0.1  # the probabilities alone are overconfident


def test_coverage_of_each_value():
    """The labels of a rare value, which are mostly predicted as another value, are covered only if each value is."""
    rng = np.random.default_rng(3)
    together, separate = [], []
    for _ in range(DRAWS):
        truth = (rng.random(600) < 0.1).astype(int)
        odds = rng.normal(size=600) + 1.5 * truth - 3.0
        probabilities = 1.0 / (1.0 + np.exp(np.stack([odds, -odds], axis=1)))
        labels = make_labels(probabilities[np.arange(400), truth[:400]], states=truth[:400])
        for each_value, coverages in ((False, together), (True, separate)):
            sets = labels.prediction_sets(probabilities[400:], 0.9, each_value=each_value)
            hits = sets[np.arange(200), truth[400:]]
            coverages.append([hits[truth[400:] == state].mean() for state in (0, 1)])
    frequent, rare = np.mean(separate, axis=0)
    assert rare == pytest.approx(0.9, abs=0.02) and frequent > 0.9  # sets contain the most probable value
    assert np.mean(together, axis=0)[1] < 0.3
    # A value without labels is part of every set.
    assert make_labels(np.full(50, 0.5)).prediction_sets(np.array([[1.0, 0.0]]), 0.9, each_value=True).all()


def test_coverage_of_new_components():
    """Labels of a component share a random effect: grouped labels cover new components, but single labels do not."""
    rng = np.random.default_rng(1)
    n_known, n_new, coverage = 29, 20, 0.9
    grouped, single = [], []
    for _ in range(DRAWS):
        sizes = rng.choice(
            [1, 30], p=[0.7, 0.3], size=n_known + n_new
        )  # large components are easy, small ones difficult
        effect = np.where(sizes == 1, 1.5, 0.0)
        group = np.repeat(np.arange(len(sizes)), sizes)
        truth, probabilities = overconfident(rng, effect[group])
        is_known = group < n_known
        known = probabilities[np.arange(len(truth)), truth][is_known]
        for groups, coverages in ((group[is_known], grouped), (None, single)):
            sets = make_labels(known, groups).prediction_sets(probabilities[~is_known], coverage)
            hits = sets[np.arange(len(sets)), truth[~is_known]]
            of_group = np.bincount(group[~is_known] - n_known, hits) / sizes[n_known:]
            coverages.append(of_group.mean())
    assert coverage - 0.02 <= np.mean(grouped) <= coverage + 1 / (n_known + 1) + 0.02
    assert np.mean(single) < coverage - 0.05


def test_json_form_is_lossless_and_invalid_numbers_are_rejected():
    rng = np.random.default_rng(2)
    by_attribute = {
        "A.x": make_labels(rng.random(5), rng.integers(3, size=5), "components", True),
        "r": make_labels([0.25]),
    }
    sections, numbers = calibration_sections(by_attribute), calibration_numbers(by_attribute)
    parsed = parse_calibration_labels(sections, numbers)
    for name, labels in by_attribute.items():
        for field in ("variables", "states", "probabilities", "groups"):
            np.testing.assert_array_equal(getattr(parsed[name], field), getattr(labels, field))
        assert (parsed[name].unit, parsed[name].note) == (labels.unit, labels.note)
    for row, value in ((0, 0.5), (1, -1.0), (2, 1.5), (2, np.nan), (3, -1.0), (3, np.inf)):
        damaged = numbers.copy()
        damaged[row, 1] = value
        with pytest.raises(ValueError, match="invalid numbers"):
            parse_calibration_labels(sections, damaged)
