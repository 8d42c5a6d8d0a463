"""CSV files as spreadsheets and databases export them: right values, or one diagnostic that says what to state."""

import gzip

import pyarrow as pa
import pytest

from relcrf.api import parse
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.data.readers import csv_values
from relcrf.errors import DataError

MODEL = """
domain Kind = { red, blue }
entity Shop { city: string  sales: real  predict kind: Kind }
template bias(s: Shop) over s.kind
"""

EXPECTED = [("1", "Zürich", 1234.5, "red"), ("2", "Bern", -0.25, "blue"), ("3", None, None, None)]

GERMAN = 'id;city;sales;kind\n1;Zürich;"1.234,5";red\n2;Bern;-0,25;blue\n3;;;\n'
PLAIN = "id,city,sales,kind\n1,Zürich,1234.5,red\n2,Bern,-0.25,blue\n3,,,\n"
QUOTED_COMMA = 'id,city,sales,kind\n1,Zürich,"1.234,5",red\n2,Bern,"-0,25",blue\n3,,,\n'

DETECTED = {
    "plain": PLAIN.encode(),
    "byte order mark": PLAIN.encode("utf-8-sig"),
    "line ends of Windows": PLAIN.replace("\n", "\r\n").encode(),
    "tabs": PLAIN.replace(",", "\t").encode(),
    "bars": PLAIN.replace(",", "|").encode(),
    "semicolons, points": PLAIN.replace(",", ";").encode(),
    "semicolons, decimal commas": GERMAN.encode(),
    "spreadsheet with byte order mark": GERMAN.replace("\n", "\r\n").encode("utf-8-sig"),
    "Windows-1252": GERMAN.encode("cp1252"),
    "Windows-1252 with commas": PLAIN.encode("cp1252"),
    "UTF-16": GERMAN.encode("utf-16"),
    "a line that states the delimiter": ("sep=;\n" + GERMAN).encode(),
    "a title and an empty line": ("Shops of 2024\n\n" + GERMAN).encode("utf-8-sig"),
    "a title in the first of all cells": ("Shops of 2024;;;\n;;;\n" + GERMAN).encode(),
    "comments with delimiters": ("# exported, by ann\n# on 2024-01-31\n" + GERMAN).encode(),
    "a title above commas": (
        "Shops; all of them\n" + QUOTED_COMMA.replace('"1.234,5"', "1234.5").replace('"-0,25"', "-0.25")
    ).encode(),
    "units": GERMAN.replace('"1.234,5"', '"1.234,50 €"').replace("-0,25", "-0,25€").encode(),
    "units before numbers": PLAIN.replace(",", ";")
    .replace("1234.5", "USD 1234.50")
    .replace("-0.25", "USD -0.25")
    .encode(),
    "a delimiter within quotes": PLAIN.replace("Zürich", '"Zürich"').replace("city", '"city"').encode(),
}
"""Files that are read without a statement in the manifest."""

STATED = {
    "missing texts": (PLAIN.replace("3,,,", "3,NA,-,n/a"), 'missing = ["NA", "-", "n/a"]', "utf-8"),
    "decimal commas in quotes": (QUOTED_COMMA, 'decimal = ","', "utf-8"),
    "another delimiter": (PLAIN.replace(",", "^"), 'delimiter = "^"', "utf-8"),
    "another encoding": (PLAIN, 'encoding = "mac-roman"', "mac-roman"),
    "lines above the header": ("a,b\nc,d\n" + PLAIN, "skip = 2", "utf-8"),
    "unusual units": (PLAIN.replace("1234.5", "1234.5 Stk").replace("-0.25", "-0.25 Stk"), 'units = ["Stk"]', "utf-8"),
    "everything": (
        GERMAN.replace("3;;;", "3;?;?;?"),
        'delimiter = ";"\ndecimal = ","\nencoding = "utf-16-le"\nmissing = ["?"]',
        "utf-16-le",
    ),
}
"""Files that need a statement, as (text, statements of the manifest, encoding)."""


