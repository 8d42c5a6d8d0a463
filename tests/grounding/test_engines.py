"""Engines return all rows of a plan in the documented types, and report errors as diagnostics."""

import tempfile
import time
from contextlib import closing

import duckdb
import numpy as np
import pytest
from tables import cursor_factory

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


def make_plan(*outputs, filters=(), distinct=False):
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
def test_types_missing_values_and_batch_sizes(connection, distinct):
    batches = list(DuckDbEngine(cursor_factory(connection)).rows(make_plan(*OUTPUTS, distinct=distinct)))
    if duckdb.__version__ >= "2":  # batches of earlier versions may have a million rows
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
    assert list(DuckDbEngine(cursor_factory(connection)).rows(make_plan(*OUTPUTS, filters=(nothing,)))) == []


def test_connection_is_usable_while_rows_are_read(connection):
    rows = DuckDbEngine(cursor_factory(connection)).rows(make_plan(*OUTPUTS))
    first = next(rows)
    copy = first["v0"].copy()
    assert connection.execute('SELECT count(*) FROM "ent.E"').fetchall() == [(300_000,)]
    rest = list(rows)
    assert np.array_equal(first["v0"], copy), "later batches do not overwrite earlier ones"
    assert len(copy) + sum(len(b["v0"]) for b in rest) == 300_000


def test_unread_rows_can_be_closed(connection):
    rows = DuckDbEngine(cursor_factory(connection)).rows(make_plan(*OUTPUTS))
    next(rows)
    rows.close()
    connection.execute('DROP TABLE "ent.E"')


@pytest.fixture
def small_connection(connection, monkeypatch):
    """Return a connection to a tenth of the rows, which PostgreSQL returns in batches of a tenth."""
    connection.execute('DELETE FROM "ent.E" WHERE vid >= 30_000')
    monkeypatch.setattr("relcrf.grounding.engines.postgres.BATCH_ROWS", 10_000)
    return connection


def test_postgres_returns_same_batches(small_connection, postgres):
    """Rows are read in binary at fixed width, or one by one if there are text columns."""
    for outputs in (OUTPUTS, OUTPUTS[:4]):
        plan = make_plan(*outputs)
        with closing(PostgresEngine(postgres.new_database(), cursor_factory(small_connection))) as engine:
            batches = list(engine.rows(plan))
        expected = list(DuckDbEngine(cursor_factory(small_connection)).rows(plan))
        assert len(batches) == 3 and all(batch["v0"].dtype == np.int32 for batch in batches)
        for name, _, _ in outputs:
            column, expected_column = (np.concatenate([b[name] for b in found]) for found in (batches, expected))
            assert column.dtype == expected_column.dtype and np.array_equal(column, expected_column)


def test_postgres_is_usable_after_unread_rows_and_leaves_no_tables(small_connection, postgres):
    url = postgres.new_database()
    with closing(PostgresEngine(url, cursor_factory(small_connection))) as engine:
        for _ in range(2):
            rows = engine.rows(make_plan(*OUTPUTS))
            next(rows)
            rows.close()
        assert sum(len(batch["v0"]) for batch in engine.rows(make_plan(*OUTPUTS))) == 30_000
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(url, autocommit=True) as other:
        sessions = """SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""
        for _ in range(1000):  # the server drops the temporary tables of a session after the client has closed it
            if other.execute(sessions).fetchone() == (0,):
                break
            time.sleep(0.03)
        query = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace OR relname ~ '^t[0-9]+$'"
        assert other.execute(query).fetchone() == (0,)


def find_problem(call):
    with pytest.raises(DataError) as caught:
        call()
    (problem,) = caught.value.diagnostics
    assert problem.code == "E371"
    return problem


def test_unreachable_server_raises_e371(connection):
    problem = find_problem(lambda: PostgresEngine("postgresql://nobody@127.0.0.1:1/none", cursor_factory(connection)))
    assert "postgres" in problem.message and "refused" in problem.notes[0]


def test_non_utf8_database_raises_e371(connection, postgres):
    latin = postgres.new_database("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    assert "LATIN1" in find_problem(lambda: PostgresEngine(latin, cursor_factory(connection))).message


def test_postgres_error_raises_e371(connection, postgres):
    connection.execute("""UPDATE "ent.E" SET "x.s" = chr(0)""")
    with closing(PostgresEngine(postgres.new_database(), cursor_factory(connection))) as engine:
        assert "0x00" in find_problem(lambda: list(engine.rows(make_plan(*OUTPUTS)))).notes[0]


@pytest.mark.slow
def test_spark_error_raises_e371(connection, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(SparkEngine(spark, cursor_factory(connection))) as engine:
        wrong = Compare("==", Column("t0", "vid"), Call("date", (Constant("not a date"),)))
        problem = find_problem(lambda: list(engine.rows(make_plan(*OUTPUTS, filters=(wrong,)))))
        assert "spark" in problem.message and problem.notes
        assert sum(len(batch["v0"]) for batch in engine.rows(make_plan(*OUTPUTS))) == 300_000
    assert list(tmp_path.iterdir()) == [], "the exchange folder is removed"
