"""Tests of learned features: values, weights, storage, and errors."""

import json
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import relcrf
from relcrf import api
from relcrf.backends import problems, run_folder
from relcrf.backends.problems import train_features, training_problem
from relcrf.builder import ModelBuilder, classifier, predict, regressor
from relcrf.errors import RelcrfError
from relcrf.evaluation.splits import make_folds
from relcrf.grounding.learned_values import LearnedInput, read_inputs, read_target
from relcrf.unaries import estimators, fitting, storage
from relcrf.unaries.application import apply_features

DECLARATIONS = """
domain Topic = { theory, practice, history }
domain Word = open
domain Venue = open

entity Paper {
    predict topic : Topic
    good          : bool
    level         : 1..5
    words         : bag of Word
    venue         : Venue
    journal       : string
    title         : string
    x             : real
    y             : real
    seen          : date
    pixels        : vector
}

relation Cites(source: Paper, target: Paper)
"""
ALL_INPUTS = """p.x, p.y, p.good, p.level, p.words, p.venue, p.journal, p.title, p.seen, p.pixels, tfidf(p.words),
    count { q where Cites(q, p) }, mean { q.x where Cites(p, q) }"""


@contextmanager
def expect_error(code, hint=""):
    with pytest.raises(RelcrfError) as caught:
        yield
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, hint in diagnostic.hint) == (code, True)


def model(feature, templates="template score(p: Paper) over p.topic by f(p)"):
    return api.parse(f"{DECLARATIONS}\nfeature f(p: Paper) = {feature}\n{templates}")


@pytest.fixture(scope="module")
def tables():
    """Return tables of 90 papers, in which x and y determine most topics; a sixth of the topics are missing."""
    rng = np.random.default_rng(1)
    n = 90
    topic = rng.integers(0, 3, n)
    names = np.array(["theory", "practice", "history"], dtype=object)
    angle = topic * 2.1 + rng.normal(0, 0.6, n)
    x, y = np.cos(angle), np.sin(angle)
    paper = {
        "id": np.arange(n),
        "topic": np.where(np.arange(n) % 6 == 5, None, names[topic]),
        "good": [None if k % 9 == 0 else bool(k % 2) for k in range(n)],
        "level": [int(v) for v in rng.integers(1, 6, n)],
        "venue": np.array(["a", "b", "c"], dtype=object)[rng.integers(0, 3, n)],
        "journal": np.array(["j1", "j2", None], dtype=object)[rng.integers(0, 3, n)],
        "title": [f"title {names[t]} {k}" for k, t in enumerate(topic)],
        "x": [None if k % 11 == 0 else float(v) for k, v in enumerate(x)],
        "y": y,
        "seen": [f"20{10 + k % 10}-01-1{k % 9}" for k in range(n)],
        "pixels_0": x + rng.normal(0, 0.1, n),
        "pixels_1": 100 * y,
    }
    words = {
        "paper": np.repeat(np.arange(n), 2),
        "word": [f"w{w}" for w in np.repeat(topic, 2) * 3 + rng.integers(0, 5, 2 * n)],
    }
    cites = {"source": np.arange(0, n - 2), "target": np.arange(2, n)}
    return {"paper": paper, "paper_words": words, "cites": cites}


@pytest.fixture(scope="module")
def data(tables):
    return relcrf.Dataset(tables)


@pytest.fixture
def few_folds(monkeypatch):
    """Train with three folds, in a third of the time, where their number does not matter."""
    monkeypatch.setattr(fitting, "N_FOLDS", 3)


def learn(spec, data):
    grounding = spec.ground(data)
    learned, features = train_features(grounding, grounding.states >= 0)
    return grounding, learned, features


def values_of(grounding):
    return grounding.bound.learned_values["f"]


