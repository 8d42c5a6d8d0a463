"""Tests of the inputs of learned features that count the labels of neighbours."""

from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import relcrf
from relcrf import api
from relcrf.backends import run_folder
from relcrf.backends.problems import train_features
from relcrf.builder import ModelBuilder, classifier, fn, predict
from relcrf.errors import RelcrfError
from relcrf.evaluation.splits import make_folds
from relcrf.unaries import fitting
from relcrf.unaries.application import apply_features

MODEL = """
domain Topic = { theory, practice, history }
domain Kind = open
entity Paper { predict topic : Topic  kind : Kind  predict good : bool  x : real }
relation Cites(source: Paper, target: Paper)
feature f(p: Paper) = classifier of p.topic from p.x, AGGREGATE using "LogisticRegression(C=0.3)"
template score(p: Paper) over p.topic by 1, f(p)
template good(p: Paper) over p.good
"""
SUM = "sum { q.topic where Cites(p, q) and q.kind == new }"
N = 80
TOPICS = np.array(["theory", "practice", "history"], dtype=object)


def model(aggregate=SUM):
    return api.parse(MODEL.replace("AGGREGATE", aggregate).replace("domain Kind = open", "domain Kind = { old, new }"))


def make_tables(labelled=None):
    """Return papers that mostly cite papers of the same topic, themselves among them; labels are those of a mask."""
    rng = np.random.default_rng(2)
    topic = rng.integers(3, size=N)
    source, target = rng.integers(N, size=(2, 6 * N))
    kept = ((topic[source] == topic[target]) | (rng.random(6 * N) < 0.3)) & (source != target)
    pairs = np.unique(np.column_stack((source, target))[kept], axis=0)
    pairs = np.concatenate((pairs, np.repeat(np.arange(0, N, 3)[:, None], 2, axis=1)))  # a third cite themselves
    names = TOPICS[topic].copy()
    if labelled is not None:
        names[~labelled] = None
    paper = {
        "id": np.arange(N),
        "topic": names,
        "good": [bool(k % 2) for k in range(N)],
        "kind": np.array(["old", "new"], dtype=object)[(rng.random(N) < 0.8).astype(int)],
        "x": rng.normal(size=N),
    }
    return {"paper": paper, "cites": {"source": pairs[:, 0], "target": pairs[:, 1]}}


def naive_counts(tables, codes, known, is_mean):
    """Count the known labels of the new papers that each paper cites, except its own label."""
    out = np.zeros((N, 3))
    for p, q in zip(tables["cites"]["source"], tables["cites"]["target"], strict=True):
        if p != q and known[q] and tables["paper"]["kind"][q] == "new":
            out[p, codes[q]] += 1
    return out / np.maximum(out.sum(axis=1, keepdims=True), 1) if is_mean else out


def topic_mask(grounding):
    """Return the first variable of the topics and the mask of the labelled ones."""
    (block,) = (block for block in grounding.blocks if block.name == "Paper.topic")
    return block.start, grounding.states[block.start : block.start + N] >= 0


@contextmanager
def expect_error(code, text):
    with pytest.raises(RelcrfError) as caught:
        yield
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and text in diagnostic.message


