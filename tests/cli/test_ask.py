"""Tests of the command ask."""

import csv

import pytest

import relcrf
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def run(web, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "web"
    relcrf.load(MODEL).fit(relcrf.Dataset(web), "ess").save(folder)
    return folder


def test_requests_are_printed_and_written(run, web, relcrf_, relcrf_json, tmp_path):
    out = tmp_path / "labels.csv"
    options = ("ask", run, "--data", web, "--hide", "0.8", "--budget", "4")
    code, found = relcrf_json(*options)
    assert code == 0
    assert len(found["requests"]) == 4 <= found["candidates"]
    assert found["expected_errors_after"] < found["expected_errors"]
    for request in found["requests"]:
        assert request["gain"] == pytest.approx(request["own"] + request["graph"] + request["weights"])
    code, text, err = relcrf_(*options, "--out", out)
    assert code == 0, err
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [f"Page({row['id']}).category" for row in rows] == [request["variable"] for request in found["requests"]]
    assert {row["category"] for row in rows} == {""}
    assert [row["predicted"] for row in rows] == [request["answer"] for request in found["requests"]]
    assert all(f"Page({row['id']})" in text for row in rows)
    assert "expected wrong predictions" in text and "cost" not in text


def test_costs_limit_the_batch(run, web, relcrf_, relcrf_json, tmp_path):
    folder = tmp_path / "web"
    folder.mkdir()
    for path in web.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    with (folder / "page.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (folder / "page.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "minutes"])
        writer.writeheader()
        writer.writerows({**row, "minutes": 2 + k % 3} for k, row in enumerate(rows))
    options = ("ask", run, "--data", folder, "--hide", "0.5", "--cost-column", "minutes")
    code, found = relcrf_json(*options, "--budget", "9")
    assert code == 0
    assert 7 <= sum(request["cost"] for request in found["requests"]) <= 9
    code, text, _ = relcrf_(*options, "--budget", "9")
    assert code == 0 and "for a cost of" in text
    code, _, err = relcrf_(*options, "--budget", "1")
    assert code == 2 and "E448" in err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--hide", "0.5", "--cost-column", "nothing"), 3, "E212"),
        (("--hide", "0.5", "--cost-column", "category"), 3, "E447"),
        (("--hide", "0.5", "--attribute", "topic"), 2, "E310"),
        (("--hide", "0.5", "--out", "labels.txt"), 2, "E312"),
        (("--budget", "-1"), 2, "budget"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_invalid_requests(run, web, relcrf_, options, code, message):
    found, _, err = relcrf_("ask", run, "--data", web, *options)
    assert found == code and message in err


def test_labelled_tables(run, web, relcrf_, tmp_path):
    folder = tmp_path / "web"
    folder.mkdir()
    for path in web.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    with (folder / "page.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (folder / "page.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "category": row["category"] or "staff"} for row in rows)
    code, _, err = relcrf_("ask", run, "--data", folder)
    assert code == 3 and "E446" in err
