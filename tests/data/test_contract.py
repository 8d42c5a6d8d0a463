"""Diagnostics of `relcrf check MODEL --data D` for tables that violate the model: file, row and column of each violation."""

import duckdb
import numpy as np
import pandas as pd
import pytest
from command import json_command

import relcrf

MODEL = """
domain Category = { course, faculty }
entity Page { length : real, checked : bool, predict category : Category }
entity School { founded : integer }
relation Link(source: Page, target: Page) { weight : real }
relation Member(page: Page, school: School)
template c(p: Page) over p.category by p.length
template m(p: Page, s: School) where Member(p, s) and s.founded > 1900 and p.checked over p.category
template l(p: Page, q: Page) where Link(p, q) over p.category == q.category
"""
GOOD = {
    "page": "id,length,checked,category\np1,1.5,true,course\np2,2,,faculty\np3,,false,\n",
    "school": "id,founded\ns1,1850\ns2,1901\n",
    "link": "source,target,weight\np1,p2,1\np2,p3,0.5\n",
    "member": "page,school\np1,s1\np2,s2\n",
}


def check(folder, capsys, monkeypatch, **changed):
    """Return the exit code and each diagnostic as (code, table, row, column, notes)."""
    folder.mkdir()
    (folder / "model.rcrf").write_text(MODEL)
    for name, text in (GOOD | changed).items():
        (folder / f"{name}.csv").write_text(text)
    code, found = json_command(capsys, monkeypatch, "check", folder / "model.rcrf", "--data", folder)
    errors = []
    for error in found.get("errors", []):
        location = error["location"]
        assert location["table"] == str(folder / f"{location['table'].rpartition('/')[2]}"), (
            "the file is named as a path"
        )
        table = location["table"].rpartition("/")[2].removesuffix(".csv")
        errors.append((error["code"], table, location["row"], location["column"], " ".join(error["notes"])))
    return code, errors


def test_valid_tables_have_no_errors(tmp_path, capsys, monkeypatch):
    assert check(tmp_path / "d", capsys, monkeypatch) == (0, [])


@pytest.mark.parametrize(
    ("table", "more", "expected"),
    [
        ("page", ",1,,course", ("E213", "page", 4, "id", "")),
        ("page", "p1,1,,course", ("E214", "page", 4, "id", "first occurrence in row 1")),
        ("page", "p4,long,,course", ("E215", "page", 4, "length", "")),
        ("page", "p4,1,maybe,course", ("E215", "page", 4, "checked", "")),
        ("page", "p4,1,,dean\np5,1,,Course", ("E216", "page", 4, "category", "also row 5 ('Course')")),
        ("school", "s3,18.5", ("E215", "school", 3, "founded", "")),
        ("link", "p1,,1", ("E213", "link", 3, "target", "")),
        ("link", "p9,p1,1\np8,p1,1", ("E219", "link", 3, "source", "also row 4 ('p8')")),
        ("link", "p1,p3,heavy", ("E215", "link", 3, "weight", "")),
        ("link", "p1,p2,7", ("E220", "link", 3, "weight", "first occurrence in row 1")),
        ("member", "p1,s9", ("E219", "member", 3, "school", "")),
    ],
)
def test_single_violation_is_located(tmp_path, capsys, monkeypatch, table, more, expected):
    code, found = check(tmp_path / "d", capsys, monkeypatch, **{table: f"{GOOD[table]}{more}\n"})
    assert (code, found) == (3, [expected])


def test_violations_of_columns_are_reported_together(tmp_path, capsys, monkeypatch):
    changed = {
        "page": GOOD["page"] + "p4,long,maybe,dean\n",
        "school": GOOD["school"] + "s3,soon\n",
        "link": GOOD["link"] + "p1,p3,heavy\n",
    }
    code, found = check(tmp_path / "d", capsys, monkeypatch, **changed)
    assert (code, found) == (
        3,
        [
            ("E215", "page", 4, "length", ""),
            ("E215", "page", 4, "checked", ""),
            ("E216", "page", 4, "category", ""),
            ("E215", "school", 3, "founded", ""),
            ("E215", "link", 3, "weight", ""),
        ],
    )


