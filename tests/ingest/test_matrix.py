"""Files as people export them, from bytes to predictions: right values, or one diagnostic with the line that helps."""

import gzip
import sys
from datetime import UTC, date, datetime

import pyarrow
import pyarrow.compute
import pyarrow.parquet
import pytest
from workbook import write_workbook

import relcrf
from relcrf.data.binding import bind
from relcrf.data.readers.excel_parts import count_unreadable_cells
from relcrf.errors import DataError, UsageError

MODEL = """
domain Kind = { red, blue }
domain City = open
entity Shop { city: City  sales: real  visits: integer  opened: date  predict kind: Kind }
template bias(s: Shop) over s.kind
template city(s: Shop) over s.kind per s.city
template sales(s: Shop) over s.kind by s.sales / 1000
template same(a: Shop, b: Shop) where a.city == b.city and a < b over a.kind == b.kind
"""

ROWS = [
    (1, "Zürich", 1234.5, 1200, date(2024, 1, 31), "red"),
    (2, "Bern", -0.25, 7, date(2023, 12, 1), "blue"),
    (3, "Zürich", 2500000.75, 1000000, date(2024, 2, 13), None),
    (4, "Bern", 12.0, None, None, "blue"),
    (5, None, None, 3, date(2020, 2, 29), "red"),
]
HEADER = ("id", "city", "sales", "visits", "opened", "kind")


def number(value, decimal=".", thousands="", digits=2):
    """Format a number as a spreadsheet does."""
    text = f"{value:,.{digits}f}" if digits else f"{value:,}"
    return text.replace(",", "T").replace(".", decimal).replace("T", thousands)


def table(
    delimiter=",",
    decimal=".",
    thousands="",
    dates="%Y-%m-%d",
    missing="",
    header=HEADER,
    end="\n",
    quote=False,
    rows=ROWS,
):
    """Return the text of a CSV file with the rows of the shops."""
    lines = [list(header)]
    for key, city, sales, visits, opened, kind in rows:
        cells = [
            str(key),
            city,
            None if sales is None else number(sales, decimal, thousands),
            None if visits is None else number(visits, decimal, thousands, 0),
            None if opened is None else opened.strftime(dates),
            kind,
        ]
        lines.append([missing if cell is None else cell for cell in cells])

    def quoted(cell):
        return f'"{cell}"' if quote or delimiter in cell else cell

    return end.join(delimiter.join(map(quoted, line)) for line in lines) + end


def zst(content):
    return pyarrow.compress(content, codec="zstd", asbytes=True)


GERMAN = table(";", ",", ".", "%d.%m.%Y")
ENGLISH = table(thousands=",", dates="%m/%d/%Y")
RENAMED = ("Shop ID", "Größter Ort", "Net  sales", "visits", "Eröffnet am", "kind")
COLUMNS = 'columns = { id = "Shop ID", city = "Größter Ort", sales = "Net  sales", opened = "Eröffnet am" }\n'

