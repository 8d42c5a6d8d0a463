"""Semantics of single constructs of the modelling language, with expected values computed by hand."""

import math

import numpy as np
import pandas as pd
import pytest

import relcrf

TABLES = {
    "e": pd.DataFrame(
        {"id": [1, 2, 3, 4], "d": ["x", None, "y", "x"], "w": [1.0, 2.0, None, -4.0], "k": [5, 6, None, 5]}
    ),
    "r": pd.DataFrame({"a": [1, 2, 3, 3, 1], "b": [2, 3, 4, 3, 2], "s": [0.5, 2.0, None, 1.0, 0.5]}),
    "q": pd.DataFrame({"a": [1, 4], "b": [1, 1]}),
}
DECLARATIONS = """
domain D = { x, y }
domain K = 5..6
entity E { predict d : D  w : real  k : K }
relation R(a: E, b: E) { s: real }
relation Q(a: E, b: E)
"""


def template(text):
    grounding = relcrf.parse(f"{DECLARATIONS}\ntemplate t{text}").ground(relcrf.Dataset(TABLES))
    (group,), (info,) = grounding.graph.groups, grounding.templates
    scopes = list(zip(*(place.tolist() for place in group.scope), strict=True))
    return [tuple(v + 1 for v in scope) for scope in scopes], group, info


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("R(p, e)", [2, 3, 4]),
        ("R(p, e) and p.w > 1.5", [3]),
        ("not R(p, e)", [1]),
        ("not (R(p, e) and p.w > 1.5)", [1, 2, 4]),
        ("not (R(p, e) and Q(p, p))", [1, 3, 4]),
        ("R(e, p) or R(p, e)", [1, 2, 3, 4]),
        ("e.w == 2 or (R(p, e) and p.w == 1)", [2]),
        ("e.w > 0", [1, 2]),
        ("not e.w > 0", [3, 4]),
        ("e.w > 0 => e.w > 1", [2, 3, 4]),
        ("e.w > 0 <=> e.k == 5", [1, 3]),
        ("e.k == 5", [1, 4]),
        ("e.k + 1 > 6.5", [2]),
        ("e.k != 5", [2]),
        ("log(e.w) >= 0", [1, 2]),
        ("1 / (e.w - 1) > 0", [2]),
        ("sqrt(e.w) > 1", [2]),
        ("R(e, p) and R(e, p).s > 0.6", [2, 3]),
        ("R(e, e)", [3]),
        ("least(e.w, 1) == 1", [1, 2]),
    ],
)
def test_conditions(where, keys):
    scopes, _, _ = template(f"(e: E) where {where} over e.d")
    assert [v for (v,) in scopes] == keys


def test_duplicate_rows_count_once_and_self_links_are_included():
    scopes, group, _ = template("(a: E, b: E) where R(a, b) over a.d, b.d")
    assert scopes == [(1, 2), (2, 3), (3, 3), (3, 4)]
    assert group.patterns is None
    assert group.n_patterns == 4
    scopes, _, _ = template("(a: E, b: E) where R(a, b) and a != b over a.d, b.d")
    assert scopes == [(1, 2), (2, 3), (3, 4)]


def test_both_directions_have_separate_factors():
    scopes, _, _ = template("(a: E, b: E) where R(a, b) or R(b, a) over a.d == b.d")
    assert scopes == [(1, 2), (2, 1), (2, 3), (3, 2), (3, 3), (3, 4), (4, 3)]


def test_features():
    _, group, info = template("(a: E, b: E) where R(a, b) over a.d == b.d by 1, a.w * 2, log(b.w), R(a, b).s")
    assert info.features == ("1", "a.w * 2", "log(b.w)", "R(a, b).s")
    expected = [[1, 2, math.log(2), 0.5], [1, 4, 0, 2], [1, 0, 0, 1], [1, 0, 0, 0]]
    np.testing.assert_allclose(group.features.values, expected)
    np.testing.assert_array_equal(group.patterns, [[1], [0], [0], [1]])


def test_range_feature_is_its_value():
    _, group, _ = template("(e: E) over e.d by e.k")
    np.testing.assert_allclose(group.features.values, [[5], [6], [0], [5]])


def test_keys():
    scopes, group, info = template("(a: E, b: E) where R(a, b) over a.d == b.d per a.k")
    assert scopes == [(1, 2), (2, 3)], "a binding with a missing key has no factor"
    assert [info.keys.values[k] for k in group.features.key] == [("5",), ("6",)]


def test_bindings_of_one_variable_are_summed():
    scopes, group, _ = template("(e: E, o: E) where R(e, o) over e.d by 1, o.k")
    assert scopes == [(1,), (2,), (3,)]
    np.testing.assert_allclose(group.features.values, [[1, 6], [1, 0], [2, 5]])


@pytest.mark.parametrize(
    ("formula", "truth"),
    [
        ("a.d == b.d", [1, 0, 0, 1]),
        ("a.d != b.d", [0, 1, 1, 0]),
        ("a.d == x and b.d == y", [0, 1, 0, 0]),
        ("a.d == x => b.d == x", [1, 0, 1, 1]),
        ("not (a.d == x or b.d == x)", [0, 0, 0, 1]),
        ("a.d == x <=> b.d == y", [0, 1, 1, 0]),
        ("a.d < b.d", [0, 1, 0, 0]),
    ],
)
def test_formulas(formula, truth):
    _, group, _ = template(f"(a: E, b: E) where R(a, b) over {formula}")
    assert group.patterns[:, 0].tolist() == truth


@pytest.mark.parametrize(
    ("where", "keys"),
    [("(e.w > 0) == (e.k == 5)", [1, 3]), ("true == R(p, e)", [2, 3, 4]), ("x == e.c", [1, 4])],
)
def test_comparisons_of_truth_values_and_shared_constants(where, keys):
    tables = {**TABLES, "e": TABLES["e"].assign(c=["x", "z", None, "x"])}
    text = DECLARATIONS.replace("domain K", "domain C = { x, z }\ndomain K").replace("k : K", "k : K  c : C")
    grounding = relcrf.parse(f"{text}\ntemplate t(e: E) where {where} over e.d").ground(relcrf.Dataset(tables))
    assert (grounding.graph.groups[0].scope[0] + 1).tolist() == keys


def test_membership_of_attribute_in_bag():
    text = """
    domain D = { x, y }
    domain W = open
    entity E { predict d : D  main : W  words : bag of W }
    template t(a: E, b: E) where a.main in b.words over a.d, b.d
    """
    tables = {
        "e": pd.DataFrame({"id": [1, 2, 3], "d": ["x", None, "y"], "main": ["u", "v", None]}),
        "e_words": pd.DataFrame({"e": [1, 2, 2], "word": ["v", "u", "w"]}),
    }
    (group,) = relcrf.parse(text).ground(relcrf.Dataset(tables)).graph.groups
    assert sorted(zip(*(place.tolist() for place in group.scope), strict=True)) == [(0, 1), (1, 0)]
