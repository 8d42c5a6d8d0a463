"""Aggregates of proposed models: enumeration, association with training labels, and the choice by held-out labels."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kruskal
from tables import write_tables

import relcrf
from relcrf.evaluation.measures import ScoredLabels
from relcrf.evaluation.predictions import LOCAL, MAJORITY
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.grounding.learned_values import read_inputs
from relcrf.model.learned import learned_features
from relcrf.proposal import aggregate_models, aggregates, proposal, trial
from relcrf.proposal.aggregate_models import AggregateValues, compute_aggregates, templates_with


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    """Return the draft of a model of 80 customers, of whom those with 3 or 4 orders are loyal, and 30 products."""
    rng = np.random.default_rng(0)
    n_orders = rng.integers(1, 7, size=80)
    customer = [
        {"id": f"c{k}", "age": int(rng.integers(20, 70)), "loyal": ["no", "yes"][int(n in (3, 4))]}
        for k, n in enumerate(n_orders)
    ]
    product = [
        {"id": f"p{k}", "colour": ["red", "blue"][k % 2], "cost": float(k), "since": "2024-01-02"} for k in range(30)
    ]
    pairs = [(k, p) for k, n in enumerate(n_orders) for p in rng.choice(30, size=n, replace=False)]
    ordered = [{"customer": f"c{k}", "product": f"p{p}"} for k, p in pairs]
    folder = write_tables(tmp_path_factory.mktemp("orders"), customer=customer, product=product, ordered=ordered)
    made = proposal.propose(str(folder), folder.parent / "m.rcrf", "customer.loyal", DEFAULT_MEMORY, force=True)
    return made.draft


@pytest.fixture(scope="module")
def found(draft):
    return compute_aggregates(draft, 60)


def test_aggregates_of_one_and_two_hops(draft, found):
    texts = {each.name: each.text for each in aggregates.enumerate_aggregates(draft.analysis)}
    assert texts["n_ordered"] == "count { p where Ordered(c, p) }"
    assert texts["n_ordered_colour_red"] == 'count { p where Ordered(c, p) and p.colour == "red" }'
    assert texts["mean_ordered_cost"] == "mean { p.cost where Ordered(c, p) }"
    assert texts["n_ordered_ordered"] == "count { x where Ordered(c, p) and Ordered(x, p) and x != c }"
    assert texts["max_ordered_ordered_age"].startswith("max { x.age where ")
    assert not any("loyal" in text for text in texts.values())
    values = dict(zip((each.name for each in found.aggregates), found.values.T, strict=True))
    assert (values["n_ordered"] == values["n_ordered_colour_red"] + values["n_ordered_colour_blue"]).all()
    assert "latest_ordered_since" not in values  # constant


def test_values_are_those_of_the_model(tmp_path):
    """Values of paths are computed from pairs; the model computes them by SQL. Some numbers and all of p0's are missing."""
    rng = np.random.default_rng(2)
    customer = [
        {"id": f"c{k}", "age": [None, int(rng.integers(20, 70))][k % 3 > 0], "loyal": "yn"[k % 2]} for k in range(30)
    ]
    product = [{"id": f"p{k}", "cost": None if k % 4 == 0 else round(float(rng.normal()), 2)} for k in range(20)]
    ordered = [
        {"customer": f"c{c}", "product": f"p{p}"} for c in range(2, 30) for p in rng.choice(20, 3, replace=False)
    ]
    ordered.append({"customer": "c1", "product": "p0"})
    folder = write_tables(tmp_path, customer=customer, product=product, ordered=ordered)
    made = proposal.propose(str(folder), tmp_path / "m.rcrf", "customer.loyal", DEFAULT_MEMORY, force=True)
    found = compute_aggregates(made.draft, 60)
    texts = ", ".join(each.text for each in found.aggregates)
    declared = f"feature all_(c: Customer) = classifier of c.loyal from {texts}"
    bound = made.draft.grounding.bound
    (feature,) = learned_features(relcrf.parse(f"{made.draft.text}\n{declared}\n").spec)
    expected = np.column_stack([each.values for each in read_inputs(bound, feature)])
    functions = {text.split(" ")[0] for text in texts.split(", ")}
    assert {"count", "sum", "mean", "min", "max"} <= functions and np.isnan(found.values).any()
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)


