"""The example datasets: made on the spot, the same for a seed, and such that relations help."""

import itertools
import sys

import numpy as np
import pytest
from command import json_command, relcrf_command

import relcrf
from relcrf.datasets import persons
from relcrf.datasets.persons import make_records


def relational_backend(name):
    """Return a backend that uses the relations of an example; `ess` learns no numbers."""
    return "dense" if name == "prices" else "ess"


@pytest.mark.parametrize("name", relcrf.datasets.names())
def test_examples_can_be_learned_from(name):
    example = relcrf.datasets.load(name)
    model, data = example
    assert example.name == name and str(example.split) and example.description in repr(example)
    assert "<table>" in example._repr_html_()
    backend = relational_backend(name)
    found = model.evaluate(data, backend=backend).predictions
    for attribute in found.attributes:
        assert found.score(backend, attribute).log_likelihood > found.score("local", attribute).log_likelihood


def test_the_same_seed_gives_the_same_data():
    first, again, other = (relcrf.datasets.load("web", seed).data for seed in (1, 1, 2))
    model = relcrf.datasets.load("web").model
    states = [model.ground(data).states for data in (first, again, other)]
    np.testing.assert_array_equal(states[0], states[1])
    assert (states[0] != states[2]).any()


@pytest.mark.parametrize("name", relcrf.datasets.names())
def test_command_writes_an_example_that_can_be_evaluated(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = relcrf_command(capsys, monkeypatch, "example", name)
    assert code == 0
    evaluate = out.splitlines()[-1].split()
    backend = relational_backend(name)
    code, scores = json_command(capsys, monkeypatch, *evaluate[1:], "--backend", backend)
    assert code == 0
    example = relcrf.datasets.load(name)
    written = example.model.ground(relcrf.Dataset(name))
    assert written.graph.n_variables == example.model.ground(example.data).graph.n_variables
    assert all(scores["backends"][backend][attribute]["n"] > 0 for attribute in scores["attributes"])
    code, _, err = relcrf_command(capsys, monkeypatch, "example", name)
    assert code == 2 and "E374" in err and "--force" in err
    assert relcrf_command(capsys, monkeypatch, "example", name, "--force")[0] == 0


def test_fraud_consists_of_files_only(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = relcrf_command(capsys, monkeypatch, "example", "fraud", "--out", "shop")
    commands = [line.strip() for line in out.splitlines() if line.startswith("  relcrf")]
    assert commands == ["relcrf profile shop --out tables.html", "relcrf new shop --out fraud.rcrf --yes"]
    assert code == 0 and "relcrf new shop" in out.splitlines()[-1]
    assert {path.name for path in (tmp_path / "shop").iterdir()} == {
        "customers.csv", "devices.csv", "merchants.tsv", "transactions.csv.gz",
    }  # fmt: skip
    code, _, err = relcrf_command(capsys, monkeypatch, "example", "fraud", "--out", "shop")
    assert code == 2 and "E374" in err
    assert json_command(capsys, monkeypatch, "example", "fraud", "--out", "shop", "--force")[1]["files"]
    with pytest.raises(relcrf.UsageError, match="consists of files only"):
        relcrf.datasets.load("fraud")


def test_persons_are_two_lists_and_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = relcrf_command(capsys, monkeypatch, "example", "persons")
    assert code == 0 and "relcrf cluster run --data persons --merged deduplicated.csv" in out
    data = relcrf.Dataset("persons")
    grounding = relcrf.load("persons/linkage.rcrf").ground(data)
    assert data.table_names == ["record"] and grounding.bound.sizes["Record"] == 6000
    assert 3000 < grounding.graph.n_variables < 10_000 and (grounding.states == -1).all()
    shop, newsletter = (
        len((tmp_path / "persons" / f"{name}.csv").read_text().splitlines()) for name in ("shop", "newsletter")
    )
    assert shop + newsletter == 6002


def test_unknown_examples():
    with pytest.raises(relcrf.UsageError, match="did you mean 'digits'"):
        relcrf.datasets.load("digit")


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(relcrf.UsageError, match="needs scikit-learn"):
        relcrf.datasets.load("digits")


def test_records_of_persons_have_the_declared_errors():
    table = make_records(20_000)
    person = table["person"]
    sizes = np.bincount(np.bincount(person))[1:] / (person.max() + 1)
    np.testing.assert_allclose(sizes, persons.RECORDS_PER_PERSON, atol=0.02)
    for column, share in persons.MISSING.items():
        assert np.mean([value is None for value in table[column]]) == pytest.approx(share, abs=0.01)
    order = np.argsort(person, kind="stable")
    pairs = [(a, b) for a, b in itertools.pairwise(order.tolist()) if person[a] == person[b]]
    births = [(table["birth"][a], table["birth"][b]) for a, b in pairs]
    known = [(a, b) for a, b in births if a and b]
    assert np.mean([a == b for a, b in known]) == pytest.approx((1 - persons.TYPING_ERROR["birth"]) ** 2, abs=0.02)
    again = make_records(20_000)
    assert all((again[column] == values).all() for column, values in table.items())