def test_values_equal_plain_implementation(data, tables):
    grounding, learned, (feature,) = learn(
        model('classifier of p.topic from p.y using "LogisticRegression(C=0.5)"'), data
    )
    known, codes = grounding.states >= 0, grounding.states
    y = tables["paper"]["y"][:, None]
    fold, _ = fitting._assign_folds(codes[known].astype(float), np.arange(len(known)), known, "classifier", 0)
    expected = np.empty((len(y), 3))

    def predict(train, rows):
        scaler = StandardScaler().fit(y[train])
        plain = LogisticRegression(C=0.5).fit(scaler.transform(y[train]), codes[train])
        p = plain.predict_proba(scaler.transform(y[rows]))
        share = 1 / (len(train) + 1)
        return np.log((1 - share) * p + share / 3)

    labelled = np.flatnonzero(known)
    for k in range(fold.max() + 1):
        expected[labelled[fold == k]] = predict(labelled[fold != k], labelled[fold == k])
    expected[~known] = predict(labelled, np.flatnonzero(~known))
    expected /= feature.temperature
    assert fold.max() == fitting.N_FOLDS - 1
    np.testing.assert_allclose(values_of(learned), expected - expected.mean(axis=1, keepdims=True), atol=1e-6)


def test_soft_targets_equal_plain_implementation(data, tables):
    """The targets of a paper without a label are all topics, with weights that depend on the labels outside the fold."""
    spec = model('classifier of p.topic from p.y using "LogisticRegression(C=0.5)" joint 1')
    grounding = spec.ground(data)
    known, codes = grounding.states >= 0, grounding.states
    labelled, others = np.flatnonzero(known), np.flatnonzero(~known)
    y = tables["paper"]["y"][:, None]
    feature = grounding.spec.feature("f")

    def soft_targets(mask):
        rows = np.random.default_rng(mask.sum() + int(np.flatnonzero(~mask)[0])).dirichlet(np.ones(3), len(others))
        return rows / rows.sum(axis=1, keepdims=True)

    fold, _ = fitting._assign_folds(codes[known].astype(float), np.arange(90), known, "classifier", 0)
    expected = np.empty((90, 3))

    def predict(train, rows):
        mask = np.isin(np.arange(90), train)
        entities = np.concatenate((train, others))
        scaler = StandardScaler().fit(y[entities])
        repeated = np.concatenate((train, np.repeat(others, 3)))
        topics = np.concatenate((codes[train], np.tile(np.arange(3), len(others))))
        soft = soft_targets(mask)
        weights = np.concatenate((np.ones(len(train)), np.where(soft >= fitting.MIN_SOFT_WEIGHT, soft, 0).ravel()))
        plain = LogisticRegression(C=0.5).fit(scaler.transform(y[repeated]), topics, weights)
        share = 1 / (len(train) + 1)
        return np.log((1 - share) * plain.predict_proba(scaler.transform(y[rows])) + share / 3)

    for k in range(fold.max() + 1):
        expected[labelled[fold == k]] = predict(labelled[fold != k], labelled[fold == k])
    expected[others] = predict(labelled, others)
    inputs, target = read_inputs(grounding.bound, feature), read_target(grounding, feature)
    fitted, values = fitting.cross_fit(feature, inputs, target, known, np.arange(90), 0, soft_targets)
    expected /= fitted.temperature
    np.testing.assert_allclose(values, expected - expected.mean(axis=1, keepdims=True), atol=1e-3)


COMMUNITIES = """
domain Topic = open
domain Word = open
entity Paper { predict topic : Topic  words : bag of Word }
relation Cites(source: Paper, target: Paper)
feature f(p: Paper) = classifier of p.topic from p.words using linear
template opinion(p: Paper) over p.topic by 1, f(p)
template linked(p: Paper, q: Paper) where Cites(p, q) over symmetric p.topic, q.topic
"""


