"""Binding of models to tables, and one diagnostic per problem in the tables."""

import numpy as np
import pandas as pd
import pytest
from tables import write_tables

import relcrf
from relcrf.data import binding, column_coder
from relcrf.data.binding import KEY_SAMPLE, bind

MODEL = """
domain Kind = { cat, dog }
domain Word = open
entity Pet {
    predict kind : Kind
    weight       : real
    legs         : integer
    tame         : bool
    born         : date
    words        : bag of Word
    shape        : vector
}
relation Likes(who: Pet, whom: Pet) { score: real }
template prior(p: Pet) over p.kind
"""


def pets(**changes):
    rows = [
        {"id": "a", "kind": "cat", "weight": "4.5", "legs": "4", "tame": "true", "born": "2020-01-31",
         "shape_0": "1", "shape_1": "2"},
        {"id": "b", "kind": None, "weight": None, "legs": "4", "tame": "0", "born": None, "shape_0": "0", "shape_1": "1"},
        {"id": "c", "kind": "dog", "weight": "9", "legs": None, "tame": None, "born": "2019-12-01",
         "shape_0": "0.5", "shape_1": "-1"},
    ]  # fmt: skip
    tables = {
        "pet": rows,
        "pet_words": [{"pet": "a", "word": "meow"}, {"pet": "a", "word": "meow"}, {"pet": "c", "word": "wuff"}],
        "likes": [{"who": "a", "whom": "b", "score": "0.5"}, {"who": "a", "whom": "b", "score": "0.5"}],
    }
    return tables | changes


def bound(folder, **changes):
    return bind(relcrf.parse(MODEL).spec, relcrf.Dataset(write_tables(folder, **pets(**changes))))


def problem(folder, **changes):
    with pytest.raises(relcrf.DataError) as found:
        bound(folder, **changes)
    assert found.value.exit_code == 3
    assert len(found.value.diagnostics) == 1, [d.render() for d in found.value.diagnostics]
    return found.value.diagnostics[0]


@pytest.mark.parametrize(
    ("count", "message"), [("many", "'many' is not a count such as 3"), (None, "a count is missing")]
)
def test_invalid_count_of_a_bag_is_reported(tmp_path, count, message):
    words = [{"pet": "a", "word": "meow", "count": "2"}, {"pet": "c", "word": "wuff", "count": count}]
    found = problem(tmp_path, pet_words=words)
    assert (found.code, found.message, found.location.row) == ("E215", message, 2)
    assert "None" not in found.hint


def test_binding_codes_all_attribute_types(tmp_path):
    found = bound(tmp_path)
    assert found.sizes == {"Pet": 3}
    assert found.keys("Pet").tolist() == ["a", "b", "c"]
    assert found.codes("Pet", "kind").tolist() == [0, -1, 1]
    assert found.domains["Word"] == ("meow", "wuff")
    np.testing.assert_array_equal(found.vectors("Pet", "shape"), [[1, 2], [0, 1], [0.5, -1]])
    rows = found.connection.execute(
        'SELECT "x.weight", "x.legs", "x.tame", "x.born"::VARCHAR FROM "ent.Pet" ORDER BY vid'
    ).fetchall()
    assert rows == [(4.5, 4, True, "2020-01-31"), (None, 4, False, None), (9.0, None, None, "2019-12-01")]
    assert found.connection.execute('SELECT * FROM "bag.Pet.words" ORDER BY ALL').fetchall() == [
        (0, 0, 2.0),
        (2, 1, 1.0),
    ]
    assert found.connection.execute('SELECT * FROM "rel.Likes"').fetchall() == [(0, 1, 0.5)], "relations are sets"


def test_frames_and_files_bind_to_equal_tables(tmp_path):
    tables = {name: pd.DataFrame(rows) for name, rows in pets().items()}
    tables["pet"]["weight"] = [4.5, np.nan, 9.0]
    tables["pet"]["legs"] = [4, 4, np.nan]
    from_frames = bind(relcrf.parse(MODEL).spec, relcrf.Dataset(tables))
    from_files = bound(tmp_path)
    for table in ("ent.Pet", "bag.Pet.words", "rel.Likes"):
        sql = f'SELECT * FROM "{table}" ORDER BY ALL'
        assert from_frames.connection.execute(sql).fetchall() == from_files.connection.execute(sql).fetchall()


