"""DuckDB files: types, views, write-ahead logs, and files that are damaged, locked or written by a stranger."""

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import relcrf
from relcrf.data.isolation import copy_tables
from relcrf.data.store import Store
from relcrf.errors import DataError, DataLocation

MODEL = "entity Page { predict good : bool  size : integer }\ntemplate one(p: Page) over p.good by p.size\n"


def write_database(path, *statements):
    with duckdb.connect(str(path)) as connection:
        for statement in (
            "CREATE TABLE page AS SELECT range AS id, true AS good, 5 AS size FROM range(3)",
            *statements,
        ):
            connection.execute(statement)
    return path


def rows(dataset, name):
    return dataset.connection.execute(f"FROM {dataset.find_table(name).scan} ORDER BY ALL").fetchall()


def only_problem(call):
    with pytest.raises(DataError) as caught:
        call()
    (problem,) = caught.value.diagnostics
    return problem


def files_of(folder):
    """Return the content and the modification time of each file of a folder."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize(
    "name", ["shop.duckdb", "shop.v2.duckdb", "main.ddb", "temp.db", "relcrf_copy.duckdb", "a'[*]\"?.duckdb"]
)
def test_tables_and_views_of_main_are_read(tmp_path, name):
    path = write_database(
        tmp_path / "t.duckdb",
        "CREATE VIEW big AS FROM page WHERE id > 0",
        "CREATE MACRO above(n) AS TABLE FROM main.big WHERE id > n",
        "CREATE VIEW bigger AS FROM above(1)",
        "CREATE SCHEMA other",
        "CREATE TABLE other.hidden AS SELECT 1 AS id",
    ).rename(tmp_path / name)
    before = files_of(tmp_path)
    dataset = relcrf.Dataset(tmp_path)
    assert [*dataset.tables] == ["big", "bigger", "page"]
    assert rows(dataset, "bigger") == [(2, True, 5)] and len(rows(dataset, "big")) == 2
    assert dataset.find_table("page").location == f"{path}, table 'page'"
    assert relcrf.parse(MODEL).ground(dataset).graph.n_variables == 3
    assert files_of(tmp_path) == before


def test_types_are_unchanged(tmp_path):
    kinds = {
        "u": "UUID", "h": "HUGEINT", "d": "DECIMAL(38,10)", "e": "ENUM('x','y')", "b": "BLOB", "t": "TIMESTAMPTZ",
        "n": "TIMESTAMP_NS", "l": "INTEGER[][]", "a": "DOUBLE[2]", "s": "STRUCT(k INTEGER)", "i": "INTERVAL",
    }  # fmt: skip
    texts = {
        "u": "11111111-1111-1111-1111-111111111111", "h": str(-(2**127)), "d": "1234567890123456789012345678.0000000001",
        "e": "y", "b": "\\x00\\xFF", "t": "2024-02-03 10:00:00+01", "n": "2024-01-01 00:00:00.123456789", "l": "[[1, NULL], []]",
        "a": "[0.1, 1e-300]", "s": "{'k': 7}", "i": "3 days",
    }  # fmt: skip
    columns = ", ".join(
        f"CAST('{texts[c].replace(chr(39), chr(39) * 2)}' AS {kind}) AS {c}" for c, kind in kinds.items()
    )
    table = f"CREATE TABLE t AS SELECT {columns} UNION ALL SELECT {', '.join(['NULL'] * len(kinds))}"
    write_database(tmp_path / "t.duckdb", "SET TimeZone = 'Asia/Tokyo'", table)
    dataset = relcrf.Dataset(tmp_path)
    expected = {**kinds, "e": "ENUM('x', 'y')", "t": "TIMESTAMP WITH TIME ZONE", "s_k": "INTEGER"}
    del expected["s"]  # the field of the structure is a column
    assert dict(zip(dataset.find_table("t").columns, dataset.find_table("t").types, strict=True)) == expected
    found = dataset.connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {dataset.find_table('t').scan}").fetchall()
    assert found == [tuple({**texts, "s": "7", "t": "2024-02-03 09:00:00+00"}.values()), (None,) * len(kinds)]


def test_manifest_names_tables_of_schemas(tmp_path):
    write_database(tmp_path / "shop.duckdb", "CREATE SCHEMA raw", "CREATE TABLE raw.link AS SELECT 1 AS x, 2 AS y")
    lines = (
        '[tables.site]\nduckdb = "shop.duckdb"\ntable = "page"\n[tables.link]\nduckdb = "shop.duckdb"\nschema = "raw"\n'
    )
    (tmp_path / "dataset.toml").write_text(lines)
    dataset = relcrf.Dataset(tmp_path)
    assert (
        [*dataset.tables] == ["site", "link"] and rows(dataset, "link") == [(1, 2)] and len(rows(dataset, "site")) == 3
    )
    (tmp_path / "dataset.toml").write_text(lines.replace('"page"', '"pag"'))
    problem = only_problem(lambda: relcrf.Dataset(tmp_path))
    assert (problem.code, problem.hint) == ("E235", "did you mean 'page'?")
    assert problem.location.line == 2
    (tmp_path / "dataset.toml").write_text('[tables.p]\nsqlite = "shop.duckdb"\nschema = "raw"\n')
    assert only_problem(lambda: relcrf.Dataset(tmp_path)).message == "'schema' cannot be combined with 'sqlite'"


def test_manifest_is_applied_to_database(tmp_path):
    path = write_database(tmp_path / "shop.duckdb", "CREATE VIEW bad AS FROM glob('/*')")
    manifest = tmp_path / "tables.toml"
    manifest.write_text('[tables.bad]\ntable = "page"\n')  # the name of the view that fails is free
    assert len(rows(relcrf.Dataset(path, manifest=manifest), "bad")) == 3
    manifest.write_text('[tables.site]\ntable = "bad"\n')
    assert only_problem(lambda: relcrf.Dataset(path, manifest=manifest)).message == f"{path}, view 'bad' cannot be read"


ATTACKS = {
    "csv": "FROM read_csv('{secret}')", "text": "FROM read_text('{secret}')", "blob": "FROM read_blob('{secret}')",
    "glob": "FROM glob('{folder}/*')", "parquet": "FROM '{folder}/p.parquet'", "sequence": "SELECT nextval('numbers')",
    "dynamic": "FROM query('FROM read_text(''{secret}'')')", "store": "FROM read_blob('{temp}/**')", "missing": "FROM dropped",
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_view_cannot_access_anything_else(tmp_path, name):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.csv").write_text("secret\n")
    duckdb.execute(f"COPY (SELECT 1 AS a) TO '{folder}/p.parquet'")
    temp = Path(Store().new_folder()).parent.parent
    text = ATTACKS[name].format(secret=folder / "secret.csv", folder=folder, temp=temp)
    write_database(
        tmp_path / "v.duckdb",
        "CREATE SEQUENCE numbers",
        "CREATE TABLE dropped AS SELECT 1 AS a",
        f"CREATE VIEW bad AS {text}",
        "DROP TABLE dropped",
    )
    before = files_of(folder)
    dataset = relcrf.Dataset(tmp_path)
    assert [*dataset.tables] == ["page"]
    assert relcrf.parse(MODEL).ground(dataset).graph.n_variables == 3
    problem = only_problem(lambda: dataset.find_table("bad"))
    location = f"{tmp_path / 'v.duckdb'}, view 'bad'"
    assert (problem.code, problem.message) == ("E204", f"{location} cannot be read")
    assert problem.location == DataLocation(location) and "CREATE TABLE bad_rows AS FROM bad" in problem.hint
    model = relcrf.parse("entity Bad { predict good : bool }\ntemplate one(b: Bad) over b.good")
    assert only_problem(lambda: model.ground(dataset)) == problem
    dataset.read_all_tables()
    assert (
        [note for note in dataset.notes if "view 'bad' cannot be read, and is left out" in note] == dataset.notes != []
    )
    assert files_of(folder) == before


def test_view_reads_no_stored_secrets(tmp_path):
    write_database(tmp_path / "v.duckdb", "CREATE VIEW stolen AS FROM duckdb_secrets()")
    problem = only_problem(lambda: relcrf.Dataset(tmp_path).find_table("stolen"))
    assert (problem.code, problem.notes) == ("E204", ("it calls duckdb_secrets()",))


def test_file_with_failing_views_only(tmp_path):
    with duckdb.connect(str(tmp_path / "v.duckdb")) as connection:
        connection.execute("CREATE VIEW bad AS FROM glob('/*')")
    assert "view 'bad'" in only_problem(lambda: relcrf.Dataset(tmp_path)).message


WRITER = """
import os, sys, duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("INSERT INTO page VALUES (3, false, 7)")
print(flush=True)
sys.stdin.read()
os._exit(0)  # without a checkpoint, so that the rows remain in the write-ahead log
"""


def test_log_is_replayed_and_locked_file_is_reported(tmp_path):
    path = write_database(tmp_path / "shop.duckdb")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        writer.stdout.readline()
        problem = only_problem(lambda: relcrf.Dataset(path))
        writer.communicate()
    assert problem.code == "E204" and problem.hint.startswith("close the program that writes to the database")
    before = files_of(tmp_path)
    assert {*before} == {"shop.duckdb", "shop.duckdb.wal"}
    assert (3, False, 7) in rows(relcrf.Dataset(path), "page")
    assert files_of(tmp_path) == before
    (tmp_path / "shop.duckdb.wal").unlink()
    os.mkfifo(tmp_path / "shop.duckdb.wal")
    assert "'shop.duckdb.wal' is not a regular file" in str(only_problem(lambda: relcrf.Dataset(path)).notes)


def test_connection_of_this_process_is_reported(tmp_path):
    path = write_database(tmp_path / "shop.duckdb")
    with duckdb.connect(str(path)) as connection:
        assert "Dataset({'page': c.table('page')})" in only_problem(lambda: relcrf.Dataset(path)).hint
        assert len(rows(relcrf.Dataset({"page": connection.table("page")}), "page")) == 3
    assert len(rows(relcrf.Dataset(path), "page")) == 3


def checksum(block):
    """Return DuckDB's checksum of a block, whose length is a multiple of 8."""
    total = 5381
    for start in range(0, len(block), 8):
        total ^= int.from_bytes(block[start : start + 8], "little") * 0xBF58476D1CE4E5B9 % 2**64
    return total.to_bytes(8, "little")


