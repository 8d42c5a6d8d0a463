"""Tests of `relcrf evaluate` and its alias `cv`: tables, JSON, files and errors."""

import csv
import json
import shutil

import pytest
from tables import write_tables

from relcrf.backends.ess import EssBackend
from relcrf.backends.local import LocalBackend
from relcrf.backends.provenance import file_hashes
from relcrf.backends.pseudo import PseudoBackend
from relcrf.errors import DataError, Diagnostic
from relcrf.resources import resource_path

WEBKB = resource_path("models", "webkb.rcrf")
NAME = "Page.category"


def test_table_output(relcrf_, web):
    code, out, err = relcrf_("cv", WEBKB, "--data", web, "--split", "by=Page.school", "--backend", "ess")
    assert code == 0, err
    assert "48 labels held out in 3 folds" in out and "ess - local" in out and "macro f1" in out
    assert "pr auc" not in out, "PR AUC is for two states only"
    assert "with training labels" in out and "a training label as neighbour" in out
    assert "connected labels are not independent" in err


def test_json_output(relcrf_json, web, tmp_path):
    ask = ("cv", WEBKB, "--data", web, "--backend", "ess", "--backend", "pseudo", "--split", "snowball", "--folds", 2)
    code, found = relcrf_json(*ask, "--repeats", 2, "--seed", 3, "--out", tmp_path)
    assert code == 0 and list(found["backends"]) == ["local", "ess", "pseudo"] and found["folds_loaded"] == 0
    assert [one["name"] for one in found["fold_sizes"]] == ["1.1", "1.2", "2.1", "2.2"]
    assert set(found["attributes"][NAME]["relational_gain"]) == {"ess", "pseudo"}
    assert found["attributes"][NAME]["systems"]["ess"]["pr_auc"]["value"] is None
    assert len(list(tmp_path.glob("*/fold-*/Page.category.csv"))) == 12
    code, again = relcrf_json(*ask, "--repeats", 2, "--seed", 3, "--out", tmp_path)
    assert (code, again["folds_loaded"]) == (0, 12)
    assert again["attributes"] == found["attributes"]


def test_default_splits(relcrf_json, web, tmp_path):
    ask = ("cv", WEBKB, "--backend", "local")
    code, found = relcrf_json(*ask, "--data", web)
    assert (code, found["split"], len(found["fold_sizes"])) == (0, "random", 5)
    manifest = tmp_path / "dataset.toml"
    tables = "".join(f'[tables.{name}]\nfile = "{name}.csv"\n' for name in ("page", "page_words", "link"))
    for name in ("page", "page_words", "link"):
        (tmp_path / f"{name}.csv").write_text((web / f"{name}.csv").read_text())
    manifest.write_text(f'{tables}[split]\ncolumn = "school"\nholdout = ["s1"]\n')
    code, found = relcrf_json(*ask, "--data", manifest)
    assert (found["split"], [one["name"] for one in found["fold_sizes"]]) == ("school", ["s1"])
    code, found = relcrf_json(*ask, "--data", manifest, "--folds", 3)
    assert (found["split"], len(found["fold_sizes"])) == ("random", 3)


def test_hide_fraction_of_labels(relcrf_json, web):
    ask = ("cv", WEBKB, "--data", web, "--backend", "local")
    code, found = relcrf_json(*ask, "--hide", "0.25", "--repeats", 3)
    assert code == 0 and [one["name"] for one in found["fold_sizes"]] == ["1.hidden", "2.hidden", "3.hidden"]
    assert all(10 <= one["held_out"] <= 14 for one in found["fold_sizes"])
    code, found = relcrf_json(*ask, "--hide", "category=0.25")
    assert code == 0 and found["split"] == "0.25 of category hidden"


