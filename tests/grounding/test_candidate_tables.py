"""Candidates with weight tables: an edge has exactly the factors of the template written for its keys."""

import numpy as np
import pytest
from generated import generated
from ground_graphs import engine_features, variable
from hypothesis import given
from hypothesis import strategies as st
from random_models import DECLARATIONS, frames, naive_model, tables

import relcrf
from relcrf.data.binding import bind
from relcrf.errors import UsageError
from relcrf.graph.candidates import KeyRelation, TableSpace
from relcrf.grounding.ground import ground

TABLES = [
    "(a: E, v: W, w: W) where v < w over U(a, v), U(a, w) per v, w",
    "(a: E, j: C, k: C) where j != k over Q(a, j), Q(a, k) per j, k",
    "(a: E, j: C, k: C) where j < k over symmetric Q(a, j), Q(a, k) per k, j",
    "(a: E, b: E) where a != b over a.d, b.d per a, b",
    "(a: E, b: E) where a < b over symmetric a.d, b.d per a, b",
    "(a: E, f: F) over f.d, a.l per a, f",
    "(a: E, b: E, k: C) over a.d, Q(b, k) per a, k, b",
    "(a: E, w: W, k: C) where a.t over Q(a, k), U(a, w) per w, k",
    "(a: E, m: E, w: W, k: C) where R(a, m) over U(a, w), Q(m, k) per k, w",
    "(a: E, b: E, c: E) where b < c and b.r > 0 over P(a, b), P(a, c) per b, c",
    "(a: E, b: E, j: C, k: C) where a < b over Q(a, j), Q(b, k) per j, b, k, a",
    "(a: E, b: E, j: C, k: C) where j != k over Q(a, j), Q(b, k) per a, j, b, k",
    "(a: E, m: E, j: C, k: C) where R(a, m) and a != m and j <= k over Q(a, j), Q(m, k) per j, k",
]


@generated(14)
@given(tables(), st.lists(st.sampled_from(TABLES), min_size=1, max_size=5, unique=True), st.data())
def test_edge_has_factors_of_template_for_its_keys(data, texts, draw):
    candidates = "\n".join(f"candidates c{k}{text}" for k, text in enumerate(texts))
    model = relcrf.parse(f"{DECLARATIONS}{candidates}\n")
    naive = naive_model(model.spec, *data)
    if not naive.domains["W"]:
        return
    grounding = ground(bind(model.spec, relcrf.Dataset(frames(*data))))
    keys = {}
    for space, template in zip(grounding.candidates, model.spec.templates, strict=True):
        assert isinstance(space.pairs, TableSpace) and space.pairs.name == template.name
        all_texts = space.pair_texts(space.pairs.all_pairs())
        assert len(set(all_texts)) == len(all_texts) == space.pairs.n_pairs
        chosen = draw.draw(st.lists(st.sampled_from(all_texts), unique=True)) if all_texts else []
        keys[template.name] = (*chosen, tuple("unknown" for _ in template.per))
    extended = grounding.with_candidates(keys)
    for template in model.spec.templates:
        *chosen, _ = keys[template.name]
        expected = sorted((key[0], scope) for scope, _, *key, _ in naive.factors(template) if key[0] in chosen)
        (info,), found = [info for info in extended.templates if info.name == template.name], []
        assert info.keys.values == keys[template.name]
        for group in extended.groups(template.name):
            assert group.n_patterns == len(info.patterns)
            for n in range(group.n_factors):
                ((key, _),) = engine_features(group.features, info, n)
                found.append((key, tuple(variable(extended, int(slot[n])) for slot in group.scope)))
        assert sorted(found) == expected


def grounded(text, declarations=DECLARATIONS, **tables):
    return relcrf.parse(f"{declarations}candidates c{text}\n").ground(relcrf.Dataset(tables)).candidates


ROWS = "domain Node = open\ndomain Level = 1..3\nentity Row\npredict relation value(r: Row, n: Node): Level\n"
WORLD = {
    "row": {"id": ["r1", "r2"]},
    "value": {"r": ["r1", "r1", "r1", "r2"], "n": ["n1", "n2", "n10", "n2"], "value": [1, 2, 3, 1]},
}