ACCEPTED = {
    # Delimiters
    "commas": table(),
    "semicolons": table(";"),
    "tabs": table("\t"),
    "bars": table("|"),
    "another delimiter": (table("^"), '[tables.shop.csv]\ndelimiter = "^"'),
    # Encodings and line ends
    "byte order mark": table().encode("utf-8-sig"),
    "UTF-16": table().encode("utf-16"),
    "Windows-1252": table().encode("cp1252"),
    "Mac Roman": (table().encode("mac-roman"), '[tables.shop.csv]\nencoding = "mac-roman"'),
    "line ends of Windows": table(end="\r\n"),
    "no line end at the end": table().rstrip("\n"),
    # Quotes
    "quotes": table(quote=True),
    "quoted delimiter and line": table()
    .replace("Bern", '"Bern"')
    .replace("kind\n", 'kind,"a, ""b""\nc"\n')
    .replace("red\n", "red,\n")
    .replace("blue\n", "blue,\n")
    .replace("2024-02-13,\n", "2024-02-13,,\n"),
    # Numbers
    "decimal commas": table(";", ","),
    "decimal commas and points": table(";", ",", "."),
    "decimal commas and apostrophes": table(";", ",", "'"),
    "decimal commas and no-break spaces": table(";", ",", "\xa0"),
    "decimal commas and blanks": (table(";", ",", " "), '[tables.shop.csv]\nthousands = " "'),
    "decimal commas in quotes": (table(decimal=","), '[tables.shop.csv]\ndecimal = ","'),
    "thousands in quotes": table(thousands=","),
    "thousands between semicolons": table(";", thousands=","),
    "Swiss thousands": table(thousands="'"),
    "thousands as blanks": (table(thousands=" "), '[tables.shop.csv]\nthousands = " "'),
    # Dates
    "dates with points": table(dates="%d.%m.%Y"),
    "dates, day first": table(dates="%d/%m/%Y"),
    "dates, month first": table(dates="%m/%d/%Y"),
    "dates with hyphens": table(dates="%d-%m-%Y"),
    "dates, year first with slashes": table(dates="%Y/%m/%d"),
    "dates with two digits": (table(dates="%d.%m.%y"), '[tables.shop.csv]\ndates = "%d.%m.%y"'),
    "dates with names": (table(dates="%d %b %Y"), '[tables.shop.csv]\ndates = "%d %b %Y"'),
    "dates without separators": (table(dates="%Y%m%d"), '[tables.shop.csv]\ndates = "%Y%m%d"'),
    # Everything at once
    "German spreadsheet": table(";", ",", ".", "%d.%m.%Y", end="\r\n").encode("cp1252"),
    "English spreadsheet": ENGLISH.encode("utf-8-sig"),
    "stated German": (
        table(";", ",", ".", "%d.%m.%Y", "-").encode("utf-16-le"),
        'missing = ["-"]\n[tables.shop.csv]\nencoding = "utf-16-le"\ndecimal = ","\nthousands = "."\n'
        'dates = "%d.%m.%Y"\ndelimiter = ";"',
    ),
    # Missing values, headers, width
    "missing texts": (table(missing="n/a"), 'missing = ["n/a"]'),
    "headers with blanks and umlauts": (table(header=RENAMED), COLUMNS),
    "300 columns": "\n".join(
        line + ",".join(["", *(f"c{k}" if number == 0 else str(k) for k in range(294))])
        for number, line in enumerate(table().splitlines())
    ),
}
"""Files `shop.csv`, as their content, or as (content, lines of the manifest)."""

FILES = {
    "gzip": ("shop.csv.gz", gzip.compress(GERMAN.encode("cp1252"))),
    "zstd": ("shop.csv.zst", zst(table().encode())),
    "zstd, German": ("shop.csv.zst", zst(GERMAN.encode())),
    "zstd, Windows-1252": ("shop.csv.zst", zst(GERMAN.replace("\n", "\r\n").encode("cp1252"))),
    "tsv": ("shop.tsv", table("\t", dates="%d/%m/%Y").encode()),
    "tsv.zst": ("shop.tsv.zst", zst(table("\t").encode())),
}


@pytest.fixture(scope="module")
def fit():
    columns = dict(zip(HEADER, map(list, zip(*ROWS, strict=True)), strict=True))
    data = relcrf.Dataset({"shop": columns})
    fitted = relcrf.parse(MODEL).fit(data, "ess")
    return fitted, probabilities(fitted, data)


def probabilities(fit, data):
    return [dict(row, p_red=pytest.approx(row["p_red"])) for row in fit.predict(data).table().to_dicts()]


def values(data):
    """Return the values of the shops as the model reads them, with the keys as numbers."""
    bound = bind(relcrf.parse(MODEL).spec, data)
    rows = bound.connection.execute(
        'SELECT e.key::BIGINT, c.value, "x.sales", "x.visits"::BIGINT, "x.opened"::DATE, k.value FROM "ent.Shop" AS e '
        'LEFT JOIN "dom.Kind" AS k ON k.code = e."x.kind" LEFT JOIN "dom.City" AS c ON c.code = e."x.city" ORDER BY 1'
    ).fetchall()
    return [tuple(row) for row in rows]


def write(folder, name, content, lines=None):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if lines is not None:
        (folder / "dataset.toml").write_text(f'[tables.shop]\nfile = "{name}"\n{lines}\n')
    return folder


def require_same(data, fit):
    assert values(data) == ROWS
    trained, expected = fit
    found = trained.predict(data).table().to_dicts()
    assert [next(iter(row.values())) for row in found] == ["3"], "the key, under the name that it has in the file"
    for row, right in zip(found, expected, strict=True):
        assert row["kind"] == right["kind"] and row["p_red"] == right["p_red"]


