"""Tests of extreme numbers in tables and weights for each backend, which must give a correct result or a diagnostic."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.backends import registry

ALONE = "domain K = { a, b }\nentity P { predict k : K  x : real }\n"
UNARY = f"{ALONE}template prior(p: P) over p.k\ntemplate size(p: P) over p.k by p.x\n"
LINKED = f"{UNARY}relation L(p: P, q: P)\ntemplate link(p: P, q: P) where L(p, q) over p.k, q.k\n"
BACKENDS = registry.backend_names()
UNARY_ONLY = ("ipf",)
"""Backends that reject real-valued features."""


def pages(labels, x=None, links=()):
    n = len(labels)
    x = [0.0] * n if x is None else x
    page = {"id": [f"p{k}" for k in range(n)], "k": labels, "x": x}
    return relcrf.Dataset({"p": page, "l": {"p": [a for a, _ in links], "q": [b for _, b in links]}})


def links_between(labels, links):
    """Return the links of which both pages exist."""
    return [pair for pair in links if all(int(end[1:]) < len(labels) for end in pair)]


@cache
def case_grounding(case):
    """Return the model and the training graph of a case, which all backends share."""
    train, _, x, links = CASES[case]
    model = relcrf.parse(LINKED)
    return model, model.ground(pages(train, x, links_between(train, links)))


def query_probabilities(model, grounding, test, backend):
    """Return the probabilities of all queries, or None if the backend raises a diagnostic."""
    try:
        return api.fit(model, grounding, backend).predict(test).probabilities()
    except relcrf.RelcrfError as error:
        assert all(d.code and d.hint for d in error.diagnostics), error
        return None


def check(found, queries):
    if found is not None:
        assert found.shape == (queries, 2)
        assert np.isfinite(found).all() and (found >= 0).all()
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-9)
    return found


TRAIN = ["a", "b", "a", "a", None, "b"]
LINKS = [("p0", "p2"), ("p1", "p5"), ("p3", "p4")]

CASES = {
    "one row": (["a"], [None], None, ()),
    "all rows alike": (["a"] * 5, [None, None], None, LINKS[:1]),
    "no link": (TRAIN, TRAIN, None, ()),
    "a thing that is linked to itself": (TRAIN, TRAIN, None, [("p0", "p0"), ("p4", "p4")]),
    "features of 1e30": (TRAIN, TRAIN, [1e30, -1e30, 1e30, 5e29, 1e30, -1e30], LINKS),
    "features of 1e-300": (TRAIN, TRAIN, [1e-300, -1e-300, 0.0, 0.0, 1e-300, 0.0], LINKS),
    "an empty cell among the features": (TRAIN, TRAIN, [None, 1.0, 2.0, None, None, 0.0], LINKS),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_small_and_extreme_tables(backend, case):
    train, test, x, links = CASES[case]
    found = query_probabilities(
        *case_grounding(case), pages(test, x, links_between(train, links) if len(test) == len(train) else ()), backend
    )
    check(found, test.count(None))
    if backend == "ess" and case in ("one row", "all rows alike"):
        assert found is not None and (found[:, 0] > 0.5).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_tables_raise_in_training_and_predict_nothing(backend):
    empty = pages([])
    with pytest.raises(relcrf.RelcrfError) as caught:
        relcrf.parse(LINKED).fit(empty, backend)
    assert caught.value.diagnostics[0].code in ("E225", "E221", "E213", "E451") or backend in UNARY_ONLY
    check(query_probabilities(*case_grounding("an empty cell among the features"), empty, backend), 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_single_state_is_certain(backend):
    model = relcrf.parse("domain K = { only }\nentity P { predict k : K }\ntemplate prior(p: P) over p.k\n")
    train = relcrf.Dataset({"p": {"id": [1, 2], "k": ["only", None]}})
    found = query_probabilities(model, model.ground(train), train, backend)
    assert found is None or found.tolist() == [[1.0]]


@pytest.mark.parametrize("backend", ["ess", "local", "dense", "pseudo", "chow-liu"])
def test_weights_of_1e4_and_contradictory_hard_rules(backend):
    """The model fixes the weights, so the result is known: contradictory rules leave both states equally likely."""
    tables = {"p": {"id": [1, 2], "good": [True, None]}, "known": {"p": [2]}}
    person = "entity P { predict good : bool }\nrelation Known(p: P)\ntemplate prior(p: P) over p.good init 0.0 fixed\n"
    sure = f"{person}template t(p: P) over p.good == true init 1e4 fixed\n"
    fight = f"{person}rule hard: Known(p) => p.good\nrule hard: Known(p) => not p.good\n"
    for text, expected in ((sure, [0.0, 1.0]), (fight, [0.5, 0.5])):
        model, data = relcrf.parse(text), relcrf.Dataset(tables)
        found = check(query_probabilities(model, model.ground(data), data, backend), 1)
        np.testing.assert_allclose(found, [expected], atol=1e-12)


@pytest.mark.parametrize("backend", ["ess", "local", "dense"])
def test_ten_thousand_states(backend):
    model = "entity P { predict n : 0..9999 }\ntemplate prior(p: P) over p.n\n"
    data = relcrf.Dataset({"p": {"id": range(40), "n": [7] * 20 + [9_999] * 19 + [None]}})
    (row,) = relcrf.parse(model).fit(data, backend, max_iterations=20).predict(data).probabilities()
    assert row.shape == (10_000,) and row.sum() == pytest.approx(1.0)
    assert set(np.argsort(row)[-2:]) == {7, 9_999}


@pytest.mark.parametrize("value", ["inf", "-inf", "1e999", "Infinity", "0x1p3"])
def test_non_number_in_a_feature_raises_error_with_its_row(tmp_path, value):
    (tmp_path / "p.csv").write_text(f"id,k,x\n1,a,0.5\n2,b,{value}\n")
    (tmp_path / "l.csv").write_text("p,q\n1,2\n")
    with pytest.raises(relcrf.DataError) as caught:
        relcrf.parse(LINKED).ground(relcrf.Dataset(tmp_path))
    (found,) = caught.value.diagnostics
    assert found.code == "E215" and (found.location.row, found.location.column) == (2, "x")


def test_nan_is_a_missing_number(tmp_path):
    (tmp_path / "p.csv").write_text("id,k,x\n1,a,0.5\n2,b,nan\n")
    (tmp_path / "l.csv").write_text("p,q\n1,2\n")
    for data in (relcrf.Dataset(tmp_path), pages(["a", "b"], [0.5, float("nan")])):
        groups = relcrf.parse(f"{ALONE}template t(p: P) over p.k by p.x\n").ground(data).graph.groups
        assert groups[0].features.values.ravel().tolist() == [0.5, 0.0]


def test_a_feature_that_becomes_infinite_is_a_diagnostic():
    for by in ("p.x * p.x", "p.x * 1e300"):
        with pytest.raises(relcrf.DataError) as caught:
            relcrf.parse(f"{ALONE}template t(p: P) over p.k by {by}\n").ground(pages(["a", "b"], [1e200, 1e300]))
        assert caught.value.diagnostics[0].code == "E222", by


def test_keyed_features_have_documented_single_precision():
    """`per` stores features in single precision: 7 digits; values beyond 3e38 raise a diagnostic."""
    keyed = f"{ALONE}template t(p: P) over p.k per p by p.x\n"
    plain = f"{ALONE}template t(p: P) over p.k by p.x\n"
    x = [1 / 3, 2e30]
    grounding = relcrf.parse(keyed).ground(pages(["a", "b"], x))
    np.testing.assert_allclose(grounding.graph.groups[0].features.values.ravel(), x, rtol=6e-8)
    assert relcrf.parse(plain).ground(pages(["a", "b"], x)).graph.groups[0].features.values.ravel().tolist() == x
    with pytest.raises(relcrf.DataError) as caught:
        relcrf.parse(keyed).ground(pages(["a", "b"], [1.0, 1e39]))
    assert caught.value.diagnostics[0].code == "E222"
    assert relcrf.parse(plain).ground(pages(["a", "b"], [1.0, 1e39])).graph.n_factors == 2
