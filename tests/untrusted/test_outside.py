"""Untrusted files: run folders, tables and caches must not cause access outside their folders or run code."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pytest
from unread import unread_pipe

import relcrf
from relcrf.backends import run_folder

PACKAGE = Path(relcrf.__file__).parent
MODEL = "entity Page { predict good : bool  size : real }\ntemplate one(p: Page) over p.good by p.size\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    data = relcrf.Dataset({"page": {"id": [1, 2, 3], "good": [True, False, None], "size": [0.5, 1.0, 2.0]}})
    relcrf.parse(MODEL).fit(data, "ess").save(folder)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """Return a run folder without its hashes, which an attacker who changes a file could recompute."""
    folder = Path(shutil.copytree(trained, tmp_path / "run"))
    (folder / run_folder.MANIFEST).unlink()
    return folder


def error_code(call):
    with pytest.raises(relcrf.RelcrfError) as caught:
        call()
    return caught.value.diagnostics[0].code


def test_nothing_is_unpickled_or_evaluated():
    """Allow only values of this process's workers (`execution/`), and kernels, from folders that no other user can write."""
    calls = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in ("eval", "exec", "compile", "__import__") or name.split(".")[0] in (
                "pickle",
                "marshal",
                "shelve",
                "yaml",
            ):
                calls.append((str(path.relative_to(PACKAGE)), name))
            if name in ("np.load", "np.save", "numpy.load"):
                allowed = [k.value for k in node.keywords if k.arg == "allow_pickle"]
                assert [getattr(value, "value", None) for value in allowed] == [False], (path.name, node.lineno)
    assert {path for path, _ in calls} <= {"execution/mapped_value.py", "kernels/compile.py"}, calls


@pytest.mark.parametrize(
    "name", ["run.json", "model.rcrf", "dictionaries.json", "weights.npy", "log.jsonl", "timings.json"]
)
def test_run_folder_with_link_to_outside_is_rejected(run, tmp_path, name):
    outside = tmp_path / "outside"
    shutil.move(run / name, outside)
    (run / name).symlink_to(outside)
    codes = (
        {error_code(lambda: run_folder.load_timings(run))}
        if name == "timings.json"
        else {error_code(lambda: relcrf.load_fit(run))}
    )
    assert codes == {"E421"}


def test_run_folder_that_names_outside_file_is_rejected(run, tmp_path):
    np.save(tmp_path / "mine.npy", np.zeros(2))
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "vectors": ["../mine"]}))
    assert error_code(lambda: relcrf.load_fit(run)) == "E421"


PIPES = ["model.rcrf", "weights.npy", "log.jsonl", "moments.npy", "timings.json", run_folder.MANIFEST]


@pytest.mark.parametrize("name", PIPES)
def test_run_folder_with_pipe_is_rejected_without_blocking(run, name):
    (run / name).unlink(missing_ok=True)
    call = run_folder.load_timings if name == "timings.json" else relcrf.load_fit
    with unread_pipe(run / name):
        assert error_code(lambda: call(run)) == "E336"


def test_run_folder_with_link_to_itself_is_rejected(run):
    (run / "weights.npy").unlink()
    (run / "weights.npy").symlink_to("weights.npy")
    assert error_code(lambda: relcrf.load_fit(run)) == "E421"