@pytest.mark.parametrize("name", ACCEPTED)
def test_text_has_the_values_and_predictions(tmp_path, fit, name):
    case = ACCEPTED[name]
    content, lines = case if isinstance(case, tuple) else (case, None)
    require_same(relcrf.Dataset(write(tmp_path, "shop.csv", content, lines)), fit)


@pytest.mark.parametrize("name", FILES)
def test_compressed_file_has_the_values_and_predictions(tmp_path, fit, name):
    require_same(relcrf.Dataset(write(tmp_path, *FILES[name])), fit)


def test_workbooks(tmp_path, fit):
    sheet = [list(HEADER), *map(list, ROWS)]
    write_workbook(tmp_path / "shop.xlsx", Tabelle1=sheet)
    data = relcrf.Dataset(tmp_path)
    require_same(data, fit)
    assert data.tables["shop"].types == ("BIGINT", "VARCHAR", "DOUBLE", "BIGINT", "DATE", "VARCHAR")
    other = tmp_path / "other"
    other.mkdir()
    write_workbook(other / "all.xlsx", **{"Läden": sheet, "Notes": [["x", "at"], [True, datetime(2024, 1, 31, 10)]]})
    assert set(relcrf.Dataset(other).tables) == {"läden", "notes"}
    (other / "dataset.toml").write_text('[tables.shop]\nfile = "all.xlsx"\ntable = "Läden"\n')
    require_same(relcrf.Dataset(other), fit)
    (tmp_path / "dataset.toml").write_text('[tables.shop]\nfile = "shop.xlsx"\ntable = "Tabelle1"\n')
    require_same(relcrf.Dataset(tmp_path), fit)


def test_workbook_with_titles_above_the_header(tmp_path, fit):
    empty = [""] * (len(HEADER) - 1)
    sheet = [["Shops of 2024", *empty], ["", *empty], list(HEADER), *map(list, ROWS)]
    write_workbook(tmp_path / "shop.xlsx", Tabelle1=sheet)
    data = relcrf.Dataset(tmp_path)
    require_same(data, fit)
    assert data.tables["shop"].types == ("BIGINT", "VARCHAR", "DOUBLE", "BIGINT", "DATE", "VARCHAR")
    assert data.notes == [f"{data.tables['shop'].location}: the header is row 3, below a title"]


def test_workbook_whose_first_names_are_missing_keeps_its_header(tmp_path):
    write_workbook(tmp_path / "t.xlsx", Tabelle1=[["id", ""], [1, "x"], [2, "y"]])
    data = relcrf.Dataset(tmp_path)
    assert data.tables["t"].columns == ("id", "column2") and data.notes == []


def test_workbook_with_cells_without_values(tmp_path, monkeypatch):
    rows = [
        ["Shops", "", ""],
        ["id", "city", "sales"],
        [1, "Bern", b'<c r="C3"><f>A3*2</f><v>2</v></c>'],
        [2, None, b'<c r="C4"><f>A4*2</f></c>'],
        [3, b'<c t="str"><f>""</f><v></v></c>', b'<c r="C5"><f t="shared" si="0"/><v/></c>'],
        [4, b'<c r="B6" t="e"><v>#N/A</v></c>', b'<x:c r="C6" t="e"><x:f>1/0</x:f><x:v>#DIV/0!</x:v></x:c>'],
    ]
    tail = '<mergeCells><mergeCell ref="A1:C1"/><mergeCell ref="B3:B4"/></mergeCells>'
    write_workbook(tmp_path / "shop.xlsx", tail, Other=[["x"], [1]], Shops=rows)
    for size in (1 << 20, 40, 15):
        monkeypatch.setattr("relcrf.data.readers.excel_parts._CHUNK_BYTES", size)
        assert count_unreadable_cells(tmp_path / "shop.xlsx") == {"Other": (0, 0), "Shops": (2, 2)}
    data = relcrf.Dataset(tmp_path)
    note = next(note for note in data.notes if "sheet 'Shops'" in note)
    assert note.partition("'Shops': ")[2] == (
        "the header is row 2, below a title; only the first cell of the merged cells B3:B4 has a value; cells with "
        "an error such as #N/A are read as missing: 2; formulas without a result are read as missing: 2; "
        "save the workbook in a spreadsheet program, which stores the results"
    )
    cells = data.connection.execute(f"SELECT city, sales FROM {data.tables['shops'].scan}").fetchall()
    assert cells == [("Bern", 2), (None, None), (None, None), (None, None)]


