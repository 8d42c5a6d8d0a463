"""The mapping of a run: the tables of the manifest of the training data, applied to plain folders."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from workbook import write_workbook

import relcrf
from relcrf.data.manifest import read_manifest
from relcrf.errors import DataError
from relcrf.proposal import trial

MODEL = """
domain Kind = { red, blue }
entity Shop { sales: real  predict kind: Kind }
relation Near(a: Shop, b: Shop)
template bias(s: Shop) over s.kind
template value(s: Shop) over s.kind by s.sales
template near(a: Shop, b: Shop) where Near(a, b) over a.kind == b.kind
"""

MANIFEST = """
[tables.shop]
file = "Läden 2024.csv"
columns = { id = "Shop No", kind = "Kind" }
missing = ["?"]

[tables.shop.csv]
delimiter = ";"

[tables.near]
sql = '''
SELECT x."Shop No" AS a, y."Shop No" AS b
FROM shop AS x JOIN shop AS y ON x.street = y.street AND x."Shop No" < y."Shop No"
'''

[split]
hide = 0.5
"""

SHOPS = "Shop No;street;sales;Kind\n1;A;1,5;red\n2;A;2,5;red\n3;B;-1,5;blue\n4;B;?;blue\n"


@pytest.fixture
def project(tmp_path, relcrf_):
    """A folder with a model, its manifest, a read-only folder of tables, and a run."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "Läden 2024.csv").write_text(SHOPS)
    (tmp_path / "old").chmod(0o555)
    (tmp_path / "shops.rcrf").write_text(MODEL)
    (tmp_path / "shops.toml").write_text(MANIFEST)
    code, _, err = relcrf_("train", *arguments(tmp_path, "shops.rcrf", "old"), "--out", tmp_path / "run", "-b", "ess")
    assert code == 0, err
    yield tmp_path
    (tmp_path / "old").chmod(0o755)


def arguments(folder, first, data):
    return folder / first, "--data", folder / data, "--manifest", folder / "shops.toml"


def test_run_describes_the_tables_of_a_new_folder(project, relcrf_, relcrf_json):
    new = project / "new"
    new.mkdir()
    (new / "Läden 2024.csv").write_text(SHOPS.replace("4;B;?;blue", "4;B;?;"))
    code, _, err = relcrf_("predict", project / "run", "--data", new)
    assert code == 0 and f"read as '{project / 'run' / 'tables.toml'}' describes them" in err
    code, found = relcrf_json("predict", project / "run", "--data", new)
    assert code == 0 and [row["Shop No"] for row in found["predictions"]["Shop.kind"]] == ["4"]
    for command in (
        ("explain", project / "run", "Shop/4"),
        ("evaluate", project / "run", "--split", "folds=2"),
        ("weights", project / "run"),
        ("diff", project / "run", project / "run"),
        ("report", project / "run", "--out", project / "run.html"),
    ):
        code, _, err = relcrf_(*command, "--data", new)
        assert code == 0 and "describes them" in err, (command, err)
    fit = relcrf.api.load_fit(project / "run")
    table = fit.predict(relcrf.Dataset(new, manifest=project / "run" / "tables.toml")).table()
    assert list(table["Shop No"]) == ["4"] and list(table["kind"]) == [found["predictions"]["Shop.kind"][0]["kind"]]
    fit.save(project / "copy")
    assert (project / "copy" / "tables.toml").read_text() == (project / "run" / "tables.toml").read_text()


def test_folder_with_another_description_is_read_as_such(project, relcrf_):
    own = project / "own"
    own.mkdir()
    (own / "shops.csv").write_text(SHOPS.replace("Shop No", "id"))
    (own / "dataset.toml").write_text(MANIFEST.replace("Läden 2024", "shops").replace("Shop No", "id"))
    code, _, err = relcrf_("predict", project / "run", "--data", own)
    assert code == 0 and "describes" not in err
    # Without a file of the mapping, the folder is read as it is.
    (own / "dataset.toml").unlink()
    (own / "shops.csv").rename(own / "shop.csv")
    (own / "shop.csv").write_text(SHOPS.replace("Shop No", "id").replace(";?;", ";;"))
    (own / "near.csv").write_text("a,b\n1,2\n")
    code, _, err = relcrf_("predict", project / "run", "--data", own)
    assert code == 0 and "describes" not in err


def test_run_is_reproduced_with_its_mapping(project, relcrf_):
    code, out, err = relcrf_("reproduce", project / "run", "--data", project / "old")
    assert code == 0 and "tables.toml" in out and "files are identical" in out, err
    shutil.copytree(project / "old", project / "own")
    (project / "own").chmod(0o755)
    (project / "own" / "dataset.toml").write_text(MANIFEST + "# The same tables, described by another text.\n")
    code, _, err = relcrf_("reproduce", project / "run", "--data", project / "own")
    assert code == 0, err