def test_violations_of_all_tables_are_reported_together(tmp_path, capsys, monkeypatch):
    changed = {
        "page": GOOD["page"] + ",1,,course\np1,1,,course\np2,long,maybe,dean\n",
        "school": GOOD["school"] + "s1,soon\ns1,1900\n",
        "link": GOOD["link"] + "p9,p1,heavy\np1,,1\n",
        "member": GOOD["member"] + "p7,s9\n",
    }
    code, found = check(tmp_path / "d", capsys, monkeypatch, **changed)
    assert code == 3
    assert sorted(row[:4] for row in found) == sorted(
        [
            ("E213", "page", 4, "id"),
            ("E214", "page", 5, "id"),
            ("E215", "page", 6, "length"),
            ("E215", "page", 6, "checked"),
            ("E216", "page", 6, "category"),
            ("E214", "school", 3, "id"),
            ("E215", "school", 3, "founded"),
            ("E219", "link", 3, "source"),
            ("E215", "link", 3, "weight"),
            ("E213", "link", 4, "target"),
            ("E219", "member", 3, "page"),
            ("E219", "member", 3, "school"),
        ]
    )


def test_duplicate_keys_are_listed(tmp_path, capsys, monkeypatch):
    changed = {"page": GOOD["page"] + "p1,1,,course\np2,1,,course\np1,1,,course\n"}
    _, found = check(tmp_path / "d", capsys, monkeypatch, **changed)
    ((code, table, row, column, notes),) = found
    assert (code, table, row, column) == ("E214", "page", 4, "id")
    assert "row 1" in notes and "row 5 ('p2')" in notes and "row 6 ('p1')" in notes


def test_tuple_with_two_values_is_located(tmp_path, capsys, monkeypatch):
    _, found = check(tmp_path / "d", capsys, monkeypatch, link=GOOD["link"] + "p1,p2,7\n")
    assert [row[:4] for row in found] == [("E220", "link", 3, "weight")]


WIDE_MODEL = """
domain Category = { course, faculty }
domain Word = { net, web }
entity Page {
    length : real
    checked : bool
    grade : 1..5
    seen : date
    visits : integer
    shape : vector
    words : bag of Word
    predict category : Category
}
entity School { founded : integer }
relation Link(source: Page, target: Page) { weight : real }
predict relation Topic(page: Page) : Category
template c(p: Page) over p.category by p.length
"""
WIDE_GOOD = {
    "page": "id,length,checked,grade,seen,visits,shape_0,shape_1,category\n"
    "p1,1.5,true,1,2024-01-31,3,0,1,course\np2,,,,,,1,0,\np3,2,false,5,2024-02-29,0,0.5,2,faculty\n",
    "page_word": "page,word,count\np1,net,1\np2,web,2\n",
    "school": "id,founded\ns1,1850\ns2,\n",
    "link": "source,target,weight\np1,p2,1\np2,p3,\n",
    "topic": "page,value\np1,course\np2,\n",
}
WIDE_BAD = {
    "page": WIDE_GOOD["page"]
    + ",1,true,1,2024-01-31,3,0,1,course\np1,1,true,1,2024-01-31,3,0,1,course\n"
    + "p6,long,maybe,9,31.1.20,1.5,0,x,dean\np7,wide,true,1,2024-01-31,3,0,1,course\n",
    "page_word": WIDE_GOOD["page_word"] + "p9,net,1\n,web,1\np3,zzz,1\np3,web,many\n",
    "school": WIDE_GOOD["school"] + "s1,soon\ns1,1900\ns2,1901\ns2,1902\ns1,1903\n",
    "link": WIDE_GOOD["link"] + "p9,p1,1\np1,,1\np1,p3,heavy\n",
    "topic": WIDE_GOOD["topic"] + "p8,course\np3,dean\n,course\np8,faculty\n",
}
WIDE_FAULTS = {
    ("E213", "page", 4, "id"): "",
    ("E214", "page", 5, "id"): "first occurrence in row 1",
    ("E215", "page", 6, "length"): "also row 7 ('wide')",
    ("E215", "page", 6, "checked"): "",
    ("E216", "page", 6, "grade"): "",
    ("E215", "page", 6, "seen"): "",
    ("E215", "page", 6, "visits"): "",
    ("E217", "page", 6, "shape_1"): "",
    ("E216", "page", 6, "category"): "",
    ("E219", "page_word", 3, "page"): "",
    ("E213", "page_word", 4, "page"): "",
    ("E216", "page_word", 5, "word"): "",
    ("E215", "page_word", 6, "count"): "",
    ("E214", "school", 3, "id"): "first occurrence in row 1 also row 4 ('s1'), row 5 ('s2') and 2 more",
    ("E215", "school", 3, "founded"): "",
    ("E219", "link", 3, "source"): "",
    ("E213", "link", 4, "target"): "",
    ("E215", "link", 5, "weight"): "",
    ("E219", "topic", 3, "page"): "also row 6 ('p8')",
    ("E216", "topic", 4, "value"): "",
    ("E213", "topic", 5, "page"): "",
}


