"""Tests of the command audit."""

import csv

import numpy as np
import pytest

import relcrf
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def run(web, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "web"
    relcrf.load(resource_path("models", "webkb.rcrf")).fit(relcrf.Dataset(web), "ess", max_iterations=20).save(folder)
    return folder


def write_categories(web, folder, change):
    """Write the tables to a folder, with changed categories of the pages."""
    for path in web.iterdir():
        rows = list(csv.reader(path.read_text().splitlines()))
        if path.stem == "page":
            column = rows[0].index("category")
            for number, row in enumerate(rows[1:]):
                row[column] = change(number, row[column])
        with (folder / path.name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)


def test_table_and_file_of_all_labels(run, web, relcrf_, tmp_path):
    write_categories(web, tmp_path, lambda number, value: "staff" if number % 9 == 0 else value)
    web = tmp_path
    out = tmp_path / "labels.csv"
    code, printed, notes = relcrf_("audit", run, "--data", web, "--folds", "2", "--top", "3", "--out", out)
    assert code == 0, notes
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "observed", "proposed", "p_observed", "p_proposed", "log_odds"]
    assert f"audited {len(rows):,} labels" in printed and "in 2 folds" in notes
    improbable = sum(float(row["log_odds"]) > 0.0 for row in rows)
    assert f"{improbable:,} have a more probable value" in printed
    probabilities = np.array([float(row["p_observed"]) for row in rows])
    assert (np.diff(probabilities) >= 0.0).all()
    assert "Page.category: 3 of" in printed and "main reason" in printed


def test_title_counts_the_selected_labels(run, web, relcrf_, relcrf_json, tmp_path):
    write_categories(web, tmp_path, lambda number, value: {0: "staff", 4: "course"}.get(number % 9, value))
    audit = ("audit", run, "--data", tmp_path, "--folds", "0")
    top = relcrf_json(*audit, "--top", "1000")[1]["audited"]["Page.category"]["top"]
    selected = sum(row["observed"] == "staff" for row in top)
    assert 1 < selected < len(top)
    assert f"1 of {selected} labels" in relcrf_(*audit, "--top", "1", "--observed", "staff")[1]


def test_json_has_the_first_labels_with_reasons(run, web, relcrf_json):
    code, found = relcrf_json("audit", run, "--data", web, "--folds", "0", "--top", "2")
    assert code == 0
    facts = found["audited"]["Page.category"]
    assert found["weights"]["backend"] == "ess" and facts["joint"] == 0
    assert len(facts["top"]) == min(2, facts["improbable"])
    for row in facts["top"]:
        assert row["observed"] != row["proposed"] and row["p_observed"] < row["p_proposed"] and row["reason"]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("--data", "missing"), 3, "E201"),
        (("--observed", "stuff", "--folds", "0"), 2, "E356"),
        (("--attribute", "Page.topic"), 2, "E310"),
        (("--folds", "1"), 2, "E349"),
        (("--out", "labels.pdf"), 2, "E312"),
    ],
)
def test_errors(run, web, relcrf_, arguments, code, error):
    found, _, message = relcrf_("audit", run, "--data", web, *arguments)
    assert found == code and f"error[{error}]" in message


def test_tables_without_labels(run, web, relcrf_, tmp_path):
    write_categories(web, tmp_path, lambda number, value: "")
    code, _, message = relcrf_("audit", run, "--data", tmp_path)
    assert code == 3 and "error[E225]" in message
