"""The factors over numbers: those of a small model, computed from its tables by plain loops."""

import numpy as np
import pytest

import relcrf
from relcrf.backends.problems import numeric_targets
from relcrf.graph.numeric_graph import discrete_part, indicator_weights, lacks_states, numeric_graph

TEXT = """
domain Kind = { a, b, c }
domain Tag = open
entity House {
    predict price : real
    predict kind : Kind
    size : real
    tags : bag of Tag
}
entity Shop { predict rent : real }
relation Near(a: House, b: House)
relation Visit(h: House, s: Shop)
template prior(h: House) over h.kind
template size(h: House) over h.price by 1, h.size
template tag(h: House, t: Tag) where t in h.tags over h.price per t
template kind(h: House) over h.price, h.kind
template visit(h: House, s: Shop) where Visit(h, s) over s.rent by h.size
template near(a: House, b: House) where Near(a, b) over a.price, b.price by 1, a.size
template shop(h: House, s: Shop) where Visit(h, s) over h.price, s.rent
"""
SIZE = [0.0, 0.5, 1.0, 1.5, -2.0, 2.5]
KIND = ["a", "b", "c", None, "a", "b"]
PRICE, RENT = [1.0, 2.0, None, 4.0, 5.0, 6.0], [1.5, None, 3.0]
TAGS = [(0, "x"), (0, "y"), (1, "x"), (3, "z"), (3, "y"), (3, "x")]
NEAR = [(0, 1), (1, 0), (1, 2), (4, 5)]
VISITS = [(0, 0), (1, 0), (2, 1), (3, 1)]


@pytest.fixture(scope="module")
def grounding():
    def columns(pairs, *names):
        return dict(zip(names, map(list, zip(*pairs, strict=True)), strict=True))

    house = {"id": range(6), "price": PRICE, "kind": KIND, "size": SIZE}
    shop = {"id": range(3), "rent": RENT}
    near = [*NEAR, (3, 3)]  # the factor over a price and itself is omitted
    pairs = {"house_tags": columns(TAGS, "house", "tag"), "near": columns(near, "a", "b")}
    data = relcrf.Dataset({"house": house, "shop": shop, **pairs, "visit": columns(VISITS, "h", "s")})
    return relcrf.parse(TEXT).ground(data)


@pytest.fixture(scope="module")
def numeric(grounding):
    return numeric_graph(numeric_targets(grounding), grounding.states)


def weights_by_name(grounding, weights):
    """Return the matrix of each template's weights, with a row for each feature of each key."""
    return {info.name: grounding.graph.layout.matrix(weights, k) for k, info in enumerate(grounding.templates)}


def expected_moments(w):
    """Return the mean and the log precision of each house and shop, without those of the attribute."""
    rows = [w["size"][0] + size * w["size"][1] for size in SIZE] + [np.zeros(2) for _ in RENT]
    for house, tag in TAGS:
        rows[house] = rows[house] + w["tag"]["xyz".index(tag)]
    for house, kind in enumerate(KIND):
        if kind is not None:
            rows[house] = rows[house] + w["kind"].reshape(2, 3)[:, "abc".index(kind)]
    for house, shop in VISITS:
        rows[6 + shop] = rows[6 + shop] + SIZE[house] * w["visit"][0]
    return np.array(rows).T


def test_numbers_and_their_factors(grounding, numeric):
    weights = np.random.default_rng(0).normal(size=grounding.graph.layout.size)
    w = weights_by_name(grounding, weights)
    assert numeric.variables.tolist() == [*range(6), *range(12, 15)]
    assert numeric.attribute.tolist() == [0] * 6 + [1] * 3
    mean, log_precision = expected_moments(w)
    np.testing.assert_allclose(numeric.mean @ weights, mean)
    np.testing.assert_allclose(numeric.log_precision @ weights, log_precision)
    ends = list(zip(numeric.first.tolist(), numeric.second.tolist(), strict=True))
    assert ends == [*NEAR, *((house, 6 + shop) for house, shop in VISITS)]
    pairs = [w["near"][0] + SIZE[a] * w["near"][1] for a, _ in NEAR] + [w["shop"][0]] * len(VISITS)
    np.testing.assert_allclose(numeric.difference @ weights, [difference for difference, _ in pairs])
    np.testing.assert_allclose(numeric.sum @ weights, [total for _, total in pairs])


def test_components_and_selections(grounding, numeric):
    component = numeric.component
    linked = [{0, 1, 2, 3, 6, 7}, {4, 5}, {8}]
    assert sorted(map(set, (np.flatnonzero(component == k).tolist() for k in range(3)))) == sorted(linked)
    weights = np.random.default_rng(0).normal(size=grounding.graph.layout.size)
    selected = numeric.select(np.array([1, 0, 1, 1, 1, 1, 1, 1, 0], dtype=bool))
    rows = [0, 2, 3, 4, 5, 6, 7]
    assert selected.variables.tolist() == numeric.variables[rows].tolist()
    assert selected.attribute.tolist() == [0] * 5 + [1] * 2
    ends = [(rows[a], rows[b]) for a, b in zip(selected.first, selected.second, strict=True)]
    assert ends == [(4, 5), (0, 6), (2, 7), (3, 7)]
    for name, kept in (("mean", rows), ("log_precision", rows), ("difference", [3, 4, 6, 7]), ("sum", [3, 4, 6, 7])):
        np.testing.assert_array_equal(getattr(selected, name) @ weights, (getattr(numeric, name) @ weights)[kept])
    alone = numeric.without_pairs()
    assert (alone.n_pairs, alone.difference.shape, alone.sum.shape) == (0, (0, len(weights)), (0, len(weights)))
    assert alone.mean is numeric.mean and len(set(alone.component.tolist())) == 9


def test_unknown_states_and_the_discrete_part(grounding):
    targets = numeric_targets(grounding)
    assert np.flatnonzero(lacks_states(targets, grounding.states)).tolist() == [3]
    np.testing.assert_array_equal(targets.values[:3], [1.0, 2.0, np.nan])
    np.testing.assert_array_equal(targets.mask, [True] * 6 + [False] * 6 + [True] * 3)
    discrete = discrete_part(grounding.graph)
    assert [group.block for group in discrete.groups] == [0] and discrete.numeric == ()
    assert discrete_part(discrete) is discrete and discrete.layout is grounding.graph.layout


def test_weights_of_indicators(grounding):
    """Features that are 0 or 1 in all factors, without those that are summed over bindings, such as those of tags."""
    found = weights_by_name(grounding, indicator_weights(numeric_targets(grounding)))
    expected = {"prior": [0], "size": [1, 0], "tag": [0, 0, 0], "kind": [1], "visit": [0], "near": [1, 0], "shop": [1]}
    assert {name: mask.all(axis=1).astype(int).tolist() for name, mask in found.items()} == expected
    assert all((mask.any(axis=1) == mask.all(axis=1)).all() for mask in found.values())