def frames(tables):
    """Return the tables as data frames of texts."""
    made = {}
    for name, text in tables.items():
        header, *rows = (line.split(",") for line in text.splitlines())
        made[name] = pd.DataFrame([[cell or None for cell in row] for row in rows], columns=header, dtype=object)
    return made


def dataset(kind, tables, folder):
    """Return the tables as a folder of CSV or Parquet files, or as data frames."""
    if kind == "frame":
        return frames(tables)
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)
        if kind == "parquet":
            scan = f"read_csv('{folder / name}.csv', all_varchar = true)"
            duckdb.execute(f"COPY (FROM {scan}) TO '{folder / name}.parquet' (FORMAT parquet)")
            (folder / f"{name}.csv").unlink()
    return folder


def faults(model, data):
    """Return the notes of each diagnostic of a binding, by (code, table, row, column)."""
    with pytest.raises(relcrf.DataError) as caught:
        relcrf.parse(model).check(relcrf.Dataset(data))
    found = {}
    for error in caught.value.diagnostics:
        table = error.location.table.rpartition("/")[2].removeprefix("table ").strip("'").partition(".")[0]
        location = (error.code, table, error.location.row, error.location.column)
        assert location not in found, "each fault is reported once"
        found[location] = " ".join(error.notes)
    return found


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_all_faults_of_five_tables_are_found(tmp_path, kind):
    relcrf.parse(WIDE_MODEL).check(relcrf.Dataset(dataset(kind, WIDE_GOOD, tmp_path)))
    assert faults(WIDE_MODEL, dataset(kind, WIDE_BAD, tmp_path)) == WIDE_FAULTS
    assert len(WIDE_FAULTS) > 20


def test_check_command_reports_all_faults(tmp_path, capsys, monkeypatch):
    (tmp_path / "wide.rcrf").write_text(WIDE_MODEL)
    folder = tmp_path / "data"
    folder.mkdir()
    dataset("csv", WIDE_BAD, folder)
    code, found = json_command(capsys, monkeypatch, "check", tmp_path / "wide.rcrf", "--data", folder)
    locations = [
        (e["code"], e["location"]["table"], e["location"]["row"], e["location"]["column"]) for e in found["errors"]
    ]
    assert code == 3
    assert sorted(locations) == sorted((c, str(folder / f"{t}.csv"), row, column) for c, t, row, column in WIDE_FAULTS)


@pytest.mark.parametrize("single", sorted(WIDE_FAULTS))
def test_bad_table_causes_no_faults_in_other_tables(tmp_path, single):
    """Check that a table with faults causes none in other tables, unless they refer to missing rows."""
    table = single[1]
    found = faults(WIDE_MODEL, dataset("csv", WIDE_GOOD | {table: WIDE_BAD[table]}, tmp_path))
    assert found == {location: notes for location, notes in WIDE_FAULTS.items() if location[1] == table}


def test_unusable_table_does_not_hide_other_faults(tmp_path):
    changed = WIDE_BAD | {
        "page": WIDE_BAD["page"].replace("id,", "url,", 1),
        "school": "id,founded\n" + "".join(f"s{k},1850\n" for k in range(60_000)) + "t1,2,3\n",
        "link": WIDE_BAD["link"].replace("source,", "from,", 1),
    }
    del changed["topic"]
    model = WIDE_MODEL + "relation Near(a: Page, b: Page)\n"
    found = set(faults(model, dataset("csv", changed, tmp_path)))
    assert {location for location in found if location[1] == "school"} == {("E204", "school", None, None)}
    # Faults that need the keys of pages, or the missing column.
    hidden = {
        location for location in WIDE_FAULTS if location[0] in ("E214", "E219") or location[3] in ("id", "source")
    }
    expected = {location for location in WIDE_FAULTS if location[1] in ("page", "page_word", "link")} - hidden
    broken = {
        ("E204", "school", None, None),
        ("E210", tmp_path.name, None, None),
        ("E211", "page", None, None),
        ("E212", "link", None, None),
    }
    assert found == expected | broken


