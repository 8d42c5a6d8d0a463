"""Policies of a manifest for invalid rows: the rows that remain, and a note for each application."""

import json
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from command import relcrf_command
from html_page import Page
from tables import write_tables

from relcrf.api import parse
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.data.manifest import read_manifest
from relcrf.data.readers.base import SourceTable
from relcrf.data.source_repairs import repair_duplicates
from relcrf.data.store import Store
from relcrf.errors import DataError

MODEL = """
domain Word = open
entity Customer { city: string  age: real  predict churn: bool  words: bag of Word }
entity Product { price: real }
relation Buys(customer: Customer, product: Product) { amount: real }
predict relation Likes(customer: Customer, product: Product)
template prior(c: Customer) over c.churn
"""

CUSTOMERS = [
    {"id": "c1", "city": "Bern", "age": 30.0, "churn": "true"},
    {"id": "c2", "city": None, "age": None, "churn": None},
    {"id": "c1", "city": "Basel", "age": None, "churn": "false"},
    {"id": "c2", "city": "Chur", "age": 41.0, "churn": "true"},
    {"id": "c2", "city": "Genf", "age": 42.0, "churn": None},
    {"id": "c3", "city": "Thun", "age": 50.0, "churn": "false"},
]
PRODUCTS = [{"id": 1, "price": 9.5}, {"id": 2, "price": 5.0}]
BUYS = [
    {"customer": "c1", "product": 1, "amount": None},
    {"customer": "c9", "product": 1, "amount": 2.0},
    {"customer": "c1", "product": 1, "amount": 3.0},
    {"customer": "c2", "product": 7, "amount": 4.0},
    {"customer": "c3", "product": 2, "amount": 5.0},
    {"customer": "c1", "product": 1, "amount": 6.0},
]
LIKES = [{"customer": "c3", "product": 8, "value": 1}, {"customer": "c1", "product": 2, "value": 0}]
WORDS = [{"customer": "c1", "word": "w"}, {"customer": "c8", "word": "v"}, {"customer": "c1", "word": "w"}]


REFERRING = ("buys", "likes", "customer_words")


def write(folder, suffix, policies=None):
    """Write the tables and a manifest; `policies` maps a table to lines of TOML."""
    tables = {"customer": CUSTOMERS, "product": PRODUCTS, "buys": BUYS, "likes": LIKES, "customer_words": WORDS}
    if suffix == "csv":
        write_tables(folder, **tables)
    else:
        folder.mkdir(exist_ok=True)
        for name, rows in tables.items():
            pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    lines = (f'[tables.{name}]\nfile = "{name}.{suffix}"\n{(policies or {}).get(name, "")}\n' for name in tables)
    (folder / "dataset.toml").write_text("".join(lines))
    return folder


def read(folder):
    """Return the coded tables by name, with keys instead of numbers, and the notes."""
    bound = bind(parse(MODEL).spec, Dataset(folder))
    pair = 'JOIN "ent.Customer" AS c ON c.vid = r.a0 JOIN "ent.Product" AS p ON p.vid = r.a1 ORDER BY ALL'
    queries = {
        "customer": 'SELECT key, "x.city", "x.age", "x.churn" FROM "ent.Customer" ORDER BY ALL',
        "product": 'SELECT key, "x.price" FROM "ent.Product" ORDER BY ALL',
        "buys": f'SELECT c.key, p.key, "x.amount" FROM "rel.Buys" AS r {pair}',
        "likes": f'SELECT c.key, p.key, state FROM "lst.Likes" AS r {pair}',
        "words": 'SELECT c.key, d.value, count FROM "bag.Customer.words" AS r JOIN "ent.Customer" AS c USING (vid) '
        'JOIN "dom.Word" AS d USING (code) ORDER BY ALL',
    }
    return {name: bound.connection.execute(sql).fetchall() for name, sql in queries.items()}, bound