def test_settings_of_one_backend_override_shared_ones(relcrf_json, web):
    ask = ("cv", WEBKB, "--backend", "ess", "--data", web, "--split", "folds=2")
    plain = relcrf_json(*ask, "--set", "l2=7")[1]["attributes"][NAME]["systems"]
    both = relcrf_json(*ask, "--set", "ess.l2=7", "--set", "l2=2")[1]["attributes"][NAME]["systems"]
    other = relcrf_json(*ask, "--set", "local.l2=7")[1]["attributes"][NAME]["systems"]
    assert plain["ess"] == both["ess"] != other["ess"]
    assert plain["local"] == both["local"] != other["local"], "the baseline ignores the settings of all backends"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "error"),
    [
        (("--split", "component", "--folds", "100"), 3, "E352"),
        (("--split", "time=Page.school"), 3, "E352"),
        (("--split", "by=Page.school", "--repeats", "2"), 2, "E352"),
        (("--split", "by=Page.scool"), 3, "E212"),
        (("--split", "every=3"), 2, "E349"),
        (("--split", "random", "--folds", "1"), 2, "E349"),
        (("--split", "random", "--hide", "0.1"), 2, "E349"),
        (("--hide", "2"), 2, "E349"),
        (("--hide", "Link=0.1"), 2, "E310"),
        (("--backend", "majority"), 2, "E301"),
        (("--set", "ess.with=1"), 2, "E304"),
        (("--set", "dense.l2=1"), 2, "E306"),
        (("--hide", "0.001"), 3, "E226"),
    ],
)
def test_mistakes(relcrf_, web, arguments, exit_code, error):
    code, out, err = relcrf_("cv", WEBKB, "--backend", "ess", "--data", web, *arguments)
    assert (code, out, err.count("error[")) == (exit_code, "", 1), err
    assert error in err


def test_predictions_of_other_settings_are_rejected(relcrf_, web, tmp_path):
    ask = ("cv", WEBKB, "--data", web, "--backend", "local", "--split", "folds=2", "--out", tmp_path)
    assert relcrf_(*ask)[0] == 0
    code, _, err = relcrf_(*ask, "--set", "l2=3")
    assert (code, err.count("error[")) == (2, 1) and "E353" in err
    code, _, err = relcrf_(*ask)
    assert code == 0 and "2 folds were loaded from" in err
    facts({"format": 0})(tmp_path / "local" / "fold-01")
    code, _, err = relcrf_(*ask)
    assert (code, err.count("error["), "E353" in err) == (2, 1, True)