def test_link_to_run_folder_is_accepted(run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    assert relcrf.load_fit(tmp_path / "link").weights()


DEEP = "[" * 100_000


def array(described):
    """Return the content of an array file with this header and without numbers."""
    return b"\x93NUMPY\x01\x00\x76\x00" + f"{{{described}, 'fortran_order': False}}".encode().ljust(117) + b"\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", DEEP),
        ("dictionaries.json", DEEP),
        ("log.jsonl", DEEP),
        ("timings.json", DEEP),
        ("run.json", '{"format": 1e999}'),
        ("weights.npy", array("'descr': '<f8', 'shape': (9999999999999,)")),
        ("weights.npy", array("'descr': '|O', 'shape': (2,)")),
        ("weights.npy", array("'descr': '<f8', 'shape': ((((")),
        ("weights.npy", b"PK\x05\x06" + b"\0" * 18),
        ("weights.npy", b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."),
    ],
)  # fmt: skip
def test_run_folder_with_malformed_file_is_rejected(run, name, content):
    (run / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    call = run_folder.load_timings if name == "timings.json" else relcrf.load_fit
    assert error_code(lambda: call(run)) == ("E335" if "format" in str(content) else "E336")


@pytest.mark.parametrize("wrong", [1.0, True, "1", None])
@pytest.mark.parametrize("location", [("blocks", "n_features"), ("blocks", "n_patterns"), ("templates", "bindings")])
def test_run_folder_with_invalid_sizes_is_rejected(run, location, wrong):
    facts = json.loads((run / "run.json").read_text())
    part, key = location
    facts[part][0][key] = type(wrong)(facts[part][0][key]) if isinstance(wrong, float | str) else wrong
    (run / "run.json").write_text(json.dumps(facts))
    assert error_code(lambda: relcrf.load_fit(run)) == "E336"


def test_nan_or_float32_weights_are_rejected(run):
    np.save(run / "weights.npy", np.full_like(np.load(run / "weights.npy"), np.nan))
    fit = relcrf.load_fit(run)
    data = relcrf.Dataset({"page": {"id": [1], "good": [None], "size": [0.5]}})
    assert error_code(lambda: fit.predict(data)) == "E422"
    np.save(run / "weights.npy", np.load(run / "weights.npy").astype(np.float32))
    assert error_code(lambda: relcrf.load_fit(run)) == "E336"


OTHER = "entity Page { predict good : bool }\ntemplate other(p: Page) over p.good\n"


@pytest.mark.parametrize(("text", "code"), [("", "E137"), (OTHER, "E423")])
def test_run_folder_with_other_model_is_rejected(run, text, code):
    (run / "model.rcrf").write_text(text)
    data = relcrf.Dataset({"page": {"id": [1], "good": [None], "size": [0.5]}})
    assert error_code(lambda: relcrf.load_fit(run).predict(data)) == code


def test_table_folder_with_link_to_outside_is_rejected(tmp_path):
    (tmp_path / "secret.csv").write_text("id,good,size\n1,true,1\n")
    data = tmp_path / "data"
    data.mkdir()
    (data / "page.csv").symlink_to(tmp_path / "secret.csv")
    assert error_code(lambda: relcrf.Dataset(data)) == "E233"
    (data / "page.csv").unlink()
    (data / "real.csv").write_text("id,good,size\n1,true,1\n")
    (data / "page.csv").symlink_to(data / "real.csv")
    assert set(relcrf.Dataset(data).tables) == {"page", "real"}


def test_database_cannot_access_outside(tmp_path):
    for name in ("page", "other"):
        (tmp_path / f"{name}.csv").write_text("id,good,size\n1,true,1\n")
    data = relcrf.Dataset({"page": tmp_path / "page.csv"})
    grounding = relcrf.parse(MODEL).ground(data)
    other = tmp_path / "other.csv"
    for sql in (
        f"SELECT * FROM read_csv('{other}')",
        f"SELECT * FROM '{other}'",
        f"SELECT * FROM glob('{tmp_path}/*')",
        f"SELECT * FROM read_text('{other}')",
        f"COPY (SELECT 1) TO '{tmp_path}/made.csv'",
        f"ATTACH '{tmp_path}/made.db'",
        "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SELECT * FROM data",
    ):
        for connection in (data.connection, grounding.bound.connection, grounding.bound.cursor()):
            with pytest.raises(duckdb.Error):
                connection.execute(sql).fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "page.csv"]
    assert len(data.connection.execute(f"SELECT * FROM {data.tables['page'].scan}").fetchall()) == 1


def test_cached_block_with_pipe_or_link_to_itself_is_rejected(tmp_path):
    data = relcrf.Dataset({"page": {"id": [1, 2, 3], "good": [True, False, None], "size": [0.5, 1.0, 2.0]}})
    model = relcrf.parse(MODEL)
    model.ground(data, cache=tmp_path / "kept")
    column = next((tmp_path / "kept").glob("*/*.npy"))
    column.unlink()
    with unread_pipe(column):
        assert error_code(lambda: model.ground(data, cache=tmp_path / "kept")) == "E227"
    column.symlink_to(column.name)
    assert error_code(lambda: model.ground(data, cache=tmp_path / "kept")) == "E227"


def test_dataset_with_pipe_or_link_to_itself_is_rejected(tmp_path):
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    with unread_pipe(tmp_path / "page.csv"):
        assert error_code(lambda: relcrf.Dataset(tmp_path)) == "E202"
        assert error_code(lambda: relcrf.Dataset(tmp_path / "page.csv")) == "E201"
        assert error_code(lambda: relcrf.Dataset({"page": tmp_path / "page.csv"})) == "E203"
        for name in ("page.csv", "loop.csv"):
            (tmp_path / "dataset.toml").write_text(f"[tables.page]\nfile = '{name}'\n")
            assert error_code(lambda: relcrf.Dataset(tmp_path)) == "E203"


def test_manifest_that_is_not_a_regular_file_is_rejected(tmp_path):
    (tmp_path / "page.csv").write_text("id,good,size\n1,true,1\n")
    manifest = tmp_path / "dataset.toml"
    with unread_pipe(manifest):
        assert error_code(lambda: relcrf.Dataset(tmp_path)) == "E230"
    for target in ("dataset.toml", "nowhere.toml"):
        manifest.symlink_to(target)
        assert error_code(lambda: relcrf.Dataset(tmp_path)) == "E230"
        manifest.unlink()


def test_cached_block_with_out_of_range_indices_is_rejected(tmp_path):
    data = relcrf.Dataset({"page": {"id": [1, 2, 3], "good": [True, False, None], "size": [0.5, 1.0, 2.0]}})
    model = relcrf.parse(MODEL)
    model.ground(data, cache=tmp_path / "kept")
    (block,) = (path for path in (tmp_path / "kept").iterdir() if path.is_dir())
    scopes = [path for path in block.glob("*.npy") if np.load(path).dtype == np.int32]
    assert scopes
    for path in scopes:
        whole = np.load(path)
        for wrong in (whole + 1000, whole - 1000):
            np.save(path, wrong)
            assert error_code(lambda: model.ground(data, cache=tmp_path / "kept")) == "E227"
        np.save(path, whole)
    assert model.ground(data, cache=tmp_path / "kept").graph.n_factors == 3
