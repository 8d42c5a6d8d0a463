"""DuckDB, PostgreSQL, Spark and the engine in memory return the same rows for the same plan."""

from contextlib import closing
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from checksum import checksum
from generated import generated
from hypothesis import given
from hypothesis import strategies as st
from random_models import DATA, DECLARATIONS, PARTS, frames, tables, templates

import relcrf
from relcrf.data.binding import bind
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.engines.memory import MemoryEngine
from relcrf.grounding.engines.postgres import PostgresEngine
from relcrf.grounding.engines.spark import SparkEngine
from relcrf.grounding.ground import create_relation_tables
from relcrf.grounding.lower import lower_template

WEB = """
domain C = { x, y, z }
domain W = open
entity P { predict c : C  r : real  n : integer  day : date  name : string  v : vector  w : bag of W }
relation L(a: P, b: P) { score: real }
predict relation Same(a: P, b: P) where L(a, b) and a.n == b.n
derive Cocited(a: P, b: P) where L(m, a) and L(m, b) and a < b
template pairs(a: P, b: P) where L(a, b) over a.c, b.c
    by 1, L(a, b).score, tfidf_cosine(a.name, b.name, 2), token_jaccard(a.name, b.name)
template triples(a: P, b: P, d: P) where L(a, b) and L(b, d) and a != d over a.c, b.c, d.c
template words(a: P) over a.c by a.w
template keyed(a: P, w: W) where w in a.w over a.c per w, a.n by 1, a.r / a.n
template vectors(a: P) over a.c by a.v
template near(a: P, b: P) where L(a, b) over a.c == b.c
    by cosine(a.v, b.v), distance(a.v, b.v), log(a.r), levenshtein(a.name, b.name)
template band(a: P, b: P) where a.r < b.r and b.r < a.r + 0.002 over symmetric a.c, b.c
template days(a: P, b: P) where L(a, b) and a.day <= b.day and b.day < "2024-06-01" over a.c, b.c per a.name
template through(a: P, b: P) where L(a, m) and L(m, b) and a < b over symmetric a.c, b.c
template cocited(a: P, b: P) where Cocited(a, b) and not L(a, b) over a.c == b.c by count { m where L(m, a) and L(m, b) }
template shared(a: P, b: P) where L(a, b) over a.c, b.c
    by count { w where w in a.w and w in b.w }, sum { q.r where L(a, q) and q.r > b.r }
template lonely(a: P) where not exists { L(q, a) and q.n == a.n } over a.c
    by mean { q.r where L(a, q) }, min { q.n where L(q, a) }
template formula(a: P, b: P) where L(a, b) over a.c == b.c and (a.n > b.n or exists { Cocited(a, b) }) => b.c == x
template same(a: P, b: P) over Same(a, b), a.c by 1, a.r
"""
"""Templates of every kind."""


def web(pages, links, seed=0):
    """Return random tables for the model above."""
    rng = np.random.default_rng(seed)
    ids = np.arange(pages)
    words = rng.integers(60, size=(pages, 8))
    ends = np.unique(np.column_stack([rng.integers(pages, size=links), rng.zipf(1.6, size=links) % pages]), axis=0)
    page = {
        "id": ids, "c": rng.choice(["x", "y", "z"], pages), "r": rng.random(pages), "n": rng.integers(5, size=pages),
        "day": np.datetime64("2024-01-01") + rng.integers(366, size=pages), "v": list(rng.normal(size=(pages, 4))),
        "name": rng.choice(["Zoë", "zoe", "Ångström", "o'neill", "🦆"], pages), "w": [[f"w{k}" for k in row] for row in words],
    }  # fmt: skip
    link = {"a": ends[:, 0], "b": ends[:, 1], "score": rng.normal(size=len(ends))}
    return {"P": pd.DataFrame(page), "L": pd.DataFrame(link)}


def plans(text, data):
    """Return a bound model and the plan of each of its templates."""
    bound = bind(relcrf.parse(text).spec, relcrf.Dataset(data))
    create_relation_tables(bound)
    context = make_lowering_context(bound)
    return bound, {t.name: lower_template(t, context).plan for t in context.spec.templates}


def assert_agree(first, second, plan):
    expected = checksum(first.rows(plan), plan.outputs)
    assert checksum(second.rows(plan), plan.outputs) == expected
    return expected


class IntegersInMemory(MemoryEngine):
    """An engine that reads the int32 columns of DuckDB, and counts the plans that it runs in memory."""

    def __init__(self, bound):
        self.there = DuckDbEngine(bound.cursor)
        self.n_others = 0
        self.bound = bound
        super().__init__(self.read, self.count_other)

    def read(self, table, column):
        found = self.bound.connection.sql(f'SELECT "{column}" FROM "{table}"')
        is_integer = str(found.types[0]) == "INTEGER"
        return np.ma.filled(found.fetchnumpy()[column], -1).astype(np.int32) if is_integer else None

    def count_other(self):
        self.n_others += 1
        return self.there


def agree_in_memory(bound, found):
    """Assert that all plans have the same rows in memory; return the names of those that do not need DuckDB."""
    names = []
    for name, plan in found.items():
        here = IntegersInMemory(bound)
        assert_agree(here.there, here, replace(plan, is_distinct=False))
        assert_agree(here.there, here, plan)
        if here.n_others == plan.is_distinct:
            names.append(name)
    return names


