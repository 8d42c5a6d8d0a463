"""The clause `as of` in grounding: the ground graph equals that of the reference implementation on the earlier rows."""

import math
from datetime import date

import numpy as np
import pytest
import random_models
from generated import generated
from ground_graphs import engine_factors, summed
from hypothesis import given
from random_models import DATA, DECLARATIONS, frames, naive_model, tables

import relcrf
from relcrf.data.binding import bind
from relcrf.grounding.ground import ground
from relcrf.grounding.learned_values import read_inputs

TIMED = DECLARATIONS.replace(" n : integer", " time n : integer").replace("{ v: real }", "{ time v: real }")
TIMED = "\n".join(f"{line} as of a" if line.startswith("derive") else line for line in TIMED.splitlines())
"""The declarations of the random models, with times that are sometimes missing."""

KINDS = {name: [f"{line} as of a" for line in lines if "(a: E" in line] for name, lines in random_models.KINDS.items()}
TEMPLATES = {
    "scopes": [
        *KINDS["singles"],
        *KINDS["overs"],
        "rule: R(x, y) and T(x) => T(y) as of x",
        "rule r: S(x, f) => x.d == f.d as of x l2 0.5",
    ],
    "conditions": [*KINDS["ties"], *KINDS["conditions"]],
    "features": [*KINDS["numbers"], *KINDS["keys"]],
}
TEMPLATES["nested"] = [
    f"template n{k}(a: E) where {condition} over a.d as of a"
    for k, condition in enumerate(
        [
            "not S(a, f)",
            "not (S(a, f) and f.r > 0)",
            "S(a, f) or R(a, b)",
            "exists { S(b, f) or R(f2, b) and S(f2, f) } or a.t",
            "S(a, f) => a.t",
            "S(a, f) <=> a.t",
            "not (S(b, f) => R(a, b))",
            "count { b, f where R(a, b) and not S(b, f) } > 0",
            "count { b where not (R(a, b) and S(b, f)) and R(b, c) } > 1",
            "sum { S(b, f).v where S(b, f) } < 1",
            "R(x, y)",
            "not (R(a, b) and count { c where R(b, c) } > 0)",
            "a.n >= 0 or (R(a, b) and exists { R(b, c) })",
            "not R(a, b) and not (b.r > 0)",
            "not R(a, b) and count { c where R(b, c) } < 2",
            "(R(a, b) or a.t) and (R(b, a) or a.t)",
        ]
    )
]


def compare(data, lines):
    spec = relcrf.parse("\n".join([TIMED, *lines])).spec
    naive = naive_model(spec, *data)
    grounding = ground(bind(spec, relcrf.Dataset(frames(*data))))
    unnamed = iter(range(1, 99))
    n_factors = 0
    for declared in (d for d in spec.declarations if d in spec.templates or d in spec.rules):
        name = declared.name or f"rule {next(unnamed)}"
        expected = [
            (scope, pattern, {(keys, d): value for d, value in enumerate(features)})
            for scope, pattern, keys, features in naive.factors(declared)
        ]
        found = []
        for group, group_name in zip(grounding.graph.groups, grounding.group_names, strict=True):
            if group_name == name:
                found += engine_factors(grounding, group, grounding.templates[group.block])
        assert summed(found) == summed(expected), name
        n_factors += len(found)
    return n_factors


@pytest.mark.parametrize("part", TEMPLATES)
def test_earlier_rows_equal_reference(part):
    assert compare(DATA[0], TEMPLATES[part]) > 0
    compare(DATA[1], TEMPLATES[part])


@generated(6)
@given(tables())
def test_earlier_rows_of_random_tables_equal_reference(data):
    if any(row["w"] or row["q"] for row in data[0]["E"].values()) or data[-1]["U"]:
        compare(data, TEMPLATES["nested"] + KINDS["ties"][:8])