def test_integer_keys_sort_as_numbers_and_match_across_types(tmp_path):
    model = relcrf.parse(
        "domain D = { x, y } entity E { predict d : D }\nrelation R(a: E, b: E)\ntemplate t(e: E) over e.d"
    )
    tables = {
        "e": pd.DataFrame({"id": [10, 9, 100], "d": ["x", "y", None]}),
        "r": pd.DataFrame({"a": [9.0, 10.0], "b": ["100", "9"]}),
    }
    found = bind(model.spec, relcrf.Dataset(tables))
    assert found.keys("E").tolist() == ["9", "10", "100"]
    assert found.codes("E", "d").tolist() == [1, 0, -1]
    assert found.connection.execute('SELECT * FROM "rel.R" ORDER BY ALL').fetchall() == [(0, 2), (1, 0)]


def test_keys_that_look_like_numbers_at_first_are_texts(tmp_path):
    """The type of a key is guessed from the first rows; a later text, or a number with a zero before it, makes all keys texts."""
    spec = relcrf.parse("entity E { predict y : bool }\ntemplate t(e: E) over e.y").spec
    for last, expected in (("20", "2"), ("x", "10"), ("07", "07")):
        keys = [str(k) for k in range(2, 2 + KEY_SAMPLE)] + [str(10**6), last.replace("20", "2000000")]
        folder = write_tables(tmp_path / last, e=[{"id": k, "y": None} for k in keys])
        found = bind(spec, relcrf.Dataset(folder))
        assert found.keys("E")[0] == expected and found.sizes["E"] == len(keys)
        assert found.keys("E").tolist() == sorted(keys, key=int if last == "20" else str)


def test_tuples_with_one_value_each_are_kept_once(tmp_path):
    likes = [{"who": who, "whom": whom, "score": score} for who, whom, score in ("ab1", "ba2", "ab1", "ac3")]
    likes.append({"who": " a", "whom": "b ", "score": "1.0"})
    found = bound(tmp_path, likes=likes)
    rows = found.connection.execute('SELECT a0, a1, "x.score" FROM "rel.Likes" ORDER BY ALL').fetchall()
    assert rows == [(0, 1, 1.0), (0, 2, 3.0), (1, 0, 2.0)]


def test_valid_tables_are_read_once(tmp_path, monkeypatch):
    """Only invalid cells make binding read a table once for each column."""
    find_bad_rows = column_coder.find_bad_rows
    checked = []
    monkeypatch.setattr(column_coder, "find_bad_rows", lambda *a: checked.append(a[2]) or find_bad_rows(*a))
    bound(tmp_path / "valid")
    assert not checked
    with pytest.raises(relcrf.DataError):
        bound(tmp_path / "invalid", pet=[*pets()["pet"], pets()["pet"][0] | {"id": "d", "weight": "heavy"}])
    assert {"weight", "legs", "tame", "born"} <= set(checked)


def test_large_open_domains_are_joined(tmp_path, monkeypatch):
    found = bound(tmp_path / "types")
    monkeypatch.setattr(column_coder, "MAX_ENUM_VALUES", 1)
    monkeypatch.setattr(binding, "MAX_ENUM_VALUES", 1)
    other = bound(tmp_path / "joins")
    for name in found.external_tables:
        for column, values in found.external_tables[name].items():
            np.testing.assert_array_equal(values, other.external_tables[name][column])


