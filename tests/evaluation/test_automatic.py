"""Backend `auto`: which backend it chooses on small graphs, which labels it reads, and what it does without a choice."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from traits import TEXT, traits_world

import relcrf
from relcrf import api
from relcrf.backends.base import Monitor
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import make_backend
from relcrf.errors import UsageError
from relcrf.evaluation import automatic
from relcrf.evaluation.automatic import AutoBackend, _Search
from relcrf.evaluation.calibration import scale_weights
from relcrf.evaluation.splits import make_folds
from relcrf.execution.serial import SerialExecutor
from relcrf.graph.reduction import Role

MODEL = """
domain Topic = { x, y, z }
entity Paper { predict topic : Topic
               size : real
               weight : real
               year : integer }
relation Cites(a: Paper, b: Paper)
template prior(p: Paper) over p.topic
template sized(p: Paper) over p.topic by p.size
template weighed(p: Paper) over p.topic by p.weight
template linked(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic
"""
TRIANGLES = """
template triangle(a: Paper, b: Paper, c: Paper)
    where Cites(a, b) and Cites(b, c) and a < c over a.topic == b.topic and b.topic == c.topic
"""
TOPICS = ("x", "y", "z")


class World:
    """Papers with two features of their topics.

    Args:
        known: Fraction of the papers with a label.
        same: Fraction of the links between papers of one topic; the other links are random.
    """

    def __init__(self, n=80, known=0.6, same=0.9, seed=0, model=MODEL):
        rng = np.random.default_rng(seed)
        self.truth = rng.integers(3, size=n)
        pairs = set()
        for a in range(n):
            for _ in range(2):
                pool = np.flatnonzero(self.truth == self.truth[a]) if rng.random() < same else np.arange(n)
                pairs.add((a, int(rng.choice(pool))))
        self.known = rng.random(n) < known
        angle = 2 * np.pi * self.truth / 3
        paper = {
            "id": range(n),
            "topic": [TOPICS[t] if k else None for t, k in zip(self.truth, self.known, strict=True)],
            "size": np.cos(angle) + rng.normal(scale=1.2, size=n),
            "weight": np.sin(angle) + rng.normal(scale=1.2, size=n),
            "year": np.arange(n) // 8,
        }
        links = pd.DataFrame(sorted((a, b) for a, b in pairs if a != b), columns=["a", "b"])
        self.data = relcrf.Dataset({"paper": pd.DataFrame(paper), "cites": links})
        self.model = relcrf.parse(model)
        self.grounding = self.model.ground(self.data)
        self.problem = training_problem(self.grounding)


def choose(problem, **settings):
    return make_backend("auto", **{"effort": "quick", **settings}).fit(problem, Monitor())


def backends(learned):
    return {trial["backend"] for trial in learned.trials}


def assert_same(one, other):
    """Assert that two results have the same bits."""
    assert one.system == other.system and one.settings == other.settings and one.summary == other.summary
    rows = [[{**trial, "seconds": 0} for trial in each.trials] for each in (one, other)]
    assert rows[0] == rows[1]
    for name, vector in one.vectors.items():
        np.testing.assert_array_equal(vector, other.vectors[name])


@pytest.fixture(scope="module")
def world():
    return World(n=60)


@pytest.fixture(scope="module")
def chosen(world):
    return choose(world.problem)


def test_relations_are_used_if_they_improve_predictions(world, chosen):
    assert chosen.system.name != "local"
    assert chosen.summary["gain_over_local"] > 3 * chosen.summary["standard_error_of_gain"] > 0
    assert chosen.summary["held_out_labels"] == world.known.sum()
    assert {"local", "ess", "pseudo", "propagate", "smooth"} <= backends(chosen)
    best = max(trial["log_likelihood"] for trial in chosen.trials)
    assert best >= chosen.summary["calibrated_log_likelihood"] > -np.log(3)
    best_local = max(trial["log_likelihood"] for trial in chosen.trials if trial["backend"] == "local")
    gain = chosen.summary["calibrated_log_likelihood"] - best_local
    assert chosen.summary["gain_over_local"] == pytest.approx(gain)
    query = replace(world.problem, roles=np.where(world.known, Role.CLAMPED, Role.FREE).astype(np.int8))
    accuracy = []
    for learned, system in ((chosen, chosen.system), (make_backend("local").fit(world.problem, Monitor()), None)):
        system = learned.configure(system or make_backend("local"))
        accuracy.append((system.infer(query, learned.vectors).modes() == world.truth[~world.known]).mean())
    assert accuracy[0] > accuracy[1] + 0.1


def test_random_links_are_not_used():
    learned = choose(World(same=0.0, seed=1).problem)
    assert learned.system.name == "local" and learned.system.unlabelled == "ignore"
    assert learned.summary["gain_over_local"] == learned.summary["standard_error_of_gain"] == 0.0
    assert {"ess", "pseudo"} <= backends(learned)


def test_few_linked_labels_have_priors_and_self_training():
    learned = choose(World(known=0.25).problem)
    settings = " ".join(trial["settings"] for trial in learned.trials)
    assert "agreement=" in settings and "l2=30" in settings and "unlabelled=em" in settings
    assert learned.summary["gain_over_local"] > 0


def test_it_is_deterministic_and_does_not_read_labels_of_hidden_variables(world, chosen):
    random = np.random.default_rng(0).integers(3, size=60)
    states = np.where(world.known, world.problem.states, random).astype(np.int32)
    assert_same(chosen, choose(replace(world.problem, states=states)))


def test_validation_labels_are_used_only_for_the_choice():
    world = World(n=60, known=1.0)
    validation, hidden = np.arange(60) % 3 == 0, np.arange(60) % 3 == 1
    problem = training_problem(world.grounding, hidden, validation=validation)
    learned = choose(problem)
    assert learned.summary["held_out_labels"] == 20
    plain = learned.system.fit(replace(problem, validation=None), Monitor())
    states = np.where(validation, (problem.states + 1) % 3, problem.states).astype(np.int32)
    again = learned.system.fit(replace(problem, validation=None, states=states), Monitor())
    scaled = scale_weights(problem, plain.vectors, learned.summary.get("calibration", 1.0))
    for name, vector in learned.vectors.items():
        np.testing.assert_array_equal(vector, scaled[name])
        np.testing.assert_array_equal(again.vectors[name], plain.vectors[name])
    wrong = choose(replace(problem, states=states))
    assert wrong.summary["calibrated_log_likelihood"] < learned.summary["calibrated_log_likelihood"]
    random = np.where(hidden, np.random.default_rng(0).integers(3, size=60), problem.states).astype(np.int32)
    assert_same(learned, choose(replace(problem, states=random)))


def test_later_periods_are_not_used():
    world = World(n=72, known=1.0)
    fold = make_folds(world.grounding, "folds=3,time=year")[0]
    learning = fold.learning_problem(world.problem)
    assert learning.excluded.any()
    learned = choose(learning)
    states = np.where(fold.excluded, (learning.states + 1) % 3, learning.states).astype(np.int32)
    assert_same(learned, choose(replace(learning, states=states)))
    assert learned.summary["held_out_labels"] == (learning.roles == Role.FREE).sum()


def test_the_result_is_a_run_of_the_chosen_backend(world, chosen, tmp_path):
    fit = api.fit(world.model, world.grounding, "auto", effort="quick")
    assert fit.learned.backend == chosen.system.name and fit.learned.request.backend == "auto"
    assert fit.learned.settings == asdict(chosen.system) | fit.learned.settings
    assert [{**row, "seconds": 0} for row in fit.learned.trials] == [{**row, "seconds": 0} for row in chosen.trials]
    fit.save(tmp_path / "run")
    loaded = relcrf.load_fit(tmp_path / "run")
    assert loaded.learned.backend == fit.learned.backend and loaded.learned.request == fit.learned.request
    one, other = (api.predict(each, world.grounding).probabilities() for each in (fit, loaded))
    np.testing.assert_array_equal(one, other)
    other_world = World(n=30, known=0.4, seed=5)
    assert api.predict(loaded, other_world.grounding).probabilities().shape[1] == 3


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_the_summary_has_the_calibrated_settings(monkeypatch, world, backend):
    monkeypatch.setattr(automatic._Search, "_best_relational", lambda search, local: search._try(make_backend(backend)))
    learned = choose(world.problem)
    assert learned.system.name == backend and "calibration" not in learned.summary
    assert {name: learned.summary[name] for name in learned.settings} == learned.settings


def test_one_class():
    world = World(n=30)
    problem = replace(world.problem, states=np.where(world.known, 1, -1).astype(np.int32))
    learned = choose(problem)
    assert np.isfinite(learned.summary["calibrated_log_likelihood"]) and learned.summary["gain_over_local"] >= 0


def test_two_labels():
    world = World(n=30)
    few = np.isin(np.arange(30), np.flatnonzero(world.known)[:2])
    problem = replace(world.problem, roles=np.where(few, Role.FREE, Role.ABSENT).astype(np.int8))
    learned = choose(problem)
    assert learned.system.name == "ess" and not learned.trials
    assert learned.summary["chosen_without_comparison"] == "too few labels to hold some out: 2"


@pytest.mark.parametrize("backend", ["ess", "pseudo"])
def test_latent_attributes_and_shards_have_the_default(backend):
    """Without a comparison, the backend depends on the sizes of the factors."""
    extra = TRIANGLES if backend == "pseudo" else ""
    world = World(n=40, model=MODEL + extra)
    fit = api.fit(world.model, world.grounding, "auto", executor=SerialExecutor())
    assert fit.learned.backend == backend and not fit.learned.trials
    assert fit.summary["chosen_without_comparison"] == "the graph exceeds the memory limit"
    latent = MODEL.replace("size : real", "latent kind : bool\n size : real")
    world = World(n=40, model=latent + "template kinds(p: Paper) over p.kind, p.topic")
    learned = choose(world.problem)
    assert learned.system.name == "ess"
    assert learned.summary["chosen_without_comparison"] == "latent attributes have no labels to hold out"


def test_factors_over_three_variables():
    """Backends that reject such factors are listed with the reason."""
    world = World(n=40, known=1.1, model=MODEL + TRIANGLES)
    learned = choose(world.problem)
    rejected = {trial["backend"]: trial["rejected"] for trial in learned.trials if "rejected" in trial}
    assert "supports factors over at most two" in rejected["ess"]
    assert {"local", "pseudo"} <= backends(learned) - rejected.keys()
    assert learned.system.name in ("local", "pseudo", "dense", "propagate", "smooth")


@pytest.mark.parametrize("text", ["template linked", "template prior"])
def test_models_without_features(text):
    """Only relations, or only the prior."""
    templates = [line for line in MODEL.splitlines() if not line.startswith("template") or line.startswith(text)]
    learned = choose(World(n=60, model="\n".join(templates)).problem)
    if text == "template linked":
        assert learned.system.name != "local" and learned.summary["gain_over_local"] > 0.3
    else:
        assert learned.system.name == "local" and backends(learned) == {"local"}


@pytest.mark.parametrize("missing", [0.1, 0.7])
def test_candidates(missing):
    """With most values unknown, self-training is tried for backends that support it."""
    model = relcrf.parse(TEXT)
    fit = model.fit(relcrf.Dataset(traits_world(nations=3, missing=missing)), "auto", effort="quick")
    assert "trmrf" in {trial["backend"] for trial in fit.learned.trials}
    treated = {trial["backend"] for trial in fit.learned.trials if "unlabelled" in trial["settings"]}
    assert treated == set() if missing < 0.5 else treated and not treated & {"trmrf", "grafting"}
    assert fit.summary["held_out_labels"] > 0


def test_a_large_graph_has_default_settings(monkeypatch, world):
    monkeypatch.setattr(automatic, "MAX_SMALL_SIZE", 10)
    learned = choose(world.problem, effort="thorough")
    assert backends(learned) == {"local", "ess", "pseudo"} | ({"dense", "gated"} & backends(learned))
    assert "calibration" not in learned.summary
    labelled = World(n=60, known=1.1)
    learned = choose(labelled.problem)
    assert learned.summary["compared_training_labels"] == 60 and "held_out_labels" not in learned.summary
    assert len(learned.trials) == 3
    plain = learned.system.fit(labelled.problem, Monitor())
    np.testing.assert_array_equal(learned.vectors["weights"], plain.vectors["weights"])


def test_a_large_graph_is_calibrated_if_this_gains_much(monkeypatch, world):
    """The comparison scores predictions at their best temperature; a model that is far from it must be scaled."""
    monkeypatch.setattr(automatic, "MAX_SMALL_SIZE", 10)
    monkeypatch.setattr(automatic, "MIN_CALIBRATION_GAIN", 0.0)
    monkeypatch.setattr(automatic, "MIN_TOTAL_GAIN", 0.0)
    learned = choose(world.problem)
    plain = learned.system.fit(world.problem, Monitor())
    assert learned.summary["calibration"] != 1.0
    scaled = scale_weights(world.problem, plain.vectors, learned.summary["calibration"])
    np.testing.assert_array_equal(learned.vectors["weights"], scaled["weights"])


def test_invalid_use(world):
    with pytest.raises(UsageError, match="cannot be 'fast'"):
        make_backend("auto", effort="fast")
    with pytest.raises(UsageError, match="no distribution before training"):
        AutoBackend().joint_likelihood(world.problem, {})


def test_clearly_worse_candidates_are_not_tried_on_all_folds(monkeypatch):
    """If `pseudo`, whose inference is slow on triangles, is clearly worse on the first fold, it has no score."""
    problem = World(n=400, known=0.5, model=MODEL + TRIANGLES).problem
    found, predict = [], _Search._predict

    def mislead(self, fold, system, learned, vectors):
        found.append(system.name)
        prediction = predict(self, fold, system, learned, vectors)
        if system.name != "pseudo":
            return prediction
        wrong = np.concatenate(
            [np.roll(p, 1) for p in np.split(prediction.probabilities, prediction.state_start[1:-1])]
        )
        return replace(prediction, probabilities=wrong)

    monkeypatch.setattr(_Search, "_predict", mislead)
    learned = choose(problem)
    assert found.count("pseudo") < found.count("propagate") == 5
    (row,) = [trial for trial in learned.trials if trial["backend"] == "pseudo"]
    assert row["rejected"] == f"clearly worse than 'local' in {found.count('pseudo')} of 5 folds"
    assert learned.system.name not in ("local", "pseudo")
