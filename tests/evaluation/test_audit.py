"""Audits: planted wrong labels come first, folds exclude the labels that they score, and reasons name the cause."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf import api
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.audit import AuditSettings, estimate_errors, find_reasons, select_systems

MODEL = """
domain Topic = { a, b, c }
domain Word = open
entity Page { predict topic : Topic, words : bag of Word }
relation Link(x: Page, y: Page)
template prior(p: Page) over p.topic
template word(p: Page, w: Word) where w in p.words over p.topic per w
template linked(p: Page, q: Page) where Link(p, q) over p.topic == q.topic
"""
LINKS = """
entity Person { age : integer }
predict relation knows(x: Person, y: Person) where x != y
template prior(x: Person, y: Person) over knows(x, y)
template age(x: Person, y: Person) over knows(x, y) by abs(x.age - y.age)
template mutual(x: Person, y: Person) over knows(x, y), knows(y, x)
"""


def web(n=60, wrong=7, hidden=0, seed=0):
    """Return pages whose words and links agree with their topics, except that the label of page `wrong` is not `a`."""
    rng = np.random.default_rng(seed)
    topic = np.array(["a", "b", "c"], dtype=object)[np.arange(n) % 3]
    topic[wrong] = {"a": "b", "b": "c", "c": "a"}[topic[wrong]]
    shown = pd.Series(topic).where(np.arange(n) >= hidden)
    words = [(p, f"{'abc'[p % 3]}{w}") for p in range(n) for w in range(4) if rng.random() < 0.6]
    links = [(p, (p + 3 * k) % n) for p in range(n) for k in (1, 2, 5)]
    return {
        "page": pd.DataFrame({"id": range(n), "topic": shown}),
        "page_word": pd.DataFrame(words, columns=["page", "word"]),
        "link": pd.DataFrame(links, columns=["x", "y"]),
    }


def friends(n=12, seed=0):
    age = np.random.default_rng(seed).integers(10, 70, size=n)
    pairs = [(x, y) for x in range(n) for y in range(n) if x != y and abs(age[x] - age[y]) < 12]
    return {"person": pd.DataFrame({"id": range(n), "age": age}), "knows": pd.DataFrame(pairs, columns=["x", "y"])}


@cache
def ground(hidden=0, seed=0):
    """Return the ground graph of `web`."""
    return relcrf.parse(MODEL).ground(relcrf.Dataset(web(hidden=hidden, seed=seed)))


@cache
def fit_web(backend, hidden=0, seed=0):
    """Return a model of `web`, which is trained once."""
    return api.fit(relcrf.parse(MODEL), ground(hidden, seed), backend)


def audited(backend, hidden=0, seed=0, folds=5):
    return api.audit_labels(fit_web(backend, hidden, seed).learned, ground(hidden, seed), AuditSettings(folds=folds))


@pytest.mark.parametrize("hidden", [0, 6])
@pytest.mark.parametrize(
    "backend", ["ess", "local", "dense", "pseudo", "chow-liu", "gated", "propagate", "smooth", "trmrf", "grafting"]
)
def test_planted_label_is_first_and_its_value_is_proposed(backend, hidden):
    found = audited(backend, hidden, folds=3)
    (block,) = found.blocks
    table = found.table(block)
    assert len(table) == 60 - hidden
    assert table.to_dicts(1)[0]["id"] == "7" and (table["observed"][0], table["proposed"][0]) == ("c", "b")
    assert (np.diff(table["p_observed"]) >= 0.0).all()
    np.testing.assert_allclose(table["log_odds"], np.log(table["p_proposed"] / table["p_observed"]), atol=1e-9)
    assert found.summary(block).labels == 60 - hidden and found.summary(block).improbable >= 1
    reason = find_reasons(found, found.ranking(block)[:1])
    assert reason and all("word" in text or "linked" in text for text in reason.values())


def test_labels_of_a_fold_do_not_teach_their_own_weights():
    """The probability of a label under the weights of its fold does not change if only the label itself changes."""
    model, data = relcrf.parse(MODEL), web(15)
    grounding = model.ground(relcrf.Dataset(data))
    learned = api.fit(model, grounding, "local").learned
    tables = []
    for state in (0, 1):
        states = grounding.states.copy()
        states[7] = state
        # With as many folds as labels, each label is the only one of its fold.
        found = api.audit_labels(learned, replace(grounding, states=states), AuditSettings(folds=15))
        (block,) = found.blocks
        tables.append(found.probabilities(block)[7])
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backend", ["dense", "local"])
def test_own_weights_hide_the_wrong_label(backend, seed):
    found, memorised = (audited(backend, seed=seed, folds=folds) for folds in (5, 0))
    (block,) = found.blocks
    assert found.table(block)["p_observed"][0] < 0.5 * memorised.table(block)["p_observed"][0]
    assert memorised.weights["backend"] == backend and found.weights["backend"] in ("pseudo", "local")


def test_tuples_of_a_closed_world_relation_are_labels():
    data = friends()
    data["knows"] = data["knows"].iloc[1:]
    missing = tuple(map(str, friends()["knows"].iloc[0]))
    model = relcrf.parse(LINKS)
    grounding = model.ground(relcrf.Dataset(data))
    found = api.audit_labels(api.fit(model, grounding, "ess").learned, grounding, AuditSettings())
    (block,) = found.blocks
    assert len(found.table(block)) == 12 * 11
    absent = found.table(block, "false")
    assert tuple(absent.to_dicts(1)[0][name] for name in ("x", "y")) == missing
    assert (found.table(block, "true")["observed"] == "true").all()


def test_estimate_of_errors_counts_confident_other_values():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.05, 0.95], [0.6, 0.4]])
    # Mean probabilities of the labels: (0.9 + 0.8 + 0.05) / 3 = 0.583 and (0.9 + 0.7 + 0.4) / 3 = 0.667.
    assert estimate_errors(probabilities, np.array([0, 0, 1, 1, 0, 1])) == 2


def test_frame_of_a_fit():
    data, fit = web(), fit_web("local")
    frame = fit.audit(data, folds=3)
    assert list(frame.columns) == ["id", "observed", "proposed", "p_observed", "p_proposed", "log_odds"]
    assert set(fit.audit(data, "Page.topic", observed="c", folds=3)["observed"]) == {"c"}


def test_local_run_is_audited_without_links():
    names = {
        backend: {one.name for one in select_systems(fit_web(backend).learned, ground())}
        for backend in ("local", "ess")
    }
    assert names == {"local": {"local"}, "ess": {"local", "pseudo"}}


def test_run_that_sums_out_unknown_labels_is_audited_by_its_backend():
    """Pseudo-likelihood learns nothing about votes for a value that has no labels."""
    truth = np.arange(60) % 3
    votes = np.stack([np.where(np.random.default_rng(k).random(60) < 0.2, (truth + 1) % 3, truth) for k in range(3)])
    tables = {"mail": pd.DataFrame({"id": range(60), **dict(zip("uvw", np.array(list("abc"))[votes], strict=True))})}
    text = "domain T = { a, b, c } entity Mail { predict t : T, predict u : T, predict v : T, predict w : T }"
    text += "".join(f"\ntemplate vote_{k}(m: Mail) over m.t == m.{k} init 1.0" for k in "uvw")
    tables["mail"]["t"] = None
    fit = relcrf.parse(text).fit(relcrf.Dataset(tables), "dense", unlabelled="marginal")
    audit = api.audit_labels(fit.learned, fit.ground(relcrf.Dataset(tables)), AuditSettings(folds=3))
    assert audit.weights["backend"] == "dense"
    for part in audit.parts:
        assert (np.abs(part.vectors["weights"] - 1.0) > 0.1).all()


def test_observed_values_are_validated_before_learning(monkeypatch):
    monkeypatch.setattr("relcrf.api.audit_labels", None)
    with pytest.raises(UsageError, match="unknown value 'd'"):
        fit_web("local").audit(ground(), observed="d")
    numbers = relcrf.parse("entity P { predict x: real } template t(p: P) over p.x")
    data = relcrf.Dataset({"p": {"id": ["a", "b", "c"], "x": [1.0, 2.0, 4.0]}})
    with pytest.raises(UsageError, match=r"selects labels, but P\.x is a number"):
        numbers.fit(data, "local").audit(data, observed="1.0")


def test_errors_of_audits():
    data, fit = web(), fit_web("local")
    without = {**data, "page": data["page"].assign(topic=None)}
    with pytest.raises(DataError, match=r"no value of Page\.topic is labelled"):
        fit.audit(without)
    with pytest.raises(UsageError, match="unknown value 'd'"):
        fit.audit(ground(), observed="d")
    with pytest.raises(UsageError, match="unknown predicted attribute 'topc'"):
        fit.audit(ground(), "topc")
    with pytest.raises(DataError, match="into 100 folds"):
        fit.audit(ground(), folds=100)