def read_rows(source):
    bound = bind(parse(MODEL).spec, Dataset(source))
    rows = bound.connection.execute(
        'SELECT e.key::VARCHAR, "x.city", "x.sales", d.value FROM "ent.Shop" AS e '
        'LEFT JOIN "dom.Kind" AS d ON d.code = e."x.kind" ORDER BY e.key'
    ).fetchall()
    return rows, bound.notes


def write_manifest(folder, statements, file="shop.csv"):
    """Write a manifest with statements of [tables.shop.csv] and, if it is the last one, `missing` of [tables.shop]."""
    csv, _, missing = statements.partition("missing = ")
    missing = f"missing = {missing}\n" if missing else ""
    (folder / "dataset.toml").write_text(f'[tables.shop]\nfile = "{file}"\n{missing}[tables.shop.csv]\n{csv}\n')


@pytest.mark.parametrize("content", DETECTED.values(), ids=DETECTED)
def test_format_is_detected(content, tmp_path):
    (tmp_path / "shop.csv").write_bytes(content)
    rows, notes = read_rows(tmp_path)
    assert rows == EXPECTED
    assert bool(notes) == (not content.removeprefix(b"\xef\xbb\xbf").startswith(b"id,") or b"\xfc" in content), notes


def test_format_of_compressed_files_is_detected(tmp_path):
    (tmp_path / "shop.csv.gz").write_bytes(gzip.compress(GERMAN.encode("cp1252")))
    assert read_rows(tmp_path)[0] == EXPECTED


def test_note_names_what_was_detected(tmp_path):
    (tmp_path / "shop.csv").write_bytes(GERMAN.encode("cp1252"))
    (note,) = read_rows(tmp_path)[1]
    assert note.endswith("shop.csv: read with the delimiter ';', the encoding cp1252, decimal commas in sales")


def test_note_is_shown_for_a_file_that_only_a_query_reads(tmp_path):
    (tmp_path / "raw.csv").write_text(GERMAN, encoding="cp1252")
    (tmp_path / "dataset.toml").write_text('[tables.raw]\nfile = "raw.csv"\n[tables.shop]\nsql = "SELECT * FROM raw"\n')
    rows, notes = read_rows(tmp_path)
    assert rows == EXPECTED and "raw.csv: read with the delimiter ';'" in notes[0]


@pytest.mark.parametrize(("text", "csv", "encoding"), STATED.values(), ids=STATED)
def test_stated_format_is_used(text, csv, encoding, tmp_path):
    (tmp_path / "shop.csv").write_bytes(text.encode(encoding))
    write_manifest(tmp_path, csv)
    rows, notes = read_rows(tmp_path)
    assert (rows, bool(notes)) == (EXPECTED, "missing" in csv) and all("as missing in" in note for note in notes)


LATE = {
    "dates": (lambda k: "31.12.2024" if k >= 10_010 else "", ";", "", "2024-12-31"),
    "units": (lambda k: f"{k} %" if k >= 10_010 else "", ";", "", "10199"),
    "sorted thousands": (lambda k: f'"{k / 10:,.2f}"', ",", "", "1019.90"),
    "thousands without decimals": (lambda k: f"{k // 10:,}".replace(",", "'"), ",", "", "1019"),
    "stated thousands": (lambda k: f'"{k + 1:,}"' if k >= 10_010 else "", ",", 'thousands = ","', "10200"),
    "stated units": (lambda k: f"{k} apples" if k >= 10_010 else "", ",", 'units = ["apples"]', "10199"),
}
"""Columns whose format begins after the sampled rows, as (cell of a row, delimiter, statement, the last value)."""