def test_a_failed_evaluation_leaves_no_predictions(relcrf_, web, tmp_path, monkeypatch):
    """The predictions of `local` would block the next command, which has another model, settings or data."""

    def fail(self, problem, monitor):
        raise DataError(Diagnostic("E226", "too few labels", hint="label more"))

    ask = ("cv", WEBKB, "--data", web, "--backend", "ess", "--split", "folds=2", "--out", tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(EssBackend, "fit", fail)
        code, _, err = relcrf_(*ask)
    assert code == 3 and "E226" in err
    assert not (tmp_path / "out").exists()
    code, _, err = relcrf_(*ask, "--set", "l2=3", "--set", "local.l2=3")
    assert code == 0, err
    with monkeypatch.context() as patched:
        patched.setattr(PseudoBackend, "fit", fail)
        assert relcrf_(*ask, "--backend", "pseudo", "--set", "l2=3", "--set", "local.l2=3")[0] == 3
    code, _, err = relcrf_(*ask, "--set", "l2=3", "--set", "local.l2=3")
    assert code == 0 and "4 folds were loaded from" in err, "earlier predictions are not removed"


def test_other_predictions_are_rejected_before_training(relcrf_, web, tmp_path, monkeypatch):
    ask = ("cv", WEBKB, "--backend", "ess", "--data", web, "--split", "folds=2", "--out", tmp_path)
    assert relcrf_(*ask, "--backend", "ess")[0] == 0
    shutil.rmtree(tmp_path / "local")
    code, _, err = relcrf_(*ask, "--set", "ess.l2=3")
    assert code == 2 and "E353" in err
    assert not (tmp_path / "local").exists()


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    """Return a folder for predictions that are computed once."""
    return tmp_path_factory.mktemp("predictions")


@pytest.fixture
def run_after(relcrf_, web, predictions, tmp_path):
    """Return a function that damages the folder of the first fold and runs the command on the existing predictions."""
    words = ("cv", WEBKB, "--data", web, "--backend", "local", "--split", "folds=2", "--out")
    if not any(predictions.iterdir()):
        assert relcrf_(*words, predictions)[0] == 0

    def run(damage):
        shutil.copytree(predictions, tmp_path / "out")
        damage(tmp_path / "out" / "local" / "fold-01")
        return relcrf_(*words, tmp_path / "out")

    return run


def facts(change):
    """Return a function that changes the facts of a fold."""

    def edit(folder):
        path = folder / "fold.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))

    return edit


def cells(change, *, hashed=True):
    """Return a function that changes the rows of a table, with the correct hash or the old one."""

    def edit(folder):
        path = folder / f"{NAME}.csv"
        rows = list(csv.reader(path.read_text().splitlines()))
        change(rows)
        path.write_text("\n".join(map(",".join, rows)) + "\n")
        if hashed:
            facts({"tables": file_hashes(folder, [path.name])})(folder)

    return edit


def test_undamaged_predictions_are_loaded(run_after):
    """The rewritten but unchanged files of the next test are valid."""
    code, _, err = run_after(cells(lambda rows: None))
    assert code == 0 and "2 folds were loaded from" in err


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / f"{NAME}.csv").write_text((folder / f"{NAME}.csv").read_text()[:500]),
        lambda folder: (folder / f"{NAME}.csv").unlink(),
        lambda folder: (folder / "fold.json").write_text("[" * 100_000),
        lambda folder: (folder / "fold.json").write_text("[]"),
        facts({"tables": {}}),
        facts({"tables": {f"../fold-02/{NAME}.csv": ""}}),
        facts({"seconds_learn": float("nan")}),
        facts({"seconds_infer": None}),
        cells(lambda rows: rows[1].__setitem__(4, rows[1][3]), hashed=False),
        cells(lambda rows: rows.pop()),
        cells(lambda rows: rows.append(rows[-1])),
        cells(lambda rows: rows.reverse()),
        cells(lambda rows: rows[1].__setitem__(0, "-1")),
        cells(lambda rows: rows[1].__setitem__(0, "9" * 30)),
        cells(lambda rows: rows[1].__setitem__(0, f"{rows[1][0]}.5")),
        cells(lambda rows: rows[1].__setitem__(3, "1e300")),
        cells(lambda rows: rows[1].__setitem__(3, "nan")),
        cells(lambda rows: rows[1].__setitem__(3, "-0.1")),
        cells(lambda rows: rows[1].__setitem__(slice(3, 8), ["0.1"] * 5)),
        cells(lambda rows: rows[1].__setitem__(slice(4, None), [])),
        cells(lambda rows: rows[1].__setitem__(7, "x" * 200_000)),
    ],
)
def test_damaged_predictions_are_rejected(run_after, damage):
    code, found, err = run_after(damage)
    assert (code, found, err.count("error["), "E353" in err) == (2, "", 1, True), err
    assert "Warning" not in err


def test_ctrl_c_prints_how_to_resume(relcrf_, web, tmp_path, monkeypatch):
    def interrupt(self, problem, monitor):
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalBackend, "fit", interrupt)
    code, out, err = relcrf_("cv", WEBKB, "--backend", "ess", "--data", web, "--out", tmp_path / "new")
    assert (code, out) == (130, "") and "run the same command to resume" in err


