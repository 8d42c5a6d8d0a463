"""Tests of `dataset.toml`: its entries, the diagnostics of its errors, and the restrictions of its SQL."""

import sqlite3

import duckdb
import pytest
from tables import write_tables

import relcrf
from relcrf.data.split_plan import SplitPlan
from relcrf.errors import DataError

PAGES = [{"id": f"p{k}", "label": "xy"[k % 2], "school": f"s{k % 3}"} for k in range(6)]
LINKS = [{"source": "p0", "target": "p1"}, {"source": "p1", "target": "p2"}]


@pytest.fixture
def folder(tmp_path):
    return write_tables(tmp_path / "data", pages=PAGES, links=LINKS)


def dataset(folder, text):
    (folder / "dataset.toml").write_text(text)
    return relcrf.Dataset(folder)


def rows(data, name):
    return data.connection.execute(f"SELECT * FROM {data.find_table(name).scan}").fetchall()


def problems(folder, text):
    with pytest.raises(DataError) as caught:
        dataset(folder, text)
    return caught.value.diagnostics


def test_columns_of_files_are_renamed(folder):
    data = dataset(folder, '[tables.page]\nfile = "pages.csv"\ncolumns = { category = "label" }\n')
    assert list(data.tables) == ["page"]
    assert data.find_table("page").columns == ("id", "category", "school")
    assert rows(data, "page")[1] == ("p1", "y", "s1")
    by_name = relcrf.Dataset(folder / "dataset.toml")
    assert rows(by_name, "page") == rows(data, "page")


def test_one_file_can_be_several_tables(folder):
    text = "".join(
        f"""[tables.{name}]\nfile = "pages.csv"\ncolumns = {{ {name} = "{own}" }}\n"""
        for name, own in (("one", "label"), ("two", "school"))
    )
    data = dataset(
        folder, text + '[tables.page]\nfile = "pages.csv"\ncolumns = { category = "label", label = "school" }\n'
    )
    assert len({t.location for t in data.tables.values()}) == 3
    model = relcrf.parse("domain D = open entity Page { predict category : D } template t(p: Page) over p.category")
    other = relcrf.parse("domain D = open entity One(id) { predict one : D } template t(p: One) over p.one")
    assert model.ground(data).bound.domains["D"] == other.ground(data).bound.domains["D"] == ("x", "y")
    assert relcrf.parse("domain D = open entity Page { predict label : D } template t(p: Page) over p.label").ground(
        data
    ).bound.domains["D"] == ("s0", "s1", "s2")


def test_manifest_without_tables_reads_folder(folder):
    data = dataset(folder, "[split]\nfolds = 3\nseed = 7\n")
    assert sorted(data.tables) == ["links", "pages"]
    assert data.split == SplitPlan("folds", folds=3, seed=7)


def test_numbers_get_leading_zeros(folder):
    (folder / "code.csv").write_text('id,code\n1,7\n2,123\n3,\n4,0007\n5,x7\n6,12345\n7," 8 "\n')
    text = '[tables.code]\nfile = "code.csv"\ndigits = { code = 4 }\ncolumns = { number = "code" }\n'
    expected = ["0007", "0123", None, "0007", "x7", "12345", "0008"]
    assert [row[1] for row in rows(dataset(folder, text), "code")] == expected
    query = '[tables.raw]\nfile = "code.csv"\n[tables.code]\nsql = "FROM raw ORDER BY id"\ndigits = { code = 4 }\n'
    assert [row[1] for row in rows(dataset(folder, query), "code")] == expected


def test_statements_apply_to_all_files_of_a_pattern(folder):
    for k in (1, 2):
        sql = f"COPY (SELECT {k} AS code, {{'x': 'n/a', 'y': {{'z': 5}}}} AS s) TO '{folder / f'p{k}.parquet'}'"
        duckdb.sql(sql)
    text = '[tables.p]\nfile = "p*.parquet"\nmissing = ["n/a"]\ndigits = { code = 3, s_y_z = 2 }\n'
    data = dataset(folder, text)
    assert data.find_table("p").columns == ("code", "s_x", "s_y_z")
    assert sorted(rows(data, "p")) == [("001", None, "05"), ("002", None, "05")]