@pytest.mark.parametrize(("cell", "delimiter", "statement", "expected"), LATE.values(), ids=LATE)
def test_format_that_begins_in_a_late_row_is_used(cell, delimiter, statement, expected, tmp_path):
    n = csv_values.SAMPLE_ROWS + 200
    lines = ["id", "x", *(v for k in range(n) for v in (str(k), cell(k)))]
    rows = zip(lines[::2], lines[1::2], strict=True)
    (tmp_path / "shop.csv").write_text("".join(f"{a}{delimiter}{b}\n" for a, b in rows))
    if statement:
        write_manifest(tmp_path, statement)
    dataset = Dataset(tmp_path)
    (found,) = dataset.connection.execute(
        f"SELECT x FROM {dataset.tables['shop'].scan} WHERE id = '{n - 1}'"
    ).fetchone()
    assert found == expected


def test_long_texts_are_tested_completely(tmp_path):
    (tmp_path / "shop.csv").write_text(f"id;x\na;1,5\nb;{'1' * (csv_values.MAX_TEXT + 1)}z\n")
    dataset = Dataset(tmp_path)
    assert dataset.connection.execute(f"SELECT x FROM {dataset.tables['shop'].scan}").fetchone() == ("1,5",)


def test_format_is_detected_beside_missing_texts_of_single_columns(tmp_path):
    (tmp_path / "shop.csv").write_text(GERMAN.replace("3;;;", "3;-;NA;n/a"))
    write_manifest(tmp_path, 'missing = { city = ["-"], sales = ["NA"], kind = ["n/a"] }')
    rows, notes = read_rows(tmp_path)
    assert rows == EXPECTED and "decimal commas in sales" in notes[0]


def test_note_shows_the_lines_above_the_header(tmp_path):
    (tmp_path / "shop.csv").write_text("# by ann\nShops\n\n" + PLAIN)
    (note,) = read_rows(tmp_path)[1]
    assert note.endswith("shop.csv: the header is line 4, after '# by ann', 'Shops'")


@pytest.mark.parametrize(
    ("header", "columns", "note"),
    [
        ("id,a,b,A,b_1", ("id", "a", "b", "A_1", "b_1"), "the header repeats 'A'; the first column has this name"),
        ("3,2.5,1,4,7", ("3", "2.5", "1", "4", "7"), "the first row has only numbers"),
        ("id,1,2,3,4", ("id", "1", "2", "3", "4"), None),
    ],
)
def test_note_describes_unusual_header(header, columns, note, tmp_path):
    (tmp_path / "shop.csv").write_text(f"{header}\n1,2,3,4,5\n")
    data = Dataset(tmp_path)
    assert data.tables["shop"].columns == columns
    assert [note in found for found in data.notes] == ([True] if note else [])


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("id\n1;Bern\n2;Basel\n", ("id",)),  # a row is not a header, because 1 is a number
        ("#id;city\na;Bern\nb;Basel\n", ("#id", "city")),
        ("name\nAnn, Bob\nCarl\n", None),
        ("id\n1\n2\n", ("id",)),
        ("id;city\n1;Bern, CH\n2;Basel, CH\n", ("id", "city")),
        (",label\np1,x\np2,y\n", ("column0", "label")),  # pandas writes no name of the index
        ("id,\np1,x\np2,y\n", ("id", "column1")),
        ("name\nAnn, Bob\nCarl, Eve\n", None),
        ("name\nAnn, Bob, Carl\nEve, Fred, Gil\n", None),
        ("Shops\nid;city\na;Bern\n", ("Shops",)),
        ("Shops\n\nid;city\na;Bern\n", ("id", "city")),
        ("# Shops\nid;city\na;Bern\n", ("id", "city")),
        ("Shops\nid;city;x\na;Bern;y\n", ("id", "city", "x")),
        ("sep=|\nid|x;y\n1|2\n", ("id", "x;y")),
    ],
)
def test_only_titles_and_comments_are_skipped(text, columns, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    if columns is None:
        with pytest.raises(DataError) as caught:
            Dataset(tmp_path)
        assert caught.value.diagnostics[0].code == "E204"
    else:
        assert Dataset(tmp_path).find_table("t").columns == columns


def test_long_cell_is_read(tmp_path):
    """Python's reader of CSV rejects cells of more than 131,072 characters."""
    (tmp_path / "shop.csv").write_text(PLAIN + f"4,{'x' * 200_000},,\n")
    assert len(read_rows(tmp_path)[0][3][1]) == 200_000


def test_stated_number_of_lines_prevents_the_detection(tmp_path):
    (tmp_path / "shop.csv").write_text("sep=;\n" + GERMAN)
    write_manifest(tmp_path, 'skip = 0\ndelimiter = ";"')
    with pytest.raises(DataError) as caught:
        read_rows(tmp_path)
    assert caught.value.diagnostics[0].notes == (
        "the row in line 2 has 4 cells, and the header has 2: 'id;city;sales;kind'",
    )


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["5 %", "10%", ""], ["5", "10", None]),
        (["5 %", "10 kg", "7 %"], ["5 %", "10 kg", "7 %"]),
        (["5 kg", "10", "7 kg"], ["5 kg", "10", "7 kg"]),
        (["5 m", "6 m", "7 m"], ["5", "6", "7"]),
        (["5m", "6m", "7m"], ["5m", "6m", "7m"]),
        (["s1", "s2", "t3"], ["s1", "s2", "t3"]),
        (["$1", "$2.50", "-$3"], ["$1", "$2.50", "-$3"]),
        (["$1", "$2.50", "$-3"], ["1", "2.50", "-3"]),
        (["1,234.50 EUR", "7 EUR", "12 EUR"], ["1234.50", "7", "12"]),
    ],
)
def test_units_are_removed_if_all_numbers_have_the_same(cells, values, tmp_path):
    (tmp_path / "t.csv").write_text("id;x\n" + "".join(f"{k};{cell}\n" for k, cell in enumerate(cells)))
    dataset = Dataset(tmp_path)
    found = dataset.connection.execute(f"SELECT x FROM {dataset.find_table('t').scan} ORDER BY id").fetchall()
    assert [value for (value,) in found] == values