def test_a_csv_file_with_many_open_domains_is_parsed_a_few_times(tmp_path, monkeypatch):
    """A query of one column parses the whole file, so the cells of all columns are copied once."""
    names = [f"color_{i}" for i in range(8)]
    rows = [{"id": i} | {name: f" {name[-1]}{i % (k + 2)} " for k, name in enumerate(names)} for i in range(20)]
    rows[3]["color_5"] = None
    domains, attributes = (
        "".join(text.format(n) for n in names) for text in ("domain D_{0} = open\n", "{0} : D_{0}\n")
    )
    model = f"{domains}entity Item {{ predict kept : bool\n{attributes} }}\ntemplate t(i: Item) over i.kept"
    folder = write_tables(tmp_path, item=[row | {"kept": "true"} for row in rows])
    queries, execute = [], column_coder.ColumnCoder._execute
    monkeypatch.setattr(
        column_coder.ColumnCoder, "_execute", lambda self, text: (queries.append(text), execute(self, text))[1]
    )
    counts = []
    for fewest in (4, 9):
        monkeypatch.setattr(column_coder, "MIN_COPIED_COLUMNS", fewest)
        queries.clear()
        found = bind(relcrf.parse(model).spec, relcrf.Dataset(folder))
        counts.append(sum("item.csv" in query for query in queries))
        assert {name: found.domains[f"D_{name}"] for name in names} == {
            name: tuple(sorted({row[name].strip() for row in rows if row[name]})) for name in names
        }
        assert not found.connection.execute("SELECT * FROM duckdb_tables() WHERE table_name LIKE 'cells%'").fetchall()
    assert counts[1] == counts[0] + 7


def test_values_of_vocabulary_keep_their_codes(tmp_path):
    folder = write_tables(tmp_path, **pets())
    found = bind(relcrf.parse(MODEL).spec, relcrf.Dataset(folder), {"Word": ("zzz", "wuff")})
    assert found.domains["Word"] == ("zzz", "wuff", "meow")


def with_value(row, column, value):
    rows = [dict(r) for r in pets()["pet"]]
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("code", "changes", "message", "location"),
    [
        (
            "E216",
            {"pet": with_value(2, "kind", "dgo")},
            "'dgo' is not a value of Kind",
            "pet.csv, row 3, column 'kind'",
        ),
        ("E215", {"pet": with_value(0, "weight", "heavy")}, "'heavy' is not a finite number", "row 1, column 'weight'"),
        ("E215", {"pet": with_value(1, "weight", "inf")}, "'inf' is not a finite number", "row 2, column 'weight'"),
        ("E215", {"pet": with_value(1, "legs", "3.5")}, "'3.5' is not a whole number", "row 2, column 'legs'"),
        ("E215", {"pet": with_value(1, "tame", "maybe")}, "'maybe' is not true or false", "row 2, column 'tame'"),
        ("E215", {"pet": with_value(1, "born", "31.1.20")}, "'31.1.20' is not a date", "row 2, column 'born'"),
        ("E215", {"pet": with_value(1, "born", "infinity")}, "'infinity' is not a date", "row 2, column 'born'"),
        ("E217", {"pet": with_value(1, "shape_1", None)}, "is not 2 finite numbers", "row 2, column 'shape_1'"),
        ("E214", {"pet": [*pets()["pet"], pets()["pet"][0]]}, "two rows of Pet have the key 'a'", "row 4, column 'id'"),
        (
            "E213",
            {"pet": [*pets()["pet"], pets()["pet"][0] | {"id": None}]},
            "the key of a Pet is missing",
            "row 4, column 'id'",
        ),
        ("E219", {"likes": [{"who": "a", "whom": "x", "score": "1"}]}, "unknown Pet 'x'", "row 1, column 'whom'"),
        ("E219", {"pet_words": [{"pet": "q", "word": "w"}]}, "unknown Pet 'q'", "row 1, column 'pet'"),
        (
            "E220",
            {"likes": [{"who": "a", "whom": "b", "score": "1"}, {"who": "a", "whom": "b", "score": "2"}]},
            "a tuple of Likes occurs more than once, with different values of 'score'",
            "likes.csv, row 2, column 'score'",
        ),
        (
            "E205",
            {"likes": [{"who": "a", "whom": "b", "w_ho": "c", "score": "1"}]},
            "likes.csv have the name 'who': 'who' and 'w_ho'",
            "likes.csv",
        ),
        (
            "E205",
            {"pet_word": [{"pet": "a", "word": "w"}]},
            "the bag Pet.words has two sources",
            "pet_word.csv",
        ),
        ("E212", {"likes": [{"who": "a", "whom": "b"}]}, "the table of Likes has no column 'score'", "likes.csv"),
    ],
)
def test_bad_cell_is_reported_with_its_row_and_column(tmp_path, code, changes, message, location):
    found = problem(tmp_path, **changes)
    assert found.code == code
    assert message in found.message
    assert str(found.location).endswith(location)


