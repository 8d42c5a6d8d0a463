"""Functions of the modelling language have the same values on every engine, including edge cases."""

import datetime
import itertools
import math

import duckdb
import numpy as np
import pytest
from evaluator import edit_distance
from tables import cursor_factory

import relcrf
from relcrf.errors import UsageError
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.engines.postgres import PostgresEngine
from relcrf.grounding.engines.spark import SparkEngine
from relcrf.grounding.lower import LoweringContext, lower_template

MODEL = """
entity E {
    predict d : bool  s : string  t : string  x : real  y : real  n : integer  day : date  b : bool  v : vector  u : vector
    at : datetime  to : datetime  clock : time
}
"""
TEXTS = (
    "", "a", "ab", "ba", "Zoë", "zoe\u0308", "ÉCOLE", "école", "ΑΣ", "ας", "İx", "ß", "🦆a", "🦅a", "o'n\\e",
    "\ufb01\uffee", "".join(map(chr, range(0x4E00, 0x4E00 + 130))), None,
)  # fmt: skip
ENGLISH = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
"""Options of a database whose collation sorts "b" before "B" and accented E before F."""
REALS = (-1e308, -800.0, -2.5, -1.0, -1e-200, 0.0, 1e-200, 0.5, 1.5, 2.0, 709.0, 1e200, 1.7e308, math.inf, None)
VECTORS = ([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-1.0, 0.5, 1e-3], [2.0, 4.0, 6.0])
DAYS = (datetime.date(2024, 2, 28), datetime.date(2024, 2, 29), datetime.date(1969, 7, 20), None)
MOMENTS = (None, 0, -1, 1706695200000000, 1706695200000001, 1706702400000000, 253402300799999999, -62135596800000000)
CLOCKS = (None, 0, 36000000000, 36000000001, 86399999999)
ROWS = max(len(TEXTS), len(REALS)) ** 2
FEATURES = (
    "a.x + a.y", "a.x - a.y", "a.x * a.y", "a.x / a.y", "-a.x", "a.x / a.n", "a.n / 2", "2 * a.n", "log(a.x)",
    "log1p(a.x)", "exp(a.x)", "exp(-a.x * a.x)", "sqrt(a.x)", "abs(a.x)", "least(a.x, a.y)", "greatest(a.x, a.y)",
    "exp(a.y) - exp(a.y)", "sqrt(exp(a.y) - exp(a.y))", "a.x * 0.5 + 1e-7", "a.n + 99999999999999999999", "dot(a.v, a.u)",
    "cosine(a.v, a.u)", "distance(a.v, a.u)", "a.v", "length(a.s)", "levenshtein(a.s, a.t)", "jaccard(a.s, a.t)",
    "jaccard(lower(a.s), lower(a.t))", "length(prefix(a.s, 2))", "length(prefix(a.s, a.x))", "length(prefix(a.s, -1))",
    "length(prefix(a.s, 2.5))", "length(lower(a.s))", "bin(a.x, -1, 0, 1.5)", "default(a.x, -2)", "default(sqrt(a.x), a.x)",
    "a.at - a.to",
    "year(a.day)", "month(a.day)", "weekday(a.day)", "year(a.at)", "month(a.at)", "weekday(a.at)", "hour(a.at)", "hour(a.clock)",
    'days(a.day, "2024-03-01")', "days(a.at, a.day)", "days(a.to, a.at)", "missing(a.x)", "missing(log(a.x))",
    'a.at - "2024-01-31"', 'a.clock - "10:00"',
)  # fmt: skip
CONDITIONS = (
    "a.s == a.t", "a.s < a.t", "a.s <= a.t", "lower(a.s) == lower(a.t)", "lower(a.s) < lower(a.t)", "contains(a.s, a.t)",
    "starts_with(a.s, a.t)", "prefix(a.s, 1) == prefix(a.t, 1)", 'a.s == "o\'n\\\\e"', 'a.s < "Zoë"', '("b" < "B" or a.s == "a")',
    "a.b", "missing(a.b)", "missing(a.day) or missing(a.x / a.y)",
    "not a.b", "a.x == a.y", "a.x < a.y", "a.x != a.y", "a.n > a.x", "a.n >= 0.5", "a.n == 2",
    "exp(a.y) - exp(a.y) > exp(a.x)", "exp(a.y) - exp(a.y) == exp(a.y) - exp(a.y)", 'a.day < "2024-02-29"',
    'a.day == "2024-02-29"', "not (a.x < a.y)", "a.b == (a.x > 0)", "prefix(lower(a.s), 2) == lower(prefix(a.s, 2))",
    "a.at < a.to", "a.at - a.to == 0.000001", 'a.at >= "2024-01-31 11:00+01:00"', 'a.clock > "10:00"', 'a.clock == "10:00:00"',
)  # fmt: skip


