"""Conditions with `or` whose operands are equalities of attributes: each is a join, not a test of all pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import relcrf

DERIVED = """
derive Block(a: Person, b: Person) where {where}
predict relation same(a: Person, b: Person) where Block(a, b)
"""
RANDOM = "predict relation same(a: Person, b: Person) where {where}"
FORMS = pytest.mark.parametrize("relations", [DERIVED, RANDOM], ids=["derived", "random"])


def parse(relations, where):
    return relcrf.parse(
        "entity Person { name: string, town: string, age: integer }\n"
        f"{relations.format(where=where)}\ntemplate share(a: Person, b: Person) over same(a, b)"
    )


CONDITIONS = {
    "a < b and (a.name == b.name or a.town == b.town)": lambda a, b: (
        a.id < b.id and (equal(a.name, b.name) or equal(a.town, b.town))
    ),
    "(a.name == b.name and a.town == b.town or a.town == b.town and a.age == b.age) and a != b": lambda a, b: (
        a.id != b.id
        and ((equal(a.name, b.name) and equal(a.town, b.town)) or (equal(a.town, b.town) and equal(a.age, b.age)))
    ),
    "a < b and (a.name == b.name or a.town == b.town) and a.age > b.age": lambda a, b: (
        a.id < b.id and (equal(a.name, b.name) or equal(a.town, b.town)) and a.age > b.age
    ),
    "a.name == b.name or a.town == b.town": lambda a, b: equal(a.name, b.name) or equal(a.town, b.town),
}


def equal(x, y):
    return x is not None and x == y


def people(n, n_values, seed=0):
    rng = np.random.default_rng(seed)
    name, town = (
        np.where(rng.random(n) < 0.1, None, rng.integers(n_values, size=n).astype(str)).astype(object) for _ in range(2)
    )
    return pd.DataFrame({"id": range(n), "name": name, "town": town, "age": rng.integers(5, size=n)})


@FORMS
@pytest.mark.parametrize("where", CONDITIONS)
def test_pairs_equal_those_of_plain_loops(relations, where):
    table = people(40, 6)
    fitted = parse(relations, where).ground(relcrf.Dataset({"person": table}))
    connection = fitted.bound.connection
    found = set(connection.execute('SELECT a0, a1 FROM "rel.same"').fetchall())
    rows = list(table.itertuples())
    assert found == {(a.id, b.id) for a, b in itertools.product(rows, repeat=2) if CONDITIONS[where](a, b)}


@FORMS
@pytest.mark.parametrize("where", CONDITIONS)
def test_the_number_of_bindings_is_bounded_by_the_joins(relations, where):
    """A million combinations of 1,000 people exceed the budget; the joins have about 10,000 rows."""
    table = people(1000, 200)
    grounding = parse(relations, where).ground(relcrf.Dataset({"person": table}), budget=50_000)
    assert 0 < grounding.graph.n_variables < 20_000


@pytest.mark.parametrize("name", ["Alike", "alike", "other"])
def test_disjunctions_of_declarations_with_similar_names_are_separate(name):
    text = f"""
    entity Person {{ predict adult: bool, name: string, town: string, age: integer }}
    derive Alike(a: Person, b: Person) where a < b and (a.name == b.name or a.town == b.town)
    template joined(a: Person, b: Person) where Alike(a, b) over a.adult, b.adult
    template {name}(a: Person, b: Person) where a < b and (a.town == b.town or a.age == b.age) over a.adult, b.adult
    """
    table = people(40, 6).assign(adult=True)
    grounding = relcrf.parse(text).ground({"person": table})
    rows = list(table.itertuples())
    alike = "a < b and (a.name == b.name or a.town == b.town)"
    for template, condition in (
        ("joined", CONDITIONS[alike]),
        (name, lambda a, b: a.id < b.id and (equal(a.town, b.town) or a.age == b.age)),
    ):
        found = grounding.instances(template).to_pandas()
        expected = {(str(a.id), str(b.id)) for a, b in itertools.product(rows, repeat=2) if condition(a, b)}
        assert set(zip(found["a"], found["b"], strict=True)) == expected