def communities(n=240, n_labels=36):
    """Return papers that mostly cite papers of their topic, with labels for a few; most words occur on few labelled papers."""
    rng = np.random.default_rng(3)
    topic = rng.integers(3, size=n)
    same = [np.flatnonzero(topic == k) for k in range(3)]
    source = np.repeat(np.arange(n), 3)
    near = np.array([rng.choice(same[topic[k]]) for k in source])
    target = np.where(rng.random(3 * n) < 0.9, near, rng.integers(n, size=3 * n))
    word = np.where(rng.random(4 * n) < 0.5, 60 * np.repeat(topic, 4), 0) + rng.integers(60, size=4 * n)
    labels = np.array(["x", "y", "z"], dtype=object)[topic]
    labels[n_labels:] = None
    paper = {"id": np.arange(n), "topic": labels}
    words = {"paper": np.repeat(np.arange(n), 4), "word": [f"w{w}" for w in word]}
    keep = source != target
    cites = {"source": source[keep], "target": target[keep]}
    return topic, relcrf.Dataset({"paper": paper, "paper_words": words, "cites": cites})


def test_joint_rounds_use_unlabelled_papers():
    topic, data = communities()
    accuracy = {}
    for joint in ("", " joint 1"):
        spec = api.parse(COMMUNITIES.replace("using linear", f"using linear{joint}"))
        _, learned, (feature,) = learn(spec, data)
        accuracy[joint] = (values_of(learned)[36:].argmax(axis=1) == topic[36:]).mean()
        assert feature.summary.get("joint_rounds", 0) == bool(joint)
    assert accuracy[" joint 1"] > accuracy[""] + 0.1


def test_no_joint_rounds_if_all_papers_are_labelled():
    _, data = communities(n=60, n_labels=60)
    _, _, (feature,) = learn(api.parse(COMMUNITIES.replace("using linear", "using linear joint 2")), data)
    assert feature.summary["joint_rounds"] == 0


def test_labels_of_a_fold_are_no_evidence_of_its_soft_targets(monkeypatch):
    _, data = communities()
    spec = api.parse(COMMUNITIES.replace("using linear", "using linear joint 3"))
    known, rounds = spec.ground(data).states >= 0, []

    def learn_marginals(grounding, problem):
        masks = []
        rounds.append(masks)

        def marginals(evidence, variables, n_states):
            masks.append(evidence)
            return np.full((variables.stop - variables.start, n_states), 1 / n_states)

        return marginals

    monkeypatch.setattr(problems, "learn_marginals", learn_marginals)
    learn(spec, data)
    masks = rounds[0]
    assert len(masks) == 11 and np.array_equal(masks[-1], known)
    hidden = np.array([known & ~mask for mask in masks[:-1]])
    assert np.array_equal(hidden.sum(axis=0), known) and not (np.array(masks) & ~known).any()


def test_average_of_a_linear_model_and_boosting(tables, few_folds):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 90))
    is_theory = 2 * x + 3 * (np.abs(y) < 0.7) + rng.normal(size=90) > 1.5
    paper = {**tables["paper"], "x": x, "y": y, "topic": np.where(is_theory, "theory", "practice")}
    data, scores, losses = relcrf.Dataset({**tables, "paper": paper}), [], []
    for using in ("", "using linear", "using boosting"):
        _, learned, (feature,) = learn(model(f"classifier of p.topic from p.x, p.y {using}"), data)
        scores.append(values_of(learned) * feature.temperature)
        losses.append(feature.summary["out_of_fold_loss"])
        plain = json.loads(json.dumps(storage.to_json(feature)))
        loaded = storage.from_json(plain, storage.dump_estimator(feature))
        inputs = read_inputs(learned.bound, learned.spec.feature("f"))
        assert np.array_equal(loaded.scores(inputs, 3), feature.scores(inputs, 3))
    assert losses[0] < min(losses[1:])
    np.testing.assert_allclose(scores[0], (scores[1] + scores[2]) / 2, atol=1e-6)