def test_label_counts_are_inputs_of_the_classifier_only(draft, found, monkeypatch):
    (labels,) = found.label_counts
    assert labels.text == "sum { x.loyal where Ordered(c, p) and Ordered(x, p) and x != c }"
    linear, learned = (templates_with(draft, found, [0], form)[-1].text for form in ("linear", "learned"))
    assert "x.loyal" not in linear and f", {labels.text}\n" in learned
    monkeypatch.setattr(aggregate_models, "MAX_ROWS", 600)
    assert compute_aggregates(draft, 60).label_counts == ()


def test_label_counts_without_neighbours_are_omitted(tmp_path):
    """Each order has a product of its own, so that no two customers ordered the same product."""
    customer = [{"id": f"c{k}", "loyal": ["no", "yes"][k % 2]} for k in range(20)]
    product = [{"id": f"p{k}", "cost": float(k)} for k in range(40)]
    ordered = [{"customer": f"c{k % 20}", "product": f"p{k}"} for k in range(39)]
    folder = write_tables(tmp_path, customer=customer, product=product, ordered=ordered)
    made = proposal.propose(str(folder), tmp_path / "m.rcrf", "customer.loyal", DEFAULT_MEMORY)
    found = compute_aggregates(made.draft, 60)
    assert "n_ordered" in {each.name for each in found.aggregates} and found.label_counts == ()


def test_number_of_aggregates_is_limited(draft, monkeypatch):
    monkeypatch.setattr(aggregates, "MAX_AGGREGATES", 3)
    assert len(aggregates.enumerate_aggregates(draft.analysis)) == 3


def test_aggregates_over_many_rows_are_omitted(draft, monkeypatch):
    """80 customers ordered 1 to 6 of 30 products, so that paths to other customers are more than orders."""
    monkeypatch.setattr(aggregate_models, "MAX_ROWS", 600)
    names = {each.name for each in compute_aggregates(draft, 60).aggregates}
    assert "n_ordered" in names and not any(name.startswith("n_ordered_ordered") for name in names)
    assert "n_paths_ordered_ordered" not in names


def test_replaced_templates_have_the_sizes_of_the_plan(draft, found):
    templates = templates_with(draft, found, range(3), "linear")
    replaced = trial.replace_templates(draft, templates)
    assert list(replaced.plans) == replaced.model.plan(draft.grounding.bound.dataset)


def test_association_is_the_kruskal_statistic_of_training_labels():
    rng = np.random.default_rng(1)
    values, states, train = rng.integers(5, size=(60, 3)).astype(float), rng.integers(3, size=60), np.arange(60) < 40
    found = AggregateValues(tuple("abc"), values, 3)
    expected = [kruskal(*(column[:40][states[:40] == y] for y in range(3))).statistic / 39 for column in values.T]
    assert found.associations(states, train) == pytest.approx(expected)
    other = np.where(train, states, 2 - states)
    assert (found.associations(other, train) == found.associations(states, train)).all()


def test_association_with_missing_values_and_selection(monkeypatch):
    values = np.column_stack([np.full(6, np.nan), [0, 0, 0, 1, 1, 1], [0, np.nan, 0, 1, np.nan, 0], [1, 0, 1, 1, 0, 1]])
    found = AggregateValues(tuple("abcd"), values, 4)
    states = np.array([0, 0, 0, 1, 1, 1])
    strength = found.associations(states, states >= 0)
    assert strength[0] == 0 and strength[1] == pytest.approx(1) and 0 < strength[2] < 1 and strength[3] == 0
    assert found.select(states, states >= 0) == (1, 2)
    monkeypatch.setattr(aggregate_models, "MAX_SELECTED", 1)
    assert found.select(states, states >= 0) == (1,)


def test_forms_are_models(draft, found):
    everything = range(len(found.aggregates))
    linear = templates_with(draft, found, everything, "linear")
    assert [each.name for each in linear] == [*(each.name for each in draft.templates), "aggregates"]
    assert "standardise(n_ordered(c))" in linear[-1].text
    learned = templates_with(draft, found, everything, "learned")
    assert {"age", "ordered_colour", "ordered_cost"}.isdisjoint(each.name for each in learned)
    few = templates_with(draft, found, [0], "learned")
    assert {"ordered_colour", "ordered_cost"} <= {each.name for each in few}
    text = trial.replace_templates(draft, learned).text
    assert "classifier of c.loyal from c.age, n_ordered(c)" in text and relcrf.parse(text).warnings == ()


