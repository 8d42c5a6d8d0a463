"""Sizes before grounding: upper bounds, exact counts, plans equal to the ground graph; and the budget."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.data.binding import bind
from relcrf.errors import BudgetError
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.derive import create_derived_tables, make_lowering_context
from relcrf.grounding.estimate import count_exact_size, estimate_size
from relcrf.grounding.ground import create_relation_tables, ground
from relcrf.grounding.lower import lower_template
from relcrf.grounding.preview import plan_templates

DECLARATIONS = """
domain D = { x, y, z }
domain W = open
entity E { predict d : D  w : bag of W  g : integer  r : real }
entity F { predict f : bool  g : integer }
relation R(a: E, b: E)
relation S(a: E, f: F) { s: real }
"""

TEMPLATES = {
    "unary": "(e: E) over e.d",
    "number": "(e: E) over e.d by 1, e.r",
    "words": "(e: E, v: W) where v in e.w over e.d per v",
    "counted": "(e: E) over e.d by e.w",
    "linked_counted": "(e: E) where R(e, o) over e.d by e.w",
    "weighted": "(e: E, v: W) where v in e.w over e.d per v by 1, e.r",
    "neighbours": "(e: E, o: E) where R(e, o) over e.d by o.r",
    "by_group": "(e: E, o: E) where R(e, o) over e.d per o.g",
    "pair": "(a: E, b: E) where R(a, b) over a.d, b.d",
    "unequal": "(a: E, b: E) where R(a, b) and a != b over a.d == b.d",
    "both_ways": "(a: E, b: E) where R(a, b) and R(b, a) over a.d, b.d",
    "path": "(a: E, b: E) where R(a, p) and R(p, b) over a.d == b.d",
    "chain": "(a: E, b: E, c: E) where R(a, b) and R(b, c) over a.d, c.d",
    "triangle": "(a: E, b: E, c: E) where R(a, b) and R(b, c) and R(c, a) over a.d, b.d",
    "mixed": "(e: E, f: F) where S(e, f) over e.d, f.f per f.g by S(e, f).s",
    "group": "(e: E, f: F) where e.g == f.g over e.d, f.f",
    "cross": "(e: E, f: F) where e.g < f.g over e.d, f.f",
    "other_group": "(a: E, b: E) where a.g != b.g over a.d, b.d",
    "lower_group": "(a: E, b: E) where a.g < b.g over a.d, b.d",
    "linked_lower_group": "(a: E, b: E) where R(a, b) and a.g < b.g over a.d, b.d",
    "either": "(a: E, b: E) where a < b and (R(a, b) or R(b, a)) over a.d == b.d",
    "two_keys": "(a: E, b: E) where R(a, b) over a.d == b.d per a.g, b.g",
}


def dataset(seed, n=25):
    rng = np.random.default_rng(seed)
    thing = [f"e{k}" for k in range(n)]
    other = [f"f{k}" for k in range(n // 2)]

    def some(names, size):
        return rng.choice(names, size=size)

    pairs = pd.DataFrame({"a": some(thing, 60), "b": some(thing, 60)})
    ties = pd.DataFrame({"a": some(thing, 30), "f": some(other, 30), "s": 0.0}).drop_duplicates(["a", "f"])
    ties["s"] = rng.normal(size=len(ties))
    group = pd.array(rng.integers(5, size=n), dtype="Int64")
    group[:3] = pd.NA
    return relcrf.Dataset(
        {
            "e": pd.DataFrame({"id": thing, "d": some(["x", "y", "z"], n), "g": group, "r": rng.normal(size=n)}),
            "f": pd.DataFrame({"id": other, "f": rng.random(len(other)) < 0.5, "g": rng.integers(5, size=len(other))}),
            "e_w": pd.DataFrame({"e": some(thing, 80), "w": some([f"w{k}" for k in range(12)], 80)}),
            "r": pairs,
            "s": ties,
        }
    )


@pytest.fixture(scope="module")
def groundings():
    """Return the bound model of all templates on three datasets, with its plans and its grounding."""
    templates = "\n".join(f"template {name}{text}" for name, text in TEMPLATES.items())
    spec = relcrf.parse(DECLARATIONS + templates).spec
    found = []
    for seed in range(3):
        bound = bind(spec, dataset(seed))
        create_relation_tables(bound)
        plans = {planned.name: planned for planned in plan_templates(bound)}
        found.append((bound, plans, ground(bound)))
    return found


@pytest.mark.parametrize("name", TEMPLATES)
def test_plan_equals_ground_graph(groundings, name):
    for bound, plans, grounding in groundings:
        planned = plans[name]
        (group,) = grounding.groups(name)
        info = grounding.templates[group.block]
        assert planned.is_exact
        assert planned.bindings == info.bindings
        assert planned.factors == group.n_factors
        assert planned.weights == grounding.graph.layout.blocks[group.block].size
        assert planned.bytes == group.nbytes
        template = next(template for template in bound.spec.templates if template.name == name)
        lowered = lower_template(template, make_lowering_context(bound))
        size = estimate_size(DegreeCache(bound), lowered.plan)
        assert size.join_rows >= planned.bindings
        assert (
            count_exact_size(bound.connection, lowered.plan, replace(size, is_exact=False)).bindings == planned.bindings
        )
        assert not size.is_exact or size.bindings == planned.bindings


def test_pair_factors_take_8_bytes_and_words_4():
    spec = relcrf.parse(f"{DECLARATIONS}\ntemplate pair{TEMPLATES['pair']}\ntemplate words{TEMPLATES['words']}").spec
    pair, words = ground(bind(spec, dataset(0))).graph.groups
    assert pair.nbytes == 8 * pair.n_factors
    assert words.features.column.nbytes == 4 * len(words.features.column)
    assert words.features.values.nbytes == 0


def test_keyed_number_takes_12_bytes():
    spec = relcrf.parse(f"{DECLARATIONS}\ntemplate one(e: E) over e.d per e.g by e.r").spec
    (group,) = ground(bind(spec, dataset(0))).graph.groups
    assert group.nbytes == 12 * group.n_factors > 0


@pytest.mark.parametrize("name", ["cross", "chain", "unary"])
def test_template_over_budget_raises_before_grounding(name):
    bound = bind(relcrf.parse(f"{DECLARATIONS}\ntemplate {name}{TEMPLATES[name]}").spec, dataset(0))
    with pytest.raises(BudgetError, match=f"'{name}' would have .*more.* than the budget of 5"):
        ground(bound, budget=5)


def test_derived_relation_over_budget_raises_budget_error():
    text = DECLARATIONS + "\nderive Any(a: E, b: E) where a.g < b.g\ntemplate t(e: E) where Any(e, e) over e.d"
    bound = bind(relcrf.parse(text).spec, dataset(0))
    with pytest.raises(BudgetError, match="'Any' would have"):
        create_derived_tables(bound, budget=20)


def test_enormous_cross_product_is_rejected_without_counting():
    n = 200_000
    table = pd.DataFrame({"id": np.arange(n), "d": "x"})
    spec = relcrf.parse(
        "domain D = { x } entity E { predict d : D }\ntemplate t(a: E, b: E) where a != b over a.d, b.d"
    ).spec
    bound = bind(spec, relcrf.Dataset({"e": table}))
    (planned,) = plan_templates(bound)
    assert (planned.bindings, planned.is_exact) == (n * (n - 1), True)  # from degrees alone
    with pytest.raises(BudgetError, match="39,999,800,000 bindings"):
        ground(bound)


@pytest.mark.parametrize("joined", ["R(a, m{0})", "R(a, m{0}) and R(m{0}, a)"])
def test_number_of_rows_beyond_the_range_of_integers(joined):
    """A star of 14 joins of 1,000 rows, by one or by two columns."""
    n = 1000
    names = range(14)
    text = (
        f"domain D = {{ x }} entity E {{ predict d : D }}\nrelation R(a: E, b: E)\ntemplate t(a: E, "
        f"{', '.join(f'm{k}: E' for k in names)}) where {' and '.join(joined.format(k) for k in names)} over a.d"
    )
    pairs = np.array([[0, k] for k in range(n)] + [[k, 0] for k in range(1, n)])
    tables = {"e": pd.DataFrame({"id": range(n), "d": "x"}), "r": pd.DataFrame(pairs, columns=["a", "b"])}
    bound = bind(relcrf.parse(text).spec, relcrf.Dataset(tables))
    (planned,) = plan_templates(bound)
    assert planned.bindings == pytest.approx(1e42)
    with pytest.raises(BudgetError, match="'t' would have"):
        ground(bound)


def test_join_over_budget_is_not_run(monkeypatch):
    for function in ("count", "count_distinct", "count_by", "distinct"):
        monkeypatch.setattr(f"relcrf.grounding.preview.sql.{function}", None)
    text = "template path(e: E, m: E, n: E) where R(e, m) and R(m, n) over e.d per m"
    bound = bind(relcrf.parse(f"{DECLARATIONS}\n{text}").spec, dataset(0))
    create_relation_tables(bound)
    (planned,) = plan_templates(bound, budget=20)
    assert planned.is_exact and planned.bindings > 20
    assert planned.factors == bound.size("E")
    with pytest.raises(TypeError):
        plan_templates(bound, budget=10**6)
