"""Quantile bins and linear splines, against independent implementations."""

import bisect

import numpy as np
import pytest

import relcrf
from relcrf.api import load_fit
from relcrf.data.dataset import Dataset
from relcrf.grounding.number_bases import evaluate_basis, fit_basis
from relcrf.serving import Predictor

MODEL = """
entity P { predict z : bool  x : real }
template bins(p: P) over p.z by quantiles(p.x, 4)
template curve(p: P) over p.z by 1, spline(log(p.x), 5)
"""
SKEWED = np.exp(np.random.default_rng(0).normal(size=200))
TIED = np.repeat([0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0], 9)


@pytest.mark.parametrize("values", [SKEWED, TIED, np.zeros(5), np.array([np.nan, 3.0, np.nan, 4.0])])
@pytest.mark.parametrize("size", [2, 5, 10])
def test_bins_equal_those_of_bisection(values, size):
    thresholds = [float(np.nanquantile(values, k / size)) for k in range(1, size)]
    found = evaluate_basis("quantiles", values, fit_basis("quantiles", values, size))
    for value, row in zip(values.tolist(), found, strict=True):
        expected = [0.0] * size
        if value == value:
            expected[bisect.bisect_right(thresholds, value)] = 1.0
        assert row.tolist() == expected


def test_bins_of_training_values_have_equal_sizes():
    found = evaluate_basis("quantiles", SKEWED, fit_basis("quantiles", SKEWED, 4))
    assert found.sum(axis=0).tolist() == [50, 50, 50, 50]


@pytest.mark.parametrize("values", [SKEWED, TIED, np.zeros(5)])
@pytest.mark.parametrize("size", [2, 5, 10])
def test_spline_interpolates_weights_of_distinct_knots(values, size):
    knots = fit_basis("spline", values, size)
    assert knots[0] == values.min() and knots[-1] == values.max()
    points = np.concatenate((np.linspace(values.min() - 1, values.max() + 1, 57), knots))
    distinct, first = np.unique(knots, return_index=True)
    weights = np.random.default_rng(1).normal(size=size)
    found = evaluate_basis("spline", points, knots) @ weights
    np.testing.assert_allclose(found, np.interp(points, distinct, weights[first]), atol=1e-12)


def test_spline_equals_scikit_learn():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    reference = preprocessing.SplineTransformer(n_knots=6, degree=1, knots="quantile", extrapolation="constant")
    expected = reference.fit_transform(SKEWED[:, None])
    np.testing.assert_allclose(evaluate_basis("spline", SKEWED, fit_basis("spline", SKEWED, 6)), expected, atol=1e-12)


@pytest.mark.parametrize("function", ["quantiles", "spline"])
def test_missing_numbers_have_no_components(function):
    unknown = np.full(3, np.nan)
    assert not evaluate_basis(function, unknown, fit_basis(function, unknown, 3)).any()


def table(values):
    return Dataset({"p": {"id": np.arange(len(values)), "z": (np.asarray(values) > 1).tolist(), "x": values}})


def unlabelled(values):
    return Dataset({"p": {"id": np.arange(len(values)), "x": values}})


def features(grounding, name):
    (group,) = (g for g, n in zip(grounding.graph.groups, grounding.group_names, strict=True) if n == name)
    rows = np.zeros((group.n_factors, group.features.n_features))
    for k, row in enumerate(np.argsort(group.scope[0])):
        for feature, value in group.features.row(int(row)):
            rows[k, feature] = value
    return rows


def test_model_contains_components_with_names():
    grounding = relcrf.parse(MODEL).ground(table(SKEWED))
    expected = evaluate_basis("quantiles", SKEWED, fit_basis("quantiles", SKEWED, 4))
    np.testing.assert_allclose(features(grounding, "bins"), expected)
    bins, curve = grounding.templates
    assert list(bins.features) == [f"quantiles(p.x, 4)[{k}]" for k in (1, 2, 3, 4)]
    assert list(curve.features) == ["1", *(f"spline(log(p.x), 5)[{k}]" for k in (1, 2, 3, 4, 5))]


def test_predictions_use_quantiles_of_training_data(tmp_path):
    fit = relcrf.parse(MODEL).fit(table(SKEWED), backend="pseudo")
    fit.save(tmp_path / "run")
    few = SKEWED[:5]
    expected = evaluate_basis("spline", np.log(few), fit_basis("spline", np.log(SKEWED), 5))
    found = features(load_fit(tmp_path / "run").ground(table(few)), "curve")
    np.testing.assert_allclose(found, np.column_stack([np.ones(5), expected]), rtol=1e-6)
    served, predicted = (
        Predictor(fit).predict({"p": {"id": 0, "x": few[0]}}),
        fit.predict(unlabelled(few[:1])),
    )
    assert list(served["p_true"]) == list(predicted.table("z")["p_true"])