def test_patterns_of_edge_weights():
    over = "(r: Row, s: Node, t: Node) where s < t over {} value(r, s), value(r, t) per s, t l1 2.0"
    (full,) = grounded(over.format(""), ROWS, **WORLD)
    np.testing.assert_array_equal(full.pairs.patterns, np.eye(9))
    assert full.patterns[:4] == ("1, 1", "1, 2", "1, 3", "2, 1")
    assert full.pairs.relation == KeyRelation.ASCENDING and full.pairs.l1 == 2.0
    assert [side.truth.shape for side in full.pairs.sides] == [(3,), (3,)]
    assert full.pair_texts(full.pairs.all_pairs()) == (("n1", "n10"), ("n1", "n2"), ("n10", "n2"))
    (symmetric,) = grounded(over.format("symmetric"), ROWS, **WORLD)
    assert symmetric.patterns == ("1, 1", "1, 2", "1, 3", "2, 2", "2, 3", "3, 3")
    assert symmetric.pairs.patterns.shape == (9, 6) and (symmetric.pairs.patterns.sum(axis=1) == 1).all()
    assert symmetric.make_block((("n1", "n2"),)).weights.size == 6


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "(r: Row, s: Node, t: Node, u: Node) over value(r, s), value(r, t), value(r, u) per s, t, u",
            "lists 3 terms",
        ),
        ("(r: Row, s: Node, t: Node) over value(r, s), value(r, t) per s", "no key in 'per'"),
        ("(r: Row, s: Node, t: Node) where s == t over value(r, s), value(r, t) per s, t", "not a supported condition"),
        ("(r: Row, s: Node, t: Node) where s <= t over value(r, s), value(r, t) per s, t", "to the same variable"),
        ("(r: Row, s: Node, t: Node) over value(r, s), value(r, t) per s, t by 2", "cannot have features in 'by'"),
        ("(r: Row, s: Node) over value(r, s) per s", "not a conjunction"),
    ],
)
def test_invalid_pairs_of_terms_raise_e391(line, why):
    with pytest.raises(UsageError, match=rf"E391[\s\S]*{why}"):
        grounded(line, ROWS, **WORLD)


def test_too_large_tables_raise_e321():
    text = "domain Wide = 1..65\nentity A { predict x : Wide }\n"
    with pytest.raises(UsageError, match=r"E321[\s\S]*4,225 states"):
        grounded("(a: A, b: A) where a < b over a.x, b.x per a, b", text, a={"id": ["p", "q"], "x": [1, 2]})


def test_triples_with_table_pairs_raise_e393():
    text = (
        "t(r: Row, s: Node, t: Node, u: Node)"
        " over value(r, s) == 1 and value(r, t) == 1 and value(r, u) == 1 per s, t, u\n"
        "candidates p(r: Row, s: Node, t: Node) where s < t over value(r, s), value(r, t) per s, t"
    )
    with pytest.raises(UsageError, match="E393"):
        grounded(text, ROWS, **WORLD)


def test_initial_weights_of_tables():
    text = ROWS + 'template pair(r: Row) over value(r, "n1"), value(r, "n2") init 1, 2, 3, 4, 5, 6, 7, 8, 9\n'
    text += "template prior(r: Row, n: Node) over value(r, n) per n init 0.5, -0.5, 0\n"
    layout = relcrf.parse(text).ground(relcrf.Dataset(WORLD)).graph.layout
    np.testing.assert_array_equal(layout.initial(), [*range(1, 10), *[0.5, -0.5, 0.0] * 3])


def test_wrong_number_of_initial_weights_for_open_domain_raises_e145():
    text = "domain Colour = open\nentity A { predict x : Colour }\ntemplate t(a: A) over a.x init 1, 2, 3\n"
    model = relcrf.parse(text)
    layout = model.ground(relcrf.Dataset({"a": {"id": [1, 2, 3], "x": ["u", "v", "w"]}})).graph.layout
    np.testing.assert_array_equal(layout.initial(), [1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match=r"E145[\s\S]*'t' has 3 numbers, but there are 2 patterns"):
        model.ground(relcrf.Dataset({"a": {"id": [1, 2], "x": ["u", "v"]}}))
