"""Training with unlabelled variables: self-training against plain NumPy, and the marginal likelihood by enumeration."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from interrupted import assert_goes_on
from networks import joint_states
from scipy.special import logsumexp

import relcrf
from relcrf import api
from relcrf.backends.base import Monitor
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import backend_class, make_backend
from relcrf.errors import UsageError
from relcrf.evaluation.splits import make_folds
from relcrf.execution.serial import SerialExecutor
from relcrf.graph.reduction import Role
from relcrf.resources import resource_path
from relcrf.settings import setting_names

MODEL = """
domain Topic = { x, y, z }
entity Paper { predict topic : Topic
               first : real
               second : real
               year : integer }
relation Cites(a: Paper, b: Paper)
template prior(p: Paper) over p.topic
template first(p: Paper) over p.topic by p.first
template second(p: Paper) over p.topic by p.second l2 0.5
template linked(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic
"""
LATENT = """
template hidden_kind(p: Paper) over p.kind by p.first
template kinds(p: Paper) over p.kind, p.topic
"""
SETTINGS = {"l2": 0.2, "tolerance": 1e-8}
BACKENDS = ("local", "pseudo", "ess", "dense", "chow-liu", "smooth", "gated")
TOPICS = np.array(["x", "y", "z"], dtype=object)


class World:
    """Papers in three clusters; links join neighbours in a random order, mostly of one topic."""

    def __init__(self, n=60, labels=18, seed=0, model=MODEL, size=None):
        """Make `n` papers, of which the tables contain the first `size`."""
        rng = np.random.default_rng(seed)
        self.truth = rng.integers(3, size=n)
        angle = 2 * np.pi * self.truth / 3
        self.features = np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(scale=0.6, size=(n, 2))
        self.known = np.arange(n) < labels
        order = np.argsort(self.truth + rng.random(n), kind="stable")
        topic = [TOPICS[t] if known else None for t, known in zip(self.truth, self.known, strict=True)]
        paper = {"id": range(n), "topic": topic, "year": np.arange(n) // 6}
        paper |= {"first": self.features[:, 0], "second": self.features[:, 1]}
        cites = pd.DataFrame({"a": order[:-1], "b": order[1:]})
        if size:
            paper, cites = {name: column[:size] for name, column in paper.items()}, cites[(cites < size).all(axis=1)]
        self.model = relcrf.parse(model)
        self.grounding = self.model.ground(relcrf.Dataset({"paper": pd.DataFrame(paper), "cites": cites}))
        self.problem = training_problem(self.grounding)

    def fit(self, backend, problem=None, **settings):
        names = setting_names(backend_class(backend))
        system = make_backend(backend, **{k: v for k, v in SETTINGS.items() if k in names} | settings)
        return system.fit(self.problem if problem is None else problem, Monitor())


@pytest.fixture(scope="module")
def world():
    return World()


def logistic(features, labels, rows, factor):
    """Return the weights, shape (3, 3), of logistic regression by Newton's method; rows are prior, first and second."""
    x, target = np.column_stack([np.ones(len(features)), features])[rows], np.eye(3)[labels[rows]]
    penalty, weights = np.repeat(factor * np.array([0.2, 0.2, 0.5]), 3), np.zeros(9)
    for _ in range(50):
        p = predict(features, weights.reshape(3, 3))[rows]
        gradient = (x.T @ (p - target)).ravel() + penalty * weights
        second = [np.diag(row) - np.outer(row, row) for row in p]
        hessian = sum(np.kron(np.outer(a, a), b) for a, b in zip(x, second, strict=True)) + np.diag(penalty)
        weights -= np.linalg.solve(hessian, gradient)
    return weights.reshape(3, 3)


def predict(features, weights):
    scores = np.column_stack([np.ones(len(features)), features]) @ weights
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def most_certain(world, p, quota):
    """Return the targets if each state has the given number of predictions, the most certain ones first."""
    targets, modes = np.where(world.known, world.truth, -1), p.argmax(axis=1)
    for state in range(3):
        papers = [k for k in np.argsort(-p.max(axis=1)) if not world.known[k] and modes[k] == state]
        targets[papers[: int(quota[state])]] = state
    return targets


def plain_self_training(world, threshold, rounds, fraction=0.0):
    """Return the weights, the targets and the number of rounds of self-training by threshold or by `fraction`."""
    n_rounds, n_labels, targets = 0, int(world.known.sum()), np.where(world.known, world.truth, -1)
    weights = logistic(world.features, targets, np.flatnonzero(world.known), 1.0)
    while n_rounds < rounds:
        p = predict(world.features, weights)
        found = np.where(world.known, world.truth, np.where(p.max(axis=1) >= threshold, p.argmax(axis=1), -1))
        if fraction:
            growth = (fraction * (~world.known).sum() / n_labels) ** ((n_rounds + 1) / rounds)
            found = most_certain(world, p, np.ceil(growth * np.bincount(world.truth[world.known], minlength=3)))
        if not fraction and (found == targets).all():
            break
        targets, n_rounds = found, n_rounds + 1
        weights = logistic(world.features, targets, np.flatnonzero(targets >= 0), (targets >= 0).sum() / n_labels)
    return weights, targets, n_rounds


@pytest.mark.parametrize("treatment", ["self", "em"])
@pytest.mark.parametrize(("threshold", "rounds"), [(0.9, 1), (0.8, 3), (0.0, 2)])
def test_self_training_equals_plain_implementation(world, treatment, threshold, rounds):
    found = world.fit("local", unlabelled=treatment, threshold=threshold, rounds=rounds)
    weights, targets, n_rounds = plain_self_training(world, threshold, rounds)
    np.testing.assert_allclose(found.vectors["weights"][:9].reshape(3, 3), weights, atol=1e-4)
    assert found.summary["predicted_targets"] == (targets >= 0).sum() - world.known.sum() > 0
    assert found.summary["self_training_rounds"] == n_rounds > 0
    assert found.stages[0][0] == "weights" and len(found.stages) == n_rounds + 1


@pytest.mark.parametrize("treatment", ["self", "em"])
@pytest.mark.parametrize(("fraction", "rounds"), [(0.5, 1), (0.5, 3), (0.9, 2)])
def test_growing_fraction_equals_plain_implementation(treatment, fraction, rounds):
    world = World(labels=9)
    found = world.fit("local", unlabelled=treatment, fraction=fraction, rounds=rounds)
    weights, targets, n_rounds = plain_self_training(world, 0.0, rounds, fraction)
    np.testing.assert_allclose(found.vectors["weights"][:9].reshape(3, 3), weights, atol=1e-4)
    assert found.summary["predicted_targets"] == (targets >= 0).sum() - world.known.sum()
    assert 0.7 * fraction * 51 < found.summary["predicted_targets"] <= fraction * 51 + 3
    assert found.summary["self_training_rounds"] == n_rounds == rounds


def test_fewer_targets_than_labels():
    world = World(n=30, labels=20)
    found = world.fit("local", unlabelled="self", fraction=0.3)
    labels = np.bincount(world.truth[world.known], minlength=3)
    assert 0 < found.summary["predicted_targets"] <= np.ceil(3 * labels / 20).sum()


GATED_PENALTIES = {"l2": 0.2, "gate_l2": 0.01, "evidence_l2": 2.0, "deviation_l2": 3.0}


def plain_gated_self_training(world, treatment, threshold, rounds):
    """Fit, predict with all labels as evidence, add the confident predictions as labels, and fit again with penalties
    that grow with the number of labels; `em` learns the weights of factors over one variable by logistic regression."""
    targets, n_rounds = np.where(world.known, world.truth, -1), 0
    system = make_backend("gated", tolerance=1e-8, **GATED_PENALTIES)
    vectors = system.fit(world.problem, Monitor()).vectors
    while n_rounds < rounds:
        roles = np.where(world.known, Role.CLAMPED, Role.FREE).astype(np.int8)
        states = np.where(world.known, world.truth, -1).astype(np.int32)
        inferred = system.infer(replace(world.problem, roles=roles, states=states, queries=~world.known), vectors)
        p, found = inferred.marginals.reshape(-1, 3), states.copy()
        found[~world.known] = np.where(p.max(axis=1) >= threshold, p.argmax(axis=1), -1)
        if (found == targets).all():
            break
        targets, n_rounds = found, n_rounds + 1
        factor = float((targets >= 0).sum() / world.known.sum())
        if treatment == "em":
            unary = logistic(world.features, targets, np.flatnonzero(targets >= 0), factor).ravel()
            vectors = vectors | {"weights": np.concatenate((unary, vectors["weights"][9:]))}
        else:
            scaled = World(model=MODEL.replace("l2 0.5", f"l2 {0.5 * factor!r}")).problem
            roles = np.where(targets >= 0, Role.FREE, Role.ABSENT).astype(np.int8)
            strong = {name: factor * strength for name, strength in GATED_PENALTIES.items()}
            learner = make_backend("gated", tolerance=1e-8, **strong)
            vectors = learner.fit(replace(scaled, roles=roles, states=targets), Monitor()).vectors
    return vectors, targets, n_rounds


@pytest.mark.parametrize(("treatment", "threshold"), [("self", 0.6), ("em", 0.6), ("self", 0.0)])
def test_gated_self_training_equals_plain_loop(world, treatment, threshold):
    found = world.fit("gated", unlabelled=treatment, threshold=threshold, rounds=2, **GATED_PENALTIES)
    vectors, targets, n_rounds = plain_gated_self_training(world, treatment, threshold, 2)
    assert found.summary["predicted_targets"] == (targets >= 0).sum() - world.known.sum() > 0
    assert found.summary["self_training_rounds"] == n_rounds > 0
    for name, vector in vectors.items():
        np.testing.assert_allclose(found.vectors[name], vector, atol=1e-9 if treatment == "self" else 1e-3)


@pytest.mark.parametrize("optimiser", ["auto", "adam"])
def test_gated_self_training_on_stochastic_blocks(monkeypatch, optimiser):
    """With 30 of 300 labels, `em` is better than no self-training. `self` has a lower accuracy: predicted neighbours agree too
    often, so that the weight of links increases. With `auto`, it more than doubles, and the log-likelihood is lower, too."""
    monkeypatch.syspath_prepend(Path(relcrf.__file__).parent.parent / "datasets")
    from stochastic_blocks import BlockModel, make_papers

    text = resource_path("models", "cora.rcrf").read_text().replace("template prior(p: Paper)\n    over p.topic\n", "")
    model = relcrf.parse(text.replace("over  symmetric a.topic, b.topic", "over a.topic == b.topic"))
    blocks = BlockModel(n_papers=300, n_topics=3, label_rate=0.1, signal=0.5)
    scores = {"ignore": [], "self": [], "em": []}
    link_weights = {"ignore": [], "self": [], "em": []}
    for seed in range(3):
        papers = make_papers(blocks, np.random.default_rng(seed))
        grounding = model.ground(relcrf.Dataset(papers.tables()))
        for treatment, found in scores.items():
            fit = api.fit(
                model, grounding, "gated", hidden=~papers.labelled, unlabelled=treatment, l2=0.1, optimiser=optimiser
            )
            score = api.predict(fit, grounding, hidden=~papers.labelled).score()
            found.append((score.accuracy, score.log_likelihood))
            link_weights[treatment].append(fit.weights().columns["weight"][-1])
    accuracy, log_likelihood = ({name: np.mean(found, axis=0)[k] for name, found in scores.items()} for k in (0, 1))
    assert log_likelihood["em"] > log_likelihood["ignore"] + 0.05
    assert accuracy["em"] > accuracy["ignore"] > 0.9
    if optimiser == "adam":
        assert log_likelihood["self"] > log_likelihood["ignore"]
        assert accuracy["self"] > accuracy["ignore"] - 0.04
    else:
        assert log_likelihood["self"] > log_likelihood["ignore"] - 0.1 and accuracy["self"] > 0.85
        assert np.mean(link_weights["self"]) > 2 * np.mean(link_weights["ignore"])
    np.testing.assert_allclose(link_weights["em"], link_weights["ignore"], atol=1e-12)


def test_it_stops_when_the_targets_do_not_change(world):
    confident = world.fit("local", unlabelled="self", threshold=0.999999)
    plain = world.fit("local")
    assert confident.summary["self_training_rounds"] == confident.summary["predicted_targets"] == 0
    np.testing.assert_array_equal(confident.vectors["weights"], plain.vectors["weights"])
    many = world.fit("local", unlabelled="self", threshold=0.0, rounds=50)
    rounds = many.summary["self_training_rounds"]
    assert 1 < rounds < 50 and many.summary["predicted_targets"] == 42
    fewer = world.fit("local", unlabelled="self", threshold=0.0, rounds=rounds)
    np.testing.assert_array_equal(many.vectors["weights"], fewer.vectors["weights"])


@pytest.mark.parametrize("treatment", ["self", "em"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_of_absent_variables_are_not_read(backend, treatment):
    """The hidden labels include those that the model predicts, so that a comparison with them would end training."""
    world = World(n=40)
    plain = world.fit(backend)
    query = replace(world.problem, roles=np.where(world.known, Role.CLAMPED, Role.FREE).astype(np.int8))
    system = plain.configure(make_backend(backend, **SETTINGS))
    predicted = np.where(world.known, world.problem.states, -1)
    inferred = system.infer(replace(query, states=predicted), plain.vectors)
    predicted[inferred.variables] = inferred.modes()
    random = np.where(world.known, world.problem.states, np.random.default_rng(0).integers(3, size=40))
    fits = [
        world.fit(backend, replace(world.problem, states=states.astype(np.int32)), unlabelled=treatment, threshold=0.4)
        for states in (world.problem.states, predicted, random)
    ]
    assert fits[0].summary["predicted_targets"] > 0
    for other in fits[1:]:
        assert other.summary == fits[0].summary and other.settings == fits[0].settings
        for name, vector in fits[0].vectors.items():
            np.testing.assert_array_equal(other.vectors[name], vector)


@pytest.mark.parametrize("backend", BACKENDS)
def test_em_changes_unary_weights_only(world, backend):
    plain, em = world.fit(backend), world.fit(backend, unlabelled="em", threshold=0.7, rounds=2)
    before, after = plain.vectors["weights"], em.vectors["weights"]
    assert (before[:9] != after[:9]).all()
    np.testing.assert_array_equal(before[9:], after[9:])
    for name in plain.vectors.keys() - {"weights"}:
        np.testing.assert_array_equal(plain.vectors[name], em.vectors[name])
    local = world.fit("local", unlabelled="em", threshold=0.7, rounds=1)
    assert [name for name, _ in local.stages] == ["weights", "unary_1"]
    size = "scored" if backend == "gated" else "variables"
    assert em.settings == plain.settings and em.summary[size] == plain.summary[size]


@pytest.mark.parametrize("backend", ["ess", "smooth"])
def test_settings_are_chosen_by_labels_only(world, backend):
    plain = world.fit(backend)
    found = world.fit(backend, unlabelled="self", threshold=0.6, rounds=2)
    assert plain.settings == found.settings and plain.settings
    assert found.summary["predicted_targets"] > 0


def test_evidence_is_not_relabelled(world):
    evidence = np.arange(60) < 9
    problem = training_problem(world.grounding, evidence=evidence)
    wrong = np.where(evidence, (problem.states + 1) % 3, problem.states).astype(np.int32)
    for backend in ("local", "pseudo", "ess"):
        found = world.fit(backend, replace(problem, states=wrong), unlabelled="self", threshold=0.0, rounds=1)
        assert found.summary["predicted_targets"] == 42
    local = world.fit("local", replace(problem, states=wrong), unlabelled="self", threshold=0.0, rounds=1)
    other = world.fit("local", problem, unlabelled="self", threshold=0.0, rounds=1)
    np.testing.assert_array_equal(local.vectors["weights"], other.vectors["weights"])
    all_evidence = training_problem(world.grounding, evidence=world.known)
    found = world.fit("local", all_evidence, unlabelled="self", threshold=0.0)
    assert not found.vectors["weights"].any() and "predicted_targets" not in found.summary


@pytest.mark.parametrize("backend", ["ess", "dense", "local"])
def test_latent_attributes(backend):
    model = MODEL.replace("year : integer", "latent kind : bool\n year : integer") + LATENT
    world = World(model=model)
    plain, found, em = (
        world.fit(backend, unlabelled=treatment, threshold=0.8, rounds=2) for treatment in ("ignore", "self", "em")
    )
    assert (world.problem.latent).sum() == 60
    assert 0 < found.summary["predicted_targets"] <= 42, "latent variables are not targets"
    assert np.isfinite(found.vectors["weights"]).all()
    latent = world.grounding.graph.layout.starts[4]
    np.testing.assert_array_equal(em.vectors["weights"][latent:], plain.vectors["weights"][latent:])
    assert (em.vectors["weights"][:9] != plain.vectors["weights"][:9]).all()


@pytest.mark.parametrize(
    ("backend", "stage", "threshold"),
    [("local", "weights", 0.8), ("ess", "structure", 0.95), ("smooth", "weights", 0.8), ("gated", "static", 0.6)],
)
@pytest.mark.parametrize("treatment", ["self", "em"])
def test_training_resumes_within_a_round(world, backend, stage, threshold, treatment, tmp_path):
    again = "unary" if treatment == "em" else stage
    settings = {"unlabelled": treatment, "threshold": threshold, "rounds": 2, "l2": 0.2}
    stops = [(stage, 2), (f"{again}_1", 1), (f"{again}_2", 2)]
    assert_goes_on(world.model, world.grounding, backend, settings, stops, tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_marginal_likelihood_of_a_forest_equals_enumeration(seed):
    """The gradient of the penalised marginal likelihood, by differences of log partitions, is 0 at the weights."""
    world = World(n=8, labels=4, seed=seed)
    found = world.fit("ess", unlabelled="marginal", tolerance=1e-9)
    weights, problem = found.vectors["weights"], world.problem.with_unlabelled()
    graph = replace(problem, states=np.full(8, -1, dtype=np.int32)).reduced_graph("test")
    strength = world.grounding.graph.layout.l2(0.2)

    def objective(weights):
        states, scores = joint_states(graph.scopes, graph.potentials(weights))
        agrees = (states[world.known] == world.truth[world.known, None]).all(axis=0)
        log_probability = logsumexp(scores[agrees]) - logsumexp(scores)
        return 0.5 * (strength * weights**2).sum() - log_probability

    step = 1e-5 * np.eye(len(weights))
    gradient = [(objective(weights + e) - objective(weights - e)) / 2e-5 for e in step]
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    ignored = world.fit("ess", tolerance=1e-9)
    assert np.abs(ignored.vectors["weights"] - weights).max() > 1e-3


@pytest.mark.parametrize(
    ("backend", "settings"),
    [
        ("local", {"unlabelled": "self", "threshold": 0.6}),
        ("pseudo", {"unlabelled": "em", "threshold": 0.6}),
        ("ess", {"unlabelled": "self", "threshold": 0.6}),
        ("ess", {"unlabelled": "marginal"}),
        ("dense", {"unlabelled": "marginal"}),
        ("propagate", {}),
        ("smooth", {"unlabelled": "self", "threshold": 0.6}),
        ("gated", {"unlabelled": "marginal", "max_iterations": 5}),
        ("gated", {"unlabelled": "self", "threshold": 0.4, "max_iterations": 5}),
        ("trmrf", {"unlabelled": "infer"}),
    ],
)
def test_variables_of_later_periods_are_not_used(backend, settings):
    """Training on tables without the later papers has the same result; test variables are unlabelled, not excluded."""
    world, small = World(labels=42), World(labels=42, size=30)
    fold = make_folds(world.grounding, "folds=3,time=year")[-2]
    learning = fold.learning_problem(world.problem)
    assert learning.excluded.tolist() == [False] * 30 + [True] * 30 and fold.test.any()
    assert not (learning.unlabelled & learning.excluded).any() and learning.unlabelled[fold.test].all()
    roles = np.where(fold.test[:30], Role.ABSENT, small.problem.roles).astype(np.int8)
    one = world.fit(backend, learning, **settings)
    other = small.fit(backend, replace(small.problem, roles=roles), **settings)
    assert one.summary == pytest.approx(other.summary) and one.settings == pytest.approx(other.settings)
    for name, vector in one.vectors.items():
        np.testing.assert_allclose(vector, other.vectors[name], rtol=1e-6, atol=1e-9)
    if backend in ("propagate", "smooth"):
        assert one.summary["links"] < world.fit(backend, replace(learning, excluded=None), **settings).summary["links"]


@pytest.mark.parametrize(
    ("backend", "settings", "message"),
    [
        ("local", {"unlabelled": "marginal"}, "cannot be 'marginal'"),
        ("pseudo", {"unlabelled": "infer"}, "cannot be 'infer'"),
        ("dense", {"unlabelled": "marginal", "objective": "pseudo"}, "setting 'unlabelled' of backend 'dense'"),
        ("dense", {"unlabelled": "marginal", "objective": "piecewise"}, "setting 'unlabelled' of backend 'dense'"),
        ("ess", {"unlabelled": "marginal", "objective": "margin"}, "setting 'unlabelled' of backend 'ess'"),
        ("ess", {"threshold": 1.0}, "setting 'threshold' of backend 'ess' cannot be 1"),
        ("ess", {"rounds": 0}, "setting 'rounds' of backend 'ess' cannot be 0"),
        ("gated", {"threshold": 1.0}, "setting 'threshold' of backend 'gated' cannot be 1"),
        ("gated", {"rounds": 0}, "setting 'rounds' of backend 'gated' cannot be 0"),
    ],
)
def test_invalid_settings(backend, settings, message):
    with pytest.raises(UsageError, match=message):
        make_backend(backend, **settings)


@pytest.mark.parametrize("treatment", ["self", "em", "marginal"])
def test_training_needs_the_whole_graph_but_prediction_does_not(world, treatment):
    with pytest.raises(UsageError, match="needs the whole graph"):
        api.fit(world.model, world.grounding, "ess", unlabelled=treatment, executor=SerialExecutor())
    fit = api.fit(world.model, world.grounding, "ess", unlabelled=treatment, rounds=1)
    whole = api.predict(fit, world.grounding).probabilities()
    parts = api.predict(fit, world.grounding, executor=SerialExecutor()).probabilities()
    np.testing.assert_allclose(whole, parts, atol=1e-12)
