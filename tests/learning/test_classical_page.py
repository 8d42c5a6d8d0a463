"""Tests of the page on classical learners: every row of its table, on a tree and on a ring, and its commands."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from answers import MARKOV, RING, TREE, tables
from command import json_command, relcrf_command

import relcrf
from relcrf import api
from relcrf.backends.whole_graph import WholeGraphSpec

PAGE = (Path(relcrf.__file__).parent.parent / "docs" / "explanation" / "classical.md").read_text()
LINES = re.findall(r"^\| .* \| `(--backend .*)` \| (.*) \|$", PAGE, re.MULTILINE)
TIGHT = ("--set", "l2=0", "--set", "tolerance=1e-10", "--set", "max_iterations=5000")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Return, for each shape, its folder of tables, its ground graph and the exact likelihood."""
    found = {}
    for name, pairs in (("tree", TREE), ("ring", RING)):
        folder = tmp_path_factory.mktemp(name)
        data = tables(pairs)
        for table, frame in data.items():
            frame.to_csv(folder / f"{table}.csv", index=False)
        grounding = relcrf.parse(MARKOV).ground(relcrf.Dataset(data))
        found[name] = folder, WholeGraphSpec("dense", "jt").likelihood(api.training_problem(grounding))
    return found


def test_the_table_has_lines():
    assert len(LINES) >= 14
    assert {"yes", "no", "on trees"} <= {found for _, found in LINES}


@pytest.mark.parametrize(("options", "found"), LINES, ids=[options.removeprefix("--backend ") for options, _ in LINES])
@pytest.mark.parametrize("shape", ["tree", "ring"])
def test_a_line_of_the_table(worlds, tmp_path, capsys, monkeypatch, options, found, shape):
    data, exact = worlds[shape]
    (tmp_path / "model.rcrf").write_text(MARKOV)
    run = tmp_path / "run"
    command = (
        "train",
        tmp_path / "model.rcrf",
        "--data",
        data,
        "--out",
        run,
        *shlex.split(options),
        *TIGHT,
    )
    code, _, err = relcrf_command(capsys, monkeypatch, *command)
    assert code == 0, err
    _, gradient = exact(api.load_fit(run).learned.vectors["weights"])
    is_exact = found == "yes" or (found == "on trees" and shape == "tree")
    if is_exact:
        assert np.abs(gradient / 300).max() < 1e-6
        code, moments = json_command(capsys, monkeypatch, "moments", run, "--top", 1)
        (worst,) = moments["worst"]
        assert code == 0 and abs(worst["expected"] - worst["empirical"]) / 300 < 1e-6
    elif found in ("no", "on trees"):
        assert np.abs(gradient / 300).max() > 1e-5


def test_the_commands_of_the_page(worlds, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    data, _ = worlds["ring"]
    monkeypatch.chdir(tmp_path)
    Path("model.rcrf").write_text(MARKOV)
    Path("data").symlink_to(data)
    (commands,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[:1]
    for line in commands.splitlines():
        code, _, err = relcrf_command(capsys, monkeypatch, *shlex.split(line.removeprefix("$ "))[1:])
        assert code == 0, (line, err)
    assert Path("moments.csv").exists() and Path("run/report.html").exists()
