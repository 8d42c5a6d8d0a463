"""Tests of RelationalCRF with frames, and with keys that scikit-learn splits."""

import datetime
import pickle
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from tables import small_web

import relcrf
from relcrf.estimators import ESSCRFClassifier, RelationalCRF
from relcrf.proposal.draft import propose_model
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_web(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def tables(folder):
    return {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}


@pytest.fixture(scope="module")
def labelled(tables):
    page = tables["page"].dropna(subset=["category"])
    return page["id"].to_numpy(dtype=object), page["category"].to_numpy(dtype=object)


def test_predictions_use_the_library_of_the_input(folder, tables):
    estimator = RelationalCRF(MODEL, l2=0.5, backend="ess").fit(tables)
    found = estimator.predict(tables)
    assert isinstance(found, pd.DataFrame) and list(found.columns) == ["id", "category", "probability", "joint"]
    proba = estimator.predict_proba({name: pl.from_pandas(table) for name, table in tables.items()})
    assert isinstance(proba, pl.DataFrame) and "p_course" in proba.columns
    arrow = estimator.predict({name: pa.Table.from_pandas(table) for name, table in tables.items()})
    assert isinstance(arrow, pa.Table) and arrow.num_rows == 12
    for source in (folder, relcrf.Dataset(folder)):
        plain = estimator.predict(source)
        assert plain.columns["category"].tolist() == found["category"].tolist()
    direct = relcrf.load(MODEL).fit(relcrf.Dataset(folder), "ess", l2=0.5).predict(relcrf.Dataset(folder)).table()
    assert direct["category"].tolist() == found["category"].tolist()
    assert estimator.score(tables) > 0.6
    with pytest.raises(relcrf.UsageError, match=r"E366.*weights of samples need an estimator with 'tables'"):
        estimator.score(tables, sample_weight=[1.0])


def test_parameters_can_be_read_set_and_cloned(tables):
    estimator = RelationalCRF(MODEL, l2=0.5, backend="ess")
    assert estimator.get_params() == {"model": MODEL, "backend": "ess", "attribute": None, "tables": None, "l2": 0.5}
    copy = clone(estimator).set_params(backend="local", l2=2.0)
    assert copy.get_params()["l2"] == 2.0 and estimator.get_params()["l2"] == 0.5
    assert "l2=0.5" in repr(estimator) and is_classifier(estimator)
    assert clone(RelationalCRF(relcrf.load(MODEL), tables=relcrf.Dataset(tables), backend="ess")).tables is not None
    with pytest.raises(relcrf.UsageError, match="no setting 'l3'"):
        RelationalCRF(MODEL, l3=1, backend="ess").fit(tables)


def test_invalid_arguments_raise_errors(tables, labelled):
    keys, labels = labelled
    with pytest.raises(NotFittedError):
        RelationalCRF(MODEL, backend="ess").predict(tables)
    with_keys = RelationalCRF(MODEL, tables=tables, backend="ess")
    for estimator, X, y, code in (
        (RelationalCRF(backend="ess"), {"page": tables["page"][["id"]]}, None, "E369"),
        (RelationalCRF(attribute="Page.topic", backend="ess"), tables, None, "E373"),
        (with_keys, keys, labels[1:], "E366"),
        (with_keys, ["p1", "nobody"], ["course", "staff"], "E366"),
        (with_keys, ["p1", "p2"], ["course", "stuff"], "E366"),
        (RelationalCRF(MODEL, attribute="topic", tables=tables, backend="ess"), keys, labels, "E310"),
        (with_keys, keys, None, "E366"),
        (with_keys, keys[:2], [["course"], ["staff"]], "E366"),
        (with_keys, "p1", ["course"], "E366"),
        (with_keys, [*keys, keys[0]], [*labels, "course" if labels[0] == "staff" else "staff"], "E366"),
    ):
        with pytest.raises(relcrf.RelcrfError) as caught:
            estimator.fit(X, y)
        assert [d.code for d in caught.value.diagnostics] == [code]


@pytest.mark.parametrize(
    "convert",
    [
        list,
        lambda labels: pd.Series(labels, index=range(7, 7 + len(labels))),
        lambda labels: pd.Series(labels, dtype="category"),
        lambda labels: pl.Series(labels.tolist()),
    ],
)
def test_scores_do_not_depend_on_the_container_of_the_labels(tables, labelled, convert):
    keys, labels = labelled
    labels = np.array(labels, dtype=object)
    estimator = RelationalCRF(MODEL, tables=tables, backend="local", max_iterations=20)
    twice = estimator.fit([*keys[:30], keys[0]], convert(np.append(labels[:30], labels[0])))
    assert twice.score(keys[30:], convert(labels[30:])) == np.mean(twice.predict(keys[30:]) == labels[30:]) > 0.2
    for wrong in (None, labels[30:31], labels[31:], labels[30:, None], ["other"] * len(keys[30:])):
        with pytest.raises(relcrf.DataError, match="E366"):
            twice.score(keys[30:], wrong)


def test_fit_without_a_model_proposes_one(folder, tables, labelled):
    estimator = RelationalCRF(backend="ess").fit(tables)
    assert "RelationalCRF(backend='ess'): predicts Page.category (5 values, " in repr(estimator)
    assert "templates prior, word, school, link, co_link" in repr(estimator)
    assert "predict category : Category" in repr(estimator.model_) and "model" in estimator.get_params()
    refitted = RelationalCRF(relcrf.parse(estimator.model_.to_rcrf()), backend="ess").fit(folder)
    assert repr(refitted.model_) == repr(estimator.model_) and ": predicts" not in repr(refitted)
    np.testing.assert_array_equal(
        refitted.predict(tables)["category"].to_numpy(), estimator.predict(tables)["category"].to_numpy()
    )
    assert ": predicts" not in repr(clone(estimator))
    keys, labels = labelled
    with_keys = RelationalCRF(attribute="category", tables=tables, backend="ess").fit(keys[:30], labels[:30])
    assert with_keys.score(keys[30:], labels[30:]) > 0.4


def test_cross_validation_over_keys(tables, labelled):
    keys, labels = labelled
    data = relcrf.Dataset(tables)
    collective, independent = (
        cross_val_score(RelationalCRF(MODEL, backend, tables=data), keys, labels, cv=4).mean()
        for backend in ("ess", "local")
    )
    assert collective > independent, "the labels of other folds are evidence along the links"
    losses = cross_val_score(
        RelationalCRF(MODEL, tables=data, backend="ess"), keys, labels, cv=3, scoring="neg_log_loss"
    )
    assert (losses > -np.log(5)).all()


def test_labels_of_other_keys_are_hidden(tables, labelled):
    keys, labels = labelled
    estimator = RelationalCRF(MODEL, tables=tables, backend="ess").fit(keys[:20], labels[:20])
    changed = {**tables, "page": tables["page"].assign(category=[None] * 20 + ["course"] * 40)}
    refitted = RelationalCRF(MODEL, tables=changed, backend="ess").fit(keys[:20], labels[:20])
    np.testing.assert_array_equal(estimator.predict_proba(keys), refitted.predict_proba(keys))
    assert estimator.predict(keys[::-1]).tolist() == estimator.predict(keys).tolist()[::-1]
    assert estimator.classes_.tolist() == ["course", "faculty", "project", "staff", "student"]
    np.testing.assert_allclose(estimator.predict_proba(keys).sum(axis=1), 1.0)


def test_proposed_model_does_not_depend_on_the_labels_of_other_keys(tables, labelled):
    """The priors of links are estimated from labelled pairs."""
    keys, labels = labelled
    page = tables["page"].set_index("id")
    page.loc[keys[20:], "category"] = np.roll(labels[20:], 7)
    both = tables, {**tables, "page": page.reset_index()}
    models = [
        RelationalCRF(attribute="category", tables=each, backend="local").fit(keys[:20], labels[:20]).model_.to_rcrf()
        for each in both
    ]
    assert models[0] == models[1]
    assert len({propose_model(each).model.to_rcrf() for each in both}) == 2


def test_searches_and_pipelines(tables, labelled):
    keys, labels = labelled
    frame = pd.DataFrame({"id": keys, "note": "not read"})
    estimator = RelationalCRF(MODEL, tables=relcrf.Dataset(tables), backend="ess")
    search = GridSearchCV(estimator, {"l2": [0.5, 1000.0], "backend": ["ess", "local"]}, cv=2).fit(frame, labels)
    assert search.best_params_ == {"l2": 0.5, "backend": "ess"}
    piped = make_pipeline(
        FunctionTransformer(lambda keys: keys), RelationalCRF(MODEL, tables=tables, backend="ess")
    ).fit(frame, labels)
    assert piped.score(frame, labels) > 0.6


def test_labels_keep_their_type():
    text = """
    entity E { predict t : bool  predict n : 1..3  r : real }
    template a(e: E) over e.t by 1, e.r
    template b(e: E) over e.n
    """
    tables = {
        "e": pd.DataFrame({"id": [5, 6, 7, 8], "r": [1.0, -1.0, 2.0, -2.0], "t": [True, False] * 2, "n": [1, 2, 3, 1]})
    }
    estimator = RelationalCRF(relcrf.parse(text), tables=tables, attribute="t", backend="ess").fit(
        [5, 6, 7], [True, False, True]
    )
    assert estimator.predict([8, 5]).tolist() == [False, True] and estimator.classes_.dtype == bool
    estimator = RelationalCRF(relcrf.parse(text), tables=tables, attribute="E.n", backend="ess").fit(
        [5, 6, 7], [1, 2, 1]
    )
    assert estimator.predict(np.array([[8]])).tolist() == [1] and estimator.classes_.tolist() == [1, 2, 3]
    both = RelationalCRF(relcrf.parse(text), backend="ess").fit(tables)
    hidden = {"e": tables["e"].assign(t=None, n=None)}
    assert set(both.predict(hidden)) == {"E.t", "E.n"}


@pytest.mark.parametrize(
    ("attribute", "labels", "classes"),
    [
        ("t", [1, 0, 1], [0, 1]), ("t", [1, 1, 1], [0, 1]), ("t", [1.0, 0.0, 1.0], [0.0, 1.0]),
        ("n", [1.0, 2.0, 1.0], [1.0, 2.0, 3.0]), ("t", [np.True_, np.False_, np.True_], [False, True]),
    ],
)  # fmt: skip
def test_numbers_denote_truth_values_and_whole_numbers(attribute, labels, classes):
    """pandas reads truth values as 0 and 1, and whole numbers beside missing ones as real numbers."""
    text = """
    entity E { predict t : bool  predict n : 1..3  r : real }
    template a(e: E) over e.t by 1, e.r
    template b(e: E) over e.n by 1, e.r
    """
    tables = {"e": pd.DataFrame({"id": [5, 6, 7, 8], "r": [1.0, -1.0, 2.0, -2.0]}).assign(t=None, n=None)}
    estimator = RelationalCRF(relcrf.parse(text), tables=tables, attribute=attribute, backend="local")
    found = estimator.fit([5, 6, 7], np.array(labels))
    assert found.classes_.tolist() == classes and found.classes_.dtype == np.array(labels).dtype
    assert found.score([5, 7], np.array([labels[0], labels[2]])) == 1.0
    with pytest.raises(relcrf.DataError, match="E366"):
        estimator.fit([5], np.array([7]))


def test_labels_may_be_dates():
    text = """
    domain D = { "2024-01-01", "2024-01-02", other }
    entity E { predict d : D  x : real }
    template t(e: E) over e.d by 1, e.x
    """
    tables = {"e": pd.DataFrame({"id": range(4), "d": ["other"] * 4, "x": [1.0, -1.0] * 2})}
    dates = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 1)]
    estimator = RelationalCRF(relcrf.parse(text), tables=tables, backend="local").fit([0, 1], dates)
    assert estimator.classes_.tolist() == [dates[0], "2024-01-02", "other"] and estimator.predict([2]) == [dates[0]]


