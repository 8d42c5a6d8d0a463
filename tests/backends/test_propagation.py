"""Backends `propagate` and `smooth`, compared with plain NumPy implementations, and their limits."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf import api
from relcrf.backends.base import Monitor
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import make_backend
from relcrf.errors import UsageError
from relcrf.evaluation.evaluations import compare
from relcrf.evaluation.exactness import measure_exactness
from relcrf.graph.reduction import Role

MODEL = """
domain Topic = { x, y, z }
entity Paper { predict topic : Topic
               predict good : bool
               size : real }
relation Cites(a: Paper, b: Paper)
template prior(p: Paper) over p.topic
template sized(p: Paper) over p.topic by p.size
template linked(a: Paper, b: Paper) where Cites(a, b) over a.topic, b.topic
template again(a: Paper, b: Paper) where Cites(a, b) or Cites(b, a) over a.topic == b.topic
template good(a: Paper, b: Paper) where Cites(a, b) over a.good == b.good
template mixed(p: Paper) over p.topic, p.good
"""
TOPICS = ("x", "y", "z")


class World:
    """Papers whose links join equal topics with probability 0.8; a third of the papers is unlabelled."""

    def __init__(self, n=90, seed=0, unlabelled=0.4):
        rng = np.random.default_rng(seed)
        self.truth = rng.integers(3, size=n)
        self.known = rng.random(n) > unlabelled
        self.good = rng.random(n) < 0.3
        size = self.truth + rng.normal(scale=1.5, size=n)
        pairs = set()
        for a in range(n - 4):  # the last papers have no links
            same = np.flatnonzero((self.truth == self.truth[a]) & (np.arange(n) < n - 4))
            pairs |= {(a, int(rng.choice(same) if rng.random() < 0.8 else rng.integers(n - 4))) for _ in range(2)}
        self.pairs = sorted((a, b) for a, b in pairs if a != b)
        topic = [TOPICS[t] if k else None for t, k in zip(self.truth, self.known, strict=True)]
        good = [bool(g) if k else None for g, k in zip(self.good, self.known, strict=True)]
        paper = pd.DataFrame({"id": range(n), "topic": topic, "good": pd.array(good, dtype="boolean"), "size": size})
        cites = pd.DataFrame(self.pairs, columns=["a", "b"])
        self.data = relcrf.Dataset({"paper": paper, "cites": cites})
        self.size = size
        self.grounding = relcrf.parse(MODEL).ground(self.data)
        self.links = np.zeros((n, n))
        for a, b in self.pairs:
            self.links[a, b] = self.links[b, a] = 1.0

    def fit(self, backend, **settings):
        return api.fit(relcrf.parse(MODEL), self.grounding, backend, **settings)

    def unlabelled_probabilities(self, prediction):
        table = prediction.table("Paper.topic")
        assert table["id"].tolist() == [str(k) for k in np.flatnonzero(~self.known)]
        return np.column_stack([table[f"p_{topic}"] for topic in TOPICS])


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def default_fit(world):
    """Return a function that returns the fit of a backend with default settings, which is trained once."""
    return cache(world.fit)


def solve(links, alpha, values):
    """Return (1 - alpha) (I - alpha S)^-1 Y by the power iteration."""
    degree = np.maximum(links.sum(axis=1), 1.0)
    matrix = links / np.sqrt(np.outer(degree, degree))
    out = values
    for _ in range(3000):
        out = alpha * matrix @ out + (1 - alpha) * values
    return out


def calibrated(scores, sharpness, smoothing, frequencies, links):
    out = np.empty_like(scores)
    for row, score in enumerate(scores):
        total = score.sum()
        if total and links[row].any():
            score = score**sharpness / (score**sharpness).sum() * total
        out[row] = (score + smoothing * frequencies) / (total + smoothing)
    return out


def one_hot(world):
    return np.eye(3)[world.truth] * world.known[:, None]


def frequencies(world):
    counts = np.bincount(world.truth[world.known], minlength=3)
    return counts / counts.sum()


@pytest.mark.parametrize("alpha", [0.3, 0.95])
def test_propagate_equals_plain_implementation(world, alpha):
    fit = world.fit("propagate", alpha=alpha, sharpness=2.0, smoothing=0.01)
    found = world.unlabelled_probabilities(api.predict(fit, world.grounding))
    expected = calibrated(solve(world.links, alpha, one_hot(world)), 2.0, 0.01, frequencies(world), world.links)
    np.testing.assert_allclose(found, expected[~world.known], atol=1e-5)
    unlinked = [k for k in np.flatnonzero(~world.known) if k >= 86]
    assert unlinked
    np.testing.assert_allclose(expected[unlinked], np.tile(frequencies(world), (len(unlinked), 1)))


@pytest.mark.parametrize("scale", [0.0, 1.5])
def test_smooth_equals_plain_implementation(world, scale):
    settings = {"alpha_correct": 0.8, "alpha_smooth": 0.6, "scale": scale, "sharpness": 3.0, "smoothing": 0.02}
    fit = world.fit("smooth", l2=0.1, **settings)
    found = world.unlabelled_probabilities(api.predict(fit, world.grounding))
    local = world.fit("local", l2=0.1)
    np.testing.assert_array_equal(local.learned.vectors["weights"], fit.learned.vectors["weights"])
    weights = local.weights().to_pandas().set_index(["template", "pattern"])["weight"]
    potential = np.array(
        [[weights["prior", t] + weights["sized", t] * s for t in weights["prior"].index] for s in world.size]
    )
    base = np.exp(potential) / np.exp(potential).sum(axis=1, keepdims=True)
    error = np.where(world.known[:, None], one_hot(world) - base, 0.0)
    spread = solve(world.links, 0.8, error)
    corrected = np.empty_like(base)
    mean_error = np.mean([np.abs(row).sum() for row in error[world.known]])
    for row in range(len(base)):
        norm = np.abs(spread[row]).sum()
        factor = scale or (mean_error / norm if norm else 1.0)
        corrected[row] = one_hot(world)[row] if world.known[row] else base[row] + factor * spread[row]
    scores = np.maximum(solve(world.links, 0.6, corrected), 0.0)
    scores /= scores.sum(axis=1, keepdims=True)
    expected = calibrated(scores, 3.0, 0.02, frequencies(world), world.links)
    np.testing.assert_allclose(found, expected[~world.known], atol=1e-5)


def test_settings_are_chosen_and_stored(world, default_fit, tmp_path):
    for backend, names in (("propagate", {"alpha"}), ("smooth", {"alpha_correct", "alpha_smooth"})):
        fit = default_fit(backend)
        chosen = fit.learned.chosen_settings
        assert set(chosen) == names | {"sharpness", "smoothing"} and all(value > 0 for value in chosen.values())
        assert {*chosen, "links", "held_out_accuracy"} <= set(fit.summary)
        assert fit.summary["links"] == len({frozenset(pair) for pair in world.pairs}) * 2, "topics, and good papers"
        fit.save(tmp_path / backend)
        loaded = relcrf.load_fit(tmp_path / backend)
        one, other = (api.predict(each, world.grounding).probabilities("Paper.topic") for each in (fit, loaded))
        np.testing.assert_array_equal(one, other)
        again = world.fit(backend, **chosen)
        np.testing.assert_array_equal(api.predict(again, world.grounding).probabilities("Paper.topic"), one)
        assert "held_out_accuracy" not in again.summary


def test_few_labels_have_default_settings():
    fit = World(n=12).fit("propagate")
    assert fit.learned.chosen_settings == {"alpha": 0.9, "sharpness": 1.0, "smoothing": 0.01}


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_links_increase_accuracy(backend):
    world = World(n=400, seed=3)
    unknown, n = ~world.known, {}
    for name in ("local", backend):
        found = world.unlabelled_probabilities(api.predict(world.fit(name), world.grounding))
        n[name] = (found.argmax(axis=1) == world.truth[unknown]).mean()
    assert n[backend] > n["local"] + 0.1 > 0.5


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_labels_of_hidden_and_absent_variables_are_not_used(world, backend):
    problem = training_problem(world.grounding)
    absent = problem.roles == Role.ABSENT
    one = make_backend(backend).fit(problem, Monitor())
    changed = replace(problem, states=np.where(absent, 0, problem.states))
    other = make_backend(backend).fit(changed, Monitor())
    assert one.settings == other.settings and one.summary == other.summary
    for name, vector in one.vectors.items():
        np.testing.assert_array_equal(vector, other.vectors[name])


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_reserved_labels_choose_the_settings(world, backend):
    problem = training_problem(world.grounding)
    rng = np.random.default_rng(1)
    labelled = problem.roles == Role.FREE
    reserved = labelled & (rng.random(len(labelled)) < 0.3)
    problem = replace(problem, roles=np.where(reserved, Role.ABSENT, problem.roles).astype(np.int8))
    found = make_backend(backend).fit(replace(problem, validation=reserved), Monitor())
    system = found.configure(make_backend(backend))
    query = replace(problem, roles=np.where(problem.roles == Role.FREE, Role.CLAMPED, Role.FREE).astype(np.int8))
    result = system.infer(query, found.vectors)
    rows = np.flatnonzero(reserved[result.variables])
    labels = problem.states[result.variables[rows]]
    log_likelihood = np.log(result.marginals[result.state_start[rows] + labels]).mean()
    assert found.summary["held_out_log_likelihood"] == pytest.approx(log_likelihood, abs=1e-3)
    without = make_backend(backend).fit(problem, Monitor())
    assert without.summary["held_out_log_likelihood"] != found.summary["held_out_log_likelihood"]


def test_base_predictions_of_held_out_labels_are_out_of_fold():
    """With a feature per paper, the base model fits every training label and predicts no other label."""
    text = MODEL.replace("template sized(p: Paper) over p.topic by p.size", "template own(p: Paper) over p.topic per p")
    world = World(n=200, seed=2)
    fit = relcrf.parse(text).fit(world.data, "smooth", l2=1e-3)
    assert fit.summary["held_out_accuracy"] < 0.95
    probabilities = world.unlabelled_probabilities(fit.predict(world.data))
    truth = world.truth[~world.known]
    accuracy = (probabilities.argmax(axis=1) == truth).mean()
    log_loss = -np.log(probabilities[np.arange(len(truth)), truth]).mean()
    assert accuracy > 0.6 and log_loss < np.log(3)
    assert abs(accuracy - fit.summary["held_out_accuracy"]) < 0.15


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_another_graph_is_predicted_from_its_labels(world, default_fit, backend):
    fit, other = default_fit(backend), World(n=60, seed=9, unlabelled=0.5)
    probabilities = other.unlabelled_probabilities(fit.predict(other.data))
    accuracy = (probabilities.argmax(axis=1) == other.truth[~other.known]).mean()
    assert accuracy > 0.5
    unlabelled = World(n=60, seed=9, unlabelled=1.1)
    probabilities = unlabelled.unlabelled_probabilities(fit.predict(unlabelled.data))
    if backend == "propagate":
        np.testing.assert_allclose(probabilities, np.tile(frequencies(world), (60, 1)))
    else:
        assert np.ptp(probabilities, axis=0).min() > 0.1


def test_a_domain_with_unseen_class_has_finite_loss():
    table = pd.DataFrame({"id": range(40), "d": ["x"] * 39 + [None]})
    text = "domain D = { x, y } entity E { predict d : D } template t(e: E) over e.d"
    data = relcrf.Dataset({"e": table})
    ((one, other),) = relcrf.parse(text).fit(data, "propagate").predict(data).probabilities()
    assert one == pytest.approx(39 / 39.5) and other == pytest.approx(0.5 / 39.5)


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_joint_likelihood_is_the_product_of_the_marginals(world, default_fit, backend):
    fit = default_fit(backend)
    hidden = np.zeros(len(world.grounding.states), dtype=bool)
    hidden[np.flatnonzero(world.grounding.states >= 0)[:20]] = True
    found = api.joint_log_likelihood(fit, world.grounding, hidden=hidden)
    result = api.predict(fit, world.grounding, hidden=hidden).inferred
    rows = np.flatnonzero(hidden[result.variables])
    labels = world.grounding.states[result.variables[rows]]
    expected = np.log(result.marginals[result.state_start[rows] + labels]).sum()
    assert found == pytest.approx(expected)
    selected = api.select(world.grounding, backend, {"smoothing": (0.01, 1.0)})
    assert set(selected.settings) == {"smoothing"}


def test_compare_and_calibration(world):
    (found,) = compare(world.grounding, ["smooth"], "random", n_subgraphs=3).results.values()
    assert found.status == "converged" and found.exactness is None
    problem = training_problem(world.grounding)
    system = make_backend("propagate", alpha=0.9, sharpness=1.0, smoothing=0.01)
    assert measure_exactness(system, system.fit(problem, Monitor()), problem, np.zeros(180, dtype=bool), 1) is None
    fit = world.fit("propagate", alpha=0.9, sharpness=1.0, smoothing=0.01, calibrate=3)
    assert api.predict(fit, world.grounding).verdict.status == "converged"
    assert fit.summary["calibration"] == 1.0


@pytest.mark.parametrize(
    ("backend", "settings", "message"),
    [
        ("propagate", {"alpha": 1.0}, "setting 'alpha' of backend 'propagate' cannot be 1"),
        ("smooth", {"alpha_smooth": 1.5}, "setting 'alpha_smooth' of backend 'smooth' cannot be 1.5"),
        ("smooth", {"optimiser": "sgd"}, "setting 'optimiser' of backend 'smooth' cannot be 'sgd'"),
    ],
)
def test_invalid_settings(backend, settings, message):
    with pytest.raises(UsageError, match=message):
        make_backend(backend, **settings)


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_unsupported_models_and_operations(world, backend, monkeypatch):
    text = MODEL.replace("size : real }", "size : real\n latent kind : Topic }")
    with pytest.raises(UsageError, match="cannot learn latent attributes"):
        relcrf.parse(text + "template kind(p: Paper) over p.kind, p.topic\n").fit(world.data, backend)
    monkeypatch.setattr("relcrf.backends.propagation.MAX_LINKING_PAIRS", 10)
    with pytest.raises(UsageError, match="the maximum is 10"):
        world.fit(backend)


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_served_predictions_use_the_chosen_settings(default_fit, backend):
    fit = default_fit(backend)
    assert fit.learned.settings["smoothing"] == 0.0 != fit.learned.chosen_settings["smoothing"]
    paper = [{"id": 0, "size": 0.5, "topic": None}, {"id": 1, "size": 2.0, "topic": "z"}]
    tables = {"paper": paper, "cites": [{"a": 0, "b": 1}]}
    served = relcrf.Predictor(fit).predict(tables, "Paper.topic")
    expected = fit.predict(relcrf.Dataset({name: pd.DataFrame(rows) for name, rows in tables.items()})).table(
        "Paper.topic"
    )
    for topic in TOPICS:
        np.testing.assert_allclose(served[f"p_{topic}"], expected[f"p_{topic}"], atol=1e-12)