def test_temperature_minimises_smoothed_loss():
    rng = np.random.default_rng(0)
    codes, raw = rng.integers(0, 3, 300), rng.normal(size=(300, 3))
    raw[np.arange(300), codes] += 1.5
    raw -= np.log(np.exp(raw).sum(axis=1, keepdims=True))
    n = np.bincount(codes)[codes]

    def loss(t):
        p = np.exp(raw / t) / np.exp(raw / t).sum(axis=1, keepdims=True)
        target = np.repeat((1 / (n + 2) / 2)[:, None], 3, axis=1)
        target[np.arange(300), codes] = (n + 1) / (n + 2)
        return -(target * np.log(p)).sum(axis=1).mean()

    found = fitting._fit_temperature(raw * 4, codes, fitting._platt_smoothing(codes))
    grid = np.linspace(0.4, 2, 161)
    assert found / 4 == pytest.approx(grid[np.argmin([loss(t) for t in grid])], abs=0.02)


def test_fixed_template_predicts_as_classifier(data, few_folds):
    spec = model(
        "classifier of p.topic from p.x, p.y using boosting", "template s(p: Paper) over p.topic by 1, f(p) fixed"
    )
    fit = spec.fit(data, "local")
    prediction = fit.predict(data)
    values = fit.learned.learned_features[0].scores(_inputs(fit, data), 3)
    expected = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(prediction.probabilities(), expected[prediction.inferred.variables], atol=1e-6)
    assert [row["feature"] for row in fit.weights().to_dicts()][:9:3] == ["1", "f(p)[theory]", "f(p)[practice]"]


def _inputs(fit, data):
    grounding = relcrf.Model(fit.learned.spec).ground(data)
    return read_inputs(grounding.bound, grounding.spec.feature("f"))


@pytest.mark.parametrize("estimator", ["", "using boosting", "using linear", "using KNeighborsClassifier"])
def test_all_kinds_of_inputs(data, tmp_path, estimator, few_folds):
    spec = model(f"classifier of p.topic from {ALL_INPUTS} {estimator}")
    fit = spec.fit(data, "local")
    (feature,) = fit.learned.learned_features
    assert feature.summary["out_of_fold_accuracy"] > 0.6
    run_folder.save(fit.learned, tmp_path / "run", {})
    loaded = api.Fit(run_folder.load(tmp_path / "run"))
    assert np.array_equal(loaded.predict(data).probabilities(), fit.predict(data).probabilities())


def test_equal_estimators_have_equal_files(data):
    spec = model("classifier of p.topic from p.x, p.words using linear")
    first, second = (storage.dump_estimator(learn(spec, data)[2][0]) for _ in range(2))
    assert first == second


def test_values_of_other_targets(data):
    text = f"""{DECLARATIONS}
    feature f(p: Paper): real = classifier of p.good from p.y, p.level using linear
    feature g(p: Paper): real = regressor of p.x from p.pixels using linear
    feature h(p: Paper) = regressor of p.level from p.y
    feature k(p: Paper) = classifier of p.level from p.y using linear
    template s(p: Paper) over p.topic by f(p), g(p), h(p), k(p)"""
    grounding, learned, _ = learn(api.parse(text), data)
    values = grounding.bound.learned_values
    assert {name: each.shape for name, each in values.items()} == {
        "f": (90, 1),
        "g": (90, 1),
        "h": (90, 1),
        "k": (90, 5),
    }
    assert all(np.isfinite(each).all() for each in values.values())
    names = learned.templates[0].features
    assert names == ("f(p)", "g(p)", "h(p)", *(f"k(p)[{level}]" for level in range(1, 6)))
    assert not learned.graph.layout.initial().any()  # no feature is a classifier of the topic


def test_values_do_not_depend_on_held_out_labels(tables, few_folds):
    spec = model("classifier of p.topic from p.x, p.y, p.words")
    hidden = np.arange(90) % 4 == 0
    swapped = {**tables["paper"], "topic": np.where(hidden, "history", tables["paper"]["topic"])}
    probabilities = []
    for paper in (tables["paper"], swapped):
        grounding = spec.ground(relcrf.Dataset({**tables, "paper": paper}))
        fit = api.fit(spec, grounding, "local", hidden=hidden)
        queried = hidden & (grounding.states >= 0)
        predicted = api.predict(fit, grounding, hidden=hidden)
        probabilities.append(predicted.probabilities()[np.isin(predicted.inferred.variables, np.flatnonzero(queried))])
    assert np.array_equal(*probabilities)


