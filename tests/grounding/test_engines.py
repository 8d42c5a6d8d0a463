"""Engines give the rows of a plan, all of them, in the promised types."""

import tempfile
from contextlib import closing

import duckdb
import numpy as np
import pytest
from tables import beside

from relcrf.errors import DataError
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.engines.postgres import PostgresEngine
from relcrf.grounding.engines.spark import SparkEngine
from relcrf.grounding.plan import Call, Column, Compare, Constant, Plan, Scan


@pytest.fixture
def connection():
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA model1; SET schema = 'model1'")
    connection.execute(
        """CREATE TABLE "ent.E" AS SELECT i::INTEGER AS vid,
        CASE WHEN i % 3 > 0 THEN (i % 5)::INTEGER END AS "x.c", CASE WHEN i % 4 > 0 THEN i / 8 END AS "x.r",
        i::BIGINT * 5000000000 AS "x.n", CASE WHEN i % 2 = 0 THEN 'é' || i ELSE '' END AS "x.s" FROM range(300000) AS t(i)"""
    )
    return connection


def plan_of(*outputs, filters=(), distinct=False):
    column = Column("t0", "vid")
    return Plan((Scan("ent.E", "t0"),), (), filters, (("a", column),), distinct, outputs)


OUTPUTS = (
    ("v0", Column("t0", "vid"), "integer"),
    ("e0", Column("t0", "x.c"), "integer"),
    ("f0", Column("t0", "x.r"), "double"),
    ("k0", Column("t0", "x.n"), "bigint"),
    ("k1", Column("t0", "x.s"), "text"),
)


@pytest.mark.parametrize("distinct", [False, True])
def test_types_missing_values_and_batches(connection, distinct):
    batches = list(DuckDbEngine(beside(connection)).rows(plan_of(*OUTPUTS, distinct=distinct)))
    if duckdb.__version__ >= "2":  # before it a batch may have a million rows
        assert len(batches) > 1 and max(len(b["v0"]) for b in batches) < 200_000
    assert [(n, c.dtype) for n, c in batches[0].items()] == [
        ("v0", np.int32), ("e0", np.int32), ("f0", np.float64), ("k0", np.int64), ("k1", object),
    ]  # fmt: skip
    assert not any(isinstance(column, np.ma.MaskedArray) for batch in batches for column in batch.values())
    found = {name: np.concatenate([b[name] for b in batches]) for name, _, _ in OUTPUTS}
    order = np.argsort(found["v0"])
    v = np.arange(300_000)
    assert np.array_equal(found["v0"][order], v)
    assert np.array_equal(found["e0"][order], np.where(v % 3 > 0, v % 5, -1))
    assert np.array_equal(found["f0"][order], np.where(v % 4 > 0, v / 8, 0.0))
    assert np.array_equal(found["k0"][order], v * 5_000_000_000)
    assert found["k1"][order].tolist() == [f"é{i}" if i % 2 == 0 else "" for i in range(300_000)]


def test_no_rows(connection):
    nothing = Compare("<", Column("t0", "vid"), Constant(0))
    assert list(DuckDbEngine(beside(connection)).rows(plan_of(*OUTPUTS, filters=(nothing,)))) == []


def test_the_connection_is_free_while_rows_are_read(connection):
    rows = DuckDbEngine(beside(connection)).rows(plan_of(*OUTPUTS))
    first = next(rows)
    kept = first["v0"].copy()
    assert connection.execute('SELECT count(*) FROM "ent.E"').fetchall() == [(300_000,)]
    rest = list(rows)
    assert np.array_equal(first["v0"], kept), "a later batch overwrites no earlier one"
    assert len(kept) + sum(len(b["v0"]) for b in rest) == 300_000


def test_rows_can_be_left_unread(connection):
    rows = DuckDbEngine(beside(connection)).rows(plan_of(*OUTPUTS))
    next(rows)
    rows.close()
    connection.execute('DROP TABLE "ent.E"')


def test_postgres_gives_the_same_batches(connection, postgres):
    """By columns of one width, and row by row where there is text."""
    for outputs in (OUTPUTS, OUTPUTS[:4]):
        plan = plan_of(*outputs)
        with closing(PostgresEngine(postgres.new_database(), beside(connection))) as engine:
            batches = list(engine.rows(plan))
        expected = list(DuckDbEngine(beside(connection)).rows(plan))
        assert len(batches) == 3 and all(batch["v0"].dtype == np.int32 for batch in batches)
        for name, _, _ in outputs:
            column, wanted = (np.concatenate([b[name] for b in found]) for found in (batches, expected))
            assert column.dtype == wanted.dtype and np.array_equal(column, wanted)


def test_postgres_goes_on_after_rows_left_unread_and_leaves_nothing(connection, postgres):
    url = postgres.new_database()
    with closing(PostgresEngine(url, beside(connection))) as engine:
        for _ in range(2):
            rows = engine.rows(plan_of(*OUTPUTS))
            next(rows)
            rows.close()
        assert sum(len(batch["v0"]) for batch in engine.rows(plan_of(*OUTPUTS))) == 300_000
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(url) as other:
        kept = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace OR relname ~ '^t[0-9]+$'"
        assert other.execute(kept).fetchone() == (0,)


def find_problem(call):
    with pytest.raises(DataError) as caught:
        call()
    (problem,) = caught.value.diagnostics
    assert problem.code == "E371"
    return problem


def test_a_server_that_does_not_answer_is_a_diagnostic(connection):
    problem = find_problem(lambda: PostgresEngine("postgresql://nobody@127.0.0.1:1/none", beside(connection)))
    assert "postgres" in problem.message and "refused" in problem.notes[0]


def test_a_database_that_is_not_utf8_is_a_diagnostic(connection, postgres):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres.url(), autocommit=True) as other:
        other.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    assert "LATIN1" in find_problem(lambda: PostgresEngine(postgres.url("latin"), beside(connection))).message


def test_what_the_server_refuses_is_a_diagnostic(connection, postgres):
    connection.execute("""UPDATE "ent.E" SET "x.s" = chr(0)""")
    with closing(PostgresEngine(postgres.new_database(), beside(connection))) as engine:
        assert "0x00" in find_problem(lambda: list(engine.rows(plan_of(*OUTPUTS)))).notes[0]


@pytest.mark.slow
def test_what_spark_refuses_is_a_diagnostic(connection, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(SparkEngine(spark, beside(connection))) as engine:
        wrong = Compare("==", Column("t0", "vid"), Call("date", (Constant("no date"),)))
        problem = find_problem(lambda: list(engine.rows(plan_of(*OUTPUTS, filters=(wrong,)))))
        assert "spark" in problem.message and problem.notes
        assert sum(len(batch["v0"]) for batch in engine.rows(plan_of(*OUTPUTS))) == 300_000
    assert list(tmp_path.iterdir()) == [], "nothing is left"
