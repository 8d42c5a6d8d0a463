"""Cross-validation: scores equal manual fits, hidden labels and later periods are not used, existing folds are loaded."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tables import small_web

import relcrf
from relcrf import api
from relcrf.backends import ess
from relcrf.backends.problems import training_problem
from relcrf.errors import UsageError
from relcrf.evaluation.evaluations import evaluate
from relcrf.evaluation.intervals import fold_interval
from relcrf.evaluation.runner import predict_fold, predict_frequencies
from relcrf.evaluation.splits import make_folds
from relcrf.graph.reduction import Role
from relcrf.resources import resource_path

NAME = "Page.category"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    return model, model.ground(relcrf.Dataset(small_web(tmp_path_factory.mktemp("web"))))


@pytest.fixture(scope="module")
def found(web):
    return evaluate(web[1], ["ess"], "by=Page.school", settings={"ess": {"l2": 0.5}})


def test_scores_equal_manual_fits(web, found):
    model, grounding = web
    assert found.predictions.systems == ("majority", "local", "ess")
    right, log_loss, n = 0.0, 0.0, 0
    for fold, scored in zip(found.folds, found.predictions.scored_by_fold("ess", NAME), strict=True):
        fit = api.fit(model, grounding, "ess", hidden=fold.test, l2=0.5)
        predicted = api.predict(fit, grounding, hidden=fold.test)
        score = predicted.score(subset=fold.test)
        n, right, log_loss = n + score.n, right + score.n * score.accuracy, log_loss - score.n * score.log_likelihood
        among = fold.test[predicted.variables()]
        np.testing.assert_allclose(scored.probabilities, predicted.probabilities()[among])
        assert fold.train_mask(grounding.states >= 0).sum() == 48 - score.n
    figures = found.predictions.estimates("ess", NAME)
    assert (figures["accuracy"].value, figures["log_loss"].value) == pytest.approx((right / n, log_loss / n))
    assert figures["log_loss"].spread > 0
    for figure in (figures["accuracy"], figures["log_loss"], figures["roc_auc"]):
        assert figure.low <= figure.value <= figure.high


def test_gain_is_the_paired_difference_of_labels(found):
    results = found.predictions
    gain = results.differences("ess", "local", NAME)["log_loss"]
    figures = {name: results.estimates(name, NAME)["log_loss"] for name in ("ess", "local")}
    assert gain.value == pytest.approx(figures["ess"].value - figures["local"].value)
    assert gain.value < 0 and gain.low < gain.value < gain.high
    assert gain.high - gain.low < sum(one.high - one.low for one in figures.values())
    folds = [
        float((one.item_measures["log_loss"] - two.item_measures["log_loss"]).mean())
        for one, two in zip(results.scored_by_fold("ess", NAME), results.scored_by_fold("local", NAME), strict=True)
    ]
    assert np.mean(gain.fold_interval) == pytest.approx(np.mean(folds))


def test_ranking_measures_are_averaged_over_folds(found):
    results = found.predictions
    folds = [(len(one.truth), one.measures()["roc_auc"]) for one in results.scored_by_fold("ess", NAME)]
    expected = sum(n * value for n, value in folds) / sum(n for n, _ in folds)
    assert results.estimates("ess", NAME)["roc_auc"].value == pytest.approx(expected)
    assert results.estimates("majority", NAME)["roc_auc"].value == 0.5


def test_training_labels_are_counted_by_attribute():
    """Count training labels per attribute; counting both attributes would make intervals over folds too narrow."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": range(60), "d": rng.choice(["x", "y"], 60), "b": rng.choice(["u", "v"], 60)})
    model = relcrf.parse(
        "domain D = { x, y } domain B = { u, v } entity E { predict d : D predict b : B }\n"
        "template d(e: E) over e.d template b(e: E) over e.b template both(e: E) over e.d, e.b"
    )
    results = evaluate(model.ground(relcrf.Dataset({"e": table})), ["local"], "folds=5").predictions
    one, majority = (results.scored_by_fold(name, "E.d") for name in ("local", "majority"))
    assert results.n_train[:, 0].tolist() == [60 - len(each.truth) for each in one]
    gaps = [
        float((a.item_measures["log_loss"] - b.item_measures["log_loss"]).mean())
        for a, b in zip(one, majority, strict=True)
    ]
    low, high = fold_interval(gaps, 12 / 48)
    assert results.differences("local", "majority", "E.d")["log_loss"].fold_interval == pytest.approx((low, high))


def test_majority_uses_training_labels(web):
    _, grounding = web
    fold = make_folds(grounding, "random,folds=3")[0]
    predicted = predict_frequencies(grounding, fold)
    known = grounding.states[(grounding.states >= 0) & ~fold.test]
    expected = np.bincount(known, minlength=5) + 1
    np.testing.assert_allclose(predicted.probabilities[:5], expected / expected.sum())


def test_hidden_labels_are_not_learned_from(web):
    _, grounding = web
    fold = make_folds(grounding, "random,folds=3")[0]
    changed = replace(grounding, states=np.where(fold.test, 0, grounding.states))
    system = ess.EssBackend()
    predicted = [predict_fold(training_problem(g), fold, system)[0] for g in (grounding, changed)]
    np.testing.assert_array_equal(predicted[0].probabilities, predicted[1].probabilities)
    assert not np.array_equal(predicted[0].truth, predicted[1].truth)


