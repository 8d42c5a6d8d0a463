"""Random pairs that a random relation does not admit, and their factors, compared with plain loops over the tables."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.grounding import random_pairs

DEDUPE = """
entity Person { name: string, town: string, age: integer }
derive Block(a: Person, b: Person) where a < b and a.name == b.name
predict relation same(a: Person, b: Person) where Block(a, b)
template share(a: Person, b: Person) over same(a, b)
template town(a: Person, b: Person) where a.town == b.town over same(a, b)
template age(a: Person, b: Person) over same(a, b) per b.age
template chain(a: Person, b: Person, c: Person) over same(a, b), same(b, c)
"""

LINK = """
entity Left { name: string }
entity Right { name: string }
predict relation same(a: Left, b: Right) where a.name == b.name
template share(a: Left, b: Right) over same(a, b)
"""


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    towns = np.where(rng.random(n) < 0.2, None, rng.choice(["here", "there"], n))
    return pd.DataFrame(
        {"id": range(n), "name": rng.choice(list("abcdef"), n), "town": towns, "age": rng.integers(3, size=n)}
    )


def pairs_of(group, grounding):
    """Return the factors of a group as a set of (pair, key)."""
    keys = grounding.templates[group.block].keys
    levels = group.features.block_of(np.arange(group.n_factors)).tolist()
    texts = [keys.values[k][0] if keys else "" for k in levels]
    return list(zip(group.scope[0].tolist(), texts, strict=True))


def test_all_pairs_that_are_not_admitted_and_their_factors():
    """With few entities, a million draws contain every pair."""
    table = people(30)
    grounding = relcrf.parse(DEDUPE).ground(relcrf.Dataset({"person": table}))
    (found,) = grounding.random_pairs
    rows = list(table.itertuples())
    rest = [(a, b) for a, b in itertools.combinations(rows, 2) if a.name != b.name]
    assert found.relation == "same"
    assert found.n_possible == found.n_pairs == len(rest)
    by_template = {grounding.templates[group.block].name: pairs_of(group, grounding) for group in found.groups}
    assert set(by_template) == {"share", "town", "age"}, "not the template over two variables"
    assert by_template["share"] == [(k, "") for k in range(len(rest))]
    assert by_template["town"] == [(k, "") for k, (a, b) in enumerate(rest) if a.town is not None and a.town == b.town]
    assert sorted(by_template["age"]) == [(k, str(b.age)) for k, (_, b) in enumerate(rest)]


def test_conditions_that_admit_pairs_are_not_required_of_random_pairs():
    """A template may repeat the condition of the relation, with other names."""
    table = people(30)
    text = DEDUPE.replace("where a.town == b.town over", "where a.town == b.town and Block(a, b) over")
    text = text.replace(
        "age(a: Person, b: Person) over same(a, b) per b.age",
        "age(x: Person, y: Person) where Block(x, y) over same(x, y) per y.age",
    )
    plain, repeated = (relcrf.parse(each).ground(relcrf.Dataset({"person": table})) for each in (DEDUPE, text))
    for one, other in zip(plain.random_pairs[0].groups, repeated.random_pairs[0].groups, strict=True):
        assert pairs_of(one, plain) == pairs_of(other, repeated) and one.n_factors > 0


def test_a_key_that_no_admitted_pair_has_is_dropped():
    table = people(30)
    table.loc[29, ["name", "age"]] = ["only", 99]
    grounding = relcrf.parse(DEDUPE).ground(relcrf.Dataset({"person": table}))
    (found,) = grounding.random_pairs
    keys = {key for group in found.groups for _, key in pairs_of(group, grounding)}
    admitted = {str(b.age) for a, b in itertools.combinations(table.itertuples(), 2) if a.name == b.name}
    assert keys - {""} == admitted and "99" not in admitted


@pytest.mark.parametrize(
    ("order", "n_orders"),
    [
        ("a < b", 1),
        ("a > b", 1),
        ("(a.age < b.age or a.age == b.age and a < b)", 1),
        ("a.age <= b.age", 2),
        ("a != b", 2),
    ],
)
def test_pairs_that_are_admitted_in_the_other_order_are_not_random_pairs(order, n_orders):
    table = people(30)
    text = DEDUPE.replace("a < b", f"a != b and {order}")
    (found,) = relcrf.parse(text).ground(relcrf.Dataset({"person": table})).random_pairs
    n_others = sum(a != b for a, b in itertools.combinations(table["name"], 2))
    assert found.n_possible == found.n_pairs == n_others * n_orders


def test_comparison_with_several_keys_for_a_pair_is_left_out():
    """A key that no admitted pair has changes the dictionary of the keys."""
    text = DEDUPE.replace(
        "town(a: Person, b: Person) where a.town == b.town over same(a, b)",
        "town(a: Person, b: Person, c: Person) where c.town == b.town over same(a, b) per c.age, c.name",
    )
    table = people(30)
    table.loc[29, ["name", "town"]] = ["only", "alone"]
    grounding = relcrf.parse(text).ground(relcrf.Dataset({"person": table}))
    (found,) = grounding.random_pairs
    assert {grounding.templates[group.block].name for group in found.groups} == {"share", "age"}


def test_pairs_of_two_entity_types(monkeypatch):
    monkeypatch.setattr(random_pairs, "SAMPLE_SIZE", 100)
    left, right = people(40, 1)[["id", "name"]], people(50, 2)[["id", "name"]]
    grounding = relcrf.parse(LINK).ground(relcrf.Dataset({"left": left, "right": right}))
    (found,) = grounding.random_pairs
    n_admitted = sum(a == b for a, b in itertools.product(left["name"], right["name"]))
    assert found.n_possible == 40 * 50 - n_admitted
    assert 50 < found.n_pairs < 100


def test_it_is_repeatable_and_leaves_the_ground_graph_alone():
    table = people(200)
    grounding = relcrf.parse(DEDUPE).ground(relcrf.Dataset({"person": table}))
    before = [(group.block, group.n_factors) for group in grounding.graph.groups]
    first = grounding.random_pairs
    second = random_pairs.ground_random_pairs(grounding.bound, grounding.templates)
    for one, other in zip(first[0].groups, second[0].groups, strict=True):
        np.testing.assert_array_equal(one.scope[0], other.scope[0])
    assert before == [(group.block, group.n_factors) for group in grounding.graph.groups]


@pytest.mark.parametrize("where", ["", " where a != b"])
def test_a_relation_that_admits_all_pairs_has_none(where):
    text = (
        LINK.replace(" where a.name == b.name", "")
        if not where
        else DEDUPE.replace("a < b and a.name == b.name", "a != b")
    )
    table = people(5)
    data = {"left": table[["id", "name"]], "right": table[["id", "name"]]} if not where else {"person": table}
    assert relcrf.parse(text).ground(relcrf.Dataset(data)).random_pairs == ()
