"""Splits whose folds are named as training, validation and test parts; labels of other folds are ignored."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from command import json_command, relcrf_command
from tables import small_web

import relcrf
from relcrf import api
from relcrf.backends.local import LocalBackend
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import make_backend
from relcrf.backends.run_folder import load_provenance
from relcrf.data.split_plan import SplitPlan
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.runner import predict_fold, predict_fold_with_model
from relcrf.evaluation.splits import hold_out, labelled_in_grounding, make_folds
from relcrf.graph.reduction import Role
from relcrf.resources import resource_path
from relcrf.training import Training

WEBKB = resource_path("models", "webkb.rcrf")
NAME = "Page.category"
PARTS = ("--split", "part", "--train", "train", "--valid", "valid", "--test", "test")
PLAN = SplitPlan("column", "part", train=("train",), valid=("valid",), test=("test",))


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """Return tables in which 48 of 60 pages are labelled, 12 in each part: train, valid, test and other."""
    folder = small_web(tmp_path_factory.mktemp("web"))
    pages = pd.read_csv(folder / "page.csv", dtype=str)
    pages["part"] = [("train", "valid", "test", "other")[k % 4] for k in range(len(pages))]
    pages.to_csv(folder / "page.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def blank_web(web, tmp_path_factory):
    """Return the same tables without the labels that the named parts do not use."""
    folder = small_web(tmp_path_factory.mktemp("blank"))
    pages = pd.read_csv(web / "page.csv", dtype=str)
    pages.loc[pages.part.isin(["valid", "other"]), "category"] = None
    pages.to_csv(folder / "page.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def model():
    return relcrf.load(WEBKB)


@pytest.fixture(scope="module")
def grounding(web, model):
    return model.ground(relcrf.Dataset(web))


@pytest.fixture
def ask(capsys, monkeypatch):
    return lambda *words: json_command(capsys, monkeypatch, *words)


@pytest.fixture
def run(capsys, monkeypatch):
    return lambda *words: relcrf_command(capsys, monkeypatch, *words)


@pytest.mark.parametrize("backend", ["local", "ess", "pseudo", "dense"])
def test_unused_labels_have_no_effect(model, grounding, blank_web, backend):
    """Ignored and validation labels are neither targets nor evidence: empty cells give the same weights and scores."""
    blank = model.ground(relcrf.Dataset(blank_web))
    system = make_backend(backend)
    found = [
        predict_fold(training_problem(one), make_folds(one, plan)[0], system)
        for one, plan in ((grounding, PLAN), (blank, SplitPlan("column", "part", holdout=("test",))))
    ]
    (predicted, learned), (expected, reference) = found
    np.testing.assert_array_equal(learned.vectors["weights"], reference.vectors["weights"])
    np.testing.assert_array_equal(predicted.probabilities, expected.probabilities)
    np.testing.assert_array_equal(predicted.variables, expected.variables)
    assert predicted.fold == expected.fold == "test" and len(predicted.truth) == 12


def test_baselines_and_leakage_ignore_unused_labels(model, grounding, blank_web):
    blank = model.ground(relcrf.Dataset(blank_web))
    found, expected = (
        api.evaluate(one, ["ess"], plan)
        for one, plan in ((grounding, PLAN), (blank, SplitPlan("column", "part", test=("test",))))
    )
    np.testing.assert_equal(found.predictions.as_dict(), expected.predictions.as_dict())
    ours, reference = (
        {name: value for name, value in one.leakage.as_dict().items() if name != "largest_component"}
        for one in (found, expected)
    )
    np.testing.assert_equal(ours, reference)


def test_a_trained_model_predicts_as_in_its_evaluation(model, grounding):
    held_out = hold_out(grounding, PLAN)
    (fold,) = make_folds(grounding, PLAN)
    fit = api.fit(model, grounding, "ess", hidden=held_out.hidden, validation=held_out.validation)
    predicted, learned = predict_fold(training_problem(grounding), fold, make_backend("ess"))
    np.testing.assert_array_equal(fit.learned.vectors["weights"], learned.vectors["weights"])
    again = model.fit(grounding.bound.dataset, "ess", split=PLAN)
    np.testing.assert_array_equal(again.learned.vectors["weights"], learned.vectors["weights"])
    scored = predict_fold_with_model(fit.learned, grounding, fold)[0]
    np.testing.assert_allclose(scored.probabilities, predicted.probabilities, atol=1e-12)
    prediction = api.predict(fit, grounding, hidden=held_out.hidden)
    assert prediction.score(subset=held_out.test).log_likelihood == pytest.approx(predicted.score().log_likelihood)


def test_the_masks_of_a_fold(grounding):
    labelled = labelled_in_grounding(grounding)
    (fold,) = make_folds(grounding, PLAN)
    sizes = fold.part_sizes(labelled)
    assert (sizes.train, sizes.validation, sizes.ignored, sizes.test) == (12, 12, 12, 12)
    problem = fold.learning_problem(training_problem(grounding))
    np.testing.assert_array_equal(problem.roles == Role.FREE, fold.train_mask(labelled))
    np.testing.assert_array_equal(problem.validation, fold.validation)
    assert (problem.roles[fold.validation] == Role.ABSENT).all()
    query = fold.query_problem(training_problem(grounding))
    np.testing.assert_array_equal(query.roles == Role.CLAMPED, fold.train_mask(labelled))
    assert (query.roles != Role.ABSENT).all() and (query.states[fold.hidden] == -1).all()
    assert query.validation is None


def test_without_a_training_part_all_other_labels_are_training_labels(grounding):
    labelled = labelled_in_grounding(grounding)
    sizes = [
        make_folds(grounding, SplitPlan("column", "part", **parts))[0].part_sizes(labelled)
        for parts in (
            {"test": ("test",)},
            {"holdout": ("test",)},
            {"valid": ("valid",), "test": ("test",)},
            {"test": ("test", "other")},
        )
    ]
    assert [(one.train, one.validation, one.ignored, one.test) for one in sizes] == [
        (36, 0, 0, 12),
        (36, 0, 0, 12),
        (24, 12, 0, 12),
        (24, 0, 0, 24),
    ]


def test_labels_that_the_column_does_not_divide_remain_training_labels():
    model = relcrf.parse(
        "domain D = { a, b } entity E { predict x : D } entity F { predict y : D }"
        " template e(e: E) over e.x template f(f: F) over f.y"
    )
    e = {"id": ["1", "2", "3"], "x": ["a", "b", "a"], "part": ["train", "test", "other"]}
    grounding = model.ground(relcrf.Dataset({"e": e, "f": {"id": ["1", "2"], "y": ["a", "b"]}}))
    plan = SplitPlan("column", "E.part", train=("train",), test=("test",))
    (fold,) = make_folds(grounding, plan)
    sizes = fold.part_sizes(labelled_in_grounding(grounding))
    assert (sizes.train, sizes.ignored, sizes.test) == (3, 1, 1)


def test_settings_are_selected_on_the_validation_labels(model, grounding):
    held_out = hold_out(grounding, PLAN)
    grid = {"l2": (0.1, 1.0, 10.0)}
    found = api.select(grounding, "ess", grid, hidden=held_out.hidden, validation=held_out.validation)
    assert found.validation and not found.whole_components and found.n == 12
    for row in found.rows:
        fit = api.fit(model, grounding, "ess", hidden=held_out.hidden, l2=row["l2"])
        score = api.predict(fit, grounding, hidden=held_out.hidden).score(subset=held_out.validation)
        assert row["log_likelihood"] == pytest.approx(score.log_likelihood, abs=1e-12)
        assert row["accuracy"] == score.accuracy


def test_calibration_uses_the_validation_labels_without_further_training(model, grounding, monkeypatch):
    held_out = hold_out(grounding, PLAN)
    fits = []
    original = LocalBackend.fit
    monkeypatch.setattr(
        LocalBackend, "fit", lambda self, problem, monitor: fits.append(1) or original(self, problem, monitor)
    )
    masks = {"hidden": held_out.hidden, "validation": held_out.validation}
    plain = api.fit(model, grounding, "local", **masks)
    fit = api.fit(model, grounding, "local", calibrate=2, **masks)
    assert len(fits) == 2

    def loss(scale):
        scaled = replace(plain.learned, vectors={"weights": scale * plain.learned.vectors["weights"]})
        predicted = api.predict(api.Fit(scaled), grounding, hidden=held_out.hidden)
        return -predicted.score(subset=held_out.validation).log_likelihood

    scales = np.geomspace(0.25, 2.0, 13)
    assert fit.summary["calibration"] == pytest.approx(min(scales, key=loss))


def test_backends_receive_the_validation_labels(model, grounding, monkeypatch):
    received = []
    original = LocalBackend.fit

    def fit(self, problem, monitor):
        received.append(problem.validation)
        return original(self, problem, monitor)

    monkeypatch.setattr(LocalBackend, "fit", fit)
    held_out = hold_out(grounding, PLAN)
    expected = held_out.validation & labelled_in_grounding(grounding)
    api.fit(model, grounding, "local", hidden=held_out.hidden, validation=held_out.validation)
    api.evaluate(grounding, ["local"], PLAN)
    assert len(received) == 2
    for mask in received:
        np.testing.assert_array_equal(mask, expected)
    api.fit(model, grounding, "local")
    assert received[-1] is None


def test_validation_labels_change_the_identity_of_a_training(model, grounding):
    held_out = hold_out(grounding, PLAN)
    one = Training.build(model.spec, grounding, "local", hidden=held_out.hidden)
    assert one.identity != replace(one, validation=held_out.validation).identity


def test_evaluate_and_compare_print_the_sizes_of_the_parts(web, run, ask):
    line = "labels: 12 training, 12 validation, 12 ignored, 12 test"
    command = ("evaluate", WEBKB, "--data", web, "--backend", "local")
    code, out, err = run(*command, *PARTS)
    assert code == 0 and line in out + err
    code, out, err = run(*command, "--split", "part", "--test", "test")
    assert code == 0 and "labels: 36 training, 0 validation, 0 ignored, 12 test" in out + err
    code, out, err = run(*command, "--split", "part")
    assert code == 0 and "ignored" not in out + err
    code, out, err = run("compare", WEBKB, "--data", web, "--backend", "local", "--exact-subgraphs", "0", *PARTS)
    assert code == 0 and line in out + err
    code, found = ask(*command, *PARTS)
    (sizes,) = found["fold_sizes"]
    assert sizes == {"name": "test", "held_out": 12, "train": 12, "validation": 12, "ignored": 12, "test": 12}
    assert found["attributes"][NAME]["n"] == 12
    found = relcrf.load(WEBKB).evaluate(relcrf.Dataset(web), "part", "local", train=["train"], test=["test"])
    assert [(one.ignored, one.test) for one in found.part_sizes] == [(24, 12)]


def test_holdout_equals_a_test_part(web, ask, tmp_path):
    command = ("evaluate", WEBKB, "--data", web, "--backend", "ess", "--split", "part", "--out", tmp_path)
    one = ask(*command, "--holdout", "test")[1]
    other = ask(*command, "--test", "test")[1]
    assert one["attributes"] == other["attributes"] and other["folds_loaded"] == 2
    code, found = ask(*command, "--test", "test", "--train", "train")
    assert code == 2 and found["errors"][0]["code"] == "E353", "other masks have another identity"


def test_a_run_stores_its_parts_and_is_reproduced(web, run, ask, tmp_path):
    folder = tmp_path / "run"
    words = ("--data", web, "--backend", "local", "--select", "l2=0.1,10", "--calibrate", "2")
    code, out, err = run("train", WEBKB, *words, *PARTS, "--out", folder)
    assert code == 0, err
    assert "12 training, 12 validation, 12 ignored, 12 test" in out + err
    assert "settings scored on 12 held-out variables (validation labels)" in " ".join(out.split())
    assert load_provenance(folder).protocol.split_plan == PLAN
    code, out, err = run("reproduce", folder, "--data", web)
    assert code == 0 and "reproduced" in out, err
    code, found = ask("evaluate", folder, "--data", web)
    assert found["fold_sizes"][0]["ignored"] == 12 and found["attributes"][NAME]["n"] == 12
    code, found = ask("predict", folder, "--data", web, *PARTS)
    assert code == 0 and found["queries"][NAME] == 60 - 12
    code, out, err = run("report", folder, "--data", web)
    assert code == 0, err
    page = (folder / "report.html").read_text()
    assert "--valid valid" in page and "--train train" in page
    old = json.loads((folder / "manifest.json").read_text())
    for name in ("train", "valid", "test"):
        del old["provenance"]["protocol"][name]
    (folder / "manifest.json").write_text(json.dumps(old))
    assert load_provenance(folder).protocol.split_plan == SplitPlan("column", "part"), "runs of earlier versions"


def test_the_manifest_names_parts(web, run, ask, tmp_path):
    tables = "".join(f'[tables.{name}]\nfile = "{name}.csv"\n' for name in ("page", "page_words", "link"))
    split = '[split]\ncolumn = "part"\ntrain = ["train"]\nvalid = ["valid"]\ntest = ["test"]\n'
    (web / "dataset.toml").write_text(tables + split)
    try:
        data = ("--data", web / "dataset.toml")
        assert relcrf.Dataset(web / "dataset.toml").split == PLAN
        command = ("evaluate", WEBKB, *data, "--backend", "local")
        sizes = [
            ask(*command, *words)[1]["fold_sizes"][0]
            for words in ((), ("--test", "other"), ("--train", "train", "--train", "other"))
        ]
        assert [(one["name"], one["train"], one["ignored"]) for one in sizes] == [
            ("test", 12, 12),
            ("other", 12, 12),
            ("test", 24, 0),
        ]
        code, out, err = run("train", WEBKB, *data, "--backend", "local", "--out", tmp_path / "run")
        assert code == 0 and "holds out 45 variables" in err and "12 ignored" in out + err
        for words in (("--test", "valid"), ("--holdout", "test")):
            code, out, err = run(*command, *words)
            assert (code, err.count("error[")) == (2, 1) and "E349" in err and "write --split again" in err
    finally:
        (web / "dataset.toml").unlink()


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("--split", "part", "--holdout", "test", "--train", "train"), 2, "E349"),
        (("--split", "part", "--test", "test", "--train", "train", "--valid", "train"), 2, "E349"),
        (("--split", "hide=0.2", "--test", "hidden"), 2, "E349"),
        (("--split", "time=Page.school", "--test", "s1"), 2, "E349"),
        (("--split", "part", "--test", "tst"), 2, "E340"),
        (("--split", "part", "--test", "test", "--valid", "dev"), 2, "E340"),
        (("--split", "part", "--train", "train"), 2, "E341"),
        (("--split", "folds=300", "--test", "1", "--valid", "2"), 2, "E340"),
    ],
)
def test_contradictory_parts_are_errors(web, run, words, code, error):
    found, out, err = run("evaluate", WEBKB, "--backend", "ess", "--data", web, *words)
    assert (found, out, err.count("error[")) == (code, "", 1), err
    assert error in err and "= help:" in err


def test_parts_without_a_split_or_without_labels_are_errors(web, run, model, grounding, tmp_path):
    code, _, err = run("train", WEBKB, "--backend", "ess", "--data", web, "--valid", "valid", "--out", tmp_path / "run")
    assert (code, err.count("error[")) == (2, 1) and "E341" in err and "--valid" in err
    unlabelled = grounding.states < 0
    with pytest.raises(DataError, match="E226"):
        api.fit(model, grounding, "local", validation=unlabelled)
    with pytest.raises(UsageError, match="E341"):
        model.fit(relcrf.Dataset(web), "local", split="part")
    with pytest.raises(UsageError, match="E349"):
        SplitPlan("column", "part", train=("a",), test=("a",))
    hint = "name the folds"
    with pytest.raises(UsageError, match=f"E341[\\s\\S]*{hint}"):
        make_folds(grounding, SplitPlan("column", "part", valid=("valid",)))


def test_other_splits_have_parts_too(grounding):
    plan = SplitPlan("random", folds=4, repeats=2, train=("1", "2"), valid=("3",), test=("4",))
    folds = make_folds(grounding, plan)
    assert [fold.name for fold in folds] == ["1.4", "2.4"]
    labelled = labelled_in_grounding(grounding)
    assert all(fold.part_sizes(labelled).ignored == 0 for fold in folds)