def test_stated_units_may_differ(tmp_path):
    (tmp_path / "shop.csv").write_text("id,city,sales,kind\n1,,5 Stk,\n2,,7 m3,\n3,,8,\n")
    write_manifest(tmp_path, 'units = ["Stk", "m3"]')
    assert [sales for _, _, sales, _ in read_rows(tmp_path)[0]] == [5, 7, 8]


def test_units_remain_if_the_manifest_states_none(tmp_path):
    (tmp_path / "shop.csv").write_text("id,city,sales,kind\n1,5 %,,\n2,7 %,,\n")
    write_manifest(tmp_path, "units = []")
    assert [city for _, city, *_ in read_rows(tmp_path)[0]] == ["5 %", "7 %"]


def test_comma_between_thousands_is_not_read_as_a_decimal_comma(tmp_path):
    """Without further evidence, `1,234` is either number, so the cell is reported instead of read."""
    (tmp_path / "shop.csv").write_text("id;city;sales;kind\n1;Bern;1,234;red\n2;Bern;7;blue\n")
    with pytest.raises(DataError) as caught:
        read_rows(tmp_path)
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.location.row, problem.location.column) == ("E215", 1, "sales")
    assert 'decimal = ","' in problem.hint
    write_manifest(tmp_path, 'decimal = ","')
    assert [row[2] for row in read_rows(tmp_path)[0]] == [1.234, 7]


def test_point_separates_thousands_where_another_column_has_decimal_commas(tmp_path):
    (tmp_path / "t.csv").write_text("id;sold;price;version\n1;1.234;2,5;1.5\n2;12;-0,75;1.234\n")
    table = Dataset(tmp_path).find_table("t")
    rows = Dataset(tmp_path).connection.execute(f"FROM {table.scan}").fetchall()
    assert rows == [("1", "1234", "2.5", "1.5"), ("2", "12", "-0.75", "1.234")]