@pytest.fixture(scope="module")
def source():
    """Return a connection with the coded table that binding would create, with values that files cannot contain."""
    connection = duckdb.connect()
    connection.execute(
        'CREATE TABLE "ent.E" (vid INTEGER, key BIGINT, "x.d" INTEGER, "x.s" VARCHAR, "x.t" VARCHAR, "x.x" DOUBLE, "x.y" DOUBLE, '
        '"x.n" BIGINT, "x.day" DATE, "x.b" BOOLEAN, "x.v" DOUBLE[3], "x.u" DOUBLE[3], '
        '"x.at" BIGINT, "x.to" BIGINT, "x.clock" BIGINT)'
    )
    texts, reals = (list(itertools.product(values, values)) for values in (TEXTS, REALS))
    for r in range(ROWS):
        whole = None if r % 7 == 0 else r % 5 - 2 if r > 20 else (r - 9) * 10**17 // 3**r
        known = (whole, DAYS[r % 4], (True, False, None)[r % 3], VECTORS[r % 4], VECTORS[r // 4 % 4])
        known = (*known, MOMENTS[r % 8], MOMENTS[r // 8 % 8], CLOCKS[r % 5])
        row = [r, r, None, *texts[r % len(texts)], *reals[r % len(reals)], *known]
        connection.execute(f'INSERT INTO "ent.E" VALUES ({", ".join("?" * len(row))})', row)
    return connection


def make_plan(body):
    spec = relcrf.parse(f"{MODEL}\ntemplate t(a: E) {body}").spec
    return lower_template(spec.templates[0], LoweringContext(spec, {}, {("E", "v"): 3, ("E", "u"): 3})).plan


def values(engine, plan):
    """Return the rows of a plan in order, as a column for each output."""
    batches = list(engine.rows(plan))
    found = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    order = np.argsort(found["v0"])
    return {name: column[order] for name, column in found.items()}


@pytest.fixture(scope="module", params=["postgres", pytest.param("spark", marks=pytest.mark.slow)])
def engine(request, source):
    if request.param == "postgres":
        engine = PostgresEngine(request.getfixturevalue("postgres").new_database(ENGLISH), cursor_factory(source))
    else:
        engine = SparkEngine(request.getfixturevalue("spark"), cursor_factory(source))
    yield engine
    engine.close()


def test_numbers(engine, source):
    plan = make_plan(f"over a.d by {', '.join(FEATURES)}")
    here, there = values(DuckDbEngine(cursor_factory(source)), plan), values(engine, plan)
    assert len(here["v0"]) == ROWS and np.array_equal(here["v0"], there["v0"])
    names = [name for name, _, _ in plan.outputs if name.startswith("f")]
    assert len(names) == len(FEATURES) + 2
    for k, name in enumerate(names):
        np.testing.assert_allclose(there[name], here[name], rtol=1e-12, err_msg=f"feature {k} of {FEATURES}")


def test_conditions(engine, source):
    plan = make_plan(f"over {' or '.join(f'a.d and ({c})' for c in CONDITIONS)}")
    here, there = values(DuckDbEngine(cursor_factory(source)), plan), values(engine, plan)
    names = [name for name, _, _ in plan.outputs if name.startswith("e")]
    assert len(names) >= len(CONDITIONS)
    for name in names:
        assert 0 < np.count_nonzero(here[name] == 1) < ROWS, f"{name} of {CONDITIONS} is constant"
        assert np.array_equal(there[name], here[name]), f"{name} of {CONDITIONS}"


def test_keys(engine, source):
    plan = make_plan("where a.x > 0 and a.x == a.y over a.d per a.s, a.n, a.b")
    here, there = values(DuckDbEngine(cursor_factory(source)), plan), values(engine, plan)
    assert len(here["v0"]) >= 5
    for name, column in here.items():
        assert column.dtype == there[name].dtype and column.tolist() == there[name].tolist()


def test_no_rows(engine):
    for body in ("where a.x > 1 and a.x < 1 over a.d", "where a.x > 1 and a.x < 1 over a.d per a.s"):
        assert list(engine.rows(make_plan(body))) == []


def test_text_functions_compare_letters_not_bytes(source):
    measures = "levenshtein(a.s, a.t), jaccard(a.s, a.t), length(a.s), jaro_winkler(a.s, a.t)"
    found = values(DuckDbEngine(cursor_factory(source)), make_plan(f"over a.d by {measures}"))
    for r, (s, t) in enumerate(itertools.product(TEXTS, TEXTS)):
        if s is None or t is None:
            assert [found[f"f{k}"][r] for k in (0, 1, 3)] == [0.0, 0.0, 0.0]
            continue
        jaccard = len(set(s) & set(t)) / len(set(s) | set(t)) if s and t else 0.0
        assert (found["f1"][r], found["f2"][r]) == (pytest.approx(jaccard), len(s))
        if len(s + t) < 100:
            assert found["f0"][r] == edit_distance(s, t), (s, t)
    pair = list(itertools.product(TEXTS, TEXTS)).index(("🦆a", "🦅a"))
    assert found["f3"][pair] == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)


@pytest.mark.parametrize("name", ["jaro_winkler"])
def test_unsupported_function_raises_e370(engine, name):
    with pytest.raises(UsageError) as caught:
        list(engine.rows(make_plan(f"over a.d by {name}(a.s, a.t)")))
    (problem,) = caught.value.diagnostics
    assert problem.code == "E370" and engine.name in problem.message and name in problem.message
    assert list(engine.rows(make_plan("over a.d"))), "the engine remains usable"
