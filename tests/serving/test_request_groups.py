"""Requests that are grounded at once: the factors and predictions of each request are those of the request alone."""

import re
from collections import Counter

import numpy as np
import pytest
from ground_graphs import engine_factors
from random_models import DATA, DECLARATIONS, KINDS, frames
from tables import small_web

import relcrf
from relcrf.grounding.lower import LoweringContext
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.model.disjunctions import extract_disjunctions
from relcrf.model.spec import ModelSpec
from relcrf.resources import resource_path
from relcrf.serving.request import RequestSchema
from relcrf.serving.request_grounder import RequestGrounder
from relcrf.serving.separability import is_separable

OBSERVED = "\n".join(line for line in DECLARATIONS.split("\n") if not line.startswith("predict relation"))
DOMAINS = {"D": "xyz", "C": ("red", "blue"), "W": ("v", "unseen"), "1..2": "12", "1..3": "123"}
KNOWN = {"W": ("v", "unseen")}


def separable(spec):
    spec = extract_disjunctions(spec)
    return is_separable(spec, LoweredModel.from_context(LoweringContext(spec, DOMAINS, {})))


def factors(grounding, request_of_variable=None):
    """Count factors by template, scope, pattern and features; require that each factor belongs to one request."""
    found = Counter()
    for group in grounding.graph.groups:
        if request_of_variable is not None:
            owners = np.array([request_of_variable[np.asarray(slot)] for slot in group.scope])
            assert (owners == owners[0]).all()
        for scope, pattern, entries in engine_factors(grounding, group, grounding.templates[group.block]):
            found[group.block, scope, pattern, tuple(sorted((k, round(v, 9)) for k, v in entries.items()))] += 1
    return found


def test_separable_models_ground_at_once():
    kinds = {name: lines for name, lines in KINDS.items() if name not in ("rules", "shared")}
    bodies = [line for lines in kinds.values() for line in lines if not re.search(r"\b[PQTU]\(", line)]
    all_declarations = relcrf.parse(OBSERVED + "\n".join(bodies)).spec.declarations
    declared, templates = all_declarations[: -len(bodies)], all_declarations[-len(bodies) :]
    kept = [template for template in templates if separable(ModelSpec((*declared, template)))]
    assert all(any(template.name.startswith(name) for template in kept) for name in kinds)
    spec = ModelSpec((*declared, *kept))
    schema = RequestSchema(spec)
    requests = [schema.read({n: t for n, t in frames(*data).items() if n not in "PQTU"}) for data in DATA]
    grounder = RequestGrounder(spec, KNOWN)
    single = [factors(grounder.ground(request)) for request in requests]
    group = grounder.ground_together([*requests, requests[0]])
    assert group.indices == [0, 1, 2]
    assert factors(group.grounding, group.request_of_variables()) == single[0] + single[1] + single[0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("(a: E) over a.d", True),
        ("(a: E, w: W) where w in a.w over a.d per w", True),
        ("(a: E, b: E) where R(a, m) and R(m, b) and a < b over a.d, b.d", True),
        ("(a: E, b: E) where R(a, b) over a.d by count { q where R(a, q) }", True),
        ("(a: E, b: E) where R(a, b) and exists { R(b, q) and q.r > 0 } over a.d, b.d", True),
        ("(a: E, b: E) where Meet(a, b) over a.d, b.d", True),
        ("(a: E, k: C) over a.d per k", True),
        # entities that values join, a relation of values, and counts of all entities
        ("(a: E, b: E) where a.s == b.s over a.d, b.d", False),
        ("(a: E, b: E) where H(a, k) and H(b, k) over a.d, b.d", False),
        ("(a: E, b: E) where a.r < b.r over a.d, b.d", False),
        ("(a: E, b: E) where not R(a, b) over a.d, b.d", False),
        ("(a: E) where H(a, k) and count { q where H(q, k) } > 1 over a.d", False),
        ("(a: E, b: E) where Reach(a, b) over a.d, b.d", False),
        ("(a: E, w: W) where not w in a.w over a.d per w", False),
    ],
)
def test_separability(body, expected):
    assert separable(relcrf.parse(f"{OBSERVED}template t{body}").spec) is expected


def test_models_with_predicted_relations_are_not_separable():
    assert separable(relcrf.parse(f"{DECLARATIONS}template t(a: E) over a.d").spec) is False


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    data = relcrf.Dataset(small_web(tmp_path_factory.mktemp("web")))
    return relcrf.load(resource_path("models", "webkb.rcrf")).fit(data, "ess")


