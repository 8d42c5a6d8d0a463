"""Combinations of many keys: distinct codes, or an error."""

import numpy as np
import pytest

import relcrf
from relcrf.columns import bucket_sort
from relcrf.grounding import blocks
from relcrf.kernels.distinct import distinct

MODEL = """
domain N = open
entity Visit { predict out : bool  a : N  b : N  c : N  d : N }
template one(v: Visit) over v.out per v.a, v.b, v.c, v.d
"""


def visits(n):
    names = np.array([f"k{k}" for k in range(n)], dtype=object)
    return relcrf.Dataset({"visit": {"id": np.arange(n), "out": [True] * n, **dict.fromkeys("abcd", names)}})


def test_combinations_below_limit_have_distinct_codes():
    grounding = relcrf.parse(MODEL).ground(visits(30_000))  # 8.1e17 combinations
    assert len(grounding.templates[0].keys.values) == 30_000
    assert all(len(set(key)) == 1 for key in grounding.templates[0].keys.values)


def test_too_many_combinations_raise_e420():
    with pytest.raises(relcrf.UsageError) as caught:
        relcrf.parse(MODEL).ground(visits(50_000))  # 6.25e18 combinations, more than 2^62
    (found,) = caught.value.diagnostics
    assert found.code == "E420" and found.location.line == 4
    assert "50,000 x 50,000 x 50,000 x 50,000" in found.notes[0]


PAIRS = """
entity Person { name : string  birth : date  age : integer }
relation Pair(a: Person, b: Person)
predict relation Same(a: Person, b: Person) where Pair(a, b)
template name(a: Person, b: Person) over Same(a, b) per bin(jaro_winkler(a.name, b.name), 0.7, 0.88, 0.95)
template birth(a: Person, b: Person) over Same(a, b) per a.birth == b.birth
template age(a: Person, b: Person) over Same(a, b) per a.age - b.age
template first(a: Person, b: Person) over Same(a, b) per prefix(a.name, 1)
"""


def ground_pairs(ages=(10, 20, 8)):
    birth = ["2000-01-01", "2000-01-01", None]
    person = {"id": ["p", "q", "r"], "name": ["martha", "marhta", "bob"], "birth": birth, "age": list(ages)}
    pair = {"a": ["p", "p", "q"], "b": ["q", "r", "p"]}
    return relcrf.parse(PAIRS).ground(relcrf.Dataset({"person": person, "pair": pair}))


def test_bins_have_readable_texts_in_order_and_all_are_keys():
    (name, *_) = ground_pairs().templates
    assert name.keys.values == (("below 0.7",), ("0.7 to 0.88",), ("0.88 to 0.95",), ("0.95 or more",))


def test_keys_of_computed_integers_are_ordered_by_number():
    _, _, age, first = ground_pairs().templates
    assert age.keys.values == (("-10",), ("2",), ("10",))
    assert first.keys.values == (("m",),)


def test_binding_with_missing_operand_of_key_has_no_factor():
    grounding = ground_pairs()
    n_factors = {}
    for name, group in zip(grounding.group_names, grounding.graph.groups, strict=True):
        n_factors[name] = n_factors.get(name, 0) + group.n_factors
    assert n_factors == {"name": 3, "birth": 2, "age": 3, "first": 3}


def test_keys_of_templates_whose_names_differ_in_case():
    model = relcrf.parse(
        "entity P { predict c : bool  n : string  m : string }\n"
        "template kind(p: P) over p.c per p.n weights kinds\ntemplate Kind(p: P) over p.c per p.m weights kinds"
    )
    grounding = model.ground({"p": {"id": range(3), "c": [True] * 3, "n": ["a", "b", "c"], "m": ["b", "d", "c"]}})
    assert grounding.instances("kind")["p.n"].tolist() == ["a", "b", "c"]
    assert grounding.instances("Kind")["p.m"].tolist() == ["b", "d", "c"]


def test_distinct_keys_are_merged_in_linear_time(monkeypatch):
    n, sizes = 2000, []

    def counted_distinct(values):
        sizes.append(len(values))
        return distinct(values)

    monkeypatch.setattr(bucket_sort, "BUCKET_ROWS", 10)
    monkeypatch.setattr(blocks, "distinct", counted_distinct)
    names = [f"k{k * 7919 % n:04d}" for k in range(n)]
    data = {"visit": {"id": range(n), "out": [True] * n, **dict.fromkeys("abcd", names)}}
    grounding = relcrf.parse(MODEL).ground(data)
    assert [key[0] for key in grounding.templates[0].keys.values] == sorted(names)
    assert len(sizes) > 100 and sum(sizes) < 10 * n
