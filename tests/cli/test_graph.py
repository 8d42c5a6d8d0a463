"""Tests of `relcrf graph`: tables, files and errors."""

import sys

import networkx as nx
import numpy as np
import pytest

from relcrf.data.frame import Frame

MODEL = """domain Trait = open
entity Thing
predict relation has(x: Thing, t: Trait)
template prior(x: Thing, t: Trait) over has(x, t) per t
candidates together(x: Thing, s: Trait, t: Trait) where s < t over has(x, s) and has(x, t) per s, t
"""
RED = "[red]\x1b[31mb"
"""A name with an escape sequence and Rich markup, which must not be interpreted."""


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """Return a folder with a model and tables in which `a` and RED are positively correlated, `c` and `d` negatively."""
    folder, rng = tmp_path_factory.mktemp("things"), np.random.default_rng(0)
    cause = rng.random((200, 2)) < 0.5
    has = {"a": cause[:, 0], RED: cause[:, 0] ^ (rng.random(200) < 0.1), "c": cause[:, 1], "d": ~cause[:, 1]}
    listed = [(f"x{k}", name, str(bool(column[k])).lower()) for name, column in has.items() for k in range(200)]
    heads = ("x", "t", "value")
    columns = {h: np.array(c, dtype=object) for h, c in zip(heads, zip(*listed, strict=True), strict=True)}
    Frame(columns).write(folder / "has.csv")
    Frame({"id": np.array([f"x{k}" for k in range(200)], dtype=object)}).write(folder / "thing.csv")
    (folder / "m.rcrf").write_text(MODEL)
    return folder


@pytest.fixture
def run(relcrf_, things, tmp_path):
    arguments = ("--data", things, "--out", tmp_path / "run", "-b", "trmrf", "--set", "l1=20")
    assert relcrf_("train", things / "m.rcrf", *arguments)[0] == 0
    return tmp_path / "run"


def test_largest_edges(relcrf_, relcrf_json, run, tmp_path):
    code, out, err = relcrf_("graph", run)
    assert code == 0 and err == "" and "4 nodes, 2 edges" in out and "hubs (degree): " in out and "±" not in out
    assert "[red]\\x1b[31mb" in out and "\x1b" not in out
    code, found = relcrf_json("graph", run, "--top", 1, "--graphml", tmp_path / "g" / "g.graphml")
    assert (code, found["nodes"], found["edges"], found["triples"]) == (0, 4, 2, 0)
    (best,) = found["largest"]
    assert (best["first"], best["second"], best["template"]) == ("c", "d", "together") and best["gain"] > 0
    assert best["weight"] == -best["strength"] < 0
    assert [hub["degree"] for hub in found["hubs"]] == [1, 1, 1, 1] and found["hubs"][0]["kind"] == "has"
    assert nx.read_graphml(found["graphml"]).number_of_edges() == 2
    assert "the 1 largest" in relcrf_("graph", run, "--top", 1)[1]


def test_written_files(relcrf_, relcrf_json, run, tmp_path):
    for name in ("graph.png", "graph.svg"):
        code, _, err = relcrf_("graph", run, "--picture", tmp_path / name)
        assert code == 0 and "wrote " in err and (tmp_path / name).stat().st_size > 1000
    code, out, _ = relcrf_("graph", run, "--dot")
    assert code == 0 and out.startswith("graph learned {\n") and out.count(" -- ") == 2 and "keys" not in out
    code, found = relcrf_json("graph", run, "--dot", "--picture", tmp_path / "again.png")
    assert found["dot"] == out and found["picture"] == str(tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "graph.png").read_bytes()


def test_mistakes(relcrf_, run, things, tmp_path):
    empty = tmp_path / "empty"
    arguments = ("--data", things, "--out", empty, "-b", "trmrf", "--set", "l1=1e6")
    assert relcrf_("train", things / "m.rcrf", *arguments)[0] == 0
    for arguments, code, message in (
        ((tmp_path / "nothing",), 3, "E334"),
        ((empty, "--picture", tmp_path / "no.png"), 2, "E398"),
        ((run, "--picture", "graph.gif"), 2, "E312"),
        ((run, "--picture", run), 2, "E312"),
        ((run, "--graphml", "graph.xml"), 2, "E312"),
        ((run, "--graphml", run / "run.json" / "g.graphml"), 2, "E314"),
        ((run, "--top", 0), 2, "E300"),
    ):
        found, _, err = relcrf_("graph", *arguments)
        assert (found, err.count("error[")) == (code, 1) and message in err, err
    assert not (tmp_path / "no.png").exists()


def test_missing_matplotlib_raises_e351(relcrf_, run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    code, _, err = relcrf_("graph", run, "--picture", tmp_path / "g.png")
    assert code == 2 and "E351" in err and "relcrf[report]" in err
    assert relcrf_("graph", run, "--graphml", tmp_path / "g.graphml")[0] == 0