def test_workbooks_need_a_package(tmp_path, monkeypatch):
    write_workbook(tmp_path / "shop.xlsx", Sheet1=[["id"], [1]])
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(UsageError, match=r"(?s)E351.*pip install 'relcrf\[excel\]'"):
        relcrf.Dataset(tmp_path)


def test_damaged_workbooks(tmp_path):
    path = tmp_path / "shop.xlsx"
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(DataError, match="E204"):
        relcrf.Dataset(path)
    write_workbook(path, Sheet1=[["id", "Id"], [1, 2]])
    with pytest.raises(DataError, match="several columns are named id, Id"):
        relcrf.Dataset(path)


def test_several_files_and_partitions(tmp_path, fit):
    for k, rows in enumerate((ROWS[:2], ROWS[2:])):
        (tmp_path / f"shops_{k}.csv").write_text(table(";" if k else ",", rows=rows))
    manifest = tmp_path / "dataset.toml"
    manifest.write_text('[tables.shop]\nfile = "shops_*.csv"\n')
    data = relcrf.Dataset(tmp_path)
    require_same(data, fit)
    assert data.notes == [f"{tmp_path / 'shops_*.csv'}: read with the delimiter ';' in 1 of 2 files"]
    frame = pyarrow.table(dict(zip(HEADER[:5], map(list, zip(*(row[:5] for row in ROWS), strict=True)), strict=True)))
    for kind in ("red", "blue", None):
        keys = [row[0] for row in ROWS if row[5] == kind]
        folder = tmp_path / "parts" / f"kind={kind or '__HIVE_DEFAULT_PARTITION__'}" / "year=20%2024"
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(
            frame.filter(pyarrow.compute.is_in(frame["id"], pyarrow.array(keys))), folder / "a.parquet"
        )
    manifest.write_text('[tables.shop]\nfile = "parts/**/*.parquet"\n')
    data = relcrf.Dataset(tmp_path)
    require_same(data, fit)
    assert data.tables["shop"].columns == (*HEADER, "year")
    assert data.connection.execute(f"SELECT DISTINCT year FROM {data.tables['shop'].scan}").fetchall() == [("20 24",)]


def test_files_of_a_pattern_may_have_other_types(tmp_path):
    """Pandas writes whole numbers beside missing values as floats; the keys of other files may be texts."""
    for name, keys in (("a", [1.0, None]), ("b", ["2", "x"])):
        pyarrow.parquet.write_table(pyarrow.table({"id": keys, "n": [1, 2]}), tmp_path / f"{name}.parquet")
    (tmp_path / "dataset.toml").write_text('[tables.shop]\nfile = "*.parquet"\n')
    data = relcrf.Dataset(tmp_path)
    table = data.tables["shop"]
    assert table.types == ("VARCHAR", "BIGINT")
    for scan in (table.scan, f"(SELECT * EXCLUDE (row) FROM {table.numbered_scan})"):
        found = data.connection.execute(f"SELECT id FROM {scan} ORDER BY n, id").fetchall()
        assert found == [("1",), ("2",), ("x",), (None,)]


def test_files_of_a_pattern_need_the_same_columns(tmp_path):
    (tmp_path / "shops_0.csv").write_text(table())
    (tmp_path / "shops_1.csv").write_text(table().replace("sales", "turnover"))
    (tmp_path / "dataset.toml").write_text('[tables.shop]\nfile = "shops_*.csv"\n')
    with pytest.raises(DataError) as caught:
        relcrf.Dataset(tmp_path)
    (problem,) = caught.value.diagnostics
    assert problem.code == "E212" and problem.location.table == str(tmp_path / "shops_1.csv")
    assert problem.notes == ("only one of the files has sales, turnover",)
    (tmp_path / "dataset.toml").write_text('[tables.shop]\nfile = "shop-*.csv"\n')
    with pytest.raises(DataError, match=r"E203.*no file matches 'shop-\*.csv'"):
        relcrf.Dataset(tmp_path)
    (tmp_path / "dataset.toml").write_text('[tables.shop]\nfile = "shop**.csv"\n')
    with pytest.raises(DataError, match="E232"):
        relcrf.Dataset(tmp_path)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "dataset.toml").write_text('[tables.shop]\nfile = "../shops_*.csv"\n')
    with pytest.raises(DataError, match="E233"):
        relcrf.Dataset(inner)