MIXED = """
domain D = { 1, 2, other }
entity E(p_key) { predict d : D  x : real }
template t(e: E) over e.d by 1, e.x
"""


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_single_data_frame(kind):
    frame = kind({"id": [0, 1, 2, 3], "t": [True, False, True, None], "r": [1.0, -1.0, 2.0, -2.0]})
    text = "entity E { predict t : bool  r : real }\ntemplate a(e: E) over e.t by 1, e.r"
    found = RelationalCRF(relcrf.parse(text), backend="local").fit(frame).predict(frame)
    assert type(found) is type(frame) and len(found) == 1


def test_values_of_another_type_remain_strings():
    tables = {"e": pd.DataFrame({"p_key": range(12), "d": ["1", "2", "other"] * 4, "x": [1.0, 2.0, 3.0] * 4})}
    estimator = RelationalCRF(relcrf.parse(MIXED), l2=0.01, tables=tables, backend="ess").fit(
        range(8), [1, 2, 2, 1, 2, 2, 1, 2]
    )
    assert estimator.classes_.tolist() == [1, 2, "other"]
    assert estimator.predict([8, 9]).tolist() == [2, 1] and estimator.score([8, 9], [2, 1]) == 1.0
    mixed = estimator.fit(range(9), np.array([1, 2, "other"] * 3, dtype=object))
    assert mixed.classes_.tolist() == [1, 2, "other"] and mixed.predict_proba([9]).shape == (1, 3)