def test_stored_mapping_means_the_same_as_the_manifest(project):
    stored = project / "run" / "tables.toml"
    old, new = (read_manifest(path, project / "old") for path in (project / "shops.toml", stored))
    assert old.split is not None and new.split is None and new.mapping == old.mapping == stored.read_text()
    for was, now in zip(old.tables, new.tables, strict=True):
        assert (was.name, was.columns, was.is_open) == (now.name, now.columns, now.is_open)
    assert new.tables[0].source == old.tables[0].source and new.tables[1].source.sql == old.tables[1].source.sql


def test_servers_and_passwords_are_not_stored(tmp_path):
    text = '[tables.shop]\npostgres = "postgresql://ann:secret@host/shops"\n'
    (tmp_path / "dataset.toml").write_text(text)
    assert read_manifest(tmp_path / "dataset.toml").mapping is None


def test_paths_stay_inside_the_folder(project):
    (project / "shops.toml").write_text('[tables.shop]\nfile = "../secret.csv"\n')
    (project / "secret.csv").write_text("id\n1\n")
    with pytest.raises(DataError, match="E233"):
        relcrf.Dataset(project / "old", manifest=project / "shops.toml")


@pytest.mark.parametrize("source", ["missing", "shops.rcrf", {}, "postgresql://host/name"])
def test_manifest_needs_a_folder(project, source):
    given = project / source if isinstance(source, str) and "/" not in source else source
    with pytest.raises(DataError, match="E201"):
        relcrf.Dataset(given, manifest=project / "shops.toml")


def test_damaged_mapping_is_rejected(project, relcrf_):
    path = project / "run" / "tables.toml"
    path.write_text(path.read_text().replace("Läden", "Laden"))
    code, _, err = relcrf_("predict", project / "run", "--data", project / "old")
    assert code == 3 and "E336" in err
    manifest = json.loads((project / "run" / "manifest.json").read_text())
    del manifest["files"]["tables.toml"]
    (project / "run" / "manifest.json").write_text(json.dumps(manifest))
    path.write_text("tables = 1")
    code, _, err = relcrf_("predict", project / "run", "--data", project / "old")
    assert code == 3 and "E336" in err


def test_new_describes_sheets_and_databases(tmp_path, relcrf_, relcrf_json, monkeypatch):
    monkeypatch.setattr(trial, "MAX_VARIABLES", 0)
    columns = ["Shop ID", "Net Sales", "Kind"]
    rows = [[f"S{k}", k % 7 + 0.5, "red" if k % 3 else "blue"] for k in range(60)]
    book, base = tmp_path / "book", tmp_path / "base"
    book.mkdir()
    base.mkdir()
    write_workbook(book / "all.xlsx", Shops=[columns, *rows], Notes=[["text"], ["x"]])
    with closing(sqlite3.connect(base / "all.db")) as database, database:
        database.execute('CREATE TABLE Shops("Shop ID" TEXT, "Net Sales" REAL, "Kind" TEXT)')
        database.executemany("INSERT INTO Shops VALUES (?, ?, ?)", rows)
    for data in (book, base):
        model = tmp_path / f"{data.name}.rcrf"
        code, found = relcrf_json("new", data, "--out", model, "--predict", "Shops.Kind")
        assert code == 0 and 'table = "Shops"' in model.with_suffix(".toml").read_text(), found
        code, _, err = relcrf_("check", model, "--data", data, "--manifest", model.with_suffix(".toml"))
        assert code == 0, err


def test_new_writes_the_manifest_beside_the_model(tmp_path, relcrf_, relcrf_json, monkeypatch):
    monkeypatch.setattr(trial, "MAX_VARIABLES", 0)
    data = tmp_path / "data"
    data.mkdir()
    rows = "".join(f"{k},{k % 5}.5,{'red' if k % 2 else 'blue'}\n" for k in range(40))
    (data / "shop list.csv").write_text("Shop ID,Net Sales,Kind\n" + rows)
    data.chmod(0o555)
    try:
        code, found = relcrf_json("new", data, "--out", tmp_path / "models" / "shops.rcrf")
        assert code == 0 and found["manifest"] == str(tmp_path / "models" / "shops.toml")
        run = tmp_path / "run"
        for command in found["commands"]:
            words = command.split()[1:]
            out = {"train": run, "predict": tmp_path / "predictions.csv"}.get(words[0])
            words = [*words[: words.index("--out")], "--out", out] if out else words
            words = ["predict", run, *words[2:]] if words[0] == "predict" else words
            words += ["--backend", "ess"] * (words[0] in ("train", "evaluate"))
            code, _, err = relcrf_(*words)
            assert code == 0, (command, err)
    finally:
        data.chmod(0o755)
