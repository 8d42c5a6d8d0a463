"""Tables of a manifest without a source: statements on tables of the folder or of the data, which do not hide the others."""

import duckdb
import pytest
from workbook import write_workbook

import relcrf
from relcrf.data.dataset import Dataset
from relcrf.data.manifest import is_applicable
from relcrf.errors import DataError

MODEL = """
entity Shop { sales: real  predict kind: bool }
relation Near(a: Shop, b: Shop)
template value(s: Shop) over s.kind by s.sales
"""
SHOPS = "id;sales;kind\ns1;1.234;true\ns2;?;false\ns1;2,5;true\n"
NEAR = "a,b\ns1,s2\ns1,s9\n"
MANIFEST = """
[tables.Shop]
missing = ["?"]
duplicates = "first"
csv = { decimal = "," }
[tables.near]
orphans = "drop"
"""


def rows(dataset, table):
    return dataset.connection.execute(f"FROM {dataset.find_table(table).scan}").fetchall()


def write(folder, manifest):
    folder.mkdir(exist_ok=True)
    for name, text in {"shop.csv": SHOPS, "near.csv": NEAR, "other.csv": "x\n1\n", "dataset.toml": manifest}.items():
        (folder / name).write_text(text)
    return folder


def test_statements_apply_to_the_tables_of_the_folder(tmp_path):
    dataset = Dataset(write(tmp_path, MANIFEST))
    assert sorted(dataset.table_names) == ["Shop", "near", "other"]
    assert rows(dataset, "shop") == [("s1", "1234", "true"), ("s2", None, "false"), ("s1", "2.5", "true")]
    bound = relcrf.parse(MODEL).ground(dataset).bound
    assert bound.keys("Shop").tolist() == ["s1", "s2"] and len(bound.repairs) == 3


def test_a_source_selects_the_tables(tmp_path):
    assert Dataset(write(tmp_path, f'{MANIFEST}[tables.y]\nfile = "other.csv"\n')).table_names == ["Shop", "near", "y"]


def test_tables_of_files_with_several_tables(tmp_path):
    write_workbook(tmp_path / "book.xlsx", Shop=[["id", "kind"], ["s1", "-"]], Other=[["x"], [1]])
    with duckdb.connect(str(tmp_path / "shops.duckdb")) as connection:
        connection.execute("CREATE TABLE sold AS SELECT 1 AS n")
    manifest = '[tables.Shop]\nmissing = ["-"]\n[tables.sold]\ncolumns = { number = "n" }\n'
    (tmp_path / "dataset.toml").write_text(manifest)
    dataset = Dataset(tmp_path)
    assert rows(dataset, "Shop") == [("s1", None)] and len(dataset.table_names) == 3
    assert dataset.find_table("sold").columns == ("number",)
    (tmp_path / "m.toml").write_text('[tables.a]\ncolumns = { y = "x" }\n')
    frames = Dataset({"a": {"x": [1]}, "b": {"z": [2]}}, manifest=tmp_path / "m.toml")
    assert [table.columns for table in frames.tables.values()] == [("y",), ("z",)]


def test_a_file_and_a_sheet_of_the_same_name_are_an_error(tmp_path):
    write(tmp_path, '[tables.shop]\nmissing = ["?"]\n')
    write_workbook(tmp_path / "book.xlsx", Shop=[["id"], ["s1"]], Other2=[["x"], [1]])
    with pytest.raises(DataError, match=r"E205.*two tables have the name"):
        Dataset(tmp_path)


def test_stored_tables_with_absolute_paths_do_not_apply(tmp_path):
    for mapping in ('[tables.a]\nfile = "/x*.csv"\n', '[tables."/x"]\nmissing = ["?"]\n'):
        assert not is_applicable(mapping, tmp_path)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("[tables.shops]\nopen = true\n", "table 'shops' is missing in "),
        ("[tables.shops]\nopen = true\n[tables.near]\nfile = 'near.csv'\n", "has no source, and no file has its name"),
        ("[tables.near]\nopen = true\n", "has no source, and the files near.csv, near.tsv have its name"),
        ("[tables.other.csv]\ndecimal = ';'\n", "';' is not a decimal separator"),
    ],
)
def test_unknown_and_ambiguous_names_are_errors(manifest, message, tmp_path):
    write(tmp_path, manifest)
    if "files" in message:
        (tmp_path / "near.tsv").write_text("a\tb\n")
    with pytest.raises(DataError) as caught:
        Dataset(tmp_path)
    assert message in caught.value.diagnostics[0].message and caught.value.diagnostics[0].code == "E232"


def test_errors_of_a_stored_manifest_name_it():
    with pytest.raises(
        DataError, match=r"table 'shops' is missing in the given tables\n --> the manifest of the training data:2:1"
    ):
        Dataset.from_mapping({"shop": {"id": ["a"]}}, '[tables.shop]\ntable = "shops"\n')


def test_run_applies_the_statements_to_new_folders(tmp_path, relcrf_, relcrf_json):
    (tmp_path / "m.rcrf").write_text(MODEL)
    data, new = write(tmp_path / "data", MANIFEST), write(tmp_path / "new", "")
    (new / "dataset.toml").unlink()
    code, _, err = relcrf_("train", tmp_path / "m.rcrf", "--data", data, "--out", tmp_path / "run", "-b", "local")
    assert code == 0, err
    (new / "shop.csv").write_text(SHOPS.replace("s2;?;false", "s2;?;"))
    code, found = relcrf_json("predict", tmp_path / "run", "--data", new)
    assert code == 0 and [row["id"] for row in found["predictions"]["Shop.kind"]] == ["s2"]
    assert any("read 1 cell as missing" in note for note in found["notes"])