def later_version(content):
    header = content[8:12] + (5000).to_bytes(8, "little") + content[20:4096]
    return checksum(header) + header + content[4096:]


@pytest.mark.parametrize(
    ("change", "note", "hint"),
    [
        (later_version, "version number 5000", "upgrade DuckDB: pip install --upgrade duckdb"),
        (lambda content: content[:5000], "Could not read enough bytes", None),
        (lambda content: content[:20000] + b"\xff" * 99 + content[20099:], "checksum", None),
        (lambda content: b"SQLite format 3\0" + content[16:], "the content does not match the suffix", None),
        (lambda content: b"", "the content does not match the suffix", None),
    ],
    ids=["later", "truncated", "damaged", "sqlite", "empty"],
)
def test_file_that_duckdb_cannot_open(tmp_path, change, note, hint):
    path = write_database(tmp_path / "shop.duckdb")
    path.write_bytes(change(path.read_bytes()))
    problem = only_problem(lambda: relcrf.Dataset(tmp_path))
    assert problem.code == "E204" and note in problem.render() and (hint is None or problem.hint == hint)


def test_encrypted_file_is_reported(tmp_path):
    with duckdb.connect() as connection:
        connection.execute("SET force_mbedtls_unsafe = 'true'")
        connection.execute(f"ATTACH '{tmp_path}/e.duckdb' AS e (ENCRYPTION_KEY 'secret')")
        connection.execute("CREATE TABLE e.page AS SELECT 1 AS id")
    assert "database that is not encrypted" in only_problem(lambda: relcrf.Dataset(tmp_path)).hint


def test_rows_are_copied_in_order_within_memory_limit(tmp_path):
    with duckdb.connect(str(tmp_path / "big.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS id, md5(range::VARCHAR) AS text FROM range(2_000_000)")
    store = Store("40MB")
    (table,) = copy_tables("duckdb", tmp_path / "big.duckdb", "big", store, schema="main", table=None)
    numbered = f"SELECT id, row_number() OVER () - 1 AS row FROM {table.scan}"
    assert store.connection.execute(f"SELECT count(*), bool_and(id = row) FROM ({numbered})").fetchall() == [
        (2_000_000, True)
    ]