def test_empty_keys_and_column_names():
    tables = {"e": pd.DataFrame({"p_key": range(12), "d": ["1", "2", None] * 4, "x": [1.0, 2.0, 3.0] * 4})}
    model = relcrf.parse(MIXED)
    found = RelationalCRF(model, backend="ess").fit(tables).predict(tables)
    assert list(found.columns) == ["p_key", "d", "probability", "joint"]
    with_keys = RelationalCRF(model, tables=tables, backend="ess").fit([0, 1], ["1", "2"])
    assert with_keys.predict([]).shape == (0,) and with_keys.predict_proba([]).shape == (0, 3)
    with pytest.raises(relcrf.DataError, match="E225"):
        RelationalCRF(model, tables=tables, backend="ess").fit([], [])


def test_scikit_learn_checks_of_the_interface():
    """Run the checks of `check_estimator` that need no data; X is not an array of numbers."""
    checks = [
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_valid_tag_types,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_mixin_order,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
    ]
    for check in checks:
        check("RelationalCRF", RelationalCRF())
    with pytest.warns(SkipTestWarning, match="Can't test estimator RelationalCRF"):
        found = estimator_checks.check_estimator(RelationalCRF())
    assert {each["status"] for each in found} == {"passed"}


def test_pickles_and_processes(folder, tables, labelled):
    keys, labels = labelled
    data = relcrf.Dataset(folder)
    estimator = RelationalCRF(MODEL, tables=data, backend="local")
    alone = cross_val_score(estimator, keys, labels, cv=2)
    np.testing.assert_array_equal(cross_val_score(estimator, keys, labels, cv=2, n_jobs=2), alone)
    for fitted, X in ((estimator.fit(keys, labels), keys[:5]), (RelationalCRF(backend="local").fit(tables), tables)):
        again = pickle.loads(pickle.dumps(fitted))
        found, expected = again.predict_proba(X), fitted.predict_proba(X)
        assert (np.asarray(found) == np.asarray(expected)).all() and repr(again).endswith(repr(fitted)[-100:])
    smaller = pickle.loads(pickle.dumps(estimator))
    smaller.tables = {**tables, "page": tables["page"].iloc[:20], "link": tables["link"].iloc[:0]}
    smaller.tables["page_words"] = tables["page_words"][tables["page_words"]["page"].isin(smaller.tables["page"]["id"])]
    with pytest.raises(relcrf.DataError, match="E366"):
        smaller.predict(keys[:1])


