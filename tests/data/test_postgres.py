"""Tables of a real PostgreSQL server."""

import pytest
from command import relcrf_command

import relcrf
from relcrf.data.readers.postgres import read_server
from relcrf.errors import DataError

psycopg = pytest.importorskip("psycopg")

CONTENT = """
CREATE TABLE page (id bigint, label text, weight numeric(20, 10), size real, glad boolean, day date, words text[], n int[]);
INSERT INTO page VALUES
    (9007199254740993, 'a "quoted", text' || chr(10) || 'of two lines', 0.1, 1.5, true, '2024-01-31', '{a,"b, c",NULL}', '{1,2}'),
    (2, '', NULL, 'NaN', false, NULL, NULL, '{}'),
    (3, NULL, 1234567.5, NULL, NULL, NULL, '{}', NULL);
CREATE VIEW big AS SELECT id FROM page WHERE id > 2;
CREATE SCHEMA web;
CREATE TABLE web."Odd name" ("Id" int, "a,b" text);
INSERT INTO web."Odd name" VALUES (1, 'x');
CREATE SEQUENCE counter;
"""


@pytest.fixture(scope="module")
def url(postgres):
    found = postgres.new_database()
    with psycopg.connect(found) as connection:
        connection.execute(CONTENT)
    return found


def rows(data, name):
    return data.connection.execute(f"SELECT * FROM {data.find_table(name).scan}").fetchall()


def manifest(folder, text):
    (folder / "dataset.toml").write_text(text)
    return relcrf.Dataset(folder)


def test_dataset_has_all_tables_of_public_schema(url):
    data = relcrf.Dataset(url)
    assert sorted(data.tables) == ["big", "page"]
    table = data.find_table("page")
    assert table.types == ("BIGINT", "VARCHAR", "VARCHAR", "DOUBLE", "BOOLEAN", "VARCHAR", "VARCHAR[]", "BIGINT[]")
    assert "relcrf@" not in table.location and table.location.endswith(", table public.page")
    first, second, third = rows(data, "page")
    text = 'a "quoted", text\nof two lines'
    assert first == (9007199254740993, text, "0.1000000000", 1.5, True, "2024-01-31", ["a", "b, c", None], [1, 2])
    assert second[:3] == (2, "", None) and second[3] != second[3] and second[4:] == (False, None, None, [])
    assert third == (3, None, "1234567.5000000000", None, None, None, [], None)
    assert rows(data, "big") == [(9007199254740993,), (3,)]


def test_manifest_can_have_server_tables_and_queries(url, tmp_path):
    data = manifest(
        tmp_path,
        f"""
[tables.odd]
postgres = "{url}"
schema = "web"
table = "Odd name"
columns = {{ id = "Id" }}

[tables.pairs]
postgres = "{url}"
sql = "SELECT a.id AS a, b.id AS b FROM page a, page b WHERE a.id < b.id -- ordered"

[tables.ends]
sql = "SELECT DISTINCT b FROM pairs"
""",
    )
    assert data.find_table("odd").columns == ("id", "a,b")
    assert rows(data, "odd") == [(1, "x")]
    assert len(rows(data, "pairs")) == 3
    assert sorted(rows(data, "ends")) == [(3,), (9007199254740993,)]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO page (id) VALUES (7) RETURNING id",
        "WITH x AS (DELETE FROM page RETURNING id) SELECT * FROM x",
        "SELECT nextval('counter')",
        "DROP TABLE page",
        "SELECT 1) TO STDOUT; DROP TABLE page; COPY (SELECT 1",
        "SELECT 1; DROP TABLE page",
        "SET TRANSACTION READ WRITE",
        "SELECT id FROM nowhere",
        "SELECT 1 AS a, 2 AS a",
        "COPY page TO PROGRAM 'cat > {folder}/out'",
        "SELECT 1) TO PROGRAM 'cat > {folder}/out' --",
    ],
)
def test_sql_that_writes_raises_e235(url, tmp_path, sql):
    text = sql.format(folder=tmp_path)
    with pytest.raises(DataError) as caught:
        manifest(tmp_path, f'[tables.x]\npostgres = "{url}"\nsql = """{text}"""\n')
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.location.line) == ("E235", 2)
    assert [p.name for p in tmp_path.iterdir()] == ["dataset.toml"]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM page").fetchone() == (3,)
        assert connection.execute("SELECT is_called FROM counter").fetchone() == (False,)


def test_unreachable_server_or_table_raises_e235(url, tmp_path):
    for source in (url.rpartition("/")[0] + "/nowhere", "postgresql://somebody:secret@127.0.0.1:1/db"):
        with pytest.raises(DataError, match="E235") as caught:
            relcrf.Dataset(source)
        assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="did you mean 'page'"):
        manifest(tmp_path, f'[tables.x]\npostgres = "{url}"\ntable = "pages"\n')


def test_database_without_tables_raises_e202(postgres):
    with pytest.raises(DataError, match="E202"):
        relcrf.Dataset(postgres.new_database())


def test_large_table_is_read_completely(url):
    """Read a hundred thousand rows, which are transferred through a file instead of Python's memory."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA large")
        connection.execute(
            "CREATE TABLE large.t AS SELECT i AS id, 'thing ' || i AS name FROM generate_series(1, 100000) i"
        )
    data = relcrf.Dataset({})
    (found,) = read_server(url, data.store, schema="large")
    sql = f"SELECT count(*), sum(id), count(DISTINCT name) FROM {found.scan}"
    assert data.connection.execute(sql).fetchall() == [(100_000, 100_000 * 100_001 // 2, 100_000)]


def test_check_accepts_postgres_url(url, tmp_path, capsys, monkeypatch):
    model = tmp_path / "m.rcrf"
    model.write_text("domain D = open\nentity Page { predict label : D }\ntemplate t(p: Page) over p.label\n")
    code, _, err = relcrf_command(capsys, monkeypatch, "check", model, "--data", url)
    assert code == 0, err
