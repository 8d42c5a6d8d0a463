"""Tests of the commands explain, weights and diff."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def run(web, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "web"
    relcrf.load(MODEL).fit(relcrf.Dataset(web), "ess").save(folder)
    return folder


@pytest.fixture(scope="module")
def other(web, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "other"
    relcrf.load(MODEL).fit(relcrf.Dataset(web), "local", l2=3.0).save(folder)
    return folder


def test_contributions_add_up_to_log_odds(run, web, relcrf_json, tmp_path):
    picture = tmp_path / "p5.svg"
    code, found = relcrf_json("explain", run, "Page/p5", "--data", web, "--depth", "2", "--picture", picture)
    assert code == 0
    assert found["variable"] == "Page(p5).category"
    total = sum(one["amount"] for one in found["contributions"]) + found["remainder"]
    assert total == pytest.approx(found["log_odds"], abs=1e-9)
    assert found["remainder"] == pytest.approx(0.0, abs=1e-9)
    assert sum(found["by_template"].values()) == pytest.approx(found["log_odds"], abs=1e-9)
    odds = np.log(found["probabilities"][found["answer"]] / found["probabilities"][found["against"]])
    assert found["log_odds"] == pytest.approx(odds, abs=1e-9)
    assert found["flips"]["single"]
    assert found["truth"] is None
    assert picture.stat().st_size > 5000


def test_printed_contributions_add_up(run, web, relcrf_):
    code, out, _ = relcrf_("explain", run, "Page/p5.category", "--data", web, "--top", "2", "--no-flips")
    assert code == 0
    amounts = [
        float(line.split("│")[3]) for line in out.splitlines() if line.startswith("│") and line.split("│")[3].strip()
    ]
    assert sum(amounts[:-1]) == pytest.approx(amounts[-1], abs=5e-4)
    assert "more" in out
    assert "single changes" not in out


def test_explain_against_value_with_flips(run, web, relcrf_, relcrf_json):
    _, first = relcrf_json("explain", run, "Page/p1", "--data", web)
    against = min(first["probabilities"], key=first["probabilities"].get)
    code, out, _ = relcrf_("explain", run, "Page/p1", "--data", web, "--against", against, "--depth", "2")
    assert code == 0
    assert f"is {first['answer']}" in out
    assert f"not {against}" in out
    assert f"its label is {first['truth']}" in out
    assert "effects of single changes" in out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("Page/nobody",), "E313"),
        (("Pages/p5",), "E313"),
        (("Page/p5", "--against", "nonsense"), "E356"),
        (("Page/p5", "--picture", "p5.txt"), "E312"),
        (("Page/p5", "--set", "nonsense=1"), "E304"),
        (("Page/p5", "--depth", "9"), "E300"),
        (("Page/p5", "--holdout", "s1"), "E341"),
    ],
)
def test_each_error_is_one_diagnostic(run, web, relcrf_json, words, code):
    status, found = relcrf_json("explain", run, *words, "--data", web)
    assert status == 2
    assert [error["code"] for error in found["errors"]] == [code]


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_contributions_to_scores_of_propagation(web, relcrf_, relcrf_json, tmp_path, backend):
    run, picture = tmp_path / backend, tmp_path / "p5.svg"
    relcrf.load(MODEL).fit(relcrf.Dataset(web), backend).save(run)
    code, found = relcrf_json("explain", run, "Page/p5", "--data", web, "--depth", "2", "--picture", picture)
    assert code == 0
    assert sum(one["amount"] for one in found["contributions"]) == pytest.approx(found["score"], abs=1e-9)
    assert found["flips"]["single"]
    assert picture.stat().st_size > 5000
    code, out, _ = relcrf_("explain", run, "Page/p5", "--data", web)
    assert code == 0
    assert f"contributions to the score of {found['answer']} minus the score of {found['against']}" in out
    assert f"{found['score']:+.4f}" in next(line for line in out.splitlines() if "score difference" in line)
    assert "effects of single changes" in out


def test_names_from_data_are_escaped(run, web, relcrf_, tmp_path, relcrf_json):
    folder = tmp_path / "web"
    folder.mkdir()
    for name in ("page", "page_words", "link"):
        (folder / f"{name}.csv").write_text((web / f"{name}.csv").read_text().replace("p5", "[bold]p5\x1b[31m"))
    code, out, _ = relcrf_("explain", run, "Page/[bold]p5\x1b[31m", "--data", folder)
    assert code == 0
    assert "[bold]p5\\x1b[31m" in out
    assert "\x1b[31m" not in out


def test_weights_are_named_sorted_and_filtered(run, web, relcrf_json, tmp_path):
    code, found = relcrf_json("weights", run, "--template", "word", "--key", "w[01]", "--min-support", "1")
    assert code == 0
    sizes = [abs(row["weight"]) for row in found["shown"]]
    assert sizes == sorted(sizes, reverse=True)
    assert {row["template"] for row in found["shown"]} == {"word"}
    assert {row["key"] for row in found["shown"]} == {"w0", "w1"}
    assert min(row["support"] for row in found["shown"]) >= 1
    code, found = relcrf_json("weights", run, "--template", "word", "--key", "w[0-3]", "--sort", "model")
    assert code == 0 and [row["key"] for row in found["shown"]] == sorted(row["key"] for row in found["shown"])
    out = tmp_path / "all.csv"
    code, found = relcrf_json("weights", run, "--data", web, "--sort", "z", "--top", "3", "--out", out)
    assert code == 0
    assert len(found["shown"]) == 3
    for row in found["shown"]:
        assert row["z"] == pytest.approx(row["weight"] / row["standard_error"])
    assert found["gradient"] < 0.01
    header, *lines = out.read_text().splitlines()
    assert header == "template,key,feature,pattern,weight,standard_error,z,support"
    assert len(lines) == found["selected"] == found["weights"]


def test_weights_table_and_notes(run, web, relcrf_):
    code, out, err = relcrf_("weights", run, "--data", web, "--split", "school", "--holdout", "s1")
    assert code == 0
    assert "standard error" in out
    assert "from the exact observed information" in err
    assert "not the training data" in err


@pytest.mark.parametrize(
    ("words", "code"), [(("--template", "wrod"), "E316"), (("--sort", "z"), "E358"), (("--out", "weights.txt"), "E312")]
)
def test_weights_errors(run, relcrf_json, words, code):
    status, found = relcrf_json("weights", run, *words)
    assert status == 2
    assert [error["code"] for error in found["errors"]] == [code]


def test_standard_errors_require_exact_likelihood(web, relcrf_json, tmp_path):
    relcrf.load(MODEL).fit(relcrf.Dataset(web), "dense").save(tmp_path / "run")
    status, found = relcrf_json("weights", tmp_path / "run", "--data", web)
    assert status == 2
    assert found["errors"][0]["code"] == "E357"


def test_diff_of_runs(run, other, web, relcrf_json, relcrf_):
    code, found = relcrf_json("diff", run, other, "--data", web, "--top", "2")
    assert code == 0
    assert found["settings"]["backend"] == ["ess", "local"]
    assert found["settings"]["l2"] == [1.0, 3.0]
    assert found["model"] == []
    assert len(found["weights"]) == 2
    assert 0.5 < found["answers"]["same"]["Page.category"] <= 1.0
    assert found["answers"]["queries"] == {"Page.category": 12}
    assert found["answers"]["edges"] == 0.0, "local has no edges"
    assert found["candidate_jaccard"] is None
    code, out, _ = relcrf_("diff", run, other)
    assert code == 0
    assert "model: identical" in out
    assert "correlation of the shared weights" in out
    code, found = relcrf_json("diff", run, run)
    assert found["weights"][0]["first"] == found["weights"][0]["second"]


def test_diff_compares_predictions_of_the_same_entities(web, relcrf_json, tmp_path):
    """The other model predicts the schools, too, so that its graph has twice as many variables."""
    text = Path(MODEL).read_text()
    both = text.replace("predict category", "predict school : School\n  predict category") + "\ndomain School = open\n"
    assert both != text
    for name, model in (("one", relcrf.load(MODEL)), ("both", relcrf.parse(both))):
        model.fit(relcrf.Dataset(web), "ess").save(tmp_path / name)
    code, found = relcrf_json("diff", tmp_path / "one", tmp_path / "both", "--data", web)
    assert code == 0
    assert found["answers"]["queries"] == {"Page.category": 12}
    assert found["answers"]["same"]["Page.category"] > 0.9 and found["answers"]["edges"] > 0.9


def test_diff_compares_predicted_numbers(relcrf_json, relcrf_, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    frame = pd.DataFrame({"id": range(60), "y": 3 * x + rng.normal(size=60), "x": x, "t": (x > 0).astype(object)})
    frame.loc[:19, "y"], frame.loc[10:29, "t"] = None, None
    frame.to_csv(tmp_path / "e.csv", index=False)
    model = relcrf.parse("entity E { predict y : real  predict t : bool  x : real }\ntemplate a(e: E) over e.y by 1, e.x\n"
                         "template b(e: E) over e.t by 1, e.x")  # fmt: skip
    fits = [model.fit(relcrf.Dataset(tmp_path), "dense", l2=l2) for l2 in (0.01, 5.0)]
    for k, fit in enumerate(fits):
        fit.save(tmp_path / f"run{k}")
    code, found = relcrf_json("diff", tmp_path / "run0", tmp_path / "run1", "--data", tmp_path)
    one, other = (fit.predict(relcrf.Dataset(tmp_path)).means("E.y") for fit in fits)
    assert code == 0 and set(found["answers"]["same"]) == {"E.t"}
    assert found["answers"]["queries"] == {"E.t": 20, "E.y": 20}
    assert found["answers"]["mean_differences"]["E.y"] == pytest.approx(np.abs(one - other).mean()) != 0.0
    _, out, _ = relcrf_("diff", tmp_path / "run0", tmp_path / "run1", "--data", tmp_path)
    assert "E.y: the mean absolute difference of 20 predictions is" in out


@pytest.mark.skipif("RELCRF_DATA" not in os.environ, reason="RELCRF_DATA is not set")
def test_contributions_to_pages_of_cora_add_up(monkeypatch):
    monkeypatch.syspath_prepend(Path(MODEL).parent.parent / "datasets")
    from real import cora

    data = relcrf.Dataset(cora())
    fit = relcrf.load(Path(MODEL).parent / "cora_words.rcrf").fit(data, "ess", max_iterations=20)
    grounding = fit.ground(data)
    hidden = np.random.default_rng(0).random(len(grounding.states)) < 0.3
    for paper in np.flatnonzero(hidden)[:10]:
        found = fit.explain(
            grounding, f"Paper/{grounding.argument_texts(grounding.blocks[0])[0][paper]}", hidden=hidden
        )
        total = sum(one.amount for one in found.contributions) + found.remainder
        assert total == pytest.approx(found.log_odds, abs=1e-9)
        assert json.dumps(found.by_template())