def test_missing_column_gets_suggestion(tmp_path):
    rows = [{("wieght" if k == "weight" else k): v for k, v in r.items()} for r in pets()["pet"]]
    found = problem(tmp_path, pet=rows)
    assert (found.code, found.hint) == ("E212", "did you mean 'wieght'?")


def test_diagnostic_locates_first_bad_row_and_notes_others(tmp_path):
    rows = [{"id": str(k), "d": "x" if k not in (7, 9, 11) else "bad"} for k in range(1, 20)]
    model = relcrf.parse("domain D = { x, y } entity E { predict d : D }\ntemplate t(e: E) over e.d")
    with pytest.raises(relcrf.DataError) as found:
        bind(model.spec, relcrf.Dataset(write_tables(tmp_path, e=rows)))
    (diagnostic,) = found.value.diagnostics
    assert (diagnostic.location.row, diagnostic.location.column) == (7, "d")
    assert diagnostic.notes == ("also row 9 ('bad'), row 11 ('bad')",)


def test_all_bad_tables_are_reported_together(tmp_path):
    bad_likes = [{"who": "a", "whom": "x", "score": "1"}]
    with pytest.raises(relcrf.DataError) as found:
        bound(tmp_path, pet=with_value(2, "kind", "dgo"), likes=bad_likes)
    assert {d.code for d in found.value.diagnostics} == {"E216", "E219"}


def test_unreadable_datasets_raise_errors(tmp_path):
    with pytest.raises(relcrf.DataError, match="does not exist"):
        relcrf.Dataset(tmp_path / "nowhere")
    with pytest.raises(relcrf.DataError, match="has no table"):
        relcrf.Dataset(tmp_path)
    with pytest.raises(relcrf.DataError, match="not a data frame"):
        relcrf.Dataset({"pet": 3})
    (tmp_path / "pet.parquet").write_bytes(b"no parquet")
    with pytest.raises(relcrf.DataError, match="cannot be read"):
        relcrf.Dataset(tmp_path)
    with pytest.raises(relcrf.UsageError, match="not a memory size"):
        relcrf.Dataset({"a": pd.DataFrame({"id": [1]})}, memory="lots; DROP TABLE x")


def test_names_and_values_with_quotes_are_escaped(tmp_path):
    table = pd.DataFrame({'id"; DROP TABLE x; --': ["1", "it's"], "d": ["x", None]})
    model = relcrf.parse("domain D = { x, y } entity E { predict d : D }\ntemplate t(e: E) over e.d")
    with pytest.raises(relcrf.DataError, match="no key column 'id'"):
        bind(model.spec, relcrf.Dataset({"e": table}))
    table.columns = ["id", "d"]
    assert bind(model.spec, relcrf.Dataset({"e": table})).keys("E").tolist() == ["1", "it's"]


def test_table_without_label_column_has_only_queries(tmp_path):
    model = relcrf.parse("domain D = { x, y } entity E { predict d : D }\ntemplate t(e: E) over e.d")
    found = bind(model.spec, relcrf.Dataset({"e": pd.DataFrame({"id": [1, 2]})}))
    assert found.codes("E", "d").tolist() == [-1, -1]
    assert "all its values are query variables" in found.notes[0]


def test_missing_table_lists_each_accepted_name_once():
    model = relcrf.parse(
        "domain Word = open\nentity Page { predict c : bool  words : bag of Word }\ntemplate t(p: Page) over p.c\n"
    )
    with pytest.raises(relcrf.DataError) as caught:
        bind(model.spec, relcrf.Dataset({"page": {"id": [1], "c": [True]}}))
    (message,) = (d.message for d in caught.value.diagnostics)
    assert message.endswith("expected 'pagewords' or 'pageword'")


def test_missing_column_of_labels_is_named():
    model = relcrf.parse("entity Page { predict c : bool }\ntemplate t(p: Page) over p.c\n")
    with pytest.raises(relcrf.DataError, match=r"E225[\s\S]*has no column 'c'"):
        model.fit(relcrf.Dataset({"page": {"id": [1, 2], "label": [True, False]}}), "local")
