"""Tests of moments: by hand, with penalties and latent states, in shards, in run folders and on the command line."""

import csv
import shutil

import numpy as np
import pandas as pd
import pytest
from command import json_command, relcrf_command
from tables import small_web

import relcrf
from relcrf import api
from relcrf.backends import run_folder, sharded
from relcrf.errors import DataError, UsageError
from relcrf.execution.serial import SerialExecutor
from relcrf.learning.moments import Moments
from relcrf.resources import resource_path

FLAT = "domain D = { x, y } entity E { predict d : D a : real }\ntemplate t(e: E) over e.d by 1, e.a"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    return model, model.ground(relcrf.Dataset(small_web(tmp_path_factory.mktemp("web"))))


def test_moments_of_a_regression_by_hand():
    """Four entities: the sums of 1 and of a over those labelled x and y, and their expectations under the model."""
    data = {"e": pd.DataFrame({"id": range(4), "d": ["x", "x", "y", "x"], "a": [1.0, -2.0, 3.0, 0.5]})}
    model = relcrf.parse(FLAT)
    fit = model.fit(relcrf.Dataset(data), "local", tolerance=1e-10)
    moments = fit.learned.moments
    np.testing.assert_allclose(moments.empirical, [3.0, 1.0, -0.5, 3.0])
    np.testing.assert_allclose(moments.variance, [3.0, 1.0, 1.0 + 4.0 + 0.25, 9.0])
    a = data["e"]["a"].to_numpy()
    x = np.stack((np.ones(4), a), axis=1)
    scores = x @ fit.learned.vectors["weights"].reshape(2, 2)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(moments.expected, (x.T @ p).ravel(), atol=1e-9)
    np.testing.assert_allclose(moments.differences, (moments.expected - moments.empirical) / np.sqrt(moments.variance))
    # At the maximum of the penalised likelihood the difference is the gradient of the penalty.
    np.testing.assert_allclose(moments.empirical - moments.expected, fit.learned.vectors["weights"], atol=1e-6)


def test_unobserved_features_use_the_expected_count():
    found = Moments(np.array([0.0, 4.0, 0.0]), np.array([9.0, 6.0, 0.0]), np.array([0.0, 4.0, 0.0]))
    np.testing.assert_allclose(found.differences, [3.0, 1.0, 0.0])


@pytest.mark.parametrize("backend", ["local", "ess", "chow-liu", "dense", "pseudo"])
def test_moments_match_without_a_penalty(web, backend):
    model, grounding = web
    text = model.to_rcrf().replace(
        "over page.category\n\ntemplate word", "over page.category\n    fixed\n\ntemplate word"
    )
    model = relcrf.parse(text)
    grounding = model.ground(grounding.bound.dataset)
    fit = api.fit(model, grounding, backend, l2=0.001, max_iterations=3000, tolerance=1e-9)
    moments, weights = fit.learned.moments, fit.learned.vectors["weights"]
    assert np.isnan(moments.expected[:5]).all() and np.isfinite(moments.expected[5:]).all()
    np.testing.assert_allclose((moments.empirical - moments.expected)[5:], 0.001 * weights[5:], atol=1e-5)
    assert moments.empirical[5:].sum() > 100


def test_backends_without_moment_matching_have_no_moments(web):
    model, grounding = web
    fit = api.fit(model, grounding, "ess", objective="margin")
    assert fit.learned.moments is None
    with pytest.raises(UsageError, match="E387"):
        fit.moments()
    assert api.fit(model, grounding, "local", calibrate=2).learned.moments is None


def test_latent_states_count_as_expected():
    text = "domain D = { x, y } entity E { predict d : D latent h : D }\ntemplate t(e: E) over e.d, e.h\n"
    text += "template h(e: E) over e.h"
    model = relcrf.parse(text)
    data = {"e": pd.DataFrame({"id": range(5), "d": ["x", "x", "y", "x", "y"]})}
    fit = model.fit(relcrf.Dataset(data), "ess", l2=0.5, tolerance=1e-9)
    moments, weights = fit.learned.moments, fit.learned.vectors["weights"]
    np.testing.assert_allclose(moments.empirical[:4].reshape(2, 2).sum(axis=1), [3.0, 2.0])
    np.testing.assert_allclose(moments.empirical - moments.expected, 0.5 * weights, atol=1e-5)


def test_shards_have_the_moments_of_the_whole(web, monkeypatch):
    monkeypatch.setattr(sharded, "SHARD_FACTORS", 100)
    model, grounding = web
    settings = {"tolerance": 1e-9, "max_iterations": 1000}
    whole = api.fit(model, grounding, "local", **settings).learned.moments
    pieces = api.fit(model, grounding, "local", **settings, executor=SerialExecutor()).learned.moments
    for name in ("empirical", "expected", "variance"):
        np.testing.assert_allclose(getattr(pieces, name), getattr(whole, name), atol=1e-4)


@pytest.fixture(scope="module")
def run(web, tmp_path_factory):
    model, grounding = web
    folder = tmp_path_factory.mktemp("run") / "web"
    api.fit(model, grounding, "local").save(folder)
    return folder


def test_run_folder_stores_moments(web, run):
    model, grounding = web
    kept, new = api.load_fit(run).learned.moments, api.fit(model, grounding, "local").learned.moments
    for name in ("empirical", "expected", "variance"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(new, name))


def test_moments_command(run, tmp_path, capsys, monkeypatch):
    code, found = json_command(capsys, monkeypatch, "moments", run, "--top", 3, "--out", tmp_path / "m.csv")
    assert code == 0 and len(found["worst"]) == 3
    with (tmp_path / "m.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == found["moments"] == len(api.load_fit(run).weights())
    standard_errors = sorted((abs(float(row["standard_errors"])) for row in rows), reverse=True)
    assert [abs(row["standard_errors"]) for row in found["worst"]] == pytest.approx(standard_errors[:3])
    worst = found["worst"][0]
    (same,) = [r for r in rows if all(r[n] == worst[n] for n in ("template", "key", "feature", "pattern"))]
    assert float(same["empirical"]) == worst["empirical"] and float(same["expected"]) == pytest.approx(
        worst["expected"]
    )
    code, out, _ = relcrf_command(capsys, monkeypatch, "moments", run)
    assert code == 0 and f"20 of {len(rows):,}" in out and "standard errors" in out


@pytest.mark.parametrize("array", [np.zeros((3, 2)), np.zeros((2, 1)), np.full((3, 210), -1.0), None])
def test_damaged_moments_raise_error(run, tmp_path, array):
    broken = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("manifest.json"))
    if array is None:
        (broken / "moments.npy").write_text("x")
    else:
        np.save(broken / "moments.npy", array)
    with pytest.raises(DataError, match="E336"):
        run_folder.load(broken)


def test_runs_without_a_moments_file(run, tmp_path, capsys, monkeypatch):
    old = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("manifest.json"))
    (old / "moments.npy").unlink()
    assert run_folder.load(old).moments is None
    code, _, err = relcrf_command(capsys, monkeypatch, "moments", old)
    assert code == 2 and "E387" in err
