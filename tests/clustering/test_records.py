"""Clusters of the records of a dataset: from predictions, with merged values, and on the command line."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from command import json_command, relcrf_command

import relcrf
from relcrf.clustering import cluster_prediction
from relcrf.clustering.records import _most_frequent

MODEL = """
entity Person { name: string, town: string }
derive Block(a: Person, b: Person) where a < b and a.town == b.town
predict relation same(a: Person, b: Person) where Block(a, b)
template share(a: Person, b: Person) over same(a, b)
template name(a: Person, b: Person) where a.name == b.name over same(a, b)
"""

LINK = """
entity Left { name: string }
entity Right { name: string }
predict relation same(a: Left, b: Right)
template share(a: Left, b: Right) over same(a, b)
template name(a: Left, b: Right) where a.name == b.name over same(a, b)
"""


def people():
    """Return records of three persons in one town, some of which have labels, and the true persons."""
    name = ["ann", "ann", "bob", "bob", "cid", "ann", "bob", "cid", "cid"]
    source = ["x", "y", "x", "y", "x", "x", "y", "y", "x"]
    table = pd.DataFrame(
        {"id": [f"p{k}" for k in range(9)], "name": name, "town": "here", "source": source, "age": range(9)}
    )
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    same = [(f"p{i}", f"p{j}", name[i] == name[j]) for i, j in pairs]
    return {"person": table, "same": pd.DataFrame(same, columns=["a", "b", "value"])}


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for table, frame in people().items():
        frame.to_csv(tmp_path / "data" / f"{table}.csv", index=False)
    (tmp_path / "data" / "dataset.toml").write_text(
        "[tables.same]\nfile = 'same.csv'\nopen = true\n[tables.person]\nfile = 'person.csv'\n"
    )
    (tmp_path / "m.rcrf").write_text(MODEL)
    assert (
        relcrf_command(
            capsys,
            monkeypatch,
            "train",
            "m.rcrf",
            "--data",
            "data",
            "--backend",
            "local",
            "--set",
            "l2=0.01",
            "--out",
            "run",
        )[0]
        == 0
    )
    return tmp_path


def test_the_command_writes_clusters_and_a_deduplicated_table(folder, monkeypatch, capsys):
    command = ("cluster", "run", "--data", "data", "--truth", "name", "--out", "c.csv", "--merged", "m.csv", "--json")
    code, found = json_command(capsys, monkeypatch, *command)
    assert code == 0 and found["summary"]["clusters"] == 3 and found["measures"]["pairwise_f1"]["value"] == 1.0
    clusters = pd.read_csv(folder / "c.csv")
    assert clusters["cluster"].tolist() == [0, 0, 1, 1, 2, 0, 1, 2, 2]
    merged = pd.read_csv(folder / "m.csv")
    assert merged["id"].tolist() == ["p0", "p2", "p4"] and merged["records"].tolist() == [3, 3, 3]
    assert merged["name"].tolist() == ["ann", "bob", "cid"] and merged["source"].tolist() == ["x", "y", "x"]


def test_records_of_one_source_never_share_a_cluster(folder, monkeypatch, capsys):
    code, found = json_command(
        capsys, monkeypatch, "cluster", "run", "--data", "data", "--distinct", "source", "--json"
    )
    assert code == 0
    table = people()["person"].set_index("id")
    for _, members in pd.DataFrame(found["clusters"]).groupby("cluster"):
        assert table.loc[members["id"], "source"].is_unique


def test_the_table_on_a_terminal(folder, monkeypatch, capsys):
    code, out, _ = relcrf_command(
        capsys, monkeypatch, "cluster", "run", "--data", "data", "--truth", "name", "--cost", "fn=1,fp=1"
    )
    assert code == 0 and "pairwise F1" in out and "threshold 0.5" in out


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (("--relation", "sane"), 2, "E442.*did you mean 'same'"),
        (("--cost", "10"), 2, "E443"),
        (("--threshold", "1"), 2, "E444"),
        (("--threshold", "0.3", "--cost", "fn=1,fp=2"), 2, "E444.*cannot be combined"),
        (("--unlisted", "0.1"), 2, "E444.*no effect with method 'components'"),
        (("--unlisted", "1", "--method", "average"), 2, "E444.*not between 0 and 1"),
        (("--truth", "nmae"), 3, "E212.*did you mean 'name'"),
        (("--distinct", "nmae"), 3, "E212"),
        (("--method", "best"), 2, "E445|correlation"),
        (("--out", "c.txt"), 2, "E312"),
        (("--out", "c.csv", "--merged", "./c.csv"), 2, "E312.*the same file 'c.csv'"),
    ],
)
def test_invalid_options(folder, monkeypatch, capsys, options, exit_code, message):
    code, _, err = relcrf_command(capsys, monkeypatch, "cluster", "run", "--data", "data", *options)
    assert code == exit_code, err
    assert pd.Series([err.replace("\n", " ")]).str.contains(message, regex=True).all(), err


def test_a_model_without_pairs_of_records():
    model = relcrf.parse("entity P { predict x: bool }\ntemplate t(p: P) over p.x")
    data = relcrf.Dataset({"p": {"id": [1, 2], "x": [True, None]}})
    with pytest.raises(relcrf.UsageError, match="E441"):
        cluster_prediction(model.fit(data, "local").predict(data))


def test_records_of_two_types():
    """Both lists contain the same names; a one-to-one constraint on the type joins each name once."""
    left, right = ({"id": [f"{side}{k}" for k in range(4)], "name": list("abcd")} for side in "lr")
    same = pd.DataFrame(
        [(f"l{i}", f"r{j}", i == j) for i in range(4) for j in range(4) if (i + j) % 3], columns=["a", "b", "value"]
    )
    model, data = relcrf.parse(LINK), relcrf.Dataset({"left": left, "right": right, "same": same})
    found = cluster_prediction(model.fit(data, "local").predict(data), distinct="entity")
    table = found.table().to_pandas()
    assert table["entity"].tolist() == ["Left"] * 4 + ["Right"] * 4
    assert (
        table.groupby("cluster")["id"].apply(list).tolist() == [[f"l{k}", f"r{k}"] for k in (1, 2)] or len(table) == 8
    )
    assert set(found.merged().columns) == {"entity", "id", "cluster", "records", "name"}


def test_merged_rows_contain_columns_with_the_names_of_the_clustering():
    """The columns `cluster` and `records` of the records' table are merged like others."""
    tables = people()
    tables["person"] = tables["person"].rename(columns={"source": "cluster", "age": "records"})
    found = cluster_prediction(relcrf.parse(MODEL).fit(relcrf.Dataset(tables), "local").predict(relcrf.Dataset(tables)))
    merged = found.merged()
    assert list(merged.columns) == ["id", "cluster_", "records_", "name", "town", "cluster", "records"]
    assert merged.columns["cluster_"].tolist() == list(range(len(found.clustering.sizes)))
    assert merged.columns["records_"].tolist() == found.clustering.sizes.tolist()
    assert set(merged.columns["cluster"].tolist()) <= {"x", "y"}
    assert list(found.table().columns) == ["id", "cluster"]


def test_most_frequent_values_equal_those_of_plain_loops():
    rng = np.random.default_rng(0)
    cluster = np.concatenate([np.arange(50), rng.integers(50, size=300)])
    number = rng.integers(-1, 4, size=350)
    found = _most_frequent(cluster, number)
    for c in range(50):
        values = [v for v in number[cluster == c].tolist() if v >= 0]
        counts = Counter(values)
        best = max(counts.values(), default=0)
        assert found[c] == next((v for v in values if counts[v] == best), -1)
    assert json.dumps(_most_frequent(np.array([0]), np.array([-1])).tolist()) == "[-1]"
