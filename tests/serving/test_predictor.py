"""Predictors: equal to the trained model for all table types and formats, thread-safe, and with diagnostics."""

import datetime
import resource
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tables import small_web

import relcrf
from relcrf.resources import resource_path
from relcrf.serving import Predictor
from relcrf.serving.openapi import openapi_document

NEW = {
    "page": [{"id": "new"}, {"id": "p1", "category": "course"}, {"id": "p2", "category": "staff"}],
    "link": [{"source": "new", "target": "p1"}, {"source": "p2", "target": "new"}],
    "page_words": [{"page": "new", "word": "w1"}, {"page": "new", "word": "never seen"}, {"page": "p1", "word": "w1"}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    fit = relcrf.load(resource_path("models", "webkb.rcrf")).fit(relcrf.Dataset(small_web(folder)), "ess")
    fit.save(folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run):
    return relcrf.Predictor(run)


def frames(request):
    return {name: pd.DataFrame(rows) for name, rows in request.items()}


def predict_fast(predictor, tables):
    """Return a prediction after checking that it did not take the slow path."""
    before = predictor.report()
    found = predictor.predict(tables)
    assert predictor.report().slow_path == before.slow_path, predictor.report().reasons
    return found.rows()


def assert_rows_close(found, expected):
    """Compare rows; probabilities may differ by rounding, because belief propagation multiplies messages in another order."""
    assert [[v for v in row if not isinstance(v, float)] for row in found] == [
        [v for v in row if not isinstance(v, float)] for row in expected
    ]
    for row, other in zip(found, expected, strict=True):
        assert [v for v in row if isinstance(v, float)] == pytest.approx(
            [v for v in other if isinstance(v, float)], rel=1e-9
        )


def test_prediction_equals_that_of_trained_model(run, predictor):
    expected = relcrf.load_fit(run).predict(relcrf.Dataset(frames(NEW))).table().rows()
    assert [row[0] for row in expected] == ["new"]
    assert_rows_close(predict_fast(predictor, NEW), expected)
    assert predict_fast(predictor, {"page": NEW["page"]})[0][2] != expected[0][2], "links and words count"


def test_all_table_types_give_equal_predictions(predictor):
    expected = predictor.predict(NEW).rows()
    single = {**NEW, "page": NEW["page"], "link": NEW["link"]}
    assert predict_fast(predictor, single) == expected
    columns = {name: {c: [row.get(c) for row in rows] for c in rows[0] | rows[-1]} for name, rows in NEW.items()}
    assert predict_fast(predictor, frames(NEW)) == expected
    assert predict_fast(predictor, {n: pl.DataFrame(c, strict=False) for n, c in columns.items()}) == expected
    assert predict_fast(predictor, {n: pa.table(c) for n, c in columns.items()}) == expected
    assert (
        predict_fast(predictor, {"Page": NEW["page"], "LINK": NEW["link"], "pageword": NEW["page_words"]}) == expected
    )


def test_request_with_single_row(predictor):
    ((key, *_),) = predict_fast(predictor, {"page": {"id": np.int64(7), "category": float("nan")}})
    assert key == "7"


def test_empty_list_is_empty_table(predictor):
    """Pass empty lists, as they result from JSON."""
    alone = {"page": [{"id": "new", "category": None}]}
    plain = predictor.predict(alone).to_dicts()
    assert len(plain) == 1 and predictor.predict({**alone, "link": [], "page_words": []}).to_dicts() == plain
    assert predictor.predict({"page": []}).to_dicts() == []


def test_texts_with_blanks_take_the_slow_path(run):
    predictor = Predictor(run)
    blanks = {
        "page": [{"id": " new "}, {"id": "p1", "category": " course"}],
        "link": [{"source": "new", "target": "p1 "}],
    }
    plain = {"page": [{"id": "new"}, {"id": "p1", "category": "course"}], "link": [{"source": "new", "target": "p1"}]}
    assert_rows_close(predictor.predict(blanks).rows(), predictor.predict(plain).rows())
    report = predictor.report()
    assert (report.requests, report.slow_path) == (2, 1)
    assert list(report.reasons) == ["blanks around a text in 'id'"]
    assert 0 < report.p50 <= report.p95 <= report.p99 <= report.slowest
    assert "2 requests" in repr(report) and "blanks" in report._repr_html_()


@pytest.mark.parametrize(
    ("tables", "code", "message"),
    [
        ({"pages": {"id": 1}}, "E248", "did you mean 'page'"),
        ({"page": {"id": 1, "categry": "x"}}, "E249", "did you mean 'category'"),
        ({"page": {"id": 1, "category": "cours"}}, "E216", "did you mean 'course'"),
        ({"page": {"id": 1}, "link": {"source": 1, "target": 2}}, "E219", "unknown Page '2'"),
        ({"page": [{"id": 1}, {"id": 1}]}, "E214", "two rows of Page"),
        ({"page": {"category": "course"}}, "E211", "no key column"),
        ({"page": 5}, "E203", "has type int; expected a row, a list of rows or a data frame"),
        ([{"id": "new"}], "E203", "a request must be a mapping from table names to rows, but has type list"),
        ({5: {"id": "new"}}, "E248", "does not read a table '5'"),
        ({"page": {"id": "\ud800"}}, "E203", "is not Unicode, in row 1"),
        ({"page": {"id": 1, "words": "\udfff"}}, "E203", "is not Unicode"),
        ({"page": {"id": 1}, "link": {"source": 1}}, "E212", "no column 'target'"),
        ({"page": {"id": 1}, "Page": {"id": 2}}, "E205", "two tables have the name 'Page'"),
        ({"page": [{"id": 1, "category": None, "Category": "staff"}]}, "E205", "'category' and 'Category'"),
        ({"page": [{"id": 1, "category": None}, {"Id": 2}]}, "E205", "'id' and 'Id'"),
        ({"page": pd.DataFrame({"id": [1], "category": "staff", "CATEGORY": "course"})}, "E205", "'CATEGORY'"),
        ({"page": {"id": 1}, "page_words": [], "page_word": {"page": 1, "word": "w"}}, "E205", "has two sources"),
        ({"page": {"id": 1, "words": ["w"]}, "page_words": []}, "E205", "the column 'words' of table 'page'"),
        ({"page": pd.DataFrame([[1, "course", None]], columns=["id", "category", "category"])}, "E203", "two columns"),
        ({"page": pd.Series({"id": 1})}, "E203", "has type Series"),
    ],
)  # fmt: skip
def test_invalid_request_raises_data_error(predictor, tables, code, message):
    with pytest.raises(relcrf.DataError, match=message) as caught:
        predictor.predict(tables)
    assert [d.code for d in caught.value.diagnostics] == [code]


@pytest.mark.parametrize("depth", [0, 6])
def test_invalid_depth_raises_usage_error(predictor, depth):
    with pytest.raises(relcrf.UsageError, match=rf"E356.*between 1 and 5, not {depth}"):
        predictor.explain(NEW, "Page/new", depth=depth)


def test_unknown_attribute_or_run_raises_error(predictor, tmp_path):
    assert predictor.attributes == ["Page.category"]
    for name in ("Page.category", "category", None):
        assert len(predictor.predict(NEW, name)) == 1
    with pytest.raises(relcrf.UsageError, match="unknown predicted attribute 'topic'"):
        predictor.predict(NEW, "topic")
    with pytest.raises(relcrf.DataError, match="is not a run folder"):
        Predictor(tmp_path)
    assert repr(predictor) == "Predictor(ess: Page.category)"


TYPED = """
domain D = { x, y }
entity E(key) { predict d : D  r : real  n : integer  t : bool  s : string  day : date  at : datetime  v : vector  k : 1..3 }
entity F
relation R(a: E, f: F) { strength: real }
predict relation Near(a: E, b: E) where a != b
template first(a: E) over a.d by 1, a.r, a.n, length(a.s)
template early(a: E) where a.t and a.day < "2024-06-01" over a.d == x
template late(a: E) where a.at >= "2024-03-01 10:30" over a.d == y by a.at - "2024-01-01"
template vector(a: E) over a.d by a.v
template kind(a: E) over a.d per a.k
template tied(a: E, b: E) where R(a, f) and R(b, f) and a < b over a.d, b.d
template strong(a: E, f: F) where R(a, f) over a.d by R(a, f).strength
template near(a: E, b: E) over Near(a, b) and a.d == b.d
"""


def test_attributes_of_every_type_and_random_relations():
    model = relcrf.parse(TYPED)
    rng = np.random.default_rng(0)
    rows = [
        {
            "key": f"e{k}", "d": "xy"[k % 2], "r": float(rng.normal()), "n": int(rng.integers(9)), "t": bool(k % 3),
            "s": "ab"[: k % 3] or None, "day": datetime.date(2024, 1 + k, 1), "v": rng.normal(size=2), "k": 1 + k % 3,
            "at": f"2024-03-01T1{k}:30:00+01:00" if k else None,
        }
        for k in range(8)
    ]  # fmt: skip
    tables = {
        "E": rows, "F": [{"id": 1}, {"id": 2}],
        "R": [{"a": f"e{k}", "f": 1 + k % 2, "strength": float(k)} for k in range(8)],
        "Near": [{"a": f"e{k}", "b": f"e{(k + 1) % 8}"} for k in range(8)],
    }  # fmt: skip
    columns = {n: {c: [row[c] for row in t] for c in t[0]} for n, t in tables.items()}
    columns["E"]["v"] = [v.tolist() for v in columns["E"]["v"]]
    fit = model.fit(relcrf.Dataset(columns), "pseudo")
    predictor = Predictor(fit, inference="enumeration")
    request = {**tables, "E": [{**row, "d": None} if k < 2 else row for k, row in enumerate(rows[:4])]}
    request["R"] = [row for row in tables["R"] if row["a"] in ("e0", "e1", "e2", "e3")]
    request["Near"] = [{"a": "e0", "b": "e1"}, {"a": "e1", "b": "e2", "value": None}, {"a": "e2", "b": "e3"}]
    request["Near"] = [{"value": True, **row} for row in request["Near"]]
    found = predictor.predict(request, "E.d")
    assert predictor.report().slow_path == 0, predictor.report().reasons
    columns = {n: {c: [row.get(c) for row in t] for c in t[0]} for n, t in request.items()}
    columns["E"]["v"] = [v.tolist() for v in columns["E"]["v"]]
    expected = fit.predict(relcrf.Dataset(columns), inference="enumeration")
    np.testing.assert_allclose(found["p_x"], expected.table("E.d")["p_x"], rtol=1e-9)
    near = predictor.predict(request, "Near")
    np.testing.assert_allclose(near["p_true"], expected.table("Near")["p_true"], rtol=1e-9)


def test_threads_share_a_predictor(predictor):
    requests = [
        {**NEW, "page": [{"id": "new"}, {"id": "p1", "category": c}, {"id": "p2"}]} for c in ("course", "staff")
    ]
    expected = [predictor.predict(r).rows() for r in requests]
    assert expected[0] != expected[1]
    wrong = []

    def predict_repeatedly(number):
        for k in range(40):
            which = (k + number) % 2
            if predictor.predict(requests[which]).rows() != expected[which]:
                wrong.append(number)

    threads = [threading.Thread(target=predict_repeatedly, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_stays_constant(predictor):
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    for _ in range(200):
        predictor.predict(NEW)
    before = peak()
    for _ in range(500):
        predictor.predict(NEW)
    assert peak() - before < 10, "megabytes"


LINKED = """
domain D = { x, y }
domain W = open
entity E { predict d : D  w : bag of W  v : vector }
relation R(a: E, b: E)
derive Reach(a: E, b: E) where R(a, b) or (Reach(a, m) and R(m, b))
derive Near(a: E, b: E) = nearest 2 by cosine(a.v, b.v)
template word(e: E) over e.d by e.w
template tie(a: E, b: E) where R(a, b) over a.d, b.d
"""
CASES = {
    "recursion": ("template far(a: E, b: E) where Reach(a, b) and a != b over a.d == b.d", "pseudo"),
    "neighbours": ("template near(a: E, b: E) where Near(a, b) over a.d == b.d", "pseudo"),
    "gates": ("gate tie by 1, count { R(a, q) }", "gated"),
    "letters": ("template alike(a: E, b: E) where R(a, b) over a.d == b.d by cosine(a.v, b.v)", "ess"),
    "bags": ("template both(a: E, b: E, w: W) where w in a.w and w in b.w and R(a, b) over a.d == b.d per w", "ess"),
}


@pytest.mark.parametrize("case", CASES)
def test_models_with_recursion_neighbours_and_gates(case):
    text, backend = CASES[case]
    rng = np.random.default_rng(3)
    entities = [
        {"id": k, "d": "xy"[k % 2], "w": ["u", "v", "n"][: 1 + k % 3], "v": rng.normal(size=3).tolist()}
        for k in range(12)
    ]
    ties = [{"a": k, "b": (k + step) % 12} for k in range(12) for step in (1, 2)]

    def columns(rows):
        return {name: [row[name] for row in rows] for name in rows[0]}

    fit = relcrf.parse(LINKED + text).fit(relcrf.Dataset({"e": columns(entities), "r": columns(ties)}), backend)
    request = [{**row, "d": None} if row["id"] < 2 else row for row in entities[:8]]
    request[0]["w"] = ["u", "a new word"]
    near = [row for row in ties if row["a"] < 8 and row["b"] < 8]
    expected = fit.predict(relcrf.Dataset({"e": columns(request), "r": columns(near)})).table()
    predictor = Predictor(fit)
    for _ in range(2):
        found = predictor.predict({"e": request, "r": near})
        np.testing.assert_allclose(found["p_x"], expected["p_x"], rtol=1e-9)
    assert predictor.report().slow_path == 0, predictor.report().reasons


def test_very_large_requests_take_the_slow_path():
    text = "entity E { predict t : bool  r : real }\ntemplate own(e: E) over e.t by 1, e.r\n"
    text += "template pair(a: E, b: E) where a.r < b.r and b.r < a.r + 0.1 over a.t == b.t"
    rows = [{"id": k, "t": bool(k % 2), "r": k / 10} for k in range(1200)]
    fit = relcrf.parse(text).fit(
        relcrf.Dataset({"e": {name: [row[name] for row in rows] for name in rows[0]}}), "pseudo"
    )
    predictor = Predictor(fit)
    rows[0]["t"] = None
    small, large = (predictor.predict({"e": rows[:n]})["p_true"] for n in (20, 1200))
    np.testing.assert_allclose(small, large, rtol=1e-9)
    assert predictor.report().slow_path == 0
    rows += [{"id": k, "t": True, "r": k / 10} for k in range(1200, 11_000)]
    np.testing.assert_allclose(predictor.predict({"e": rows})["p_true"], large, rtol=1e-9)
    assert predictor.report().reasons == {"the request is large": 1}


def test_openapi_describes_lists_and_numbered_columns():
    text = "domain D = { x, y }\ndomain W = open\nentity E { predict d : D  v : vector  w : bag of W }\n"
    model = relcrf.parse(f"{text}template t(e: E) over e.d by e.v\ntemplate word(e: E) over e.d by e.w")
    rows = {"id": [1, 2], "d": ["x", "y"], "v": [[1.0, 2.0], [0.0, 1.0]], "w": [["a"], ["b"]]}
    predictor = Predictor(model.fit({"e": rows}, "local"))
    document = openapi_document(predictor.request_schema, predictor.attributes, has_stored_tables=True)
    row = document["components"]["schemas"]["Row.e"]
    assert row["properties"]["w"]["type"] == ["array", "null"]
    assert row["properties"]["w"]["items"] == {"type": ["string", "integer", "null"]}
    assert list(row["patternProperties"]) == ["^v_?[0-9]+$"]
    assert all("500" in responses for responses in _responses(document) if len(responses) > 1)
    listed = predictor.predict({"e": {"id": 1, "v": [1.0, 2.0], "w": None}}).rows()
    assert predictor.predict({"e": {"id": 1, "v_0": 1, "v_1": 2, "w": None}}).rows() == listed
    assert predictor.predict({"e": {"id": 1, "v": [1.0, 2.0], "w": []}}).rows() == listed


def _responses(document):
    return [operation["responses"] for path in document["paths"].values() for operation in path.values()]