@pytest.mark.parametrize(
    ("rows", "statement", "values"),
    [
        ("0.500;2,5\n0.123;3,75\n", "", [("0.500", "2.5"), ("0.123", "3.75")]),
        ("0,500;1,234.5\n0,123;7.25\n", "", [("0.500", "1234.5"), ("0.123", "7.25")]),
        # The reader must not convert a number, so that its decimal comma becomes a point between thousands.
        ("1,234;2,5\n-0,75;1,5\n", 'formats = { x = "1.234,5" }', [("1.234", "2.5"), ("-0.75", "1.5")]),
        ("01/02/2024;13/01/2024\n", 'formats = { x = "%m/%d/%Y" }', [("2024-01-02", "2024-01-13")]),
    ],
)
def test_columns_with_other_formats_than_the_file(rows, statement, values, tmp_path):
    (tmp_path / "t.csv").write_text("x;y\n" + rows)
    (tmp_path / "dataset.toml").write_text(f"[tables.t]\n{statement}\n")
    data = Dataset(tmp_path)
    assert data.connection.execute(f"FROM {data.tables['t'].scan}").fetchall() == values


def test_ragged_row_is_an_error_although_a_header_has_semicolons(tmp_path):
    (tmp_path / "shop.csv").write_text("id;city;sales;kind\n1;Bern;2;red;blue\n2;Bern;7;blue\n")
    with pytest.raises(DataError) as caught:
        read_rows(tmp_path)
    assert caught.value.diagnostics[0].code == "E204"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("id;x\n1;2\n\n3\n", "the row in line 4 has 1 cell, and the header has 2: '3'"),
        ('id,x\n"1\n",2\n3,4,5\n', "the row in line 4 has 3 cells, and the header has 2: '3,4,5'"),
        ('id,x\n1,2\n3,"4\n5,6\n', "the row that begins in line 3 contains a quote that is not closed"),
        ('id,x\n1,2\n3,"4"5\n', "the row that begins in line 3 cannot be read: ',' expected after '\"'"),
    ],
)
def test_message_names_the_first_row_without_a_cell_for_each_column(text, note, tmp_path):
    (tmp_path / "shop.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        Dataset(tmp_path)
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.notes) == ("E204", (note,)) and "double quotes" in problem.hint


@pytest.mark.parametrize(
    "content", [PLAIN.encode() + b"4,\xff,,\n", b"id,city\n\x81\x8d,1\n", b"id,city\n\0\xfc,1\n"], ids=repr
)
def test_damaged_text_is_not_decoded_in_another_encoding(content, tmp_path):
    (tmp_path / "shop.csv").write_bytes(content)
    with pytest.raises(DataError) as caught:
        Dataset(tmp_path)
    (problem,) = caught.value.diagnostics
    assert problem.code == "E204" and "encoding" in problem.hint


@pytest.mark.parametrize(
    ("csv", "code", "message"),
    [
        ('delimiter = ";;"', "E232", "';;' is not a delimiter"),
        ('delimiter = "\\""', "E232", "'\"' is not a delimiter"),
        ('encoding = "klingon"', "E232", "'klingon' is not a text encoding"),
        ('encoding = "rot13"', "E232", "'rot13' is not a text encoding"),
        ('decimal = "x"', "E232", "'x' is not a decimal separator"),
        ("missing = [1]", "E232", "'missing' must be a list of strings"),
        ("skip = -1", "E232", "'skip' is -1, below 0"),
        ("units = [1]", "E232", "'units' must be a list of units"),
        ('units = [" %"]', "E232", "'units' must be a list of units"),
        ('separator = ";"', "E231", "tables.shop.csv has no key 'separator'"),
    ],
)
def test_invalid_statement_is_reported(csv, code, message, tmp_path):
    (tmp_path / "shop.csv").write_text(PLAIN)
    write_manifest(tmp_path, csv)
    with pytest.raises(DataError) as caught:
        Dataset(tmp_path)
    (problem,) = caught.value.diagnostics
    assert problem.code == code and message in problem.message


