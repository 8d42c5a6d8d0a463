"""Aggregates over pairs of entities equal those of a plain evaluation and those that DuckDB computes row by row."""

import numpy as np
import pandas as pd
import pytest

from relcrf.api import parse
from relcrf.data.dataset import Dataset
from relcrf.grounding import entity_values
from relcrf.grounding.entity_values import ValueComputer

MODEL = """
domain Colour = { red, blue }

entity Person {
    predict loyal : bool
    age           : real
    colour        : Colour
    joined        : datetime
}

entity Product {
    cost : real
}

relation Bought(person: Person, product: Product)

"""
N_PERSONS, N_PRODUCTS = 25, 8
RNG = np.random.default_rng(3)
AGE = np.where(RNG.random(N_PERSONS) < 0.3, np.nan, RNG.integers(20, 60, N_PERSONS))
COLOUR = RNG.choice(["red", "blue", None], N_PERSONS)
COST = np.where(RNG.random(N_PRODUCTS) < 0.3, np.nan, RNG.normal(size=N_PRODUCTS).round(2))
BOUGHT = sorted({(int(a), int(b)) for a, b in zip(RNG.integers(20, size=40), RNG.integers(8, size=40), strict=True)})
TABLES = {
    "Person": pd.DataFrame(
        {
            "id": [f"c{k:02d}" for k in range(N_PERSONS)],
            "loyal": RNG.random(N_PERSONS) < 0.5,
            "age": AGE,
            "colour": COLOUR,
            "joined": pd.date_range("2020-01-01", periods=N_PERSONS, freq="D"),
        }
    ),
    "Product": pd.DataFrame({"id": [f"p{k}" for k in range(N_PRODUCTS)], "cost": COST}),
    "Bought": pd.DataFrame([(f"c{a:02d}", f"p{b}") for a, b in BOUGHT], columns=["person", "product"]),
}

PRODUCTS = [[p for c, p in BOUGHT if c == person] for person in range(N_PERSONS)]
OTHERS = [[x for p in PRODUCTS[c] for x, q in BOUGHT if q == p and x != c] for c in range(N_PERSONS)]
"""The other buyers of each product of a person, once for each common product."""

PATH = "Bought(c, p) and Bought(x, p) and x != c"


def known(values):
    return [value for value in values if not np.isnan(value)]


def of_known(function, groups, values, empty=np.nan):
    return [function(found) if (found := known([values[k] for k in group])) else empty for group in groups]


EXPECTED = {
    "count { p where Bought(c, p) }": [len(group) for group in PRODUCTS],
    "count { p where Bought(c, p) and p.cost > 0 }": [sum(COST[p] > 0 for p in group) for group in PRODUCTS],
    f"count {{ x where {PATH} }}": [len(set(group)) for group in OTHERS],
    f'count {{ x where {PATH} and x.colour == "red" }}': [sum(COLOUR[x] == "red" for x in set(g)) for g in OTHERS],
    f'count {{ x where {PATH} and not x.colour == "red" }}': [sum(COLOUR[x] != "red" for x in set(g)) for g in OTHERS],
    f"count {{ x where {PATH} and x.colour == c.colour }}": [
        sum(COLOUR[x] is not None and COLOUR[x] == COLOUR[c] for x in set(group)) for c, group in enumerate(OTHERS)
    ],
    "sum { p.cost where Bought(c, p) }": of_known(np.sum, PRODUCTS, COST, 0.0),
    f"mean {{ x.age where {PATH} }}": of_known(np.mean, OTHERS, AGE),
    f"sum {{ 2 * x.age where {PATH} }}": of_known(lambda found: 2 * np.sum(found), OTHERS, AGE, 0.0),
    f"min {{ x.age where {PATH} and x.age > 40 }}": of_known(np.min, OTHERS, np.where(AGE > 40, AGE, np.nan)),
    f"max {{ x.age where {PATH} }}": of_known(np.max, OTHERS, AGE),
    f'max {{ x.joined - "2020-01-01" where {PATH} }}': of_known(np.max, OTHERS, 86400.0 * np.arange(N_PERSONS)),
}


@pytest.mark.parametrize("text", EXPECTED)
@pytest.mark.parametrize("max_rows", [0, entity_values.MAX_PAIR_ROWS], ids=["queries", "pairs"])
def test_aggregates(text, max_rows, monkeypatch):
    monkeypatch.setattr(entity_values, "MAX_PAIR_ROWS", max_rows)
    model = parse(f"{MODEL}feature f(c: Person) = {text}\ntemplate t(c: Person) over c.loyal by f(c)\n")
    computed, compute = [], ValueComputer._compute_numbers
    monkeypatch.setattr(
        ValueComputer, "_compute_numbers", lambda *call: computed.append(compute(*call)) or computed[-1]
    )
    model.ground(Dataset(TABLES))
    np.testing.assert_allclose(computed[-1][:, 0], EXPECTED[text], rtol=1e-12)


def test_models_share_values_and_pairs_of_aggregates(monkeypatch):
    dataset, compute, texts = Dataset(TABLES), ValueComputer._few_pairs, []
    monkeypatch.setattr(ValueComputer, "_few_pairs", lambda *call: texts.append(call[2]) or compute(*call))
    for text in (*EXPECTED, *EXPECTED):
        parse(f"{MODEL}feature f(c: Person) = {text}\ntemplate t(c: Person) over c.loyal by f(c)\n").ground(dataset)
    assert len(texts) == 3  # the products of a person, the other buyers, and those of the same colour
