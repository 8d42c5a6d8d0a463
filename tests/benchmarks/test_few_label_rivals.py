"""Tests of the rivals in benchmarks/few_label_rivals.py: gradients, closed forms, and accuracy on a graph of two communities."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def rivals():
    sys.path.insert(0, str(FOLDER))
    try:
        import few_label_rivals

        yield few_label_rivals
    finally:
        sys.path.remove(str(FOLDER))


def make_task(rivals, n=60, seed=0):
    """Return a task of two classes with different words, whose nodes link to their own class; node 0 is isolated."""
    rng = np.random.default_rng(seed)
    label = np.arange(n) % 2
    rate = np.where(np.arange(12) < 6, 0.6, 0.2)
    words = sp.csr_matrix((rng.random((n, 12)) < np.where(label[:, None] == 0, rate, rate[::-1])).astype(float))
    same = label[:, None] == label
    links = np.triu(rng.random((n, n)) < np.where(same, 6.0 / n, 1.0 / n), 1).astype(float)
    links[0] = 0.0
    order = rng.permutation(n)
    train = np.concatenate([order[label[order] == k][:4] for k in range(2)])
    valid = np.setdiff1d(order, train)[:15]
    known = np.full(n, -1)
    known[train], known[valid] = label[train], label[valid]
    return rivals.NodeTask(words, sp.csr_matrix(links + links.T), known, 2, train, valid), label


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("name", ["GraphConvolution", "PropagatedPerceptron"])
def test_gradients_of_networks(rivals, name, dropout):
    task, _ = make_task(rivals)
    settings = {"alpha": 0.2, "steps": 3} if name == "PropagatedPerceptron" else {}
    network = getattr(rivals, name)(task, hidden=5, weight_decay=0.1, dropout=dropout, dtype=np.float64, **settings)
    parameters = network.initial(np.random.default_rng(1))
    rng = np.random.default_rng(2)
    parameters[1] += rng.normal(size=5)
    parameters[3] += rng.normal(size=2)

    def loss():
        return network.loss(parameters, task, np.random.default_rng(3))  # the same dropout masks in each call

    gradients = loss()[1]
    step = 1e-6
    for parameter, gradient in zip(parameters, gradients, strict=True):
        assert gradient.shape == parameter.shape
        assert np.abs(gradient).max() > 1e-4
        numerical = np.empty_like(parameter)
        for index in np.ndindex(parameter.shape):
            value = parameter[index]
            parameter[index] = value + step
            above = loss()[0]
            parameter[index] = value - step
            below = loss()[0]
            parameter[index] = value
            numerical[index] = (above - below) / (2 * step)
        np.testing.assert_allclose(gradient, numerical, rtol=1e-5, atol=1e-8)


def test_dropout_preserves_expectations(rivals):
    task, _ = make_task(rivals)
    network = rivals.GraphConvolution(task, hidden=5, weight_decay=0.0)
    mask = network.mask((1000, 100), np.random.default_rng(0))
    assert mask.mean() == pytest.approx(1.0, abs=0.02)
    assert set(np.unique(mask)) == {0.0, 2.0}


def test_logistic_regression_equals_scikit_learn(rivals):
    from sklearn.linear_model import LogisticRegression

    task, _ = make_task(rivals)
    features = rivals.scale_rows(task.words, 2)
    found = rivals.LogisticRegression(task, features).probabilities(0.5)
    # scikit-learn penalises the difference of the weights of two classes, whose square is twice the sum of their squares
    peer = LogisticRegression(C=2 / 0.5, tol=1e-8).fit(features[task.train], task.label[task.train])
    np.testing.assert_allclose(found, peer.predict_proba(features), atol=2e-3)


def test_label_propagation_converges_to_the_closed_form(rivals):
    task, _ = make_task(rivals)
    operator = rivals.normalised_adjacency(task.links, self_loops=False)
    found = rivals.spread(operator, task.train_targets, 0.9, 200)
    exact = 0.1 * np.linalg.solve(np.eye(60) - 0.9 * operator.toarray(), task.train_targets)
    np.testing.assert_allclose(found, exact, atol=1e-8)


def test_normalised_adjacency_has_largest_eigenvalue_1(rivals):
    task, _ = make_task(rivals)
    for self_loops in (False, True):
        operator = rivals.normalised_adjacency(task.links, self_loops=self_loops).toarray()
        np.testing.assert_array_equal(operator, operator.T)
        assert np.linalg.eigvalsh(operator)[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["logistic", "propagation", "sgc", "correct_smooth", "appnp", "gcn"])
def test_rivals_learn_without_the_test_labels(rivals, name):
    task, label = make_task(rivals, n=200)
    effort = rivals.Effort(max_settings=2, max_epochs=150)
    found = rivals.RIVALS[name](task, 0, effort)
    test = np.setdiff1d(np.arange(200), np.concatenate((task.train, task.valid)))
    assert found.probabilities.shape == (200, 2)
    assert found.probabilities.min() > 0
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    assert (found.probabilities.argmax(axis=1) == label)[test].mean() > 0.65
    again = rivals.RIVALS[name](replace(task), 0, effort)
    np.testing.assert_array_equal(found.probabilities, again.probabilities)


def test_selection_prefers_accuracy_and_then_log_loss(rivals):
    task, _ = make_task(rivals)
    right = np.eye(2)[np.maximum(task.label, 0)]
    tables = {"wrong": 1.0 - right, "unsure": 0.4 * right + 0.3, "sure": 0.8 * right + 0.1}
    found = rivals.select(task, (({"name": name}, table) for name, table in tables.items()))
    assert found.chosen == {"name": "sure"}