def test_fields_of_a_database_and_of_a_query_are_columns(folder):
    with duckdb.connect(str(folder / "web.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a_b, 2 AS \"a.b\", {'b': 3, 'c': 4} AS a")
    text = '[tables.t]\nduckdb = "web.duckdb"\n[tables.q]\nsql = "SELECT {\'k\': a_c} AS v FROM t"\n'
    data = dataset(folder, text)
    assert data.find_table("t").columns == ("a_b", "a.b", "a.b.2", "a_c") and rows(data, "t") == [(1, 2, 3, 4)]
    assert data.find_table("q").columns == ("v_k",) and rows(data, "q") == [(4,)]


def test_message_names_the_digits_of_keys_with_leading_zeros(tmp_path):
    folder = write_tables(tmp_path, person=[{"id": "007"}, {"id": "018"}], knows=[{"x": "7", "y": "18"}])
    model = relcrf.parse(
        "entity Person { predict a: bool } relation Knows(x: Person, y: Person) template t(p: Person) over p.a"
    )
    with pytest.raises(relcrf.DataError) as caught:
        model.ground(relcrf.Dataset(folder))
    assert [(d.code, "digits = { x = 3 }" in d.hint) for d in caught.value.diagnostics] == [
        ("E219", True),
        ("E219", False),
    ]
    text = '[tables.person]\n[tables.knows]\nfile = "knows.csv"\ndigits = { x = 3, y = 3 }\n'
    assert model.ground(dataset(folder, text)).graph.n_variables == 2


def test_queries_read_texts_without_surrounding_blanks(folder):
    (folder / "key.csv").write_text('id,value\np1 ,"  "\n p2,b \n')
    text = (
        '[tables.page]\nfile = "pages.csv"\n[tables.key]\nfile = "key.csv"\n'
        '[tables.found]\nsql = "SELECT id, value FROM page JOIN key USING (id) ORDER BY id"\n'
    )
    assert rows(dataset(folder, text), "found") == [("p1", None), ("p2", "b")]


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ('column = "school"', SplitPlan("column", "school")),
        ('column = "school"\nholdout = ["s1"]', SplitPlan("column", "school", holdout=("s1",))),
        ("hide = 0.1", SplitPlan("hide", fraction=0.1)),
        ("hide = 0.25\nseed = 3", SplitPlan("hide", fraction=0.25, seed=3)),
    ],
)
def test_split_section_is_read(folder, text, plan):
    assert dataset(folder, f"[split]\n{text}\n").split == plan


def test_database_tables_and_queries_are_combined(folder):
    with sqlite3.connect(folder / "web.sqlite") as database:
        database.execute("CREATE TABLE author (page, name)")
        database.execute("INSERT INTO author VALUES ('p1', 'Ann'), ('p2', NULL)")
    database.close()
    data = dataset(
        folder,
        '''
[tables.third]
sql = "SELECT * FROM second WHERE \\"school\\" = 's1';"

[tables.second]  # made of a file, and used above
sql = """
WITH labelled AS (SELECT * FROM Page WHERE label = 'y')  -- file = "no key"
SELECT labelled.*, name FROM labelled LEFT JOIN author ON author.page = labelled.id
"""

[tables.page]
file = "pages.csv"

[tables.author]
sqlite = "web.sqlite"
''',
    )
    assert list(data.tables) == ["third", "second", "page", "author"]
    assert rows(data, "third") == [("p1", "y", "s1", "Ann")]
    assert len(rows(data, "second")) == 3
    assert data.find_table("second").location == f"{folder / 'dataset.toml'}, table 'second'"


def test_query_result_can_be_ground_repeatedly(folder):
    data = dataset(
        folder,
        '[tables.page]\nfile = "pages.csv"\n[tables.link]\nsql = "SELECT id AS source, id AS target FROM page"\n',
    )
    model = relcrf.parse(
        "domain D = { x, y } entity Page { predict label : D } relation Link(source: Page, target: Page)\n"
        "template t(p: Page) where Link(p, p) over p.label"
    )
    for _ in range(2):
        assert model.ground(data).graph.n_variables == 6


SMOKES = "entity Person predict relation Smokes(x: Person) template t(x: Person) over Smokes(x)"