@pytest.mark.parametrize("is_mean", [False, True])
def test_values_equal_plain_implementation(is_mean):
    """An estimator that scores a fold knows no label of this fold, and the inputs of a paper no label of its own fold."""
    missing = np.arange(N) % 5 == 4
    tables = make_tables(~missing)
    grounding = model(SUM.replace("sum", "mean") if is_mean else SUM).ground(relcrf.Dataset(tables))
    learned, (feature,) = train_features(grounding, grounding.states >= 0)
    first, known = topic_mask(grounding)
    codes, x = grounding.states[first : first + N], tables["paper"]["x"][:, None]
    rows = np.flatnonzero(known)
    component = np.zeros(N, dtype=int)  # the citations connect all papers
    fold = np.full(N, -1)
    fold[rows], by_component = fitting._assign_folds(codes[rows].astype(float), component, known, "classifier", 0)
    assert not by_component and fold.max() == 9

    def inputs(visible):
        counts = naive_counts(tables, codes, visible, is_mean)
        for k in range(10):
            counts[fold == k] = naive_counts(tables, codes, visible & (fold != k), is_mean)[fold == k]
        return np.concatenate((x, counts), axis=1)

    def predict_log(train, asked, visible):
        given = inputs(visible)
        center, scale = given[train].mean(axis=0), given[train].std(axis=0)
        scale[1:] = np.sqrt(given[train, 1:].var(axis=0).mean())  # the counts have a common unit
        scaled = (given - center) / scale
        plain = LogisticRegression(C=0.3).fit(scaled[train], codes[train])
        share = 1 / (len(train) + 1)
        return np.log((1 - share) * plain.predict_proba(scaled[asked]) + share / 3)

    expected = np.empty((N, 3))
    expected[~known] = predict_log(rows, np.flatnonzero(~known), known)
    for k in range(10):
        train = np.flatnonzero(known & (fold != k))
        expected[fold == k] = predict_log(train, np.flatnonzero(fold == k), known & (fold != k))
    expected /= feature.temperature
    found = learned.bound.learned_values["f"]
    np.testing.assert_allclose(found, expected - expected.mean(axis=1, keepdims=True), atol=2e-4)


def test_held_out_labels_change_no_value():
    tables = make_tables()
    grounding = model().ground(relcrf.Dataset(tables))
    first, _ = topic_mask(grounding)
    fold = make_folds(grounding, "random,folds=4")[0]
    hidden = np.flatnonzero(fold.test[first : first + N])
    changed = {**tables["paper"], "topic": tables["paper"]["topic"].copy()}
    changed["topic"][hidden] = [TOPICS[(list(TOPICS).index(topic) + 1) % 3] for topic in changed["topic"][hidden]]
    other = model().ground(relcrf.Dataset({**tables, "paper": changed}))
    values = []
    for each in (grounding, other):
        train_features(each, fold.train_mask(each.states >= 0))
        values.append(each.bound.learned_values["f"])
    assert (grounding.states != other.states).sum() == len(hidden)
    assert np.array_equal(*values)


def test_own_label_is_no_input():
    """Papers that cite only themselves have the value of papers that cite nothing."""
    tables = make_tables()
    tables["cites"] = {"source": np.arange(0, N, 2), "target": np.arange(0, N, 2)}
    tables["paper"]["x"] = np.zeros(N)
    fit = model().fit(relcrf.Dataset(tables), "local")
    grounding = relcrf.Model(fit.learned.spec).ground(relcrf.Dataset(tables))
    apply_features(grounding, fit.learned.learned_features, grounding.states >= 0)
    assert np.ptp(grounding.bound.learned_values["f"], axis=0).max() < 1e-9


def test_evidence_changes_predictions_of_a_stored_run(tmp_path):
    missing = np.arange(N) % 5 == 4
    fit = model().fit(relcrf.Dataset(make_tables(~missing)), "local")
    run_folder.save(fit.learned, tmp_path / "run", {})
    loaded = api.Fit(run_folder.load(tmp_path / "run"))
    few = missing | (np.arange(N) % 2 == 0)
    with_labels, without = (relcrf.Dataset(make_tables(~mask)) for mask in (missing, few))
    expected, changed = fit.predict(with_labels), fit.predict(without)
    assert np.array_equal(
        loaded.predict(with_labels).probabilities("Paper.topic"), expected.probabilities("Paper.topic")
    )
    tables, grounding = make_tables(~missing), model().ground(with_labels)
    first, known = topic_mask(grounding)
    hidden = np.zeros(grounding.graph.n_variables, dtype=bool)
    hidden[first : first + N] = few & ~missing
    again = api.predict(fit, grounding, hidden=hidden)
    assert known.sum() == (~missing).sum() and len(tables["paper"]["id"]) == N
    shared = np.isin(changed.variables("Paper.topic"), expected.variables("Paper.topic"))
    assert not np.allclose(changed.probabilities("Paper.topic")[shared], expected.probabilities("Paper.topic"))
    np.testing.assert_allclose(again.probabilities("Paper.topic"), changed.probabilities("Paper.topic"), atol=1e-9)