def test_later_periods_are_excluded():
    """In a chain in time, later variables are neither training labels nor evidence, although they are linked."""
    model = relcrf.parse(
        "domain D = { x, y } entity E { predict d : D } relation Next(a: E, b: E) template p(e: E) over e.d\n"
        "template n(a: E, b: E) where Next(a, b) over a.d == b.d"
    )
    keys = [f"k{k:02d}" for k in range(40)]
    e = pd.DataFrame({"id": keys, "d": ["x", "x", "y", "y"] * 10, "t": range(40)})
    grounding = model.ground(relcrf.Dataset({"e": e, "next": pd.DataFrame({"a": keys[:-1], "b": keys[1:]})}))
    first = make_folds(grounding, "folds=3,time=t")[0]
    problem = training_problem(grounding)
    assert (first.learning_problem(problem).roles[20:] == Role.ABSENT).all()
    assert (first.query_problem(problem).roles == np.repeat([Role.CLAMPED, Role.FREE, Role.ABSENT], [10, 10, 20])).all()
    later = np.arange(40) >= 20
    changed = replace(grounding, states=np.where(later, 1 - grounding.states, grounding.states))
    predicted = [predict_fold(training_problem(g), first, ess.EssBackend())[0] for g in (grounding, changed)]
    np.testing.assert_array_equal(predicted[0].probabilities, predicted[1].probabilities)


def test_existing_folds_are_not_recomputed(web, tmp_path, monkeypatch):
    _, grounding = web
    out = tmp_path / "answers"
    fit, count = ess.EssBackend.fit, []

    def interrupt_third_fit(self, problem, monitor):
        count.append(1)
        if len(count) == 3:
            raise KeyboardInterrupt
        return fit(self, problem, monitor)

    monkeypatch.setattr(ess.EssBackend, "fit", interrupt_third_fit)
    with pytest.raises(KeyboardInterrupt):
        evaluate(grounding, ["ess"], "random", folder=out)
    assert len(list(out.glob("ess/fold-*"))) == 2 and len(list(out.glob("local/fold-*"))) == 5
    found = evaluate(grounding, ["ess"], "random", folder=out)
    assert (found.n_loaded, len(count)) == (7, 6)
    whole = evaluate(grounding, ["ess"], "random")
    for one, other in zip(found.predictions.by_system["ess"], whole.predictions.by_system["ess"], strict=True):
        for name in ("variables", "state_start", "probabilities", "truth"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert (one.fold, one.converged) == (other.fold, other.converged)


def test_prediction_tables(web, tmp_path):
    _, grounding = web
    found = evaluate(grounding, [], "by=school", folder=tmp_path)
    table = pd.read_csv(tmp_path / "local" / "fold-01" / f"{NAME}.csv")
    assert list(table.columns[:3]) == ["variable", "truth", "predicted"] and table.columns[-1] == "id"
    assert len(table) == len(found.predictions.by_system["local"][0].truth)
    np.testing.assert_allclose(table.filter(like="p_").sum(axis=1), 1.0)
    block = grounding.blocks[0]
    assert list(table["id"]) == list(grounding.argument_texts(block)[0][table["variable"]])
    assert list(table["truth"]) == [block.values[k] for k in grounding.states[table["variable"]]]


@pytest.mark.parametrize("change", ["settings", "split", "metadata", "table"])
def test_prediction_files_of_another_evaluation_raise_e353(web, tmp_path, change):
    _, grounding = web
    split, chosen = "folds=2", {}
    evaluate(grounding, [], split, folder=tmp_path)
    if change == "settings":
        chosen = {"local": {"l2": 3.0}}
    elif change == "split":
        split = "folds=2,seed=1"
    elif change == "metadata":
        (tmp_path / "local" / "fold-01" / "fold.json").write_text("{")
    else:
        (tmp_path / "local" / "fold-01" / f"{NAME}.csv").write_text("variable,truth\n1\n")
    with pytest.raises(UsageError, match="E353"):
        evaluate(grounding, [], split, folder=tmp_path, settings=chosen)


def test_links_are_predicted():
    """People of the same town know each other; hidden links and non-links are queries, the others evidence."""
    model = relcrf.parse(
        "domain Town = { a, b } entity P { town : Town } predict relation Knows(x: P, y: P) where x != y\n"
        "template prior(x: P, y: P) over Knows(x, y) template same(x: P, y: P) where x.town == y.town over Knows(x, y)\n"
        "template back(x: P, y: P) where x < y over Knows(x, y) == Knows(y, x)"
    )
    rng = np.random.default_rng(0)
    town = ["a" if k % 2 else "b" for k in range(24)]
    knows = [
        (x, y) for x in range(24) for y in range(24) if x < y and rng.random() < (0.7 if town[x] == town[y] else 0.05)
    ]
    both = pd.DataFrame(knows + [(y, x) for x, y in knows], columns=["x", "y"])
    data = {"p": pd.DataFrame({"id": range(24), "town": town}), "knows": both}
    grounding = model.ground(relcrf.Dataset(data))
    found = evaluate(grounding, ["ess"], "hide=0.2,of=Knows")
    figures = {name: found.predictions.estimates(name, "Knows") for name in found.predictions.systems}
    assert figures["ess"]["pr_auc"].value > figures["local"]["pr_auc"].value > figures["majority"]["pr_auc"].value + 0.2
    assert found.leakage.transductive and found.predictions.clusters("Knows").unit == "components"
    table = found.predictions.measure_table()
    assert len(table) == 3 * 7 and set(table["attribute"]) == {"Knows"}


def test_majority_is_not_a_backend(web):
    with pytest.raises(UsageError, match="E301"):
        evaluate(web[1], ["majority"])


def test_as_dict(found):
    whole = found.as_dict()
    of = whole["attributes"][NAME]
    assert (of["n"], of["resampled"]) == (48, "labels")
    assert set(of["systems"]) == {"majority", "local", "ess"} and set(of["relational_gain"]) == {"ess"}
    assert [one["held_out"] for one in whole["fold_sizes"]] == [16, 16, 16]
    assert whole["leaks"]["transductive"] is True and len(whole["leaks"]["interpretation"]) >= 2