def test_unlisted_tuples_of_open_table_are_queries(tmp_path):
    folder = write_tables(tmp_path, person=[{"id": "a"}, {"id": "b"}], smokes=[{"x": "a"}])
    text = '[tables.person]\nfile = "person.csv"\n[tables.smokes]\nfile = "smokes.csv"\n'
    closed = relcrf.parse(SMOKES).ground(dataset(folder, text)).states
    opened = relcrf.parse(SMOKES).ground(dataset(folder, text + "open = true\n")).states
    assert (closed.tolist(), opened.tolist()) == ([1, 0], [1, -1])


@pytest.mark.parametrize(
    ("text", "code", "line", "message", "hint"),
    [
        ("[tables.page\n", "E230", 1, "invalid TOML", "quote strings"),
        ("[tables.page]\nfile = pages.csv\n", "E230", 2, "invalid TOML", "quote strings"),
        ("a = '''\n", "E230", 2, "invalid TOML", "quote strings"),
        ("[table.page]\nfile = 'pages.csv'\n", "E231", 1, "no key 'table'", "did you mean 'tables'?"),
        ("[tables.page]\nfile = 'pages.csv'\nopne = true\n", "E231", 3, "no key 'opne'", "did you mean 'open'?"),
        (
            "[tables]\npage = { file = 'pages.csv', colums = {} }\n",
            "E231",
            2,
            "no key 'colums'",
            "did you mean 'columns'?",
        ),
        ("\n[tables.page]\nfile = 3\n", "E232", 3, "'file' must be a string, not 3", None),
        ("[tables.page]\nfile = 'pages.csv'\nopen = 1\n", "E232", 3, "'open' must be true or false, not 1", None),
        (
            "[tables.page]\nfile = 'pages.csv'\n[tables.page.columns]\na = 1\n",
            "E232",
            4,
            "'a' must be a string, not 1",
            "file_name",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\ndigits = { id = 0 }\n",
            "E232",
            3,
            "integer from 1 to 100, not 0",
            "digits = {",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\ndigits = { scool = 4 }\n",
            "E232",
            3,
            "no column 'scool'",
            "did you mean 'school'?",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\nwords = { a = 0 }\n",
            "E232",
            3,
            "the name of a column of texts, not 0",
            "words = {",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\nwords = { a = 'scool' }\n",
            "E232",
            3,
            "no column 'scool'",
            "did you mean 'school'?",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\nwords = { SCHOOL = 'school' }\n",
            "E232",
            3,
            "already has a column 'SCHOOL'",
            "choose another name",
        ),
        ("tables = 1\n", "E232", 1, "'tables' must be a table, not 1", None),
        ("[tables]\npage = 'pages.csv'\n", "E232", 2, "'tables.page' must be a TOML table", "[tables.page]"),
        ("[tables.page]\nopen = true\n", "E232", 1, "table 'page' is missing", "did you mean 'pages'?"),
        (
            "[tables.page]\nopen = true\n[tables.x]\nfile = 'pages.csv'\n",
            "E232",
            1,
            "the table 'page' has no source, and no file has its name",
            "set one of file, sqlite, duckdb, postgres, sql",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\nsql = 'SELECT 1'\n",
            "E232",
            1,
            "has several sources: file, sql",
            "one of",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\nschema = 'x'\n",
            "E232",
            3,
            "'schema' cannot be combined with 'file'",
            "remove it",
        ),
        ("[tables.page]\nfile = 'page.csv'\n", "E203", 2, "'page.csv' does not exist", "did you mean 'pages.csv'?"),
        ("[tables.page]\nfile = 'dataset.toml'\n", "E203", 2, "is not a table file", "the name of a table file"),
        ("[tables.page]\nfile = '/etc/passwd'\n", "E233", 2, "outside the folder", "copy the file"),
        ("[tables.page]\nfile = '../data/../../x.csv'\n", "E233", 2, "outside the folder", "copy the file"),
        ("[tables.page]\nsqlite = '../x.db'\n", "E233", 2, "outside the folder", "copy the file"),
        (
            "[tables.page]\nfile = 'pages.csv'\ncolumns = { a = 'lable' }\n",
            "E212",
            3,
            "has no column 'lable'",
            "'label'",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\ncolumns = { school = 'label' }\n",
            "E232",
            3,
            "another column 'school'",
            "rename",
        ),
        (
            "[tables.page]\nfile = 'pages.csv'\ncolumns = { a_b = 'label', aB = 'id' }\n",
            "E232",
            3,
            "two columns",
            "case",
        ),
        ('[tables.page]\nfile = "a\\u0000b.csv"\n', "E203", 2, "is not a file name", None),
        (f"[tables.page]\nfile = '{'a' * 5000}'\n", "E203", 2, "does not exist", None),
        (f"[tables.page]\nfile = '{'a/' * 3000}'\n", "E203", 2, "does not exist", None),
        ("[tables.page]\nfile = 'pages.csv'\ntable = 'x'\n", "E232", 2, "has no table 'x'", "pages"),
        ("[tables.page]\npostgres = 'host=x'\n", "E232", 2, "not a PostgreSQL URL", "postgresql://"),
        (
            "[tables.page]\npostgres = 'postgresql://h/d?sslkey=/etc/shadow'\n",
            "E232",
            2,
            "sets sslkey",
            "postgresql://",
        ),
        *(
            (f"[tables.page]\npostgres = '{url}'\n", "E232", 2, message, "postgresql://")
            for url, message in (
                ("postgresql:///d?host=/tmp", "names a socket folder"),
                ("postgresql://%2Ftmp/d", "names a socket folder"),
                ("postgresql://127.0.0.1:1,%2Ftmp/d", "names a socket folder"),
                ("postgresql://127.0.0.1:1,%40name/d", "names a socket folder"),
                ("postgresql:///d", "the URL has no host"),
                ("postgresql://", "the URL has no host"),
                ("postgresql://ann@:5432/d", "the URL has no host"),
                ("postgresql://127.0.0.1:1,/d", "the URL has no host"),
                ("postgresql://127.0.0.1:1/d?host=", "the URL has no host"),
            )
        ),
        (
            "[tables.page]\npostgres = 'postgresql://h/d'\nsql = 'SELECT 1'\ntable = 'x'\n",
            "E232",
            3,
            "both 'sql'",
            "one of",
        ),
        ("[split]\ncolumn = 'a'\nfolds = 2\n", "E232", 1, "cannot be combined", "one of column, folds, hide"),
        ("[split]\nseed = 2\n", "E232", 1, "the split has no kind", "one of column, folds, hide"),
        ("[split]\nfolds = 1\n", "E232", 2, "2 to 10,000 folds", None),
        ("[split]\nhide = 1.5\n", "E232", 2, "between 0 and 1", None),
        ("[split]\nhide = true\n", "E232", 2, "'hide' must be a number, not true", None),
        ("[split]\nhide = 0.1\nholdout = ['x']\n", "E232", 3, "'holdout' cannot be combined with 'hide'", "remove it"),
        ("[split]\ncolumn = 'a'\nholdout = [1]\n", "E232", 3, "a list of strings", "holdout ="),
        ("[split]\nfold = 2\n", "E231", 2, "no key 'fold'", "did you mean 'folds'?"),
    ],
)
def test_problem_is_reported_with_its_line(folder, text, code, line, message, hint):
    (problem,) = problems(folder, text)
    assert (problem.code, problem.location.line) == (code, line), problem.render()
    assert message in problem.message
    assert (hint or "") in (problem.hint or "")


