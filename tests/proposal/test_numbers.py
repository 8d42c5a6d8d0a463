"""Proposals of models that predict a number: targets, templates, aggregates, and the trial on held-out numbers."""

import numpy as np
import pytest
from houses import houses
from scipy.stats import spearmanr
from tables import write_tables

import relcrf
from relcrf.errors import UsageError
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal import trial
from relcrf.proposal.aggregate_models import AggregateValues
from relcrf.proposal.draft import propose_model
from relcrf.proposal.leaks import find_leaks
from relcrf.proposal.proposal import analyse_source, propose


def rows(columns):
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with houses, whose prices depend on their attributes and on those of their neighbours."""
    tables = {name: rows(columns) for name, columns in houses(200, 0, links=2.0).items()}
    return write_tables(tmp_path_factory.mktemp("houses"), **tables)


def templates(draft):
    return {each.name: each.text for each in draft.templates if each.is_active}


def test_proposed_model_predicts_better_than_the_mean(folder, tmp_path):
    requested = "House.price"
    made = propose(str(folder), tmp_path / "m.rcrf", requested, DEFAULT_MEMORY, with_trial=True, with_aggregates=False)
    made.write()
    model = relcrf.load(made.model)
    assert model.warnings == () and "predict price : real" in made.draft.text
    assert list(templates(made.draft)) == ["prior", "kind", "area", "size", "near"]
    assert templates(made.draft)["near"].endswith("where Near(a, b) and a != b\n    over a.price, b.price")
    found = made.trial.scores
    errors = [found[name].mae for name in ("majority", "local", "auto")]
    assert errors == sorted(errors, reverse=True) and errors[2] < 0.5 * errors[0]
    assert found["auto"].log_likelihood > found["local"].log_likelihood > found["majority"].log_likelihood
    data = relcrf.Dataset(folder)
    means = model.fit(data, "dense").predict(data).means("House.price")
    assert len(means) == made.draft.n_variables - made.draft.n_labelled and np.isfinite(means).all()


def test_command_prints_errors(relcrf_, relcrf_json, folder, tmp_path):
    command = ("new", folder, "--out", tmp_path / "m.rcrf", "--predict", "house.price", "--no-aggregates", "--force")
    code, out, err = relcrf_(*command, "--yes")
    assert code == 0 and "mean absolute error" in " ".join(out.split()) and "the mean" in out, err
    code, found = relcrf_json(*command)
    assert code == 0 and {tuple(score) for score in found["trial"].values()} == {("mae", "log_likelihood", "n")}


def test_numbers_are_targets_only_if_requested(tmp_path):
    shop = [{"id": k, "price": 20.5 + k, "size": k / 3} for k in range(40)]
    house = [{"id": f"h{k}", "price": 100.5 + 7 * k, "kind": ["flat", "villa"][k % 2]} for k in range(40)]
    folder = write_tables(tmp_path / "d", shop=shop, house=house)

    def target(requested):
        return analyse_source(str(folder), requested, DEFAULT_MEMORY)[0].target.name

    assert [target(requested) for requested in (None, "shop.price", "size")] == [
        "House.kind",
        "Shop.price",
        "Shop.size",
    ]
    with pytest.raises(UsageError) as error:
        target("price")
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "E373" and all(name in diagnostic.hint for name in ("Shop.price", "House.price"))
    only = write_tables(tmp_path / "only", shop=shop)
    with pytest.raises(UsageError) as error:
        propose(str(only), tmp_path / "o.rcrf", None, DEFAULT_MEMORY)
    assert error.value.diagnostics[0].code == "E369" and "--predict Shop.price" in error.value.diagnostics[0].hint


def test_whole_numbers_and_wide_ranges():
    rng = np.random.default_rng(0)
    tables = {
        "visit": {
            "id": range(60),
            "minutes": rng.integers(1000, size=60),
            "cost": 500 * rng.random(60),
            "change": rng.normal(size=60),
        }
    }
    draft = propose_model(tables, "minutes")
    assert "predict minutes : real" in draft.text
    assert templates(draft)["cost"].endswith("by standardise(v.cost), standardise(log1p(v.cost))")
    assert templates(draft)["change"].endswith("by standardise(v.change)")


def test_numbers_with_many_links_are_not_tried(folder, monkeypatch):
    draft = propose_model(relcrf.Dataset(folder), "House.price")
    monkeypatch.setattr(trial, "MAX_OPERATIONS", 10)
    same, result = trial.choose_model(draft)
    assert same is draft and not result.scores and "so many links" in result.reason


def test_sequences_and_common_entities():
    rng = np.random.default_rng(1)
    words = {
        "sentence": [k // 5 for k in range(60)],
        "position": [k % 5 for k in range(60)],
        "tag": ["NV"[k % 2] for k in range(60)],
        "pitch": rng.normal(size=60),
    }
    step = templates(propose_model({"word": words}, "pitch"))["step"]
    assert step.startswith("derive Next(") and step.endswith("over a.pitch, b.pitch")
    tables = {
        "person": {"id": [f"p{k}" for k in range(60)], "height": rng.normal(size=60)},
        "family": {"id": [f"f{k}" for k in range(20)], "income": rng.normal(size=20)},
        "member": {"person": [f"p{k}" for k in range(60)], "family": [f"f{k % 20}" for k in range(60)]},
    }
    same = templates(propose_model(tables, "height"))["same_member"]
    assert same.startswith("derive SameMember(") and same.endswith("over a.height, b.height")


def test_association_with_a_number_is_the_squared_rank_correlation():
    rng = np.random.default_rng(2)
    labels, values = rng.normal(size=50), rng.normal(size=(50, 3))
    values[:, 0] += labels
    values[:, 1] = np.exp(labels)
    train = rng.random(50) < 0.7
    found = AggregateValues((), values, 3, is_number=True).associations(labels, train)
    expected = [spearmanr(labels[train], column[train]).statistic ** 2 for column in values.T]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found[1] == pytest.approx(1.0)


@pytest.mark.parametrize("form", ["linear", "learned"])
def test_aggregates_improve_the_model(monkeypatch, form):
    rng = np.random.default_rng(3)
    n = 120
    amount, owner = rng.normal(size=3 * n), rng.integers(n, size=3 * n)
    largest = np.full(n, -3.0)
    np.maximum.at(largest, owner, amount)
    distance = np.abs(np.bincount(owner, minlength=n) - 3.0)
    value = {"linear": largest, "learned": distance}[form] + 0.1 * rng.normal(size=n)
    tables = {
        "client": {"id": [f"c{k}" for k in range(n)], "value": value},
        "sale": {"id": [f"s{k}" for k in range(3 * n)], "client": [f"c{k}" for k in owner], "amount": amount},
    }
    monkeypatch.setattr(trial, "FORMS", {form: trial.FORMS[form]})
    monkeypatch.setattr(trial, "COMPARED_FOLDS", "folds=2")
    monkeypatch.setattr(trial, "MAX_SECONDS", 1e6)
    better, result = trial.choose_model(propose_model(tables, "Client.value"))
    assert result.aggregates.chosen == form
    assert result.scores["auto"].mae < 0.6 * result.scores["majority"].mae
    assert "max_" in better.text and ("regressor of c.value" in better.text) == (form == "learned")


def test_attributes_that_determine_a_number_are_suspected():
    rng = np.random.default_rng(4)
    price = rng.normal(size=400)
    tables = {"house": {"id": range(400), "price": price, "tax": 3 * price, "size": rng.normal(size=400)}}
    (found,) = find_leaks(propose_model(tables, "price").analysis)
    assert found[0] == "House.tax"