def test_names_from_data_are_not_interpreted(relcrf_, tmp_path):
    model = tmp_path / "model.rcrf"
    model.write_text("domain D = open entity E { predict d : D } template t(e: E) over e.d")
    rows = [{"id": f"k{k}", "d": "[bold]x" if k % 2 else "\x1b[31my", "part": f"[red]p\x1b{k % 2}"} for k in range(20)]
    write_tables(tmp_path / "data", e=rows)
    code, out, err = relcrf_("cv", model, "--data", tmp_path / "data", "--split", "by=part", "--backend", "local")
    assert code == 0, err
    assert "\x1b" not in out and "20 labels" in out


def test_rank_tuples(relcrf_, relcrf_json, tmp_path):
    text = "entity P\npredict relation Knows(x: P, y: P)\ntemplate prior(x: P, y: P) over Knows(x, y) per y\n"
    (tmp_path / "knows.rcrf").write_text(text)
    (tmp_path / "p.csv").write_text("id\n" + "".join(f"{k}\n" for k in range(9)))
    (tmp_path / "knows.csv").write_text("x,y\n" + "".join(f"{k},{k * k % 5}\n{k},3\n" for k in range(9)))
    ask = ("cv", tmp_path / "knows.rcrf", "--data", tmp_path, "--backend", "local", "--hide", "0.4")
    code, out, err = relcrf_(*ask, "--rank", "x, y")
    assert code == 0, err
    assert "mrr" in out and "hits at 10" in out
    assert "mrr" not in relcrf_(*ask)[1]
    found = relcrf_json(*ask, "--rank", "y")[1]["attributes"]["Knows"]["systems"]["local"]
    assert 0 < found["hits_at_1"]["value"] <= found["mrr"]["value"] <= found["hits_at_10"]["value"] == 1
    code, _, err = relcrf_(*ask, "--rank", "z")
    assert code != 0 and "E342" in err and "the arguments are x, y" in err


def test_groups_and_prediction_sets(relcrf_, relcrf_json, web):
    ask = (
        "cv",
        WEBKB,
        "--data",
        web,
        "--backend",
        "local",
        "--folds",
        3,
        "--group-by",
        "Page.school",
        "--coverage",
        0.8,
    )
    code, out, _ = relcrf_(*ask)
    assert code == 0 and "local, by Page.school" in out and "prediction sets for a coverage of 0.8" in out
    code, found = relcrf_json(*ask)
    rows = found["groups"][NAME]["local"]
    assert [(row["Page.school"], row["labels"]) for row in rows] == [("s0", 16), ("s1", 16), ("s2", 16)]
    assert found["sets"][NAME]["local"]["n"] == 48 and found["sets"][NAME]["majority"]["mean_size"] > 1.0


def test_groups_and_sets_that_are_impossible(relcrf_, web):
    ask = ("cv", WEBKB, "--data", web, "--backend", "local")
    code, _, err = relcrf_(*ask, "--group-by", "scool")
    assert code == 3 and "E212" in err and "did you mean 'school'?" in err
    code, _, err = relcrf_(*ask, "--coverage", 90)
    assert code == 2 and "E376" in err
    code, _, err = relcrf_(*ask, "--hide", "0.25", "--coverage", 0.9)
    assert code == 0 and "there is a single fold" in err


def test_note_names_the_step_that_did_not_converge(relcrf_, web, tmp_path):
    ask = ("cv", WEBKB, "--data", web, "--backend", "pseudo", "--folds", "2", "--out", tmp_path / "p")
    hurried = ("--set", "inference=gibbs", "--set", "sweeps=20", "--set", "chains=2")
    for _ in range(2):  # the second command loads the predictions
        err = relcrf_(*ask, *hurried)[2]
        assert "inference of pseudo did not converge" in err and "--set pseudo.inference=..." in err
        assert "max_iterations" not in err
    err = relcrf_(*ask[:-2], "--set", "max_iterations=2")[2]
    assert "pseudo did not converge in at least one fold; raise the limit with --set pseudo.max_iterations=10000" in err