def test_every_missing_argument_is_reported(tmp_path):
    model = "entity E { predict b : bool }\nrelation R(a: E, b: E, c: E)\ntemplate t(e: E) over e.b"
    with pytest.raises(relcrf.DataError) as caught:
        relcrf.parse(model).check(relcrf.Dataset({"e": {"id": [1, 2]}, "r": {"x": [1], "b": [7], "y": [2]}}))
    found = [(d.code, d.message) for d in caught.value.diagnostics]
    assert found == [
        ("E212", "the table of R has no column 'a'"),
        ("E212", "the table of R has no column 'c'"),
        ("E219", "unknown E '7'"),
    ]


BAG = "domain W = {words}\nentity E {{ predict b : bool  words : bag of W }}\ntemplate t(e: E) over e.b by e.words"


@pytest.mark.parametrize("kind", ["frame", "parquet"])
def test_bad_list_items_are_located_by_row(tmp_path, kind):
    table = pd.DataFrame({"id": ["a", "b", "c", "a"], "words": [["x", "y", "x"], [], ["y", "z", "q"], ["z"]]})
    if kind == "parquet":
        duckdb.from_df(table).write_parquet(str(tmp_path / "e.parquet"))
    found = faults(BAG.format(words="{ x, y }"), {"e": table} if kind == "frame" else tmp_path)
    assert found == {
        ("E214", "e", 4, "id"): "first occurrence in row 1",
        ("E216", "e", 3, "words"): "also row 3 ('q'), row 4 ('z')",
    }
    without = table.rename(columns={"id": "name"})
    found = faults(BAG.format(words="{ x, y }"), {"e": without})
    assert set(found) == {("E211", "e", None, None), ("E216", "e", 3, "words")}


def test_bad_rows_of_open_domain_bags_are_located():
    rows = pd.DataFrame({"e": ["a", "z", None, "a", "y"], "word": ["x", "x", "y", None, None]})
    found = faults(BAG.format(words="open"), {"e": pd.DataFrame({"id": ["a"]}), "e_words": rows})
    assert found == {("E219", "e_words", 2, "e"): "", ("E213", "e_words", 3, "e"): ""}, (
        "a row without a value is ignored"
    )


def test_vectors_have_most_frequent_length():
    model = "entity E { predict b : bool  v : vector }\ntemplate t(e: E) over e.b"
    table = pd.DataFrame({"id": range(5), "v": [[1.0, 2.0], [1.0], [3.0, np.inf], [1.0, 2.0, 3.0], [0.0, 1.0]]})
    assert faults(model, {"e": table}) == {
        ("E217", "e", 2, "v"): "also row 3 ('[3.0, inf]'), row 4 ('[1.0, 2.0, 3.0]')"
    }
    assert set(faults(model, {"e": table.assign(v=None)})) == {("E217", "e", 1, "v")}
    assert set(faults(model, {"e": table.iloc[:0]})) == {("E217", "e", None, "v")}


def test_bad_vector_columns_are_located_by_row():
    model = "entity E { predict b : bool  v : vector }\ntemplate t(e: E) over e.b"
    table = pd.DataFrame({"id": range(3), "v_0": ["1", "x", "2"], "v_1": ["0", "1", None]})
    assert faults(model, {"e": table}) == {("E217", "e", 2, "v_0"): "also row 3 ('v_1')"}