def request(key, category, words=("w1",)):
    return {
        "page": [{"id": key}, {"id": 1, "category": category}, {"id": 2}],
        "link": [{"source": key, "target": 1}, {"source": 2, "target": key}],
        "page_words": [{"page": key, "word": word} for word in words],
    }


REQUESTS = [
    request(7, "course"),
    request("new", "staff"),
    {"pages": {"id": 1}},
    request(7, "student", ("w1", "never seen", "another")),
    request(" blanks ", "student"),
    request(9, "course", ("", "zz")),
    {"page": {"id": 1, "category": "cours"}},
    request(7, "staff", ("w2", "a new word")),
    {"page": []},
]


@pytest.mark.parametrize("settings", [{}, {"edges": "all", "inference": "bp"}], ids=["exact", "loopy"])
def test_many_requests_are_predicted_like_single_ones(fit, settings):
    one, many = (relcrf.Predictor(fit, **settings) for _ in range(2))
    found = many.predict_many(REQUESTS)
    for tables, result in zip(REQUESTS, found, strict=True):
        if isinstance(result, relcrf.DataError):
            with pytest.raises(relcrf.DataError) as caught:
                one.predict(tables)
            assert caught.value.diagnostics == result.diagnostics
            continue
        expected = one.predict(tables)
        assert list(result.columns) == list(expected.columns)
        for name, column in expected.columns.items():
            if column.dtype == float:
                np.testing.assert_allclose(result[name], column, rtol=1e-9)
            else:
                assert result[name].tolist() == column.tolist()
    assert [type(result) for result in found].count(relcrf.DataError) == 2
    assert many.report().requests == 7 and many.report().reasons == one.report().reasons


def test_requests_that_share_values_are_predicted_alone():
    text = """
    domain D = { x, y }
    domain Device = open
    entity E { predict d : D }
    relation Uses(e: E, device: Device)
    template prior(a: E) over a.d
    template shared(a: E, b: E) where Uses(a, v) and Uses(b, v) and a < b over symmetric a.d, b.d
    """
    rows = [{"id": k, "d": "xy"[k // 10]} for k in range(20)]
    uses = [{"e": k, "device": f"v{k // 5}"} for k in range(20)]
    tables = {name: {c: [row[c] for row in t] for c in t[0]} for name, t in {"e": rows, "uses": uses}.items()}
    predictor = relcrf.Predictor(relcrf.parse(text).fit(relcrf.Dataset(tables), "ess"))
    requests = [
        {"e": [{"id": 1}, {"id": 2, "d": value}], "uses": [{"e": 1, "device": "v1"}, {"e": 2, "device": "v1"}]}
        for value in ("x", "y", "x")
    ]
    expected = [predictor.predict(each).rows() for each in requests]
    assert expected[0] != expected[1]
    assert [frame.rows() for frame in predictor.predict_many(requests)] == expected


def test_new_values_of_predicted_attributes_do_not_affect_other_requests():
    text = "domain D = open\nentity E { predict d : D }\nrelation R(a: E, b: E)\n"
    text += "template p(a: E) over a.d\ntemplate t(a: E, b: E) where R(a, b) over a.d == b.d"
    data = {"e": {"id": [1, 2, 3, 4], "d": ["x", "y", "x", "x"]}, "r": {"a": [1, 3], "b": [2, 4]}}
    predictor = relcrf.Predictor(relcrf.parse(text).fit(relcrf.Dataset(data), "ess"))
    requests = [{"e": [{"id": 1}, {"id": 2, "d": d}], "r": {"a": 1, "b": 2}} for d in ("x", "a new state", "y")]
    first, error, last = predictor.predict_many(requests)
    assert [d.code for d in error.diagnostics] == ["E223"]
    assert (first.rows(), last.rows()) == (predictor.predict(requests[0]).rows(), predictor.predict(requests[2]).rows())


def test_explanation_equals_that_of_trained_model(fit):
    predictor = relcrf.Predictor(fit)
    for tables in (REQUESTS[0], REQUESTS[4]):
        plain = {
            name: {c: [row.get(c) for row in rows] for c in {c: 0 for row in rows for c in row}}
            for name, rows in tables.items()
        }
        expected = fit.explain(relcrf.Dataset(plain), "Page/2", depth=2)
        found = predictor.explain(tables, "Page/2", depth=2)
        assert (found.variable, found.answer, found.against) == (expected.variable, expected.answer, expected.against)
        assert found.log_odds == pytest.approx(expected.log_odds, rel=1e-9)
        amounts = [each.amount for each in expected.contributions]
        assert [each.amount for each in found.contributions] == pytest.approx(amounts, rel=1e-9)
    with pytest.raises(relcrf.UsageError, match="E313"):
        predictor.explain(REQUESTS[0], "Page/other")
