"""Tests of commands killed at random calls: they leave the old or the new result, and resuming results in identical bytes."""

import os
import shutil
import signal

import numpy as np
import pytest
from mortal import Mortals
from tables import small_web

from relcrf import api
from relcrf.resources import resource_path

KILLS = int(os.environ.get("RELCRF_KILLS", "25"))
"""Approximate number of kills over all tests of this file."""
MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def mortals():
    found = Mortals()
    yield found
    found.close()


def read_run_files(folder):
    """Return the bytes of each file of a run except the timings; None if there is no run."""
    if not folder.exists():
        return None
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timings.json"}


def draw_call_limits(n_calls, number, seed):
    """Return numbers of calls after which a command is killed, from the middle of its calls to slightly beyond its end.

    In the first half, a command only reads its tables.
    """
    return np.random.default_rng(seed).integers(n_calls // 2, 1 + n_calls * 21 // 20, number).tolist()


@pytest.mark.parametrize("backend", ["ess", "gated"])
def test_killed_training_resumes_to_identical_files(mortals, tmp_path, backend):
    data = small_web(tmp_path / "web", pages=24)
    train = ("train", MODEL, "--data", data, "--backend", backend, "--set", "max_iterations=10")
    runs, n_calls = [], 0
    assert mortals.run(*train, "--out", tmp_path / "warm", warm=True)[0] == 0
    shutil.rmtree(tmp_path / "warm")
    for name, l2 in (("old", 1), ("new", 2)):
        code, n_calls = mortals.run(*train, "--set", f"l2={l2}", "--out", tmp_path / name)
        assert code == 0
        runs.append(read_run_files(tmp_path / name))
    out = tmp_path / "run"
    shutil.copytree(tmp_path / "old", out)
    kills = 0
    resume = ()
    for limit in draw_call_limits(n_calls, KILLS * 2 // 5, 1):
        code, _ = mortals.run(*train, "--set", "l2=2", "--out", out, "--force", *resume, calls=limit)
        assert code in (0, -9)
        found = read_run_files(out)
        assert found in runs, "neither the old run nor the new one"
        assert api.load_fit(out).learned.backend == backend
        kills += code == -9
        resume = ("--resume",) if out.with_name("run.partial").is_dir() else ()
        if found == runs[1]:
            shutil.rmtree(out)
            shutil.copytree(tmp_path / "old", out)
    assert kills > KILLS // 5
    assert mortals.run(*train, "--set", "l2=2", "--out", out, "--force", *resume)[0] == 0
    assert read_run_files(out) == runs[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "run", "web"]


def test_killed_prediction_leaves_old_or_new_file(mortals, tmp_path):
    data, out = small_web(tmp_path / "web", pages=24), tmp_path / "found.csv"
    assert mortals.run("train", MODEL, "--backend", "ess", "--data", data, "--out", tmp_path / "run")[0] == 0
    predict = ("predict", tmp_path / "run", "--data", data, "--out", out)
    assert mortals.run(*predict, warm=True)[0] == 0
    code, n_calls = mortals.run(*predict)
    assert code == 0
    new = out.read_bytes()
    for limit in draw_call_limits(n_calls, KILLS // 10, 2):
        out.write_bytes(b"old")
        mortals.run(*predict, calls=limit)
        assert out.read_bytes() in (b"old", new)
    for size in (0, len(new) // 2, len(new) - 1):
        out.write_bytes(b"old")
        assert mortals.run(*predict, file_bytes=size)[0] == -signal.SIGXFSZ
        assert out.read_bytes() == b"old"


def test_killed_grounding_is_repeated(mortals, tmp_path):
    data, cache = small_web(tmp_path / "web", pages=24), tmp_path / "cache"
    ground = ("ground", MODEL, "--data", data, "--cache", cache)
    code, n_calls = mortals.run(*ground)
    assert code == 0
    whole = {path.relative_to(cache): path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    shutil.rmtree(cache)
    for limit in draw_call_limits(n_calls, KILLS // 10, 3):
        mortals.run(*ground, calls=limit)
    for size in {len(content) - 1 for content in whole.values() if content}:
        mortals.run(*ground, file_bytes=size)
    assert mortals.run(*ground)[0] == 0
    assert {path.relative_to(cache): path.read_bytes() for path in cache.rglob("*") if path.is_file()} == whole