def test_bad_cells_of_several_files(tmp_path):
    (tmp_path / "a.csv").write_text(table())
    (tmp_path / "b.csv").write_text(table(rows=[(k + 10, *row) for k, *row in ROWS]).replace("7,2023", "many,2023"))
    (tmp_path / "c.csv").write_text(table(rows=[(k + 20, *row) for k, *row in ROWS]).replace("3,2020", "few,2020"))
    (tmp_path / "dataset.toml").write_text('[tables.shop]\nfile = "?.csv"\n')
    with pytest.raises(DataError) as caught:
        values(relcrf.Dataset(tmp_path))
    (problem,) = caught.value.diagnostics
    assert str(problem.location) == f"{tmp_path / 'b.csv'}, row 2, column 'visits'"
    assert problem.notes == (f"also row 5 of {tmp_path / 'c.csv'} ('few')",)
    (tmp_path / "c.csv").write_text(table(rows=ROWS))
    (tmp_path / "b.csv").unlink()
    with pytest.raises(DataError, match=r"E214") as caught:
        values(relcrf.Dataset(tmp_path))
    assert caught.value.diagnostics[0].notes[0] == f"first occurrence in row 1 of {tmp_path / 'a.csv'}"


AMBIGUOUS = [(*row[:4], row[4] and row[4].replace(day=min(row[4].day, 9)), row[5]) for row in ROWS]
WHOLE = [(*row[:2], row[2] and float(int(row[2])), *row[3:]) for row in ROWS]

REJECTED = {
    "dates whose order is not clear": (
        table(dates="%d/%m/%Y", rows=AMBIGUOUS), AMBIGUOUS, 1, "opened", "09/01/2024", 'dates = "%d/%m/%Y"',
    ),
    "dates with two digits": (table(dates="%d.%m.%y"), ROWS, 1, "opened", "31.01.24", 'dates = "%d.%m.%y"'),
    "dates with two digits and slashes": (table(dates="%d/%m/%y"), ROWS, 1, "opened", "31/01/24", 'dates = "%d/%m/%y"'),
    "years of two digits first": (table(dates="%y-%m-%d"), ROWS, 1, "opened", "24-01-31", 'dates = "%y-%m-%d"'),
    "months first with hyphens": (table(dates="%m-%d-%Y"), ROWS, 1, "opened", "01-31-2024", 'dates = "%m-%d-%Y"'),
    "dates with names": (table(dates="%d %b %Y"), ROWS, 1, "opened", "31 Jan 2024", 'dates = "%d %b %Y"'),
    "dates without separators": (table(dates="%Y%m%d"), ROWS, 1, "opened", "20240131", 'dates = "%Y%m%d"'),
    "decimal commas in quotes": (table(decimal=","), ROWS, 1, "sales", "1234,50", 'decimal = ","'),
    "commas between three digits": (
        table(thousands=",", rows=WHOLE[:1]).replace(".00", ""), WHOLE[:1], 1, "sales", "1,234", 'thousands = ","',
    ),
    "blanks between thousands": (
        table(thousands=" ").replace(".50", "").replace(".75", "").replace("-0.25", "0").replace("12.00", "12"),
        [(*row[:2], row[2] and float(int(row[2])), *row[3:]) for row in ROWS], 1, "sales", "1 234", 'thousands = " "',
    ),
    "missing text": (table(missing="n/a"), ROWS, 5, "sales", "n/a", 'missing = ["n/a"]'),
}  # fmt: skip
"""Files with (content, rows, row, column, value of the first bad cell, line of the manifest that accepts them)."""


