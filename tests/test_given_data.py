"""Data in any form, and pickles of fitted models, models and datasets."""

import io
import pickle
import sqlite3
import zipfile

import joblib
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from tables import small_web

import relcrf
from relcrf.backends import packed_run
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_web(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def web(folder):
    return {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}


@pytest.fixture(scope="module")
def model():
    return relcrf.load(resource_path("models", "webkb.rcrf"))


def test_data_in_any_form(web, folder, model):
    expected = model.fit(relcrf.Dataset(web), "ess").predict(relcrf.Dataset(web)).probabilities()
    for data in (web, str(folder), folder):
        fit = model.fit(data, "ess")
        np.testing.assert_array_equal(fit.predict(data).probabilities(), expected)
        assert fit.explain(data, "Page/p12").variable == "Page(p12).category"
        assert model.plan(data) and not model.check(data)[0]
        assert len(fit.weights(data).columns) > len(fit.weights().columns)
        assert fit.evaluate(data, "random").predictions.systems == ("majority", "ess")
        assert model.evaluate(data, "folds=2", "local").predictions.systems == ("majority", "local")
    with pytest.raises(relcrf.DataError, match="the data have type int and are not tables"):
        model.fit(3)
    frame = web["page"]
    with pytest.raises(
        relcrf.DataError, match="a single DataFrame, and the model reads several tables: Page, Page_words"
    ):
        model.fit(frame)


def test_one_table_and_graphs():
    flat = relcrf.parse("domain D = { x, y }\nentity E { predict d : D  f : real }\ntemplate t(e: E) over e.d by e.f")
    frame = pd.DataFrame({"Customer ID": range(20), "f": np.arange(20.0), "d": ["x"] * 9 + ["y"] * 9 + [None] * 2})
    named = frame.rename(columns={"Customer ID": "ID"})
    assert next(iter(flat.fit(named, "local").predict(named).table().columns)) == "ID", (
        "the name in the table of the user"
    )
    graph = nx.Graph([(0, 1), (1, 2), (2, 3)])
    nx.set_node_attributes(graph, {0: "x", 1: "x", 2: "y"}, "d")
    linked = relcrf.parse(
        "domain D = { x, y }\nentity Node { predict d : D }\nrelation Edge(source: Node, target: Node)\n"
        "template tie(a: Node, b: Node) where Edge(a, b) over a.d == b.d"
    )
    assert linked.fit(graph, "local").predict(graph).table()["id"].tolist() == ["3"]


def test_keys_keep_the_name_that_a_manifest_replaces(tmp_path):
    (tmp_path / "e.csv").write_text("Customer ID,d\n1,x\n2,y\n3,\n")
    (tmp_path / "dataset.toml").write_text('[tables.e]\nfile = "e.csv"\ncolumns = { id = "Customer ID" }\n')
    model = relcrf.parse("domain D = { x, y }\nentity E { predict d : D }\ntemplate t(e: E) over e.d")
    found = model.fit(tmp_path, "local").predict(tmp_path)
    assert found.table().to_dicts()[0]["Customer ID"] == "3"
    renamed = {"e": {"id": [1, 2, 3], "d": ["x", "y", None]}}
    assert model.fit(tmp_path, "local").predict(relcrf.Dataset(renamed)).table()["id"].tolist() == ["3"]


def test_folder_and_frames_are_read_as_the_training_data(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "e.csv").write_text("Number,d\n1,x\n2,y\n3,\n")
    (tmp_path / "m.toml").write_text('[tables.e]\ncolumns = { id = "Number" }\n')
    model = relcrf.parse("domain D = { x, y }\nentity E { predict d : D }\ntemplate t(e: E) over e.d")
    fit = model.fit(relcrf.Dataset(tmp_path / "data", manifest=tmp_path / "m.toml"), "local")
    for data in (tmp_path / "data", {"e": {"Number": [1, 2, 3], "d": ["x", "y", None]}}):
        grounding = fit.ground(data)
        assert grounding.argument_texts(grounding.blocks[0])[0].tolist() == ["1", "2", "3"]
    assert any("read as those of the training data" in note for note in fit.ground(tmp_path / "data").bound.notes)


@pytest.mark.parametrize(
    "entry, name",
    [
        ('[tables.e]\nfile = "rows.csv"', "e"),
        ('[tables.e]\nfile = "rows.csv"', "rows"),
        ('[tables.e]\nfile = "r*.csv"', "E"),
        ('[tables.e]\nsqlite = "all.db"\ntable = "rows"', "rows"),
        ('[tables.e_rows]\nfile = "rows.csv"\n[tables.e]\nsql = "SELECT * FROM e_rows"', "rows"),
    ],
)
def test_frames_take_the_place_of_the_files_of_a_manifest(tmp_path, entry, name):
    (tmp_path / "rows.csv").write_text("Number;d\n1;x\n2;y\n3;none\n4;\n")
    with sqlite3.connect(tmp_path / "all.db") as database:
        database.execute("CREATE TABLE rows AS SELECT 1 AS Number, 'x' AS d UNION SELECT 2, 'y' UNION SELECT 3, 'none'")
    source, *rest = entry.split("\n[")
    changes = 'missing = { d = ["none"] }\n' + ('csv = { delimiter = ";" }\n' if "csv" in source else "")
    query, columns = "".join(f"[{each}\n" for each in rest), 'columns = { id = "Number" }\n'
    (tmp_path / "dataset.toml").write_text(f"{source}\n{changes}{query}{columns}")
    model = relcrf.parse("domain D = { x, y }\nentity E { predict d : D }\ntemplate t(e: E) over e.d")
    fit = model.fit(tmp_path, "local")
    frame = pd.DataFrame({"Number": [7, 8, 9], "d": ["x", "none", None]})
    assert fit.predict({name: frame}).table()["Number"].tolist() == ["8", "9"]
    with pytest.raises(relcrf.DataError, match="E210"):
        fit.predict({"other": frame})


@pytest.mark.parametrize("store", [pickle, joblib])
def test_fits_models_and_datasets_are_pickled(web, folder, model, tmp_path, store):
    def again(thing):
        with (tmp_path / "thing").open("wb") as file:
            store.dump(thing, file)
        with (tmp_path / "thing").open("rb") as file:
            return store.load(file)

    data = relcrf.Dataset(web)
    fit = model.fit(data, "ess", calibrate=2)
    copy = again(fit)
    np.testing.assert_array_equal(copy.predict(data).probabilities(), fit.predict(data).probabilities())
    assert repr(copy) == repr(fit) and str(again(model)) == str(model)
    np.testing.assert_array_equal(fit.predict(again(data)).probabilities(), fit.predict(data).probabilities())
    with_mapping = relcrf.Dataset.from_mapping(folder, '[tables.page]\nfile = "page.csv"\n')
    assert again(with_mapping).table_names == with_mapping.table_names
    packed = packed_run.pack(fit.learned)
    with pytest.raises(relcrf.DataError, match="E336"):
        packed_run.unpack(damage(packed))


def damage(packed):
    """Return the archive with other weights."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive, zipfile.ZipFile(out, "w") as damaged:
        for name in archive.namelist():
            content = archive.read(name)
            damaged.writestr(name, content[:-1] + b"\x7f" if name == "weights.npy" else content)
    return out.getvalue()


def test_public_names():
    assert dir(relcrf) == sorted(["__version__", *relcrf.__all__])


def test_comparison_of_backends(web, model):
    found = model.compare(web, ["local", "pseudo"], "folds=2", jobs=2)
    assert found.predictions.systems == ("majority", "local", "pseudo")
    assert "48 held-out labels" in repr(found) and len(repr(found)) < 100