@pytest.fixture(scope="module")
def language():
    """Return a function that returns the plans of a part of the language for `DATA[number]`; it binds each part once."""

    @cache
    def language_plans(part, number):
        return plans(DECLARATIONS + "\n".join(PARTS[part]), frames(*DATA[number]))

    return language_plans


every_data = pytest.mark.parametrize("number", range(len(DATA)), ids=["whole", "gaps"])


@every_data
@pytest.mark.parametrize("part", PARTS)
def test_language_in_memory(language, number, part):
    agree_in_memory(*language(part, number))


JOINS = [
    ("(a: E) over a.d", True),
    ("(a: E, b: E) where R(a, b) over a.d, b.d", True),
    ("(a: E, b: E) where R(a, b) and R(b, a) and a != b over a.d, b.d", True),
    ("(a: E, b: E) where R(a, m) and R(m, b) and a < b over a.d, b.d", True),
    ("(a: E, f: F) where S(a, f) and S(b, f) and a.c == b.c and a.q == b.q over a.d, f.d", True),
    ("(a: E, b: E) where R(a, b) and a.o == b.o over a.d == b.d per a.o, b.c", True),
    ('(a: E, b: E) where R(a, b) and not a.c == red and (a.o != b.o or a.q == "u") over a.d, b.d', True),
    ("(a: E, b: E) where Meet(a, b) and H(a, blue) over a.d == a.o and b.d == x", True),
    ("(a: E, w: W) where w in a.w and w in b.w and R(a, b) over a.d per w", True),
    ("(a: E, b: E) where a != b over a.d, b.d", False),
    ("(a: E, b: E) where R(a, b) and a.r > 0 over a.d, b.d", False),
    ("(a: E, b: E) where R(a, b) and not R(b, a) over a.d, b.d", False),
    ("(a: E, b: E) where R(a, b) over a.d, b.d by a.r", False),
]
"""Templates, and whether the engine in memory runs them without DuckDB."""


@pytest.fixture(scope="module", params=DATA, ids=["whole", "gaps"])
def joins(request):
    """Return the bound model and the plans of `JOINS`."""
    templates = [f"template t{k}{body}" for k, (body, _) in enumerate(JOINS)]
    return plans(DECLARATIONS + "\n".join(templates), frames(*request.param))


@pytest.mark.parametrize("number", range(len(JOINS)), ids=[body for body, _ in JOINS])
def test_joins_of_integers_run_in_memory(joins, number):
    bound, found = joins
    name, (_, is_in_memory) = f"t{number}", JOINS[number]
    assert agree_in_memory(bound, {name: found[name]}) == ([name] if is_in_memory else [])


def test_large_tables_in_memory():
    assert {"triples", "through"} <= set(agree_in_memory(*plans(WEB, web(2000, 8000))))


@generated(9)
@given(tables(), st.lists(templates(), min_size=8, max_size=12))
def test_random_models_in_memory(data, bodies):
    declared = dict.fromkeys(text.replace("NAME", f"t{k}") for k, texts in enumerate(bodies) for text in texts)
    agree_in_memory(*plans(DECLARATIONS + "\n".join(declared), frames(*data)))


@pytest.fixture(scope="session")
def server(postgres):
    """Return the URL of an empty database."""
    return postgres.new_database()


@every_data
@pytest.mark.parametrize("part", PARTS)
def test_language_on_postgres(server, language, number, part):
    bound, found = language(part, number)
    here = DuckDbEngine(bound.cursor)
    with closing(PostgresEngine(server, bound.cursor)) as there:
        for plan in found.values():
            assert_agree(here, there, plan)


def assert_all_agree(bound, found, there, min_rows):
    """Assert that every plan has the same rows on both engines, and at least `min_rows`."""
    here = DuckDbEngine(bound.cursor)
    with closing(there):
        for name, plan in found.items():
            assert assert_agree(here, there, plan)[0] >= min_rows, name


def test_large_tables_on_postgres(server):
    bound, found = plans(WEB, web(2000, 8000))
    assert_all_agree(bound, found, PostgresEngine(server, bound.cursor), 100)


@pytest.mark.slow
def test_large_tables_on_spark(spark):
    """Run only every third plan, because each takes Spark a second."""
    bound, found = plans(WEB, web(2000, 8000))
    assert_all_agree(bound, dict(list(found.items())[::3]), SparkEngine(spark, bound.cursor), 100)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_language_on_spark(spark, language, part):
    """Run only every third plan, because each takes Spark a second."""
    bound, found = language(part, 1)
    here = DuckDbEngine(bound.cursor)
    with closing(SparkEngine(spark, bound.cursor)) as there:
        for plan in list(found.values())[::3]:
            assert_agree(here, there, plan)
    assert not list(bound.dataset.store.new_folder().parent.glob("spark-*")), "the exchange folder is removed"


@generated(9)
@given(tables(), st.lists(templates(), min_size=8, max_size=12))
def test_random_models_on_postgres(server, data, bodies):
    declared = dict.fromkeys(text.replace("NAME", f"t{k}") for k, texts in enumerate(bodies) for text in texts)
    bound, found = plans(DECLARATIONS + "\n".join(declared), frames(*data))
    here = DuckDbEngine(bound.cursor)
    with closing(PostgresEngine(server, bound.cursor)) as there:
        for plan in found.values():
            assert_agree(here, there, plan)
