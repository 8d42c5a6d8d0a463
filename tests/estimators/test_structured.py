"""Tests of ESSCRFClassifier: scikit-learn's estimator checks, logistic regression, and the relational model as references."""

from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import relcrf
from relcrf.backends.registry import make_backend
from relcrf.estimators import ESSCRFClassifier

SKIPS = {
    "check_array_api_input": "scikit-learn skips it for all estimators if SCIPY_ARRAY_API is not set",
    "check_classifiers_multilabel_output_format_decision_function": "the classifier has predict_proba, but not decision_function",
}
"""The reasons why some checks are skipped, by check."""


@parametrize_with_checks([ESSCRFClassifier()])
def test_scikit_learn_estimator_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest as skip:
        assert check.func.__name__ in SKIPS, skip


@pytest.fixture(scope="module")
def scaled_iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def test_one_target_equals_logistic_regression(scaled_iris):
    X, y = scaled_iris
    expected = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, y).predict_proba(X)
    found = ESSCRFClassifier(l2=2.0, tol=1e-9).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    two = y < 2
    expected = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X[two], y[two]).predict_proba(X[two])
    found = ESSCRFClassifier(l2=4.0, tol=1e-9).fit(X[two], y[two]).predict_proba(X[two])
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("evidence_on_pairs", [True, False])
def test_classifier_equals_its_relational_model(evidence_on_pairs):
    """Grounding the same rows as tables results in the same probabilities."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    Y = (X @ rng.normal(size=(3, 3)) + rng.normal(size=(40, 3)) > 0).astype(int)
    Y[:, 2] += rng.integers(2, size=40)
    classifier = ESSCRFClassifier(evidence_on_pairs=evidence_on_pairs).fit(X, Y)
    columns = {"id": np.arange(40), **{f"x_{d}": X[:, d] for d in range(3)}}
    columns |= {f"t{k}": Y[:, k] for k in range(3)}
    data = relcrf.Dataset({"row": columns})
    model = classifier.model_
    grounding = model.ground(data)
    fit = relcrf.api.fit(model, grounding, "ess", max_iterations=1000)
    found = relcrf.api.predict(fit, grounding, hidden=np.ones(120, dtype=bool))
    for k, expected in enumerate(classifier.predict_proba(X)):
        np.testing.assert_allclose(found.probabilities(f"Row.t{k}"), expected, atol=1e-4)


def test_dependent_targets_need_evidence_on_pairs():
    """The second target is the first one, negated if x1 > 0; separate classifiers cannot represent this dependency."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 2))
    first = rng.random(2000) < 0.5
    second = first ^ (X[:, 1] > 0)
    Y = np.column_stack([first, second]).astype(int)
    separate = ESSCRFClassifier(evidence_on_pairs=False).fit(X[:1500], Y[:1500])
    joint = ESSCRFClassifier().fit(X[:1500], Y[:1500])
    assert separate.score(X[1500:], Y[1500:]) < 0.4
    assert joint.score(X[1500:], Y[1500:]) > 0.45, "either both are right or both wrong"
    same = joint.predict(X[1500:])
    assert ((same[:, 0] ^ same[:, 1]) == (X[1500:, 1] > 0)).mean() > 0.95


def test_labels_of_any_kind_and_constant_targets():
    X = np.random.default_rng(0).normal(size=(60, 2))
    Y = np.column_stack(
        [np.where(X[:, 0] > 0, "yes", "no"), np.full(60, "always"), np.where(X[:, 1] > 0, "up", "down")]
    )
    found = ESSCRFClassifier().fit(X, Y)
    assert [c.tolist() for c in found.classes_] == [["no", "yes"], ["always"], ["down", "up"]]
    assert found.score(X, Y) > 0.9
    assert [p.shape for p in found.predict_proba(X)] == [(60, 2), (60, 1), (60, 2)]
    constant = ESSCRFClassifier().fit(X, np.full(60, "always"))
    assert set(constant.predict(X)) == {"always"}


def test_searches_and_pipelines():
    X, Y = make_multilabel_classification(120, n_features=6, n_classes=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), ESSCRFClassifier())
    assert cross_val_score(pipeline, X, Y, cv=3).shape == (3,)
    search = GridSearchCV(
        pipeline, {"esscrfclassifier__l2": [1.0, 1000.0], "esscrfclassifier__treewidth": [1, 2]}, cv=2
    )
    search.fit(X, Y)
    assert search.best_params_["esscrfclassifier__l2"] == 1.0
    assert clone(search.best_estimator_).get_params()["esscrfclassifier__treewidth"] in (1, 2)


def test_parameters_are_backend_settings():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(relcrf.UsageError, match="treewidth"):
        ESSCRFClassifier(treewidth=0).fit(X, y)
    assert make_backend("ess").l2 == ESSCRFClassifier().l2


def test_targets_may_have_different_types():
    X, Y = make_multilabel_classification(120, n_features=6, n_classes=3, random_state=0)
    names = np.array(["no", "yes"])[Y[:, 0]]
    targets = pd.DataFrame({"name": pd.Categorical(names), "number": Y[:, 1] + 5, "flag": Y[:, 2] > 0})
    typed, plain = ESSCRFClassifier(l2=10.0).fit(X, targets), ESSCRFClassifier(l2=10.0).fit(X, Y)
    assert [values.tolist() for values in typed.classes_] == [["no", "yes"], [5, 6], [False, True]]
    found, expected = typed.predict(X), plain.predict(X)
    assert found[:, 0].tolist() == np.array(["no", "yes"])[expected[:, 0]].tolist()
    assert found[:, 1].tolist() == (expected[:, 1] + 5).tolist()
    assert typed.score(X, targets) == plain.score(X, Y) > 0.5