def test_all_problems_are_reported_together(folder):
    found = problems(folder, "[tables.a]\nfile = 'a.csv'\n[tables.b]\nfile = 1\n[split]\nfolds = 'x'\nkind = 1\n")
    assert [(d.code, d.location.line) for d in found] == [("E203", 2), ("E232", 4), ("E232", 6), ("E231", 7)]


def test_link_out_of_folder_raises_e233(folder, tmp_path):
    (tmp_path / "secret.csv").write_text("id\nsecret\n")
    (folder / "inside.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "below").symlink_to(tmp_path)
    for file in ("inside.csv", "below/secret.csv"):
        (problem,) = problems(folder, f"[tables.page]\nfile = '{file}'\n")
        assert problem.code == "E233"


def test_manifest_that_is_not_utf8_raises_e230(folder):
    (folder / "dataset.toml").write_bytes(b"\xff")
    with pytest.raises(DataError, match="E230"):
        relcrf.Dataset(folder)


SECRET = "id,word\n1,secret\n"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM read_blob('{secret}')",
        "SELECT * FROM read_json('{secret}')",
        "SELECT * FROM '{secret}'",
        'SELECT * FROM "{secret}"',
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{secret}')",
        "SELECT * FROM query('SELECT * FROM read_csv(''{secret}'')')",
        "SELECT (SELECT max(content) FROM read_text('{secret}')) AS c FROM page",
        "WITH s AS (FROM read_csv('{secret}')) SELECT * FROM s",
        "COPY page TO '{folder}/out.csv'",
        "SELECT 1; COPY page TO '{folder}/out.csv'",
        "SELECT 1); COPY page TO '{folder}/out.csv' --",
        "ATTACH '{folder}/other.duckdb' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "SET enable_external_access = true",
        "EXPORT DATABASE '{folder}/out'",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE page",
        "INSERT INTO page VALUES (1)",
        "SELECT * FROM python_variable",
        "SELECT * FROM other.main.page",
        "SELECT getenv('HOME')",
        "SELECT * FROM 'https://localhost:1/x.csv'",
        "SELEC 1",
        "SELECT nothing FROM page",
        "",
        f"SELECT {'(' * 300}1{')' * 300}",
    ],
)
def test_sql_outside_the_manifest_raises_e234(folder, tmp_path, sql):
    python_variable = {"a": [1]}
    (tmp_path / "secret.csv").write_text(SECRET)
    before = sorted(tmp_path.rglob("*"))
    text = sql.format(secret=tmp_path / "secret.csv", folder=tmp_path)
    (problem,) = problems(folder, f"[tables.page]\nfile = 'pages.csv'\n[tables.x]\nsql = '''{text}'''\n")
    assert (problem.code, problem.location.line) == ("E234", 4), problem.render()
    assert "secret\n" not in problem.render()
    assert [p for p in sorted(tmp_path.rglob("*")) if p.name != "dataset.toml"] == before, python_variable