def fake_predictions(monkeypatch, chances):
    """Replace training by predictions that give each label a chance, by the number of aggregates in the model."""

    def predict(grounding, folds, system=trial.AUTO):
        name = "none" if "aggregates" not in {t.name for t in grounding.templates} else "linear"
        chance = np.resize(chances[name], 16)
        labels = ScoredLabels(np.column_stack([1 - chance, chance]), np.ones(16, dtype=int))
        return dict.fromkeys((MAJORITY, LOCAL, trial.BACKEND), labels)

    monkeypatch.setattr(trial, "_predict", predict)
    monkeypatch.setattr(trial, "_choose_backend", lambda grounding, fold: trial.AUTO)
    monkeypatch.setattr(trial, "FORMS", {"linear": "weights"})


@pytest.mark.parametrize(
    ("chances", "chosen"),
    [([0.8], "linear"), ([0.6], "none"), ([0.5], "none"), ([0.99, 0.39], "none")],
    ids=["better", "equal", "worse", "uncertain"],
)
def test_aggregates_are_kept_only_if_held_out_labels_improve(chances, chosen, draft, monkeypatch):
    fake_predictions(monkeypatch, {"none": [0.6], "linear": chances})
    monkeypatch.setattr(trial, "MAX_SECONDS", 1e6)
    better, result = trial.choose_model(draft)
    assert result.aggregates.chosen == chosen and result.aggregates.n_folds == 5
    assert ("aggregates" in {t.name for t in better.templates}) == (chosen == "linear")
    assert any(is_kept for _, _, is_kept in result.aggregates.aggregates) == (chosen == "linear")
    assert result.scores[trial.BACKEND].log_likelihood >= np.log(0.6) - 1e-12
    assert len(result.aggregates.warnings) == 1 and "column 'since'" in result.aggregates.warnings[0]


def test_time_limit_stops_after_the_first_fold(draft, monkeypatch):
    fake_predictions(monkeypatch, {"none": [0.6], "linear": [0.9]})
    monkeypatch.setattr(trial, "MAX_SECONDS", 0.0)
    same, result = trial.choose_model(draft)
    assert same is draft and result.aggregates.n_folds == 1
    assert "not tried within" in result.aggregates.forms[1].reason


def test_classifiers_of_many_values_are_not_tried(draft, monkeypatch):
    """Boosted trees of 88 values take minutes."""
    monkeypatch.setattr(trial, "MAX_CLASSIFIER_STATES", 1)
    _, result = trial.choose_model(draft)
    forms = {each.form: each.reason for each in result.aggregates.forms}
    assert "more than 1 values" in forms["learned"] and "more than" not in forms["linear"]


def test_many_or_several_targets_have_no_aggregates(draft, monkeypatch):
    monkeypatch.setattr(trial, "MAX_VARIABLES", 10)
    same, result = trial.choose_model(draft)
    assert same is draft and result.aggregates is None and "more than 10 variables" in result.reason
    relation = replace(draft.analysis, target=replace(draft.analysis.target, entity=None))
    assert aggregates.enumerate_aggregates(relation) == []


@pytest.mark.slow
def test_number_of_links_predicts_labels(draft, monkeypatch):
    monkeypatch.setattr(trial, "MAX_SECONDS", 1e6)
    monkeypatch.setattr(trial, "COMPARED_FOLDS", "folds=2")
    better, result = trial.choose_model(draft)
    assert result.aggregates.chosen == "learned"
    none = result.aggregates.forms[0].score
    assert result.scores[trial.BACKEND].log_likelihood > none.log_likelihood + 0.1
    assert "n_ordered" in better.text


def test_aggregates_can_be_left_out(draft, monkeypatch):
    fake_predictions(monkeypatch, {"none": [0.6], "linear": [0.9]})
    same, result = trial.choose_model(draft, with_aggregates=False)
    assert same is draft and result.aggregates is None and result.scores


def test_classifier_must_be_better_than_weights(draft, monkeypatch):
    comparison = trial._Comparison(draft, AggregateValues((), np.zeros((0, 0)), 0), lambda name: None)
    chances = {"none": 0.5, "linear": 0.7, "learned": 0.7}
    for form, chance in chances.items():
        noise = np.linspace(-0.02, 0.02, 16)
        probabilities = np.column_stack([1 - chance - noise, chance + noise])
        comparison.predictions[form] = [{trial.BACKEND: ScoredLabels(probabilities, np.ones(16, dtype=int))}]
    assert comparison._choose_form(trial.BACKEND) == "linear"
    better = np.full((16, 1), 0.9)
    comparison.predictions["learned"] = [
        {trial.BACKEND: ScoredLabels(np.hstack([1 - better, better]), np.ones(16, dtype=int))}
    ]
    assert comparison._choose_form(trial.BACKEND) == "learned"