def test_boosting_learns_that_each_group_has_one_leader(monkeypatch):
    """The number of known leaders of a group determines a label, but no weight of pairs does: groups have several sizes."""
    monkeypatch.setattr(fitting, "N_FOLDS", 3)  # takes a third of the time
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(60), rng.integers(3, 9, 60))
    leader = np.array([rng.choice(np.flatnonzero(group == g)) for g in range(60)])
    is_leader = np.isin(np.arange(len(group)), leader)
    text = """
    domain Group = open
    entity Person { predict leads: bool }
    relation Member(person: Person, team: Group)
    feature f(p: Person) = classifier of p.leads from sum { q.leads where Member(p, t) and Member(q, t) } using boosting
    template f(p: Person) over p.leads by 1, f(p)
    """
    person = {"id": np.arange(len(group)), "leads": is_leader}
    member = {"person": np.arange(len(group)), "team": [f"g{g}" for g in group]}
    grounding = api.parse(text).ground(relcrf.Dataset({"person": person, "member": member}))
    for fold in make_folds(grounding, "random,folds=5")[:1]:
        train_features(grounding, fold.train_mask(grounding.states >= 0))
        assert roc_auc_score(is_leader[fold.test], grounding.bound.learned_values["f"][fold.test, 0]) > 0.9


def test_folds_contain_whole_components_of_neighbours():
    """Labels that are missing in whole groups have no labelled neighbours; neither have the labels of a fold."""
    group = np.repeat(np.arange(30), 4)
    topic = TOPICS[np.random.default_rng(0).integers(3, size=120)]
    topic[group % 3 == 2] = None
    text = """
    domain Topic = { theory, practice, history }
    domain Group = open
    entity Paper { predict topic : Topic  x : real }
    relation Member(paper: Paper, team: Group)
    feature f(p: Paper) = classifier of p.topic from p.x, sum { q.topic where Member(p, t) and Member(q, t) } using linear
    template f(p: Paper) over p.topic by f(p)
    """
    paper = {"id": np.arange(120), "topic": topic, "x": np.arange(120.0)}
    member = {"paper": np.arange(120), "team": [f"g{g}" for g in group]}
    grounding = api.parse(text).ground(relcrf.Dataset({"paper": paper, "member": member}))
    _, (feature,) = train_features(grounding, grounding.states >= 0)
    assert feature.summary["folds"] == "10 of components"


def test_leak_report_and_default_backend():
    missing = np.arange(N) % 5 == 4
    grounding = model().ground(relcrf.Dataset(make_tables(~missing)))
    found = api.evaluate(grounding, ["auto"], "random,folds=3")
    assert np.isfinite(found.predictions.pooled("auto", "Paper.topic").probabilities).all()


@pytest.mark.parametrize(
    ("aggregate", "code", "text"),
    [
        ("sum { q.good where Cites(p, q) }", "E149", "'q.good' is not its target"),
        ("sum { q.topic where Cites(p, q) and q.good }", "E124", "'q.good', which is random"),
        ("sum { q.topic where Cites(r, q) }", "E148", "does not depend on exactly one entity"),
        ("max { q.topic where Cites(p, q) }", "E110", "expected a number"),
        ("sum { p.topic where Cites(p, q) }", "E149", "'p.topic' is not its target"),
    ],
)
def test_invalid_aggregates(aggregate, code, text):
    with expect_error(code, text):
        model(aggregate)


def test_regressor_has_no_labels_of_neighbours():
    with expect_error("E149", "'q.level' is not its target"):
        api.parse(
            "entity Paper { predict level : 1..5  x : real }\nrelation Cites(a: Paper, b: Paper)\n"
            "feature f(p: Paper) = regressor of p.level from mean { q.level where Cites(p, q) }\n"
            "template t(p: Paper) over p.level by f(p)"
        )


def test_builder():
    m = ModelBuilder()
    paper = m.entity("Paper", good=predict(bool), x=float)
    cites = m.relation("Cites", source=paper, target=paper)
    p, q = paper.names("p q")
    f = m.feature("f", p, classifier(p.good, p.x, fn.mean(q.good, where=cites(p, q))))
    m.template("t", p).over(p.good).by(f(p))
    assert "mean { q.good where Cites(p, q) }" in str(m.build())