@pytest.mark.parametrize("name", REJECTED)
def test_bad_cell_names_the_line_that_accepts_it(tmp_path, name):
    content, rows, row, column, value, line = REJECTED[name]
    write(tmp_path, "shop.csv", content)
    with pytest.raises(DataError) as caught:
        values(relcrf.Dataset(tmp_path))
    problem = next(d for d in caught.value.diagnostics if d.location.column == column)
    assert problem.code == "E215" and str(problem.location) == f"{tmp_path / 'shop.csv'}, row {row}, column '{column}'"
    assert problem.message.startswith(f"'{value}' is not a") and " such as " in problem.message
    section = "[tables.shop]" if line.startswith("missing") else "[tables.shop.csv]"
    assert line in problem.hint and f"below {section} in dataset.toml" in problem.hint
    write(tmp_path, "shop.csv", content, line if section == "[tables.shop]" else f"{section}\n{line}")
    assert values(relcrf.Dataset(tmp_path)) == rows


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("5/6/24 1:30", 'dates = "%d/%m/%y %H:%M"'),  # DuckDB would read the year 5
        ("03/04/2024 10:30:00", 'dates = "%m/%d/%Y %H:%M:%S"'),
        ("12/31/2024 10:30 PM", 'dates = "%m/%d/%Y %I:%M %p"'),
        ("infinity", None),
    ],
)
def test_bad_datetime_names_the_line_that_accepts_it(tmp_path, cell, line):
    model = relcrf.parse("entity Shop { at: datetime  predict open: bool }\ntemplate t(s: Shop) over s.open")
    (tmp_path / "shop.csv").write_text(f"id,at\n1,{cell}\n")
    with pytest.raises(DataError) as caught:
        bind(model.spec, relcrf.Dataset(tmp_path))
    (problem,) = caught.value.diagnostics
    assert problem.code == "E215" and (line or "leave the cell empty") in problem.hint
    if line is not None:
        (tmp_path / "dataset.toml").write_text(f"[tables.shop.csv]\n{line}\n")
        bound = bind(model.spec, relcrf.Dataset(tmp_path))
        expected = datetime.strptime(cell, line.split('"')[1]).replace(tzinfo=UTC).timestamp()
        assert bound.connection.execute('SELECT "x.at" / 1e6 FROM "ent.Shop"').fetchall() == [(expected,)]


def test_stated_format_leaves_the_bad_cell(tmp_path):
    text = table(";", ",", ".", "%d.%m.%Y", rows=[*ROWS, (6, "Bern", 5.5, 5, date(2024, 5, 5), "red")])
    text = text.replace("12,00;;;", "n/a;;soon;")
    stated = '[tables.shop.csv]\ndecimal = ","\nthousands = "."\ndates = "%d.%m.%Y"'
    write(tmp_path, "shop.csv", text, stated)
    with pytest.raises(DataError) as caught:
        values(relcrf.Dataset(tmp_path))
    sales, opened = caught.value.diagnostics
    assert sales.message == "'n/a' is not a finite number such as 12.5" and 'write missing = ["n/a"]' in sales.hint
    assert (
        opened.message == "'soon' is not a date such as 2024-01-31" and opened.location.row == sales.location.row == 4
    )


def test_stated_decimal_comma_applies_without_a_comma(tmp_path):
    (tmp_path / "shop.csv").write_text("id;sales\n1;1.234\n2;12.345\n")
    (tmp_path / "dataset.toml").write_text('[tables.shop]\nfile = "shop.csv"\ncsv = { decimal = "," }\n')
    data = relcrf.Dataset(tmp_path)
    assert data.connection.execute(f"SELECT sales FROM {data.tables['shop'].scan}").fetchall() == [
        ("1234",),
        ("12345",),
    ]
    (tmp_path / "shop.csv").write_text("id;sales\n1;1234,5\n2;1234.5\n3;2,5\n")
    data = relcrf.Dataset(tmp_path)
    assert data.connection.execute(f"SELECT sales FROM {data.tables['shop'].scan}").fetchall()[0] == ("1234,5",)


ORPHANS = MODEL + "relation Near(a: Shop, b: Shop)\n"


def test_orphans_name_file_and_row(tmp_path):
    write(tmp_path, "shop.csv", table())
    (tmp_path / "near.csv").write_text("a;b\n1;2\n1;77\n")
    with pytest.raises(DataError) as caught:
        bind(relcrf.parse(ORPHANS).spec, relcrf.Dataset(tmp_path))
    (problem,) = caught.value.diagnostics
    assert problem.code == "E219" and str(problem.location) == f"{tmp_path / 'near.csv'}, row 2, column 'b'"


