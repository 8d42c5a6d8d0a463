"""Tests of the command update."""

import csv
import shutil

import pytest

from relcrf.backends import run_folder
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture
def folder(web, tmp_path):
    """A copy of the tables."""
    shutil.copytree(web, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def run(folder, relcrf_, tmp_path):
    out = tmp_path / "run"
    code, _, notes = relcrf_("train", MODEL, "--data", folder, "--backend", "local", "--out", out)
    assert code == 0, notes
    return out


def rewrite(folder, name, change):
    """Replace the rows of a CSV file, a header and rows, by the result of a function."""
    path = next(path for path in folder.iterdir() if path.stem.lower() == name)
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(change(rows))


def add_page(rows):
    columns = rows[0]
    return [
        *rows,
        ["new" if name == columns[0] else "" if name == "category" else rows[1][k] for k, name in enumerate(columns)],
    ]


def test_update_replaces_the_run_and_writes_the_predictions_of_predict(run, folder, relcrf_, tmp_path):
    assert relcrf_("update", run, "--data", folder)[0] == 0
    rewrite(folder, "page", add_page)
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    code, printed, notes = relcrf_("update", run, "--data", folder, "--predictions", ours)
    assert code == 0, notes
    assert "the weights were kept" in printed
    assert "1 predictions inferred (exact)" in printed
    assert "rows of the tables" in printed and "entities" in printed
    assert relcrf_("predict", run, "--data", folder, "--out", theirs)[0] == 0
    assert ours.read_bytes() == theirs.read_bytes()


def test_updated_run_still_knows_its_held_out_labels(folder, relcrf_, relcrf_json, tmp_path):
    run = tmp_path / "run"
    assert relcrf_("train", MODEL, "--data", folder, "--backend", "local", "--hide", "0.3", "--out", run)[0] == 0
    before = relcrf_json("evaluate", run, "--data", folder)[1]["split"]
    assert relcrf_("update", run, "--data", folder)[0] == 0
    code, found = relcrf_json("evaluate", run, "--data", folder)
    assert code == 0 and found["split"] == before


def test_json_and_another_folder(run, folder, relcrf_json, tmp_path):
    before = run_folder.manifest_hashes(run)
    out = tmp_path / "second"
    code, found = relcrf_json("update", run, "--data", folder, "--out", out)
    assert code == 0
    assert found["run"] == str(out)
    assert found["weights"] == "kept"
    assert "digests of its rows" in found["reason"]
    assert run_folder.manifest_hashes(run) == before
    assert (out / "update.json").is_file()


def test_existing_folder_needs_force(run, folder, relcrf_, tmp_path):
    out = tmp_path / "second"
    assert relcrf_("update", run, "--data", folder, "--out", out)[0] == 0
    code, _, notes = relcrf_("update", run, "--data", folder, "--out", out)
    assert code == 2 and "E330" in notes
    assert relcrf_("update", run, "--data", folder, "--out", out, "--force")[0] == 0


def test_labels_are_learned_and_the_reason_is_printed(run, folder, relcrf_):
    assert relcrf_("update", run, "--data", folder)[0] == 0
    rewrite(
        folder,
        "page",
        lambda rows: [
            *rows[:-1],
            [value if name != "category" else "staff" for name, value in zip(rows[0], rows[-1], strict=True)],
        ],
    )
    rewrite(
        folder,
        "page",
        lambda rows: [
            *rows[:-2],
            [value if name != "category" else "" for name, value in zip(rows[0], rows[-2], strict=True)],
            rows[-1],
        ],
    )
    code, printed, notes = relcrf_("update", run, "--data", folder)
    assert code == 0
    assert "labels changed" in notes
    assert "starting at those of the run" in printed


def test_folder_that_is_not_a_run(folder, relcrf_, tmp_path):
    code, _, notes = relcrf_("update", tmp_path, "--data", folder)
    assert code == 3 and "E334" in notes


def test_unknown_attribute(run, folder, relcrf_, tmp_path):
    options = ("--predictions", tmp_path / "out.csv", "--attribute", "colour")
    code, _, notes = relcrf_("update", run, "--data", folder, *options)
    assert code == 2 and "E310" in notes