def expected_rows(rows, identity, policy):
    """Apply a policy for duplicates naively."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in identity), []).append(row)
    if policy == "merge":
        return [{n: next((r[n] for r in g if r[n] is not None), None) for n in g[0]} for g in groups.values()]
    return [g[0 if policy == "first" else -1] for g in groups.values()]


def expected_tables(duplicates, orphans):
    truth = {"true": 1, "false": 0, None: None}
    customers = {r["id"]: r for r in expected_rows(CUSTOMERS, ["id"], duplicates)}
    products = {r["id"]: r for r in PRODUCTS}
    buys = expected_rows(BUYS, ["customer", "product"], duplicates)
    if orphans == "add":
        for row in (*buys, *LIKES, *WORDS):
            customers.setdefault(row["customer"], {"id": row["customer"]})
            if "product" in row:
                products.setdefault(row["product"], {"id": row["product"]})
    pairs = [r for r in buys if r["customer"] in customers and r["product"] in products]
    likes = [r for r in LIKES if r["customer"] in customers and r["product"] in products]
    words = {"c1": ("w", 2.0)} | ({"c8": ("v", 1.0)} if orphans == "add" else {})
    return {
        "customer": sorted((k, r.get("city"), r.get("age"), truth[r.get("churn")]) for k, r in customers.items()),
        "product": sorted((k, r.get("price")) for k, r in products.items()),
        "buys": sorted((r["customer"], r["product"], r["amount"]) for r in pairs),
        "likes": sorted((r["customer"], r["product"], r["value"]) for r in likes),
        "words": sorted((key, *value) for key, value in words.items()),
    }


@pytest.mark.parametrize(
    ("suffix", "duplicates", "orphans"), [*product(("csv", "parquet"), ("first", "last", "merge"), ("drop", "add"))]
)
def test_policies_select_the_declared_rows(suffix, duplicates, orphans, tmp_path):
    both = f'duplicates = "{duplicates}"\norphans = "{orphans}"'
    policies = dict.fromkeys(("customer", *REFERRING), both)
    found, bound = read(write(tmp_path, suffix, policies))
    assert found == expected_tables(duplicates, orphans)
    repaired = {
        "first": "dropped {} with the {} of another row",
        "last": "dropped {} with the {} of another row",
        "merge": "merged {} into an earlier row with the same {}",
    }[duplicates]
    notes = [
        f"customer: {repaired.format('3 rows', 'key')}, such as 'c1' in rows 1 and 3 (duplicates = \"{duplicates}\")",
        f"buys: {repaired.format('2 rows', 'arguments')}, such as 'c1', '1' in rows 1 and 3 (duplicates = \"{duplicates}\")",
    ]
    if orphans == "add":
        notes += [
            "customer: added 2 Customer entities to which rows refer, such as 'c8' in row 2 of customer_words "
            '(orphans = "add" of customer_words, buys, likes)',
            "product: added 2 Product entities to which rows refer, such as '7' in row 4 of buys "
            '(orphans = "add" of buys, likes)',
        ]
    else:
        notes += [
            "customer_words: dropped 1 row without a known Customer entity: 'c8' in row 2 (orphans = \"drop\")",
            "buys: dropped 2 rows without a known Customer or Product entity, such as 'c9', '1' in row 2 (orphans = \"drop\")",
            "likes: dropped 1 row without a known Customer or Product entity: 'c3', '8' in row 1 (orphans = \"drop\")",
        ]
    assert bound.notes == notes == [str(repair) for repair in bound.repairs]
    examples = {repair.table: repair.example for repair in bound.repairs}
    if orphans == "add":
        assert examples["product"] == "'7' in row 4 of buys" and examples["buys"] == "'c1', '1' in rows 1 and 3"
        assert examples["customer"] == "'c8' in row 2 of customer_words"
    else:
        assert examples["customer"] == "'c1' in rows 1 and 3" and examples["buys"] == "'c9', '1' in row 2"
    # Columns that the model does not declare follow the same rows, e.g. for a split.
    assert bound.raw_column("Customer", "city").tolist() == [row[1] or "" for row in found["customer"]]


def test_examples_from_queries_do_not_depend_on_the_order_of_rows(tmp_path):
    """The rows of a query have no order, so that examples name no row, and are the first in the order of the texts."""
    folder = write_tables(
        tmp_path,
        raw_customer=[{"id": name, "x": 1, "y": ""} for name in "cbcb"],
        raw_buys=[{"a": "c", "b": name} for name in "czbya"],
    )
    lines = '[tables.raw_{0}]\nfile = "raw_{0}.csv"\n[tables.{0}]\nsql = "FROM raw_{0}"\n{1}\n'
    policies = {"customer": 'duplicates = "first"', "buys": 'orphans = "drop"'}
    (folder / "dataset.toml").write_text("".join(lines.format(*item) for item in policies.items()))
    bound = bind(parse(PAIRS.replace("TYPE", "real")).spec, Dataset(folder))
    assert [repair.example for repair in bound.repairs] == ["'b' in several rows", "'c', 'a'"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_without_policies_errors_name_the_line_to_write(suffix, tmp_path):
    with pytest.raises(DataError) as caught:
        read(write(tmp_path, suffix))
    hints = {(d.code, Path(d.location.table).stem): d.hint for d in caught.value.diagnostics}
    assert hints["E214", "customer"].endswith('write duplicates = "first" in [tables.customer] of a manifest')
    assert hints["E219", "buys"].endswith('write orphans = "drop" in [tables.buys] of a manifest')
    assert hints["E219", "customer_words"].endswith('write orphans = "drop" in [tables.customer_words] of a manifest')
    write(
        tmp_path,
        suffix,
        {"customer": 'duplicates = "first"', **dict.fromkeys(REFERRING, 'orphans = "drop"')},
    )
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    (problem,) = caught.value.diagnostics
    assert problem.code == "E220" and problem.hint.endswith('write duplicates = "first" in [tables.buys] of a manifest')


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_keep_their_numbers_in_messages(suffix, tmp_path):
    """The third row is dropped; the invalid cell is in row 6 of the file."""
    policies = {
        "customer": 'duplicates = "first"',
        **dict.fromkeys(REFERRING, 'orphans = "drop"\nduplicates = "last"'),
    }
    folder = write(tmp_path, suffix, policies)
    model = MODEL.replace("city: string", "city: integer")
    with pytest.raises(DataError) as caught:
        bind(parse(model).spec, Dataset(folder))
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.location.row, problem.notes) == ("E215", 1, ("also row 6 ('Thun')",))


PAIRS = """
entity Customer { x: TYPE  predict y: bool }
relation Buys(a: Customer, b: Customer)
template prior(c: Customer) over c.y
"""


def test_empty_references_are_dropped_but_not_added(tmp_path):
    tables = {
        "customer": [{"id": "a", "x": 1, "y": ""}],
        "buys": [{"a": "a", "b": ""}, {"a": "a", "b": "a"}, {"a": "7", "b": "a"}],
    }
    model = parse(PAIRS.replace("TYPE", "real"))
    write_tables(tmp_path, **tables)
    manifest = '[tables.customer]\nfile = "customer.csv"\n[tables.buys]\nfile = "buys.csv"\norphans = '
    (tmp_path / "dataset.toml").write_text(f'{manifest}"drop"\n')
    assert bind(model.spec, Dataset(tmp_path)).count_rows("rel.Buys") == 1
    (tmp_path / "dataset.toml").write_text(f'{manifest}"add"\n')
    with pytest.raises(DataError) as caught:
        bind(model.spec, Dataset(tmp_path))
    assert [d.code for d in caught.value.diagnostics] == ["E213"]
    # A key that is not a number is added to keys that are numbers.
    write_tables(tmp_path, customer=[{"id": 1, "x": 1, "y": ""}], buys=[{"a": 1, "b": "new"}])
    bound = bind(model.spec, Dataset(tmp_path))
    assert bound.keys("Customer").tolist() == ["1", "new"] and bound.count_rows("rel.Buys") == 1


def test_entities_with_a_vector_are_not_added(tmp_path):
    write_tables(tmp_path, customer=[{"id": 1, "x0": 1, "x1": 2, "y": ""}], buys=[{"a": 1, "b": 5}])
    (tmp_path / "dataset.toml").write_text(
        '[tables.customer]\nfile = "customer.csv"\n[tables.buys]\nfile = "buys.csv"\norphans = "add"\n'
    )
    with pytest.raises(DataError) as caught:
        bind(parse(PAIRS.replace("TYPE", "vector")).spec, Dataset(tmp_path))
    (problem,) = caught.value.diagnostics
    assert problem.code == "E219" and problem.hint.startswith("an entity with a vector cannot be added")


def test_policies_are_part_of_the_cache_key(tmp_path):
    """Blocks that were ground with other policies are not reused."""
    model = parse(
        MODEL.replace(
            "template prior(c: Customer) over c.churn",
            "template t(c: Customer, p: Product) where Buys(c, p) over c.churn by c.age",
        )
    )
    rows = {}
    for policy in ("first", "last"):
        both = f'duplicates = "{policy}"\norphans = "add"'
        write(tmp_path / "data", "csv", dict.fromkeys(("customer", *REFERRING), both))
        grounding = model.ground(Dataset(tmp_path / "data"), cache=tmp_path / "cache")
        rows[policy] = [group.features.arrays()[-1].tolist() for group in grounding.graph.groups]
    assert rows["first"] != rows["last"]


SENTINELS = [{"id": "1", "x": 5, "y": 2.5, "z": "NA"}, {"id": "2", "x": -999, "y": -999.0, "z": " - "}]


@pytest.mark.parametrize("source", ["csv", "parquet", "sql", "jsonl"])
def test_missing_texts_of_every_kind_of_source(source, tmp_path):
    suffix = "parquet" if source == "sql" else source
    frame = pd.DataFrame(SENTINELS)
    {"csv": frame.to_csv, "parquet": frame.to_parquet}.get(
        suffix, lambda path, index: frame.to_json(path, orient="records", lines=True)
    )(tmp_path / f"e.{suffix}", index=False)
    missing = 'missing = ["NA", "-", "-999"' + (', "-999.0"]' if source == "csv" else "]")
    lines = f'[tables.e]\nfile = "e.{suffix}"\n{missing}\n'
    if source == "sql":
        lines = f'[tables.raw]\nfile = "e.parquet"\n[tables.e]\nsql = "FROM raw"\n{missing}\n'
    (tmp_path / "dataset.toml").write_text(lines)
    model = "entity E { x: integer  y: real  z: string  predict label: bool }\ntemplate prior(e: E) over e.label"
    bound = bind(parse(model).spec, Dataset(tmp_path))
    assert bound.connection.execute('SELECT "x.x", "x.y", "x.z" FROM "ent.E" ORDER BY vid').fetchall() == [
        (5, 2.5, None),
        (None, None, None),
    ]


@pytest.mark.parametrize("source", ["csv", "parquet", "jsonl"])
def test_missing_texts_of_single_columns(source, tmp_path):
    frame = pd.DataFrame({"id": ["1", "2", "3"], "x": ["none", "1", "2"], "y": ["none", "a", "-"], "z": [1.5, -999, 2]})
    {"csv": frame.to_csv, "parquet": frame.to_parquet}.get(
        source, lambda path, index: frame.to_json(path, orient="records", lines=True)
    )(tmp_path / f"e.{source}", index=False)
    missing = '{ x = ["none"], y = ["-"], z = ["-999", "-999.0"] }'
    manifest = f'[tables.e]\nfile = "e.{source}"\nmissing = {missing}\ncolumns = {{ w = "y" }}\n'
    (tmp_path / "dataset.toml").write_text(manifest)
    model = parse("entity E { x: integer  w: string  z: real  predict label: bool }\ntemplate t(e: E) over e.label")
    dataset = Dataset(tmp_path)
    bound = bind(model.spec, dataset)
    rows = bound.connection.execute('SELECT "x.x", "x.w", "x.z" FROM "ent.E" ORDER BY vid').fetchall()
    assert rows == [(None, "none", 1.5), (1, "a", None), (2, None, 2.0)]
    assert (
        f"read 3 cells as missing in x (1), y (1), z (1), such as 'none' of x (missing = {missing})" in bound.notes[0]
    )
    (tmp_path / "dataset.toml").write_text(f"{dataset.mapping}".replace('"none"', '"?"'))
    assert Dataset(tmp_path).tables["e"].reading != dataset.tables["e"].reading


def test_missing_texts_are_counted(tmp_path):
    """The count includes tables that only queries read, and all files of a pattern."""
    for k, ages in enumerate((["NA", "30", " - "], ["NA", "41", "NA"])):
        rows = [{"id": f"e{k}{j}", "age": age, "city": "Bern" if j else "-"} for j, age in enumerate(ages)]
        write_tables(tmp_path, **{f"part{k}": rows})
    pd.DataFrame({"id": [1, 2], "size": [-999.0, 3.0], "on": [True, None]}).to_parquet(tmp_path / "other.parquet")
    (tmp_path / "dataset.toml").write_text(
        '[tables.raw]\nfile = "part*.csv"\nmissing = ["NA", "-"]\n[tables.e]\nsql = "FROM raw"\n'
        '[tables.other]\nfile = "other.parquet"\nmissing = ["-999"]\n[tables.same]\nfile = "other.parquet"\nmissing = ["x"]\n'
    )
    spec = parse("entity E { age: real  predict ok: bool }\ntemplate t(e: E) over e.ok").spec
    bound = bind(spec, Dataset(tmp_path))
    assert [(repair.table, repair.count, repair.example) for repair in bound.repairs] == [
        ("raw", 6, "'-' of age"), ("other", 1, "'-999.0' of size"),
    ]  # fmt: skip
    assert bound.notes[:2] == [
        """raw: read 6 cells as missing in age (4), city (2), such as '-' of age (missing = ["NA", "-"])""",
        """other: read 1 cell as missing in size: '-999.0' of size (missing = ["-999"])""",
    ]
    assert bound.connection.execute('SELECT count("x.age"), count(*) FROM "ent.E"').fetchall() == [(2, 6)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('duplicates = "frist"', "'frist' is not a policy for duplicates"),
        ('orphans = "first"', "'first' is not a policy for orphans"),
        ("orphans = true", "'orphans' must be a string"),
        ('missing = "NA"', "'missing' must be a list of strings, or a table of such lists by column"),
        ('missing = { city = "NA" }', "'city' must be a list of strings, not 'NA'"),
        ("missing = { city = [1] }", "'city' must be a list of strings, not [1]"),
        ('missing = { town = ["NA"] }', "has no column 'town'"),
        ('key = "id"', "'key' has no effect without a policy for duplicates"),
        ('key = "ide"\nduplicates = "first"', "has no column 'ide'"),
    ],
)
def test_invalid_policies_are_errors(line, message, tmp_path):
    with pytest.raises(DataError) as caught:
        Dataset(write(tmp_path, "csv", {"customer": line}))
    assert [(d.code, message in d.message) for d in caught.value.diagnostics] == [("E232", True)]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("policy", ["first", "last", "merge"])
def test_queries_read_the_rows_without_repeated_keys(policy, suffix, tmp_path):
    manifest = write(tmp_path, suffix, {"customer": f'key = "id"\nduplicates = "{policy}"'}) / "dataset.toml"
    query = '[tables.copy]\nsql = "SELECT id, city, age, churn FROM customer"\n'
    manifest.write_text(manifest.read_text() + query)
    dataset = Dataset(tmp_path)
    found = dataset.connection.execute(
        f"SELECT id, city, age::DOUBLE FROM {dataset.tables['copy'].scan} ORDER BY 1"
    ).fetchall()
    rows = expected_rows(CUSTOMERS, ["id"], policy)
    assert sorted((r["id"], r["city"], r["age"]) for r in rows) == found
    (repair,) = dataset.repairs
    assert (repair.count, repair.example) == (3, "'c1' in rows 1 and 3") and [str(repair)] == dataset.notes
    model = "entity Copy { city: string  age: real  predict churn: bool } template prior(c: Copy) over c.churn"
    bound = bind(parse(model).spec, dataset)
    assert bound.repairs == [repair] and str(repair) in bound.notes


def test_repair_of_several_files_names_them(tmp_path):
    for name in "ab":
        write_tables(tmp_path, **{f"customer_{name}": [{"id": f"c{k}", "x": f"{k}{name}"} for k in range(3)]})
    entry = '[tables.customer]\nfile = "customer_*.csv"\nkey = "id"\nduplicates = "first"\n'
    (tmp_path / "dataset.toml").write_text(entry)
    dataset = Dataset(tmp_path)
    a, b = (tmp_path / f"customer_{name}.csv" for name in "ab")
    assert [repair.example for repair in dataset.repairs] == [f"'c0' in rows 1 of {a} and 1 of {b}"]
    scan = dataset.tables["customer"].scan
    assert dataset.connection.execute(f"SELECT x FROM {scan}").fetchall() == [("0a",), ("1a",), ("2a",)]


def test_first_of_rows_without_order_depends_on_their_cells(tmp_path):
    """A server returns rows in any order."""
    store, (entry,) = Store(), read_entries('key = "id"', tmp_path)
    for order in ("ASC", "DESC"):
        rows = f"(SELECT 'c' AS id, x FROM range(9) AS t(x) ORDER BY x {order})"
        table, (repair,) = repair_duplicates(SourceTable("t", "server", rows, is_ordered=False), entry, store)
        assert store.connection.execute(f"FROM {table.scan}").fetchall() == [("c", 0)]
        assert repair.example == "'c' in several rows"


def read_entries(line, folder):
    path = folder / "dataset.toml"
    (folder / "t.csv").write_text("id,x\n")
    path.write_text(f'[tables.t]\nfile = "t.csv"\n{line}\nduplicates = "first"\n')
    return read_manifest(path).tables


def test_query_does_not_have_a_key(tmp_path):
    manifest = write(tmp_path, "csv") / "dataset.toml"
    entry = '[tables.copy]\nsql = "FROM customer"\nkey = "id"\nduplicates = "first"\n'
    manifest.write_text(manifest.read_text() + entry)
    with pytest.raises(DataError, match="'key' cannot be combined with 'sql'"):
        Dataset(tmp_path)


@pytest.fixture
def repaired(tmp_path):
    """Return the model file, the folder of tables with a manifest that repairs them, and the note on one repair."""
    both = 'duplicates = "first"\norphans = "drop"'
    data = write(tmp_path / "data", "csv", dict.fromkeys(("customer", *REFERRING), both))
    (tmp_path / "m.rcrf").write_text(MODEL)
    note = "customer: dropped 3 rows with the key of another row, such as 'c1' in rows 1 and 3 (duplicates = \"first\")"
    return tmp_path / "m.rcrf", data, note


SPLIT = ("--split", "hide=0.4", "--backend", "local")


def test_notes_reach_the_commands_and_the_run_folder(repaired, tmp_path, capsys, monkeypatch):
    model, data, note = repaired
    run = tmp_path / "run"
    arguments = (
        ["check", model],
        ["train", model, "--backend", "local", "--out", run],
        ["predict", run, "--attribute", "Customer.churn"],
        ["evaluate", model, *SPLIT],
        ["compare", model, "--split", "hide=0.4", "--backend", "local"],
    )
    for words in arguments:
        code, _, errors = relcrf_command(capsys, monkeypatch, *words, "--data", data)
        assert code == 0 and errors.count(f"note: {note}") == 1, words
    assert note in json.loads((run / "manifest.json").read_text())["provenance"]["notes"]


def test_json_contains_the_notes(repaired, tmp_path, relcrf_json):
    model, data, note = repaired
    run = tmp_path / "run"
    arguments = (
        ["check", model],
        ["train", model, "--backend", "local", "--out", run],
        ["predict", run],
        ["evaluate", model, *SPLIT],
        ["evaluate", run, "--split", "hide=0.4"],
        ["compare", model, "--split", "hide=0.4", "--backend", "local"],
    )
    for words in arguments:
        code, found = relcrf_json(*words, "--data", data)
        assert code == 0 and note in found["notes"], words


def test_predict_repairs_new_tables_by_the_manifest_of_the_run(repaired, tmp_path, capsys, monkeypatch):
    model, data, _ = repaired
    run = tmp_path / "run"
    words = ("train", model, "--data", data, "--backend", "local", "--out", run)
    assert relcrf_command(capsys, monkeypatch, *words)[0] == 0
    monkeypatch.setitem(globals(), "CUSTOMERS", [*CUSTOMERS[:3], {"id": "c3", "city": "Thun", "age": 5, "churn": None}])
    new = write(tmp_path / "new", "csv")
    (new / "dataset.toml").unlink()
    code, _, errors = relcrf_command(
        capsys, monkeypatch, "predict", run, "--data", new, "--attribute", "Customer.churn"
    )
    assert code == 0
    assert (
        "customer: dropped 1 row with the key of another row: 'c1' in rows 1 and 3 (duplicates = \"first\")" in errors
    )


def test_report_of_a_run_lists_the_repairs(repaired, tmp_path, relcrf_):
    model, data, note = repaired
    run = tmp_path / "run"
    assert relcrf_("train", model, "--data", data, "--backend", "local", "--out", run)[0] == 0
    place = str(data / "customer.csv")
    expected = [
        ["customer", place, 'duplicates = "first"', "3", "dropped 3 rows with the key of another row", "'c1' in rows 1 and 3"],
        ["buys", str(data / "buys.csv"), 'orphans = "drop"', "2", "dropped 2 rows without a known Customer or Product entity",
         "'c9', '1' in row 2"],
    ]  # fmt: skip
    assert relcrf_("report", run, "--out", tmp_path / "r.html")[0] == 0
    html = (tmp_path / "r.html").read_text()
    rows = [Page(f"<table><tr>{part.split('</tr>')[0]}</tr></table>") for part in html.split("<tr>")[1:]]
    cells = [[text for _, text in row.texts if text.strip()] for row in rows]
    assert all(row in cells for row in expected), cells
    # The manifest of a run of an earlier version lists the repairs only as notes.
    stored = json.loads((run / "manifest.json").read_text())
    del stored["provenance"]["repairs"]
    (run / "manifest.json").write_text(json.dumps(stored))
    assert relcrf_("report", run, "--out", tmp_path / "r.html")[0] == 0
    items = Page((tmp_path / "r.html").read_text()).text("li")
    assert note in items
    # A run of a still earlier version has no notes.
    del stored["provenance"]["notes"]
    (run / "manifest.json").write_text(json.dumps(stored))
    assert relcrf_("report", run, "--out", tmp_path / "r.html")[0] == 0
    assert "Repairs and assumptions" not in (tmp_path / "r.html").read_text()