def test_hint_only_for_text_files(tmp_path):
    columns = dict(zip(HEADER, map(list, zip(*ROWS, strict=True)), strict=True))
    with pytest.raises(DataError) as caught:
        values(relcrf.Dataset({"shop": {**columns, "sales": ["1,5"] * 5}}))
    assert "dataset.toml" not in caught.value.diagnostics[0].hint


PROBLEMS = {
    "duplicate key": (table(rows=[*ROWS, ROWS[1]]), "E214", "row 6, column 'id'"),
    "missing key": (table().replace("\n2,", "\n,"), "E213", "row 2, column 'id'"),
    "mixed types": (table().replace("1200", "many"), "E215", "row 1, column 'visits'"),
    "number as a date": (table().replace("2024-02-13", "45335"), "E215", "row 3, column 'opened'"),
    "impossible date": (table().replace("2024-02-13", "2024-02-30"), "E215", "row 3, column 'opened'"),
    "unknown value": (table().replace("red", "rot"), "E216", "row 1, column 'kind'"),
    "empty file": ("", "E204", None),
    "header only": (table(rows=[]), None, None),
    "ragged line": (table().replace("2,Bern", "2,Bern,more"), "E204", None),
    "damaged UTF-8": (table().encode() + b"6,\xff\xfe,,,,\n", "E204", None),
    "binary": (b"id\n\x00\x01\xff", "E204", None),
    "no key": (table().replace("id,", "number,"), "E211", None),
    "no column": (table().replace("sales", "turnover"), "E212", None),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_has_one_diagnostic(tmp_path, name):
    content, code, location = PROBLEMS[name]
    write(tmp_path, "shop.csv", content)
    if code is None:
        assert values(relcrf.Dataset(tmp_path)) == []
        return
    with pytest.raises(DataError) as caught:
        values(relcrf.Dataset(tmp_path))
    (problem,) = caught.value.diagnostics
    assert problem.code == code
    assert location is None or str(problem.location) == f"{tmp_path / 'shop.csv'}, {location}"


@pytest.mark.parametrize(
    "line",
    ['thousands = "_"', 'thousands = "."\ndecimal = "."', 'thousands = ","\ndecimal = ","', 'dates = "DD.MM.YYYY"',
     'dates = "%d.%q"', "dates = 3"],
)  # fmt: skip
def test_wrong_statements(tmp_path, line):
    write(tmp_path, "shop.csv", table(), f"[tables.shop.csv]\n{line}")
    with pytest.raises(DataError, match="E232"):
        relcrf.Dataset(tmp_path)


def test_texts_that_only_look_like_numbers_or_dates_stay(tmp_path):
    cells = [("1.2.3", "1,2", "12 345", "31.12.2024", "1'000"), ("4.5.6", "3,4,5", "23 456", "unknown", "x")]
    lines = ["|".join(map(str, (k, *row))) for k, row in enumerate(cells)]
    (tmp_path / "part.csv").write_text("\n".join(["id|version|pair|phone|when|name", *lines]) + "\n")
    data = relcrf.Dataset(tmp_path)
    found = data.connection.execute(f"FROM {data.tables['part'].scan}").fetchall()
    assert [row[1:] for row in found] == cells


def test_check_prints_one_line_per_table(tmp_path, relcrf_, relcrf_json):
    (tmp_path / "shops.rcrf").write_text(MODEL)
    data = tmp_path / "data"
    data.mkdir()
    (data / "shop.csv").write_bytes(GERMAN.encode("cp1252"))
    (data / "other.tsv").write_text("id\n1\n")
    code, out, err = relcrf_("check", tmp_path / "shops.rcrf", "--data", data)
    assert code == 0 and "read with" not in err
    assert (
        f"shop: {data / 'shop.csv'} (CSV, delimiter ';', cp1252, decimal commas in sales, visits, dates %d.%m.%Y in "
        "opened); 5 rows, 6 columns; used by City, Shop" in out
    )
    assert f"other: {data / 'other.tsv'} (CSV, delimiter '\\t', utf-8); 1 rows, 1 columns; not used" in out
    code, found = relcrf_json("check", tmp_path / "shops.rcrf", "--data", data)
    assert [(table["name"], table["rows"]) for table in found["tables"]] == [("other", 1), ("shop", 5)]
