"""Formats of numbers and dates in columns of texts that are not in CSV files, such as those of a database."""

import sqlite3

import pytest

import relcrf
from relcrf.errors import DataError
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal import proposal

ROWS = [
    ("O1", "31.12.2024", "1.234,50", "1,234.50", "A-1", "x", "2"),
    ("O2", "1.2.2025", "7,25", "12.5", "A-2", "y", "3"),
    ("O3", None, "", "1,000,000.0", "B-1", "x", "4"),
    ("O4", "05.06.2025", "1.000", None, "B-2", "y", "5"),
]
COLUMNS = ("id", "paid", "price", "tax", "code", "label", "n")
FORMATS = 'formats = { paid = "%d.%m.%Y", price = "1.234,5", tax = "1,234.5" }'


def write_database(path, rows=ROWS):
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE orders ({', '.join(f'{name} TEXT' for name in COLUMNS)})")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    database.close()
    return path


def read(tmp_path, rows=ROWS, statement=FORMATS):
    path, manifest = tmp_path / "d.sqlite", tmp_path / "m.toml"
    if not path.exists():
        write_database(path, rows)
    manifest.write_text(f'[tables.orders]\ntable = "orders"\n{statement}\n')
    return relcrf.Dataset(path, manifest=manifest)


def cells(dataset, *columns):
    return dataset.connection.execute(
        f"SELECT {', '.join(columns)} FROM {dataset.tables['orders'].scan} AS raw"
    ).fetchall()


def test_stated_formats_convert_texts(tmp_path):
    found = cells(read(tmp_path), "paid", "price", "tax", "code")
    assert found == [
        ("2024-12-31", "1234.50", "1234.50", "A-1"),
        ("2025-02-01", "7.25", "12.5", "A-2"),
        (None, "", "1000000.0", "B-1"),
        ("2025-06-05", "1000", None, "B-2"),
    ]


@pytest.mark.parametrize("date", ["soon", "31.12.24"])
def test_other_cells_remain_and_are_reported(date, tmp_path):
    rows = [*ROWS, ("O5", date, "1.5 EUR", "free", "C", "x", "6")]
    dataset = read(tmp_path, rows)
    assert cells(dataset, "paid", "price", "tax")[-1] == (date, "1.5 EUR", "free")
    model = relcrf.parse(
        "domain Label = { x, y }\nentity Orders { paid : date  price : real  predict label : Label }\n"
        "template prior(o: Orders) over o.label by 1, o.price"
    )
    with pytest.raises(DataError, match=f"'{date}' is not a date"):
        model.ground(dataset)


@pytest.mark.parametrize(
    ("kind", "column", "hint"),
    [("date", "paid", 'formats = { paid = "%d.%m.%Y" }'), ("real", "price", 'formats = { price = "1.234,5" }')],
)
def test_hint_of_a_bad_cell_is_the_statement_that_converts_it(kind, column, hint, tmp_path):
    model = relcrf.parse(
        f"domain Label = {{ x, y }}\nentity Orders {{ {column} : {kind}  predict label : Label }}\n"
        "template prior(o: Orders) over o.label"
    )
    dataset = relcrf.Dataset(write_database(tmp_path / "d.sqlite"))
    with pytest.raises(DataError) as caught:
        model.ground(dataset)
    assert hint in str(caught.value.diagnostics[0].hint)
    assert len(model.ground(read(tmp_path, statement=hint)).states) == 4


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ('formats = { price = "1,2" }', "E232", "the format of 'price' must be a date such as '%d.%m.%Y', or one of"),
        ("formats = { price = 3 }", "E232", "the format of 'price' must be"),
        ('formats = { prise = "1.234,5" }', "E232", "has no column 'prise'"),
    ],
)
def test_invalid_formats_are_reported(statement, code, message, tmp_path):
    with pytest.raises(DataError) as caught:
        read(tmp_path, statement=statement)
    (problem,) = caught.value.diagnostics
    assert problem.code == code and message in problem.message and problem.hint


def test_proposal_declares_the_formats(tmp_path):
    rows = [
        (f"O{k}", f"{1 + k % 28}.{1 + k % 12}.2024", f"{k},5{k % 10}", "", "c", "xy"[k % 2], str(k)) for k in range(40)
    ]
    path = write_database(tmp_path / "d.sqlite", rows)
    project = proposal.propose(str(path), tmp_path / "m.rcrf", "orders.label", DEFAULT_MEMORY)
    assert 'formats = { price = "1.234,5", paid = "%d.%m.%Y" }' in project.manifest[1]
    text = project.draft.text
    assert "paid          : datetime" in text and "price         : real" in text
    assert any(note.startswith("orders.paid contains dates %d.%m.%Y") for note in project.draft.notes)