def test_probabilities_as_features_and_output_libraries(tables, labelled):
    keys, labels = labelled
    estimator = RelationalCRF(MODEL, tables=tables, backend="local").set_output(transform="pandas")
    frame = pd.DataFrame({"id": keys})
    features = estimator.fit(frame, labels).transform(frame[:3])
    assert list(features.columns) == [f"Page.category={value}" for value in estimator.classes_]
    np.testing.assert_array_equal(features.to_numpy(), estimator.predict_proba(keys[:3]))
    assert estimator.feature_names_in_.tolist() == ["id"] and not hasattr(
        estimator.fit(keys, labels), "feature_names_in_"
    )
    whole = RelationalCRF(MODEL, backend="local").fit(tables)
    assert {"page.category", "link.source"} <= {*whole.feature_names_in_}
    with pytest.raises(relcrf.UsageError, match="E366"):
        whole.transform(tables)
    assert isinstance(whole.set_output(transform="polars").predict(tables), pl.DataFrame)
    assert isinstance(whole.set_output(transform="default").predict(tables), pd.DataFrame)
    with pytest.raises(relcrf.UsageError, match=r"E305.*cannot be 'panda'"):
        whole.set_output(transform="panda").predict(tables)


def test_weights_of_samples_are_routed(tables, labelled):
    keys, labels = labelled
    weights = np.arange(len(keys), dtype=float)
    estimator = RelationalCRF(MODEL, tables=relcrf.Dataset(tables), backend="local")
    with config_context(enable_metadata_routing=True):
        routed = estimator.set_score_request(sample_weight=True)
        found = cross_validate(routed, keys, labels, cv=2, params={"sample_weight": weights}, return_indices=True)
    test = found["indices"]["test"][0]
    again = clone(estimator).fit(np.delete(keys, test), np.delete(labels, test))
    assert found["test_score"][0] == again.score(keys[test], labels[test], weights[test])


