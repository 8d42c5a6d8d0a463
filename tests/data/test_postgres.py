"""Tables of a real PostgreSQL server."""

import pytest
from command import relcrf_command

import relcrf
from relcrf.data.readers.postgres import read_tables
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
    assert data.table_names == ["big", "page"] and data.tables == {}
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
    ((found,), problems) = read_tables(url, data.store, ["t"], schema="large")
    assert problems == []
    sql = f"SELECT count(*), sum(id), count(DISTINCT name) FROM {found.scan}"
    assert data.connection.execute(sql).fetchall() == [(100_000, 100_000 * 100_001 // 2, 100_000)]


def test_check_accepts_postgres_url(url, tmp_path, capsys, monkeypatch):
    model = tmp_path / "m.rcrf"
    model.write_text("domain D = open\nentity Page { predict label : D }\ntemplate t(p: Page) over p.label\n")
    code, _, err = relcrf_command(capsys, monkeypatch, "check", model, "--data", url)
    assert code == 0, err


MODEL = "domain D = open\nentity Page { predict label : D }\ntemplate t(p: Page) over p.label\n"
MESSY = """
CREATE TABLE page (id int, label text);
INSERT INTO page VALUES (1, 'a'), (2, NULL);
CREATE VIEW broken AS SELECT 1 / (id - id) AS id, label FROM page;
CREATE TABLE secret (id int, label text);
CREATE TABLE boxes (id int, label text, n int[], w text[]);
INSERT INTO boxes VALUES (1, 'a', '{{1,2},{3,4}}', '{}'), (2, 'b', NULL, '{{a,b}}');
CREATE TABLE mixed (id int, label text, n int[]);
INSERT INTO mixed VALUES (1, 'a', '{1}'), (2, 'b', '{{1,2}}');
CREATE TABLE item (id int, label text, kind text);
INSERT INTO item SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END, CASE WHEN i % 3 = 0 THEN 'x' ELSE 'y' END
    FROM generate_series(1, 30) AS i;
CREATE ROLE guest LOGIN;
GRANT SELECT ON item, page, broken, boxes, mixed TO guest;
"""


@pytest.fixture(scope="module")
def messy(postgres):
    """Return the URL of a database whose user may not read one table, and in which a view fails."""
    found = postgres.new_database()
    with psycopg.connect(found) as connection:
        connection.execute(MESSY)
    return found.replace("relcrf@", "guest:hunter2@")


def check_entity(name, url, tmp_path, capsys, monkeypatch):
    """Return the exit code and the messages of `relcrf check` for a model with one entity type."""
    model = tmp_path / "m.rcrf"
    model.write_text(MODEL.replace("Page", name))
    code, _, err = relcrf_command(capsys, monkeypatch, "check", model, "--data", url)
    return code, err


def test_only_tables_of_the_model_are_read(messy, tmp_path, capsys, monkeypatch):
    assert check_entity("Page", messy, tmp_path, capsys, monkeypatch)[0] == 0
    data = relcrf.Dataset(messy)
    assert data.table_names == ["boxes", "broken", "item", "mixed", "page", "secret"]
    relcrf.parse(MODEL).fit(data, "local")
    assert list(data.tables) == ["page"]
    code, err = check_entity("Broken", messy, tmp_path, capsys, monkeypatch)
    assert code == 3 and "the table 'public.broken' cannot be read" in err and "division by zero" in err
    code, err = check_entity("Secret", messy, tmp_path, capsys, monkeypatch)
    assert code == 3 and "no right to read the table 'public.secret'" in err and "TO guest" in err
    code, err = check_entity("Pages", messy, tmp_path, capsys, monkeypatch)
    assert code == 3 and "did you mean 'page'" in err
    data.read_all_tables()
    assert sorted(data.tables) == ["boxes", "item", "page"] and len(data.notes) == 3


def test_dimensions_of_arrays_are_kept(messy, tmp_path):
    data = relcrf.Dataset(messy)
    table = data.find_table("boxes")
    assert table.types[2:] == ("BIGINT[][]", "VARCHAR[][]")
    assert rows(data, "boxes") == [(1, "a", [[1, 2], [3, 4]], []), (2, "b", None, [["a", "b"]])]
    with pytest.raises(DataError, match="E215") as caught:
        data.find_table("mixed")
    (problem,) = caught.value.diagnostics
    assert problem.location.column == "n" and "[1] and [[1,2]]" in problem.message
    model = MODEL.replace("Page {", "Boxes { n : bag of D ").replace("Page", "Boxes")
    with pytest.raises(DataError, match="E215") as caught:
        relcrf.parse(model).fit(relcrf.Dataset(messy), "local")
    (problem,) = caught.value.diagnostics
    assert (problem.location.row, problem.location.column) == (1, "n") and "'[1, 2]'" in problem.message


SECRETS = ("hunter2", "p@hunter2", "p/hunter2@x", "p?hunter2", "hunter2:x")


@pytest.mark.parametrize("password", SECRETS)
def test_passwords_are_masked(password, tmp_path, capsys, monkeypatch):
    url = f"postgresql://ann:{password}@127.0.0.1:1/web"
    sources = [
        f'[tables.page]\npostgres = "{url}"\n',
        f'[tables.page]\npostgres = "{url}\n',
        f'tables.page = {{ postgres = "{url}", tabel = "x" }}\n',
        f'[tables.page]\npostgres = "{url}?password=hunter2"\nsql = "SELECT"\n',
    ]
    for text in sources:
        (tmp_path / "dataset.toml").write_text(text)
        code, err = check_entity("Page", tmp_path, tmp_path, capsys, monkeypatch)
        assert code == 3 and "hunter2" not in err and "dataset.toml" in err
    for command in (["check", tmp_path / "m.rcrf", "--data", url], ["new", url, "--out", tmp_path / "n.rcrf"]):
        code, out, err = relcrf_command(capsys, monkeypatch, *command)
        assert code == 3 and "hunter2" not in out + err and "E235" in err
    (tmp_path / "dataset.toml").unlink()
    (tmp_path / "page.csv").write_text("id,label\n1,a\n2,\n")
    options = ["--data", tmp_path, "--engine", "postgres", "--url", url]
    code, out, err = relcrf_command(capsys, monkeypatch, "ground", tmp_path / "m.rcrf", *options)
    assert code == 3 and "hunter2" not in out + err and "E371" in err


def test_proposal_for_a_server_masks_the_password(messy, tmp_path, capsys, monkeypatch):
    model = tmp_path / "n.rcrf"
    code, out, err = relcrf_command(capsys, monkeypatch, "new", messy, "--predict", "item.label", "--out", model)
    assert code == 0, err
    assert "guest:*******@" in model.read_text() and "hunter2" not in out + err + model.read_text()
    assert "no right to read the table 'public.secret', and is left out" in err
    assert "n : vector" not in model.read_text(), "a list of lists is not a vector"
