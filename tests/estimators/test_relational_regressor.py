"""Tests of RelationalCRFRegressor with frames, and with keys that scikit-learn splits."""

import pickle

import numpy as np
import pandas as pd
import pytest
from houses import DECLARATIONS, KIND_LEVELS, MIXED, NEAR, NEAR_PRICES, houses
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import estimator_checks

import relcrf
from relcrf.estimators import RelationalCRF, RelationalCRFRegressor

MODEL = relcrf.parse(DECLARATIONS + KIND_LEVELS + NEAR)


@pytest.fixture(scope="module")
def tables():
    """Return tables of which all prices are known."""
    return {name: pd.DataFrame(table) for name, table in houses(120, 0, unknown=0.0, links=2.0).items()}


@pytest.fixture(scope="module")
def labelled(tables):
    return tables["house"]["id"].to_numpy(), tables["house"]["price"].to_numpy()


def regressor(tables=None, **options):
    return RelationalCRFRegressor(MODEL, "dense", tables=tables, **options)


def without_prices(tables, keys):
    house = tables["house"]
    return {**tables, "house": house.assign(price=house["price"].mask(house["id"].isin(keys)))}


def test_predictions_equal_those_of_the_model(tables, labelled):
    keys, prices = labelled
    estimator = regressor(tables).fit(keys[:80], prices[:80])
    means, deviations = estimator.predict(keys[80:], return_std=True)
    hidden = relcrf.Dataset(without_prices(tables, keys[80:]))
    expected = MODEL.fit(hidden, "dense").predict(hidden)
    np.testing.assert_array_equal(means, expected.means())
    np.testing.assert_array_equal(deviations, expected.deviations())
    assert estimator.predict(keys[:79:-1]).tolist() == means.tolist()[::-1]
    assert estimator.score(keys[80:], prices[80:]) == r2_score(prices[80:], means) > 0.8


def test_numbers_of_tables_are_not_used(tables, labelled):
    keys, prices = labelled
    changed = {**tables, "house": tables["house"].assign(price=-1e3)}
    found, expected = (regressor(each).fit(keys[:80], prices[:80]).predict(keys) for each in (changed, tables))
    np.testing.assert_array_equal(found, expected)
    doubled = regressor(tables).fit(keys[:80], 2.0 * prices[:80]).predict(keys)
    np.testing.assert_allclose(doubled, 2.0 * expected, rtol=1e-3)  # the optimiser stops elsewhere


def test_frames(tables):
    half = without_prices(tables, range(0, 120, 2))
    estimator = regressor().fit(half)
    found = estimator.predict(half)
    assert isinstance(found, pd.DataFrame) and list(found.columns) == ["id", "price", "deviation", "low", "high"]
    np.testing.assert_array_equal(found["price"], estimator.fit_.predict(relcrf.Dataset(half)).means())
    alone = {"house": half["house"], "near": half["near"].iloc[:0]}
    known = half["house"].dropna(subset="price")
    expected = estimator.predict({**alone, "house": known.assign(price=np.nan)})["price"]
    assert estimator.score(alone) == pytest.approx(r2_score(known["price"], expected))


def test_cross_validation_search_and_clones(tables, labelled):
    keys, prices = labelled
    data = relcrf.Dataset(tables)
    collective, independent = (
        cross_val_score(RelationalCRFRegressor(MODEL, backend, tables=data), keys, prices, cv=3).mean()
        for backend in ("dense", "local")
    )
    assert collective > independent > 0.5
    search = GridSearchCV(regressor(data), {"l2": [0.1, 1e6]}, cv=2, scoring="neg_root_mean_squared_error")
    assert search.fit(keys, prices).best_params_ == {"l2": 0.1}
    assert is_regressor(search.best_estimator_) and not is_classifier(regressor())
    assert clone(regressor(l2=0.5)).get_params()["l2"] == 0.5


def test_fit_without_a_model_proposes_one(tables, labelled):
    keys, prices = labelled
    estimator = RelationalCRFRegressor(attribute="House.price", backend="dense", tables=tables).fit(keys, prices)
    assert "predicts House.price (a number with 120 values)" in repr(estimator) and estimator.score(keys, prices) > 0.7


def test_pickles(tables, labelled):
    keys, prices = labelled
    estimator = regressor(tables).fit(keys[:80], prices[:80] + 7.0)
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(again.predict(keys), estimator.predict(keys))


def test_labels_of_models_with_numbers_and_categories(tables, labelled):
    keys, prices = labelled
    model, kinds = relcrf.parse(MIXED + NEAR_PRICES), tables["house"]["kind"].to_numpy(dtype=object)
    number = RelationalCRFRegressor(model, "dense", attribute="price", tables=tables)
    assert number.fit(keys[:80], prices[:80]).score(keys[80:], prices[80:]) > 0.6
    category = RelationalCRF(model, "dense", attribute="kind", tables=tables)
    assert category.fit(keys[:80], kinds[:80]).score(keys[80:], kinds[80:]) > 0.6
    for estimator, y in ((number, kinds), (category, prices)):
        wrong = clone(estimator).set_params(attribute="kind" if estimator is number else "price")
        with pytest.raises(relcrf.UsageError) as caught:
            wrong.fit(keys, y)
        assert [each.code for each in caught.value.diagnostics] == ["E379"]


@pytest.mark.parametrize(
    "y", [["a"], [np.nan], [np.inf], [None], [[1.0]], [1.0, 2.0], [np.datetime64("2024-01-01")], None], ids=repr
)
def test_invalid_labels_raise_e366(tables, y):
    with pytest.raises(relcrf.DataError) as caught:
        regressor(tables).fit([0], y)
    assert [each.code for each in caught.value.diagnostics] == ["E366"]


def test_weights_of_samples_need_keys(tables):
    with pytest.raises(relcrf.UsageError, match=r"E366.*weights of samples need an estimator with 'tables'"):
        regressor().fit(tables).score(tables, sample_weight=[1.0] * 120)


def test_scikit_learn_checks_of_the_interface():
    """Run the checks of `check_estimator` that need no data; X is not an array of numbers."""
    with pytest.raises(NotFittedError):
        RelationalCRFRegressor(MODEL).predict({})
    with pytest.warns(SkipTestWarning, match="Can't test estimator RelationalCRFRegressor"):
        found = estimator_checks.check_estimator(RelationalCRFRegressor())
    assert {each["status"] for each in found} == {"passed"}
    for check in (
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_valid_tag_types,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_mixin_order,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
    ):
        check("RelationalCRFRegressor", RelationalCRFRegressor())
