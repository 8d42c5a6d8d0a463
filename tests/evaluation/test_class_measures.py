"""Measures of values and curves, against scikit-learn; thresholds by the costs of errors."""

import numpy as np
import pytest

from relcrf.evaluation.class_measures import measure_classes, precision_recall_curve, roc_curve
from relcrf.evaluation.decision_costs import DecisionCosts, choose_threshold
from relcrf.evaluation.intervals import Clusters
from relcrf.evaluation.measures import ScoredLabels

metrics = pytest.importorskip("sklearn.metrics")


def scored_labels(n_states, n=400):
    """Return labels that agree with rounded probabilities, so that many probabilities are equal."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(n_states), size=n).round(1)
    probabilities[:, -1] = 1.0 - probabilities[:, :-1].sum(axis=1)
    noisy = probabilities + rng.normal(0, 0.3, probabilities.shape)
    return ScoredLabels(probabilities, noisy.argmax(axis=1))


@pytest.mark.parametrize("n_states", [2, 4])
def test_measures_of_values_equal_scikit_learn(n_states):
    scored = scored_labels(n_states)
    found = measure_classes(scored, "abcd"[:n_states])
    expected = metrics.precision_recall_fscore_support(scored.truth, scored.modes)
    order = np.argsort(-expected[3], kind="stable")
    assert found["value"].tolist() == ["abcd"[k] for k in order]
    for name, column in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        np.testing.assert_allclose(found[name], column[order])


def test_value_without_predictions_has_no_precision():
    found = measure_classes(ScoredLabels(np.array([[0.9, 0.1, 0.0]] * 4), np.array([0, 0, 0, 1])), "abc")
    assert found["value"].tolist() == ["a", "b"] and np.isnan(found["precision"][1]) and found["recall"][1] == 0.0


def test_curves_equal_scikit_learn():
    scored = scored_labels(2)
    x, y = roc_curve(scored, 1)
    expected = metrics.roc_curve(scored.truth, scored.probabilities[:, 1], drop_intermediate=False)
    np.testing.assert_allclose(x, expected[0])
    np.testing.assert_allclose(y, expected[1])
    recall, precision = precision_recall_curve(scored, 1)
    expected = metrics.precision_recall_curve(scored.truth, scored.probabilities[:, 1])
    np.testing.assert_allclose(recall[::-1], expected[1][:-1])
    np.testing.assert_allclose(precision[::-1], expected[0][:-1])


def test_threshold_of_calibrated_probabilities_is_the_bayes_threshold():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    scored = ScoredLabels(np.column_stack((1 - p, p)), (rng.random(len(p)) < p).astype(np.int64))
    clusters = Clusters(np.arange(len(p)), "labels")
    found = choose_threshold(scored, "yes", 1, DecisionCosts(9.0, 1.0), clusters)
    assert found.threshold == pytest.approx(0.1, abs=0.03)
    chosen, half, none, everyone = found.policies
    assert (
        chosen.cost < min(half.cost, none.cost, everyone.cost) and chosen.interval[0] < chosen.cost < chosen.interval[1]
    )
    assert none.cost == pytest.approx(9.0 * scored.truth.mean()) and everyone.cost == pytest.approx(
        1 - scored.truth.mean()
    )
    assert (none.n_treated, everyone.n_treated) == (0, len(p))
    assert found.saving[0] == pytest.approx(half.cost - chosen.cost) and found.saving[1][0] > 0


@pytest.mark.parametrize(("false_negative", "false_positive"), [(1.0, 100.0), (1.0, 1.0), (9.0, 1.0), (1.0, 0.0)])
def test_no_cut_between_probabilities_is_cheaper_than_the_threshold(false_negative, false_positive):
    """Probabilities are tied, adjacent numbers, 0 or 1."""
    rng, costs = np.random.default_rng(0), DecisionCosts(false_negative, false_positive)
    for _ in range(8):
        p = rng.choice([0.0, np.nextafter(0.5, 0.0), 0.5, np.nextafter(1.0, 0.0), 1.0], size=9)
        truth = rng.integers(2, size=9)
        scored = ScoredLabels(np.column_stack((1 - p, p)), truth)
        threshold = choose_threshold(scored, "yes", 1, costs, Clusters(np.arange(9), "labels")).threshold
        found, *cuts = (
            false_negative * ((truth == 1) & (p < each)).sum() + false_positive * ((truth == 0) & (p >= each)).sum()
            for each in (threshold, *p, 2.0)
        )
        assert found == min(cuts)


def test_a_small_threshold_is_written_with_its_digits():
    """A report of 0.000 would mean to treat all."""
    p = np.array([0.0003, 0.0005] * 10)
    scored = ScoredLabels(np.column_stack((1 - p, p)), np.array([0, 1] * 10))
    found = choose_threshold(scored, "yes", 1, DecisionCosts(1000.0, 1.0), Clusters(np.arange(20), "labels"))
    assert found.threshold_text == "0.000400"


def test_threshold_is_scored_on_other_labels():
    """Of labels that probabilities do not predict, the lowest cost on the same labels would be too optimistic."""
    rng = np.random.default_rng(1)
    p, truth = rng.random(60), rng.integers(2, size=60)
    scored, costs = ScoredLabels(np.column_stack((1 - p, p)), truth), DecisionCosts(1.0, 1.0)
    found = choose_threshold(scored, "yes", 1, costs, Clusters(np.arange(60), "labels"))
    treated = p >= found.threshold
    assert found.policies[0].cost > np.mean(treated != truth)