VISITS = """
entity Patient { age : real }
entity Visit { predict back : bool  time day : date  cost : real  image : vector }
relation Of(visit: Visit, patient: Patient)
derive Same(a: Visit, b: Visit) where Of(a, x) and Of(b, x)
"""
DAYS = ["2024-01-31", "2024-01-01", None, "2024-01-01", "2024-02-10", "2024-01-30"]
IMAGES = np.arange(12.0).reshape(6, 2)


def ground_visits(body):
    tables = {
        "patient": {"id": ["x", "y"], "age": [30.0, 40.0]},
        "visit": {"id": range(6), "back": [True, False] * 3, "day": DAYS, "cost": np.arange(6.0), "image": [*IMAGES]},
        "of": {"visit": range(6), "patient": ["x", "x", "x", "y", "x", "x"]},
    }
    return relcrf.parse(VISITS + body).ground(relcrf.Dataset(tables))


def feature_rows(grounding):
    (group,) = grounding.graph.groups
    rows = {int(v): dict(group.features.row(n)) for n, v in enumerate(group.scope[0].tolist())}
    return [[rows[v].get(d, 0.0) for d in range(group.features.n_features)] for v in sorted(rows)]


def earlier(k):
    """Return the earlier visits of the same patient."""
    return [q for q in (0, 1, 2, 4, 5) if None not in (DAYS[q], DAYS[k]) and k != 3 and DAYS[q] < DAYS[k]]


@pytest.mark.parametrize("is_feature", [True, False])
def test_numbers_and_vectors_of_earlier_rows(is_feature):
    values = {
        "mean { q.image where Same(p, q) }": lambda k, rows: IMAGES[rows].mean(axis=0) if rows else [0.0, 0.0],
        "sum { exp(-days(q.day, p.day) / 30) where Same(p, q) }": lambda k, rows: [
            sum(math.exp(-(date.fromisoformat(DAYS[k]) - date.fromisoformat(DAYS[q])).days / 30) for q in rows)
        ],
        "max { q.cost where Same(p, q) }": lambda k, rows: [max(rows, default=0.0)],
    }
    for text, expected in values.items():
        body = f"feature f(p: Visit) = {text} as of p\ntemplate t(p: Visit) over p.back by f(p)"
        if not is_feature:
            body = f"template t(p: Visit) over p.back by {text} as of p"
        found = feature_rows(ground_visits(body))
        np.testing.assert_allclose(found, [expected(k, earlier(k)) for k in range(6)], rtol=1e-6)


def test_labels_of_earlier_rows():
    """An input that aggregates labels counts only those of earlier entities."""
    body = """
    feature f(p: Visit): real = classifier of p.back from p.cost, sum { q.back where Same(p, q) } as of p
    template t(p: Visit) over p.back by f(p)
    """
    grounding = ground_visits(body)
    (feature,) = grounding.spec.features
    inputs = read_inputs(grounding.bound, feature)
    pairs = inputs[1].neighbours.pairs.toarray()
    assert feature.as_of is not None
    assert [np.flatnonzero(row).tolist() for row in pairs] == [earlier(k) for k in range(6)]


def test_gates_of_restricted_templates():
    body = """
    template t(a: Visit, b: Visit) where Same(a, b) over a.back, b.back as of a
    gate t by count { q where Same(b, q) }
    """
    grounding = ground_visits(body)
    (group,) = grounding.graph.groups
    pairs = [(a, b) for a in range(6) for b in earlier(a)]
    assert sorted(zip(*(slot.tolist() for slot in group.scope), strict=True)) == pairs
    (gate_group,) = grounding.gates.groups.values()
    found = [sum(dict(gate_group.features.row(n)).values()) for n in range(group.n_factors)]
    scopes = zip(*(slot.tolist() for slot in group.scope), strict=True)
    assert found == [float(len(earlier(a))) for a, _ in scopes]
    assert "q.day < a.day" in grounding.gate_templates[0].features[-1]


def test_rows_without_time_are_noted():
    grounding = ground_visits("template t(p: Visit) over p.back")
    assert "1 of 6 rows of Visit have no time 'day': declarations with 'as of' do not use them" in grounding.bound.notes