def test_folds_train_separate_features(data, few_folds):
    spec = model("classifier of p.topic from p.x, p.y using linear")
    grounding = spec.ground(data)
    folds = make_folds(grounding, "random,folds=3")
    for fold in folds:
        learned, _ = train_features(grounding, fold.train_mask(grounding.states >= 0))
        problem = fold.learning_problem(training_problem(grounding, learn=False))
        assert np.array_equal(problem.graph.groups[0].features.values, learned.graph.groups[0].features.values)
    evaluation = api.evaluate(grounding, ["local"], "random,folds=3")
    assert evaluation.predictions.score("local", "Paper.topic").accuracy > 0.6


@pytest.mark.parametrize("missing", ["nothing", "components"])
def test_folds_follow_components(missing):
    component = np.arange(80) // 4
    labelled = component < (20 if missing == "nothing" else 15)
    labels = np.arange(labelled.sum()) % 2 * 1.0
    fold, whole = fitting._assign_folds(labels, component, labelled, "classifier", 0)
    assert whole and all(len(set(fold[component[labelled] == c])) == 1 for c in range(15))
    giant, whole = fitting._assign_folds(labels, np.minimum(component, 1), labelled, "classifier", 0)
    assert not whole and len(set(giant[4:])) == 10


def test_folds_divide_components_as_missing_labels_do():
    component = np.arange(80) // 4
    labelled = np.arange(80) % 4 < 3
    fold, whole = fitting._assign_folds(np.zeros(60), component, labelled, "regressor", 0)
    assert not whole and np.bincount(fold).tolist() == [6] * 10


