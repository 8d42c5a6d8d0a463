"""Small models with ground graphs computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import relcrf

PAGES = """
domain Category = { course, faculty, student }
domain Word     = open
entity Page {
    predict category : Category
    words  : bag of Word
    length : real
    school : string
    v      : vector
}
relation Link(source: Page, target: Page)
"""

TABLES = {
    "page": pd.DataFrame(
        {
            "id": [10, 2, 30, 4],  # sorted as numbers: 2, 4, 10, 30 are variables 0, 1, 2, 3
            "category": ["course", None, "student", "faculty"],
            "length": [1.0, math.e, None, -1.0],
            "school": ["mit", "cmu", "mit", None],
            "v": [[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [-1.0, 0.5]],
        }
    ),
    "page_words": pd.DataFrame(
        {
            "page": [10, 10, 10, 2, 4, 4],
            "word": ["exam", "exam", "grade", "exam", "prof", None],
            "count": [1, 2, 1, 4, 1, 9],
        }
    ),
    # 10 -> 2 twice, 10 -> 4, 10 -> 10, 30 -> 2
    "link": pd.DataFrame({"source": [10, 10, 10, 10, 30], "target": [2, 4, 10, 2, 2]}),
}


def ground(declarations, schema=PAGES, tables=TABLES):
    return relcrf.parse(schema + declarations).ground(relcrf.Dataset(tables))


def scopes(grounding, template=0):
    group = grounding.graph.groups[template]
    return sorted(zip(*(v.tolist() for v in group.scope), strict=True))


def rows(grounding, template=0):
    """Return the non-zero features of each factor by key of `per` and text in `by`."""
    group, info = grounding.graph.groups[template], grounding.templates[template]
    return {
        tuple(int(v[k]) for v in group.scope): {info.feature_name(f): x for f, x in group.features.row(k)}
        for k in range(group.n_factors)
    }


def test_states_are_in_order_of_keys():
    found = ground("template prior(p: Page) over p.category")
    assert [found.variable_name(k) for k in range(4)] == [f"Page({k}).category" for k in (2, 4, 10, 30)]
    assert found.states.tolist() == [-1, 1, 0, 2]
    assert found.graph.cardinality.tolist() == [3, 3, 3, 3]
    assert scopes(found) == [(0,), (1,), (2,), (3,)]
    assert found.graph.layout.size == 3


def test_keyed_bag_has_weights_for_each_word():
    text = "template word(p: Page, w: Word) where w in p.words over p.category per w"
    one = ("1",)
    assert rows(ground(text)) == {
        (0,): {(("exam",), *one): 1.0},
        (1,): {(("prof",), *one): 1.0},
        (2,): {(("exam",), *one): 1.0, (("grade",), *one): 1.0},
    }
    assert ground(text).graph.layout.size == 9  # exam, grade, prof by three categories
    assert ground(text).templates[0].bindings == 4


def test_bag_feature_has_counts():
    found = ground("template word(p: Page) over p.category by p.words")
    group, info = found.graph.groups[0], found.templates[0]
    counted = {int(v): sorted(x for _, x in group.features.row(k)) for k, v in enumerate(group.scope[0])}
    assert {v: x for v, x in counted.items() if x} == {0: [4.0], 1: [1.0], 2: [1.0, 3.0]}
    assert info.bindings == 4
    assert found.graph.layout.size == 9


def test_duplicate_links_count_once_and_self_links_are_included():
    found = ground("template linked(a: Page, b: Page) where Link(a, b) over a.category, b.category")
    assert scopes(found) == [(2, 0), (2, 1), (2, 2), (3, 0)]
    assert found.graph.layout.size == 9


def test_distinct_binders_need_a_condition():
    found = ground("template linked(a: Page, b: Page) where Link(a, b) and a != b over a.category, b.category")
    assert scopes(found) == [(2, 0), (2, 1), (3, 0)]


def test_pages_cited_by_same_pages_are_one_pair():
    schema = PAGES + "derive Cocited(a: Page, b: Page) where Link(p, a) and Link(p, b) and a < b\n"
    text = "template cocited(a: Page, b: Page) where Cocited(a, b) over a.category == b.category by 1, a.length"
    found = ground(text, schema)
    # 10 cites 2, 4 and 10 itself; 30 cites only 2.
    assert rows(found) == {
        (0, 1): {((), "1"): 1.0, ((), "a.length"): pytest.approx(math.e)},
        (0, 2): {((), "1"): 1.0, ((), "a.length"): pytest.approx(math.e)},
        (1, 2): {((), "1"): 1.0, ((), "a.length"): -1.0},
    }
    assert found.graph.groups[0].patterns.ravel().tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert found.graph.layout.size == 2


def test_existential_name_does_not_multiply_factors():
    text = "template twice(a: Page) where Link(p, a) over a.category"
    assert scopes(ground(text)) == [(0,), (1,), (2,)]  # 2 is cited by two pages
    assert ground(text).templates[0].bindings == 3
    bound = "template twice(a: Page, p: Page) where Link(p, a) over a.category"
    assert ground(bound).templates[0].bindings == 4
    assert rows(ground(bound)) == {(0,): {((), "1"): 2.0}, (1,): {((), "1"): 1.0}, (2,): {((), "1"): 1.0}}


def test_binding_with_missing_key_has_no_factor():
    found = ground("template school(p: Page) over p.category per p.school")
    assert rows(found) == {(0,): {(("cmu",), "1"): 1.0}, (2,): {(("mit",), "1"): 1.0}, (3,): {(("mit",), "1"): 1.0}}
    assert found.graph.layout.size == 6


def test_missing_evidence():
    def satisfying(condition):
        return [v for (v,) in scopes(ground(f"template t(p: Page) where {condition} over p.category"))]

    # lengths of the variables: e, -1, 1, missing
    assert satisfying("p.length > 0") == [0, 2]
    assert satisfying("not p.length > 0") == [1, 3]
    assert satisfying("p.length != 7") == [0, 1, 2]
    assert satisfying("log(p.length) <= 1") == [0, 2]  # the logarithm of -1 is missing
    assert satisfying("not log(p.length) <= 5") == [1, 3]
    assert satisfying('p.length > 0 => p.school == "mit"') == [1, 2, 3]
    assert satisfying("1 / (p.length - 1) < 100") == [0, 1]
    assert satisfying("p.length == p.length") == [0, 1, 2]


def test_missing_features_are_zero():
    found = ground("template t(p: Page) over p.category by 1, log(p.length), p.length + 1")
    assert rows(found) == {
        (0,): {
            ((), "1"): 1.0,
            ((), "log(p.length)"): pytest.approx(1.0),
            ((), "p.length + 1"): pytest.approx(math.e + 1),
        },
        (1,): {((), "1"): 1.0},
        (2,): {((), "1"): 1.0, ((), "p.length + 1"): 2.0},
        (3,): {((), "1"): 1.0},
    }


def test_vector_has_a_feature_for_each_component():
    found = ground("template t(a: Page, b: Page) where Link(a, b) and a != b over a.category, b.category by b.v, 1")
    group = found.graph.groups[0]
    by_scope = {tuple(int(v[k]) for v in group.scope): dict(group.features.row(k)) for k in range(3)}
    assert by_scope == {(2, 0): {0: 2.0, 2: 1.0}, (2, 1): {0: -1.0, 1: 0.5, 2: 1.0}, (3, 0): {0: 2.0, 2: 1.0}}
    assert found.graph.layout.size == 27


@pytest.mark.parametrize(
    ("nearest", "pairs"),
    [
        # points on a line: a 0, b 1, c -1, d 3; the distance of a to b and to c is 1
        ("nearest 1 by distance", [("a", "b"), ("b", "a"), ("c", "a"), ("d", "b")]),
        ("nearest 1 by dot", [("a", "b"), ("b", "d"), ("c", "a"), ("d", "b")]),
        # a has norm 0: its cosine with any vector is 0
        ("nearest 1 by cosine", [("a", "b"), ("b", "d"), ("c", "a"), ("d", "b")]),
        (
            "nearest 2 by distance",
            [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b"), ("d", "a"), ("d", "b")],
        ),
        ("nearest 9 by distance", [(x, y) for x in "abcd" for y in "abcd" if x != y]),
    ],
)
def test_nearest_breaks_ties_by_lower_key(nearest, pairs):
    schema = f"""
    entity Thing {{ predict red : bool  v : vector }}
    derive Near(x: Thing, y: Thing) = {nearest}(x.v, y.v)
    """
    table = pd.DataFrame(
        {"id": ["d", "c", "b", "a"], "red": [True, False, None, None], "v": [[3.0], [-1.0], [1.0], [0.0]]}
    )
    found = ground("template t(x: Thing, y: Thing) where Near(x, y) over x.red, y.red", schema, {"thing": table})
    assert scopes(found) == sorted(("abcd".index(x), "abcd".index(y)) for x, y in pairs)
    assert found.states.tolist() == [-1, -1, 0, 1]


def test_formula_has_one_pattern():
    schema = "domain Level = 1..3\nentity Page { predict level : Level  predict spam : bool }\n"
    table = {"page": pd.DataFrame({"id": ["x", "y"], "level": [3, None], "spam": [None, False]})}
    found = ground("template t(p: Page) over p.spam => p.level <= 2", schema, table)
    # scope: spam, level; not spam, or a level of 1 or 2
    assert found.graph.groups[0].patterns.ravel().tolist() == [1, 1, 1, 1, 1, 0]
    assert scopes(found) == [(2, 0), (3, 1)]
    assert found.states.tolist() == [2, -1, -1, 0]
    assert np.array(found.graph.cardinality).tolist() == [3, 3, 2, 2]


def test_order_of_conjuncts_does_not_matter():
    model = """
    entity E { predict s : bool  length : real }
    relation Link(a: E, b: E)
    template one(a: E, b: E) where a == b and (Link(p, a) or Link(p, b)) and p.length > 3 over a.s
    template two(a: E, b: E) where p.length > 3 and a == b and (Link(p, a) or Link(p, b)) over a.s
    """
    page = pd.DataFrame({"id": ["a", "b", "c", "d"], "s": [True] * 4, "length": [1.0, 5.0, None, 10.0]})
    link = pd.DataFrame({"a": ["a", "b", "a"], "b": ["b", "c", "c"]})
    grounding = relcrf.parse(model).ground(relcrf.Dataset({"e": page, "link": link}))
    for group in grounding.graph.groups:
        assert [grounding.variable_name(int(v)) for v in group.scope[0]] == ["E(c).s"]


@pytest.mark.parametrize(
    ("one", "other", "entities"),
    [
        # only p = d (length 10) has a length above 9; it links to b
        ("not Link(p, a)", "p.length > 9", "acd"),
        ("not Link(p, a)", "not (p.length > 1 or p.length < 1)", "abcd"),  # p = c, without a length and links
        ("not Link(p, a)", "p.length > 9 and a.length > 1", "d"),
        ("(Link(p, a) or a.length > 9)", "p.length > 9", "bd"),
        ("not Link(p, a)", "count { q where Link(p, q) } > 1", "ad"),  # p = a
        ("(Link(p, a) or a.length > 9)", "not exists { Link(p, q) }", "d"),  # p = c
    ],
)
def test_operand_and_negated_relation_have_the_same_entity(one, other, entities):
    page = {"id": ["a", "b", "c", "d"], "s": [True] * 4, "length": [1.0, 1.0, None, 10.0]}
    link = {"a": ["a", "a", "b", "d"], "b": ["b", "c", "a", "b"]}
    declarations = "entity E { predict s : bool  length : real }\nrelation Link(a: E, b: E)\n"
    for where in (f"{one} and {other}", f"{other} and {one}"):
        model = relcrf.parse(f"{declarations}template t(a: E) where {where} over a.s")
        grounding = model.ground({"e": page, "link": link})
        assert "".join(grounding.instances("t")["a"].tolist()) == entities