def test_statement_about_another_format_is_reported(tmp_path):
    (tmp_path / "shop.jsonl").write_text('{"id": 1}\n')
    write_manifest(tmp_path, 'delimiter = ";"', "shop.jsonl")
    with pytest.raises(DataError) as caught:
        Dataset(tmp_path)
    assert caught.value.diagnostics[0].message == "'shop.jsonl' is not a CSV file"


def test_file_that_is_not_in_the_stated_encoding_is_reported(tmp_path):
    (tmp_path / "shop.csv").write_bytes(PLAIN.encode("cp1252"))
    write_manifest(tmp_path, 'encoding = "ascii"')
    with pytest.raises(DataError) as caught:
        Dataset(tmp_path)
    assert caught.value.diagnostics[0].code == "E204"


@pytest.mark.parametrize("csv", ["", 'encoding = "utf-8"', 'encoding = "cp1252"\ndelimiter = ";"'])
@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_damaged_compressed_file_is_reported(csv, suffix, tmp_path):
    text = "id,city,sales,kind\n" + "".join(f"{k},{k * 2654435761 % 2**32},,red\n" for k in range(20_000))
    content = gzip.compress(text.encode()) if suffix == "gz" else pa.compress(text.encode(), "zstd", asbytes=True)
    (tmp_path / f"shop.csv.{suffix}").write_bytes(content[: len(content) // 2])
    write_manifest(tmp_path, csv, f"shop.csv.{suffix}")
    with pytest.raises(DataError) as caught:
        read_rows(tmp_path)
    assert {problem.code for problem in caught.value.diagnostics} == {"E204"}


@pytest.mark.parametrize(("first", "second"), [("\r\n", "\n"), ("\n", "\r\n"), ("\r", "\n")])
@pytest.mark.parametrize(
    "n_rows", [1, 200_000]
)  # in a large file, DuckDB finds the difference only where it reads the rows
def test_files_with_different_line_ends_are_read(first, second, n_rows, tmp_path):
    rows = [f"{k},Bern,{k}" for k in range(n_rows)]
    late = f'{n_rows},"Bern\nBasel",7{second}{n_rows + 1},Bern,8{second}'
    (tmp_path / "shop.csv").write_bytes(f"{first.join(['id,city,sales', *rows])}{first}{late}".encode())
    dataset = Dataset(tmp_path)
    scan = dataset.find_table("shop").scan
    found = dataset.connection.execute(f"SELECT count(*), sum(sales::bigint), max(city) FROM {scan}").fetchone()
    assert found == (n_rows + 2, n_rows * (n_rows - 1) // 2 + 15, "Bern\nBasel")
    assert "read with different line ends" in str(dataset.notes)


def test_header_with_a_line_break(tmp_path):
    (tmp_path / "shop.csv").write_text('"Shop\nID",Name,Kind\n1,A,red\n2,B,blue\n3,C,red\n')
    table = Dataset(tmp_path).tables["shop"]
    assert [*table.columns] == ["Shop\nID", "Name", "Kind"]


def test_very_long_cell(tmp_path):
    text = "x" * 200_000
    (tmp_path / "shop.csv").write_text(f"id;text;kind\n1;{text};red\n2;b;blue\n")
    assert [*Dataset(tmp_path).tables["shop"].columns] == ["id", "text", "kind"]
    (tmp_path / "shop.csv").write_text("id,text,kind\n" + f'1,"{text * 13}\n{text}",red\n2,b,blue\n')
    data = Dataset(tmp_path)
    (sizes,) = data.connection.execute(f"SELECT list(length(text)) FROM {data.tables['shop'].scan}").fetchall()
    assert sizes == ([14 * len(text) + 1, 1],)
    (tmp_path / "shop.csv").write_text(f"id,text,kind\n1,{text},red\n2,b,blue\n3,c\n")
    with pytest.raises(DataError) as caught:
        Dataset(tmp_path)
    assert "line 4" in str(caught.value)