def test_missing_scikit_learn_raises_e351():
    code = (
        "import sys; sys.modules['sklearn'] = None\nimport relcrf\nrelcrf.load\ntry: relcrf.RelationalCRF\n"
        "except relcrf.UsageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "E351" in done.stdout and "relcrf[sklearn]" in done.stdout
    assert {relcrf.RelationalCRF, relcrf.ESSCRFClassifier} == {RelationalCRF, ESSCRFClassifier}


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        (pd.Series([1.0, 2.0, 3.0]), ["a", "b", "a"]),
        (pd.Series([" k1", "k2 ", "k3"]), [" a", "b ", " a"]),
        (pd.Series(pd.date_range("2024-01-01", periods=3, tz="Europe/Zurich")), ["a", "b", "a"]),
        (
            pd.Series([1, 2, 3]),
            pd.to_datetime(["2024-01-01", "2024-02-01", "2024-01-01"]).as_unit("ns").tz_localize("UTC"),
        ),
        (pd.Series([1, 2, 3]), pd.to_datetime(["2024-01-01", "2024-02-01", "2024-01-01"]).as_unit("ns")),
        (pd.Series([1, 2, 3]), [Decimal("1.50"), Decimal(2), Decimal("1.50")]),
    ],
    ids=["floats", "blanks", "keys with a time zone", "labels with a time zone", "nanoseconds", "decimals"],
)
def test_keys_and_labels_may_be_those_of_the_tables(keys, labels):
    text = "domain D = open\nentity E { predict d : D  x : real }\ntemplate t(e: E) over e.d by 1, e.x"
    frame = pd.DataFrame({"id": keys, "d": labels, "x": [1.0, -1.0, 2.0]})
    estimator = RelationalCRF(relcrf.parse(text), l2=0.01, tables={"e": frame}, backend="local")
    for X in (frame["id"], frame[["id"]], frame["id"].tolist(), frame["id"].to_numpy(), pl.from_pandas(frame)["id"]):
        estimator.fit(X, frame["d"])
        assert estimator.score(X, frame["d"]) == 1.0
        assert estimator.predict(X).tolist() == [*map(estimator.classes_.tolist().__getitem__, [0, 1, 0])]
        assert [pd.Timestamp(v) if isinstance(v, datetime.datetime) else v for v in estimator.classes_] == [*labels[:2]]