def test_sql_cannot_read_files_of_the_folder(folder):
    (problem,) = problems(folder, "[tables.x]\nsql = \"SELECT * FROM 'pages.csv'\"\n")
    assert problem.code == "E234"


def test_invalid_sql_gets_hint(folder):
    text = "[tables.page]\nfile = 'pages.csv'\n[tables.x]\nsql = 'SELECT * FROM pages'\n"
    (problem,) = problems(folder, text)
    assert "did you mean 'page'?" in problem.hint
    text = "[tables.a]\nsql = 'SELECT * FROM b'\n[tables.b]\nsql = 'SELECT * FROM a'\n"
    (problem,) = problems(folder, text)
    assert "the tables a, b depend on each other" in problem.message


def test_damaged_file_used_by_sql_raises_e204(folder):
    (folder / "pages.csv").write_text("id,label\n1,2\n3,4,5\n")
    (problem,) = problems(folder, "[tables.page]\nfile = 'pages.csv'\n[tables.x]\nsql = 'SELECT * FROM page'\n")
    assert problem.code == "E204"


def test_query_collects_entities_of_ground_atoms(tmp_path):
    (tmp_path / "smoke.db").write_text("Friends(Anna, Bob)\nFriends(Bob, Carl)\nSmokes(Anna)\n!Smokes(Bob)\n")
    data = dataset(
        tmp_path,
        """
[tables.friends]
file = "smoke.db"
table = "Friends"
[tables.smokes]
file = "smoke.db"
table = "Smokes"
open = true
[tables.person]
sql = "SELECT a0 AS id FROM friends UNION SELECT a1 FROM friends UNION SELECT a0 FROM smokes"
""",
    )
    grounding = relcrf.parse(
        "entity Person relation Friends(a: Person, b: Person) predict relation Smokes(x: Person)\n"
        "template t(a: Person, b: Person) where Friends(a, b) over Smokes(a) == Smokes(b)"
    ).ground(data)
    assert {grounding.variable_name(v): int(s) for v, s in enumerate(grounding.states)} == {
        "Smokes(Anna)": 1,
        "Smokes(Bob)": 0,
        "Smokes(Carl)": -1,
    }
    with pytest.raises(DataError, match=r"E232.*has 2 tables"):
        dataset(tmp_path, '[tables.friends]\nfile = "smoke.db"\n')