def test_functions_and_propagation_of_learned_features(data):
    text = f"""{DECLARATIONS}
    feature f(p: Paper) = classifier of p.topic from p.x, p.y using linear
    feature near(p: Paper) = propagate 1 f(p) along Cites normalised mean
    feature scaled(p: Paper) = standardise(f(p))
    template s(p: Paper) over p.topic by near(p), scaled(p)
    template t(p: Paper, q: Paper) where Cites(p, q) over p.topic by f(q)"""
    grounding, learned, features = learn(api.parse(text), data)
    values = values_of(learned)
    by_topic = learned.graph.groups[0].features.values[np.argsort(learned.graph.groups[0].scope[0])]
    np.testing.assert_allclose(by_topic[0, :3], values[[0, 2]].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(by_topic[:, 3:].mean(axis=0), 0, atol=1e-6)
    again = apply_features(grounding, features, grounding.states >= 0)
    assert not np.array_equal(again.graph.groups[0].features.values, learned.graph.groups[0].features.values)


def test_new_values_at_prediction(data, tables, few_folds):
    fit = model(f"classifier of p.topic from {ALL_INPUTS}").fit(data, "local")
    paper = {name: values[:5] for name, values in tables["paper"].items()}
    new = {
        **paper,
        "venue": ["new"] * 5,
        "journal": ["other"] * 5,
        "topic": np.array([None] * 4 + ["theory"], dtype=object),
    }
    words = {"paper": [0, 1, 2], "word": ["unseen", "w1", "w2"]}
    predicted = fit.predict(
        relcrf.Dataset({"paper": new, "paper_words": words, "cites": {"source": [0], "target": [1]}})
    )
    assert np.isfinite(predicted.probabilities()).all() and predicted.probabilities().shape == (4, 3)


def test_category_with_one_label(tables, few_folds):
    topic = tables["paper"]["topic"].copy()
    topic[:] = [None if t == "history" and k > 20 else t for k, t in enumerate(topic)]
    topic[np.flatnonzero(topic == "history")[1:]] = None
    assert (topic == "history").sum() == 1
    fit = model("classifier of p.topic from p.x, p.y").fit(
        relcrf.Dataset({**tables, "paper": {**tables["paper"], "topic": topic}}), "local"
    )
    assert np.isfinite(fit.learned.vectors["weights"]).all()


def test_category_with_one_label_among_many():
    """Above 10,000 labels, boosting holds out labels of each class, to stop early."""
    numbers, labels = np.arange(10_010.0), np.zeros(10_010)
    labels[5000:], labels[7] = 1.0, 2.0
    targets = fitting._Targets.collect(
        [LearnedInput("x", "number", numbers[:, None])], labels >= 0, labels >= 0, labels, None
    )
    spec = estimators.EstimatorSpec("HistGradientBoostingClassifier", {"max_iter": 1})
    assert fitting._Trial(None, spec, "classifier", 3, 0).fit(targets).model.classes_.tolist() == [0, 1, 2]


def test_builder_declares_learned_features(data):
    m = ModelBuilder()
    topic = m.domain("Topic", ["theory", "practice", "history"])
    paper = m.entity("Paper", topic=predict(topic), x=float, y=float)
    p = paper("p")
    f = m.feature("f", p, classifier(p.topic, p.y, using="linear", joint=2))
    g = m.feature("g", p, regressor(p.x, p.y))
    m.template("s", p).over(p.topic).by(f(p), g(p))
    text = m.build().to_rcrf()
    assert "classifier of p.topic from p.y using linear joint 2" in text and api.parse(text).spec == m.build().spec


class TestErrors:
    @pytest.mark.parametrize(
        ("estimator", "code"),
        [
            ("RandomForest", "E437"),
            ('"LogisticRegression(c=1)"', "E437"),
            ('"__import__(1)"', "E437"),
            ('"LogisticRegression(C=open)"', "E437"),
            ("Ridge", "E437"),
            ('"KNeighborsClassifier(n_neighbors=500)"', "E439"),
            ('"LogisticRegression(C=-1.0)"', "E439"),
        ],
    )
    def test_estimator(self, data, estimator, code):
        with expect_error(code):
            model(f"classifier of p.topic from p.y using {estimator}").fit(data, "local")

    def test_missing_packages(self, data, monkeypatch):
        with expect_error("E437", hint="pip install lightgbm"):
            monkeypatch.setitem(sys.modules, "lightgbm", None)
            model("classifier of p.topic from p.y using LGBMClassifier").fit(data, "local")
        monkeypatch.setattr(estimators, "find_spec", lambda name: None if name == "skops" else name)
        with expect_error("E437", hint="relcrf[sklearn]"):
            model("classifier of p.topic from p.y").fit(data, "local")

    def test_joint_needs_weights(self, data):
        with expect_error("E437", "remove 'joint'"):
            model("classifier of p.topic from p.y using KNeighborsClassifier joint 1").fit(data, "local")

    def test_text_of_one_value(self, tables):
        paper = {**tables["paper"], "title": ["same"] * 90}
        with expect_error("E438"):
            model("classifier of p.topic from p.title").fit(relcrf.Dataset({**tables, "paper": paper}), "local")

    def test_one_class(self, tables):
        topic = np.where(np.arange(90) < 9, "theory", None)
        paper = {**tables["paper"], "topic": topic}
        with expect_error("E439"):
            model("classifier of p.topic from p.y").fit(relcrf.Dataset({**tables, "paper": paper}), "local")

    def test_file_with_code_is_not_loaded(self, data, tmp_path):
        fit = model("classifier of p.topic from p.y using linear").fit(data, "local")
        run_folder.save(fit.learned, tmp_path / "run", {})
        (feature,) = fit.learned.learned_features
        unsafe = {"transformers": [FunctionTransformer(func=sys.exit)], "model": feature.members[0].model}
        content = skops.io.dumps([unsafe])
        with expect_error("E440"):
            storage.from_json(json.loads(json.dumps(storage.to_json(feature))), content)
        (tmp_path / "run" / storage.file_name("f")).write_bytes(content)
        with expect_error("E336"):
            run_folder.load(tmp_path / "run")

    def test_damaged_file(self, data):
        (feature,) = model("classifier of p.topic from p.y using linear").fit(data, "local").learned.learned_features
        plain = storage.to_json(feature)
        with expect_error("E440"):
            storage.from_json(plain, b"PK damaged")