def test_conflicting_tuples_are_located():
    model = """
    domain D = { red, blue }
    domain O = open
    entity E { predict b : bool }
    relation R(x: E, o: O) { d : D  o2 : O  n : integer }
    predict relation P(x: E)
    template t(e: E) over e.b
    """
    table = {
        "x": [1, 1, 2, 1, 1, 2],
        "o": ["k", "k ", "k", "m", "k", "k"],
        "d": ["red", "red", None, "blue", "blue", "red"],
        "o2": ["u", "w", "u", "u", "u", "u"],
        "n": [1, 1, 1, 2, 1, 1],
    }
    tables = {"e": {"id": [1, 2]}, "r": table, "p": {"x": [2, 1, 2, 2], "value": [True, None, True, False]}}
    assert faults(model, tables) == {
        ("E220", "r", 5, "d"): "first occurrence in row 1 also row 6 ('red')",
        ("E220", "r", 2, "o2"): "first occurrence in row 1",
        ("E220", "p", 4, "value"): "first occurrence in row 1",
    }


def test_rows_of_large_files_keep_their_numbers(tmp_path):
    rows = 400_000
    page = f"SELECT i AS id, CASE WHEN i % 100000 = 7 THEN 'bad' ELSE 'course' END AS category FROM range({rows}) t(i)"
    link = f"SELECT i AS source, CASE WHEN i % 100000 = 99999 THEN -i ELSE i END AS target FROM range({rows}) t(i)"
    for name, sql in (("page", page), ("link", link)):
        duckdb.execute(f"COPY ({sql}) TO '{tmp_path / name}.parquet' (FORMAT parquet, ROW_GROUP_SIZE 10000)")
    model = """
    domain Category = { course, faculty }
    entity Page { predict category : Category }
    relation Link(source: Page, target: Page)
    template c(p: Page) over p.category
    """
    assert faults(model, tmp_path) == {
        ("E216", "page", 8, "category"): "also row 100008 ('bad'), row 200008 ('bad') and 1 more",
        ("E219", "link", 100000, "target"): "also row 200000 ('-199999'), row 300000 ('-299999') and 1 more",
    }


def test_column_named_like_row_numbers_is_supported():
    model = "entity E(row) { predict b : bool  row_ : real }\ntemplate t(e: E) over e.b"
    tables = {"e": {"row": ["k", "k"], "row_x": [1, 2], "b": ["true", "perhaps"]}}
    assert set(faults(model.replace("row_ ", "row_x "), tables)) == {("E214", "e", 2, "row"), ("E215", "e", 2, "b")}


def test_alchemy_rows_are_located_by_line(tmp_path):
    text = "// people\nSmokes(Anna)\nFriends(Anna, Bob)\n\nFriends(Anna, Zoe)\n!Smokes(Bob)\nFriends(Xi, Bob)\n!Smokes(Anna)\n"
    (tmp_path / "p.db").write_text("Person(Anna)\nPerson(Bob)\n" + text)
    (tmp_path / "dataset.toml").write_text(
        "".join(f'[tables.{n}]\nfile = "p.db"\ntable = "{n}"\n' for n in ("Person", "Friends"))
        + 'columns = { value = "a1" }\n[tables.Smokes]\nfile = "p.db"\ntable = "Smokes"\n'
    )
    model = """
    entity Person(a0)
    relation Friends(a0: Person, value: Person)
    predict relation Smokes(x: Person)
    template t(p: Person) over Smokes(p)
    """
    assert faults(model, tmp_path) == {
        ("E219", "p", 7, "value"): "",
        ("E219", "p", 9, "a0"): "",
        ("E220", "p", 10, "value"): "first occurrence in row 4",
    }


@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "object"])
def test_values_of_domains_that_are_numbers_are_compared_as_numbers(kind):
    model = relcrf.parse("domain D = { 1.0, 2.5, none }\nentity E { predict d : D }\ntemplate t(e: E) over e.d")
    values = {"int64": [1, 1], "object": ["1.0", "2.5", "none", None]}.get(kind, [1.0, 2.5, np.nan])
    table = pd.DataFrame({"id": range(len(values)), "d": np.array(values, dtype=kind)})
    states = {"int64": [0, 0], "object": [0, 1, 2, -1]}.get(kind, [0, 1, -1])
    assert model.ground(relcrf.Dataset({"e": table})).states.tolist() == states
    table.loc[0, "d"] = "1" if kind == "object" else 3
    with pytest.raises(relcrf.DataError) as caught:
        model.check(relcrf.Dataset({"e": table}))
    assert [(d.code, d.location.row, d.location.column) for d in caught.value.diagnostics] == [("E216", 1, "d")]
