"""Readers: one table in every format, which must agree, and diagnostics of invalid files."""

import datetime
import gzip
import json
import re
import sqlite3
import struct
import subprocess
import sys

import duckdb
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather

import relcrf
from relcrf.data.frame import Frame
from relcrf.data.readers.sqlite import copy_tables
from relcrf.data.readers.zstandard import require_complete_zst
from relcrf.data.store import Store, TableStore
from relcrf.errors import DataError, UsageError

ROWS = [
    {"id": 1, "name": 'Ann, "the" first', "weight": 1.5, "glad": True},
    {"id": 2, "name": None, "weight": None, "glad": None},
    {"id": 30, "name": "Zoë", "weight": -2.0, "glad": False},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
TEXTS = [("1", 'Ann, "the" first', 1.5, True), ("2", None, None, None), ("30", "Zoë", -2.0, False)]


def write_csv(path, separator=","):
    pd.DataFrame(ROWS).to_csv(path, index=False, sep=separator)


def write_jsonl(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in ROWS)


def write_sqlite(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE thing (id, name, weight, glad)")
        database.executemany("INSERT INTO thing VALUES (:id, :name, :weight, :glad)", ROWS)
    database.close()


def write_duckdb(path):
    with duckdb.connect(str(path)) as connection:
        connection.register("rows", pa.table(COLUMNS))
        connection.execute("CREATE TABLE thing AS FROM rows")


def write_stream(path):
    table = pa.table(COLUMNS)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


FILES = {
    "thing.csv": write_csv,
    "thing.csv.gz": write_csv,
    "thing.csv.zst": lambda path: path.write_bytes(pa.compress(csv_text(), "zstd", asbytes=True)),
    "thing.tsv": lambda path: write_csv(path, "\t"),
    "thing.tsv.gz": lambda path: write_csv(path, "\t"),
    "thing.jsonl": write_jsonl,
    "thing.ndjson": write_jsonl,
    "thing.jsonl.gz": write_jsonl,
    "thing.parquet": lambda path: pd.DataFrame(COLUMNS).to_parquet(path),
    "thing.feather": lambda path: feather.write_feather(pa.table(COLUMNS), str(path)),
    "thing.arrow": write_stream,
    "any.sqlite": write_sqlite,
    "any.db": write_sqlite,
    "any.duckdb": write_duckdb,
    "any.ddb": write_duckdb,
    "duck.db": write_duckdb,
}
OBJECTS = {
    "pandas": lambda: pd.DataFrame(ROWS),
    "polars": lambda: pl.DataFrame(ROWS),
    "lazy": lambda: pl.DataFrame(ROWS).lazy(),
    "arrow": lambda: pa.table(COLUMNS),
    "stream": lambda: pa.table(COLUMNS).to_reader(),
    "relation": lambda: duckdb.connect().from_arrow(pa.table(COLUMNS)),
    "lists": lambda: COLUMNS,
    "arrays": lambda: {name: np.array(values, dtype=object) for name, values in COLUMNS.items()},
    "mixed": lambda: {**COLUMNS, "id": np.array(COLUMNS["id"])},
}
MODEL = """
domain Sure = { true, false }
entity Thing { name : string, weight : real, glad : bool, predict kind : Sure }
template t(x: Thing) over x.kind by x.weight, x.glad
"""


def csv_text():
    return pd.DataFrame(ROWS).to_csv(index=False).encode()


def read_cells(dataset):
    """Return the cells of the raw table as text and numbers, on which all formats must agree."""
    table = dataset.find_table("thing")
    assert table.columns == ("id", "name", "weight", "glad")
    cells = (
        "CAST(CAST(id AS DOUBLE)::BIGINT AS VARCHAR), nullif(name, ''), TRY_CAST(CAST(weight AS VARCHAR) AS DOUBLE), "
        "TRY_CAST(CAST(glad AS VARCHAR) AS BOOLEAN)"
    )
    cursor, _ = dataset.new_schema()
    return [
        tuple(None if v != v else v for v in row)
        for row in cursor.execute(f"SELECT {cells} FROM {table.scan}").fetchall()
    ]


@pytest.mark.parametrize("name", FILES)
def test_folder_with_one_file_has_its_table(tmp_path, name):
    FILES[name](tmp_path / name)
    (tmp_path / "README.md").write_text("no table")
    dataset = relcrf.Dataset(tmp_path)
    assert len(dataset.tables) == 1
    assert read_cells(dataset) == TEXTS
    assert relcrf.parse(MODEL).ground(dataset).graph.n_variables == 3


@pytest.mark.parametrize("name", FILES)
def test_single_file_and_named_file_have_its_table(tmp_path, name):
    FILES[name](tmp_path / name)
    assert read_cells(relcrf.Dataset(tmp_path / name)) == TEXTS
    assert read_cells(relcrf.Dataset({"thing": tmp_path / name})) == TEXTS


@pytest.mark.parametrize("name", OBJECTS)
def test_python_values_have_the_same_cells(name):
    dataset = relcrf.Dataset({"thing": OBJECTS[name]()})
    assert read_cells(dataset) == TEXTS
    assert read_cells(dataset) == TEXTS  # a stream can be read only once, but its rows are stored
    assert relcrf.parse(MODEL).ground(dataset).graph.n_variables == 3


WITHOUT_PYARROW = """
import sys

sys.modules["pyarrow"] = None
import polars
import relcrf

print(*relcrf.Dataset({"thing": polars.DataFrame({"id": [1, 2]})}).find_table("thing").columns)
"""


def test_polars_needs_no_pyarrow():
    """Run in a separate process: DuckDB caches the packages that it has imported."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYARROW], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("id\n", "")


def test_lists_and_dates_keep_their_types(tmp_path):
    (tmp_path / "t.jsonl").write_text(
        '{"id": 9007199254740993, "words": ["a", "b"], "day": "2024-01-31", "vector": [1, 2.5], "more": {"x": 1}, "mixed": 1}\n'
        '{"id": 2, "words": [], "day": "2024-02-01", "vector": [3, 4], "mixed": "one"}\n'
    )
    table = relcrf.Dataset(tmp_path).find_table("t")
    assert dict(zip(table.columns, table.types, strict=True)) == {
        "id": "BIGINT", "words": "VARCHAR[]", "day": "VARCHAR", "vector": "DOUBLE[]", "more_x": "BIGINT", "mixed": "VARCHAR",
    }  # fmt: skip
    dataset = relcrf.Dataset(
        {"t": {"words": [["a"], [], None], "vector": np.eye(3), "day": [datetime.date(2024, 1, 31)] * 3}}
    )
    assert dataset.find_table("t").types == ("VARCHAR[]", "DOUBLE[]", "DATE")


def test_sqlite_columns_have_common_type_of_cells(tmp_path, monkeypatch):
    monkeypatch.setattr("relcrf.data.readers.sqlite.BATCH_ROWS", 2)
    with sqlite3.connect(tmp_path / "web.sqlite3") as database:
        database.execute("CREATE TABLE a (n INTEGER, x REAL, t TEXT, mixed, missing, bytes)")
        rows = [(2**62, 0.1, "5", 1, None, b"\x01"), (-1, None, "", "one", None, None), (3, 2, "x", 2.5, None, b"\x02")]
        database.executemany("INSERT INTO a VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.execute("CREATE VIEW big AS SELECT n FROM a WHERE n > 0")
        database.execute("CREATE TABLE empty (id)")
    database.close()
    before = (tmp_path / "web.sqlite3").read_bytes()
    dataset = relcrf.Dataset(tmp_path)
    assert sorted(dataset.tables) == ["a", "big", "empty"]
    table = dataset.find_table("a")
    assert table.types == ("BIGINT", "DOUBLE", "VARCHAR", "VARCHAR", "VARCHAR", "BLOB")
    assert table.location == f"{tmp_path / 'web.sqlite3'}, table 'a'"
    found = dataset.connection.execute(f"SELECT n, x, t, mixed, missing FROM {table.scan}").fetchall()
    assert found == [(2**62, 0.1, "5", "1", None), (-1, None, "", "one", None), (3, 2.0, "x", "2.5", None)]
    assert dataset.connection.execute(f"SELECT n FROM {dataset.find_table('big').scan}").fetchall() == [(2**62,), (3,)]
    assert (tmp_path / "web.sqlite3").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["web.sqlite3"]


def test_sqlite_tables_may_have_many_columns_and_views_may_fail(tmp_path):
    """SQLite limits the columns of a result to 2,000, and a view may name a table that was dropped."""
    columns = [f"pixels_{k}" for k in range(1200)]
    with sqlite3.connect(tmp_path / "all.sqlite") as database:
        database.execute(f"CREATE TABLE digit (id, {', '.join(columns)})")
        cells = [0.5] * 1198 + [None, "x"]
        database.execute(f"INSERT INTO digit VALUES (?{', ?' * len(columns)})", [1, *cells])
        database.execute("CREATE VIEW stale AS SELECT * FROM nowhere")
    database.close()
    dataset = relcrf.Dataset(tmp_path)
    assert dataset.tables["digit"].types == ("BIGINT", *["DOUBLE"] * 1198, "VARCHAR", "VARCHAR")
    assert set(dataset.tables) == {"digit"}
    (tmp_path / "dataset.toml").write_text('[tables.old]\nsqlite = "all.sqlite"\ntable = "stale"\n')
    for read in (lambda: dataset.find_table("stale"), lambda: relcrf.Dataset(tmp_path)):
        with pytest.raises(DataError) as caught:
            read()
        (problem,) = caught.value.diagnostics
        assert (problem.code, problem.notes) == ("E204", ("no such table: main.nowhere",))
        assert str(problem.location) == f"{tmp_path / 'all.sqlite'}, table 'stale'"


EVIDENCE = """// people
Friends(Anna, Bob)
Friends("Anna \\"A.\\", Lee", Bob)   // quoted

Smokes(Anna)
!Smokes(Bob)
?Smokes(Carl)
 Category( p1 ) = "course"
Category(p2)=faculty
"""


def test_alchemy_file_has_table_per_predicate(tmp_path, monkeypatch):
    monkeypatch.setattr("relcrf.data.readers.alchemy.BATCH_ROWS", 2)
    (tmp_path / "smoke.db").write_text(EVIDENCE)
    dataset = relcrf.Dataset(tmp_path)
    found = {}
    for table in dataset.tables.values():
        found[table.name] = (table.columns, dataset.connection.execute(f"SELECT * FROM {table.scan}").fetchall())
    assert found == {
        "Friends": (("a0", "a1"), [("Anna", "Bob"), ('Anna "A.", Lee', "Bob")]),
        "Smokes": (("a0", "value"), [("Anna", "true"), ("Bob", "false"), ("Carl", None)]),
        "Category": (("a0", "value"), [("p1", "course"), ("p2", "faculty")]),
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Friends(Anna, Bob", "the line is not a ground atom"),
        ("0.7 Smokes(Anna)", "the line is not a ground atom"),
        ("Smokes(Anna) Smokes(Bob)", "the line is not a ground atom"),
        ("Friends(Anna)", "Friends has 1 arguments, but 2 in an earlier line"),
        ("Friends(Anna, Bob) = yes", "Friends has both values and truth values"),
    ],
)
def test_invalid_alchemy_line_raises_e237(tmp_path, line, message):
    (tmp_path / "smoke.db").write_text(f"Friends(Anna, Bob)\n\n{line}\n")
    with pytest.raises(DataError) as caught:
        relcrf.Dataset(tmp_path)
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.location.line) == ("E237", 3)
    assert message in problem.message
    assert line in problem.render()


def test_networkx_graph_has_node_and_edge_tables():
    graph = nx.Graph()
    graph.add_node("a", kind="x", size=1)
    graph.add_node("b", size=2)
    graph.add_edge("a", "b", weight=0.5)
    dataset = relcrf.Dataset.from_networkx(graph, nodes="Page", edges="Link")
    rows = {
        n: dataset.connection.execute(f"SELECT * FROM {dataset.find_table(n).scan}").fetchall()
        for n in ("page", "link")
    }
    assert rows == {"page": [("a", "x", 1), ("b", None, 2)], "link": [("a", "b", 0.5)]}
    assert dataset.find_table("link").columns == ("source", "target", "weight")
    assert sorted(t.name for t in relcrf.Dataset({"web": graph}).tables.values()) == ["web_edges", "web_nodes"]


def test_networkx_grids_and_multigraphs():
    grid = relcrf.Dataset.from_networkx(nx.grid_2d_graph(2, 2))
    assert grid.connection.execute(f"SELECT min(id) FROM {grid.find_table('node').scan}").fetchall() == [("(0, 0)",)]
    several = nx.MultiDiGraph([(1, 2), (1, 2), (2, 1)])
    dataset = relcrf.Dataset.from_networkx(several)
    assert dataset.connection.execute(f"SELECT * FROM {dataset.find_table('edge').scan}").fetchall() == [
        (1, 2, 0),
        (1, 2, 1),
        (2, 1, 0),
    ]
    graph = nx.Graph()
    graph.add_node(1, id="one")
    with pytest.raises(DataError, match=r"E203.*'id'"):
        relcrf.Dataset.from_networkx(graph)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("t.parquet", b"PAR1 no", "E204"),
        ("t.feather", b"ARROW1 no", "E204"),
        ("t.arrow", b"no", "E204"),
        ("t.jsonl", b'{"id": 1}\n{"id":\n', "E204"),
        ("t.sqlite", b"no", "E204"),
        ("t.duckdb", b"no", "E204"),
        ("t.duckdb", b"checksumDUCK no", "E204"),
        ("t.sqlite", b"SQLite format 3\x00 no", "E204"),
        ("t.tsv", b"a\tb\n1\t2\t3\n", "E204"),
        ("t.db", b"", "E202"),
        ("t.txt", b"", "E202"),
    ],
)
def test_file_with_wrong_content_raises_error(tmp_path, name, content, code):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        relcrf.Dataset(tmp_path).connection.execute(
            f"SELECT * FROM {relcrf.Dataset(tmp_path).find_table('t').scan}"
        ).fetchall()
    (problem,) = caught.value.diagnostics
    assert problem.code == code


@pytest.mark.parametrize(
    "extra", [b"", struct.pack("<II", 0x184D2A5F, 3) + b"abc", pa.compress(b'{"id": 1}\n', "zstd", asbytes=True)]
)
def test_every_cut_of_a_zst_file_is_detected(extra, tmp_path):
    path = tmp_path / "thing.jsonl.zst"
    frame = pa.compress(b'{"id": 2}\n' * 5, "zstd", asbytes=True)
    for end in range(1, len(frame + extra)):
        path.write_bytes((frame + extra)[:end])
        if end == len(frame):
            require_complete_zst(path)
            continue
        with pytest.raises(DataError, match="E204"):
            relcrf.Dataset(path) if end == 9 else require_complete_zst(path)
    path.write_bytes(frame + extra)
    dataset = relcrf.Dataset(path)
    n_rows = 5 + (extra[:4] == frame[:4])
    assert dataset.connection.execute(f"SELECT count(id) FROM {dataset.tables['thing'].scan}").fetchall() == [(n_rows,)]


def test_json_lines_with_many_fields_have_a_column_for_each(tmp_path):
    fields = {f"f{k}": k + 0.5 for k in range(300)}
    (tmp_path / "thing.jsonl").write_text("".join(json.dumps({"id": k, **fields}) + "\n" for k in range(3)))
    assert [*relcrf.Dataset(tmp_path).tables["thing"].columns] == ["id", *fields]


def test_items_of_json_lists_are_separate_values(tmp_path):
    lists = {"days": ["2024-01-31", "2024-02-01"], "mixed": [1, "a", True], "none": [], "pairs": [["2024-01-31"], []]}
    (tmp_path / "thing.jsonl").write_text(json.dumps({"id": 1, **lists}) + "\n")
    dataset = relcrf.Dataset(tmp_path)
    table = dataset.tables["thing"]
    assert table.types == ("BIGINT", "VARCHAR[]", "VARCHAR[]", "VARCHAR[]", "VARCHAR[][]")
    assert dataset.connection.execute(f"FROM {table.scan}").fetchall() == [
        (1, lists["days"], ["1", "a", "true"], [], lists["pairs"])
    ]


def test_fields_of_json_lines_have_one_spelling(tmp_path):
    path = tmp_path / "thing.jsonl"
    path.write_text('{"id": 1, "name": "a", "name_2": null}\n{"id": 2, "Name": "b"}\n')
    with pytest.raises(DataError) as caught:
        relcrf.Dataset(tmp_path)
    (problem,) = caught.value.diagnostics
    assert problem.code == "E204" and "'Name' is also spelled" in problem.notes[0]
    path.write_text('{"id": 1, "name": "a", "name_2": null}\n{"id": 2, "name": "b"}\n')
    assert [*relcrf.Dataset(tmp_path).tables["thing"].columns] == ["id", "name", "name_2"]


def test_decimals_and_integers_are_the_same_keys(tmp_path):
    """Spark writes NUMBER columns of Oracle as DECIMAL(38, 10)."""
    connection = duckdb.connect()
    for name, query in (
        ("item", "SELECT i AS id FROM range(101) t(i)"),
        ("link", "SELECT i::DECIMAL(38, 10) AS source, (i // 2)::DECIMAL(12, 2) AS target FROM range(101) t(i)"),
    ):
        connection.sql(f"COPY ({query}) TO '{tmp_path / name}.parquet'")
    model = relcrf.parse(
        "domain D = { x, y }\nentity Item { predict kind: D }\nrelation Link(source: Item, target: Item)\n"
        "template t(a: Item, b: Item) where Link(a, b) over a.kind, b.kind"
    )
    grounding = model.ground(relcrf.Dataset(tmp_path))
    assert grounding.variable_names(np.arange(3)).tolist() == ["Item(0).kind", "Item(1).kind", "Item(2).kind"]
    assert sum(group.n_factors for group in grounding.graph.groups) == 101


def test_column_with_the_exact_name_is_found_first(tmp_path):
    (tmp_path / "visit.csv").write_text("id,user_id,userid\nv1,a,b\n")
    table = relcrf.Dataset(tmp_path).tables["visit"]
    assert [table.column(name) for name in ("user_id", "userid", "UserId")] == ["user_id", "userid", "user_id"]


def test_folder_without_tables_names_each_suffix_once(tmp_path):
    with pytest.raises(DataError, match="E202") as caught:
        relcrf.Dataset(tmp_path)
    suffixes = re.findall(r"\.\w+(?:\.\w+)?", caught.value.diagnostics[0].hint)
    assert {".csv", ".db", ".tsv.gz"} < {*suffixes} and len(suffixes) == len({*suffixes})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (5, "has type int and is not a data frame"),
        (None, "has type NoneType and is not a data frame"),
        ([1], "has type list and is not a data frame"),
        ({}, "has no columns"),
        ({"a": [1], "b": [1, 2]}, "different lengths"),
        ({"a": "text"}, "column 'a' of table 't' has type str"),
        ({"a": [object()]}, "a value of an unsupported type"),
        ("nowhere.csv", "does not exist"),
    ],
)
def test_value_that_is_not_a_table_raises_e203(table, message):
    with pytest.raises(DataError, match="E203") as caught:
        relcrf.Dataset({"t": table})
    assert message in str(caught.value)


def test_missing_package_of_format_raises_e351(tmp_path, monkeypatch):
    write_stream(tmp_path / "thing.arrow")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError) as caught:
        relcrf.Dataset(tmp_path)
    assert [d.code for d in caught.value.diagnostics] == ["E351"]
    assert "pip install 'relcrf[frames]'" in str(caught.value)
    with pytest.raises(UsageError, match="E351"):
        Frame({"a": np.arange(2)}).write(tmp_path / "out.feather")


FRAME = Frame({"id": np.array(["a", "b"], dtype=object), "p": np.array([0.25, 1.0]), "n": np.array([1, 2])})


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "arrow", "feather"])
def test_written_frame_is_read_unchanged(tmp_path, ending):
    FRAME.write(tmp_path / f"out.{ending}")
    dataset = relcrf.Dataset(tmp_path)
    cells = "CAST(id AS VARCHAR), CAST(p AS DOUBLE), CAST(n AS BIGINT)"
    assert (
        dataset.connection.execute(f"SELECT {cells} FROM {dataset.find_table('out').scan}").fetchall() == FRAME.rows()
    )
    assert [p.name for p in tmp_path.iterdir()] == [f"out.{ending}"]
    with pytest.raises(UsageError, match="E312"):
        FRAME.write(tmp_path / "out.xlsx")


def test_frame_converts_to_other_packages():
    assert FRAME.to_polars().rows() == FRAME.rows()
    assert FRAME.to_arrow().to_pylist() == FRAME.to_pandas().to_dict("records")
    empty = FRAME.take_rows(np.arange(0))
    assert empty.to_polars().schema == FRAME.to_polars().schema and empty.to_arrow().schema == FRAME.to_arrow().schema


def test_sqlite_rows_are_copied_in_batches(tmp_path, monkeypatch):
    """Check that a large database is copied in batches."""
    with sqlite3.connect(tmp_path / "big.sqlite") as database:
        database.execute(
            "CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 12000) "
            "SELECT i AS id, 'thing ' || i AS name FROM n"
        )
    database.close()
    sizes = []
    append = TableStore.append
    monkeypatch.setattr("relcrf.data.readers.sqlite.BATCH_ROWS", 5000)
    monkeypatch.setattr(TableStore, "append", lambda self, *a: (sizes.append(len(a[2][0])), append(self, *a)))
    copy_tables(tmp_path / "big.sqlite", "big", Store(), lambda step: None, None)
    assert sizes == [5000, 5000, 2000]
    dataset = relcrf.Dataset(tmp_path)
    found = f"SELECT count(*), sum(id), count(DISTINCT name) FROM {dataset.find_table('t').scan}"
    assert dataset.connection.execute(found).fetchall() == [(12_000, 12_000 * 12_001 // 2, 12_000)]
