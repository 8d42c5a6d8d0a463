"""Explanations of `propagate` and `smooth`, compared with plain NumPy: a score is an own term plus terms of neighbours."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf import api
from relcrf.evaluation.explanation import ExplanationCase
from relcrf.report import neighbourhood

MODEL = """
domain Topic = { x, y, z }
entity Paper { predict topic : Topic
               size : real }
relation Cites(a: Paper, b: Paper)
template prior(p: Paper) over p.topic
template sized(p: Paper) over p.topic by p.size
template linked(a: Paper, b: Paper) where Cites(a, b) over a.topic, b.topic
"""
TOPICS = ("x", "y", "z")
N = 40
SETTINGS = {
    "propagate": {"alpha": 0.9, "sharpness": 3.0, "smoothing": 0.02},
    "smooth": {"alpha_correct": 0.8, "alpha_smooth": 0.6, "sharpness": 2.0, "smoothing": 0.1, "unary_l2": 0.01},
}


@dataclass
class World:
    """Papers in two groups of links; half of the papers have labels, and the last three papers have no links."""

    truth: np.ndarray
    known: np.ndarray
    size: np.ndarray
    links: np.ndarray

    @classmethod
    def draw(cls, seed=0):
        rng = np.random.default_rng(seed)
        truth, links = rng.integers(3, size=N), np.zeros((N, N))
        for a in range(N - 3):
            same = np.flatnonzero((truth == truth[a]) & (np.arange(N) < N - 3) & (np.arange(N) != a))
            for b in rng.choice(same, 2):
                links[a, b] = links[b, a] = 1.0
        return cls(truth, rng.random(N) < 0.5, truth + rng.normal(size=N), links)

    @property
    def data(self):
        topic = [TOPICS[t] if known else None for t, known in zip(self.truth, self.known, strict=True)]
        cites = pd.DataFrame(np.argwhere(np.triu(self.links)), columns=["a", "b"])
        return relcrf.Dataset(
            {"paper": pd.DataFrame({"id": range(N), "topic": topic, "size": self.size}), "cites": cites}
        )

    @property
    def normalised(self):
        degree = np.maximum(self.links.sum(axis=1), 1.0)
        return self.links / np.sqrt(np.outer(degree, degree))


@pytest.fixture(scope="module")
def world():
    return World.draw()


@pytest.fixture(scope="module")
def grounding(world):
    return relcrf.parse(MODEL).ground(world.data)


@pytest.fixture(scope="module", params=["propagate", "smooth"])
def fit(request, grounding):
    return api.fit(relcrf.parse(MODEL), grounding, request.param, **SETTINGS[request.param])


def spread(world, alpha, values):
    return (1 - alpha) * np.linalg.solve(np.eye(N) - alpha * world.normalised, values)


@dataclass
class Scores:
    """The scores of a plain implementation, and the terms of the own variable and of each neighbour."""

    scores: np.ndarray
    own: np.ndarray
    by_neighbour: np.ndarray

    @classmethod
    def compute(cls, fit, world, variable):
        """Return the scores if the label of `variable` is hidden."""
        known = world.known & (np.arange(N) != variable)
        one_hot = np.eye(3)[world.truth] * known[:, None]
        if fit.learned.backend == "propagate":
            alpha, sources, correction = 0.9, one_hot, np.zeros((N, 3))
        else:
            alpha = 0.6
            weights = fit.weights().to_pandas().set_index(["template", "pattern"])["weight"]
            states = [pattern for template, pattern in weights.index if template == "prior"]
            potential = np.array(
                [[weights["prior", s] + weights["sized", s] * size for s in states] for size in world.size]
            )
            base = np.exp(potential) / np.exp(potential).sum(axis=1, keepdims=True)
            error = np.where(known[:, None], one_hot - base, 0.0)
            errors = spread(world, 0.8, error)
            norm = np.abs(errors).sum(axis=1, keepdims=True)
            mean_error = np.abs(error[known]).sum(axis=1).mean()
            factor = np.where(norm > 0, mean_error / np.where(norm > 0, norm, 1.0), 1.0)
            sources = np.where(known[:, None], one_hot, base + factor * errors)
            # The correction of the variable consists of the errors of its neighbours.
            correction = 0.4 * factor[variable] * 0.8 * world.normalised[variable][:, None] * errors
        scores = spread(world, alpha, sources)
        by_neighbour = alpha * world.normalised[variable][:, None] * scores + correction
        own = (1 - alpha) * (base[variable] if fit.learned.backend == "smooth" else np.zeros(3))
        total = np.maximum(scores[variable], 0).sum() or 1.0
        return cls(scores[variable] / total, own / total, by_neighbour / total)


def neighbour_number(contribution):
    return int(contribution.neighbours[0].name.removeprefix("Paper(").removesuffix(").topic"))


@pytest.mark.parametrize("variable", [0, 5, 9, 17, 30, N - 1])
def test_contributions_equal_plain_terms(fit, world, grounding, variable):
    found = fit.explain(grounding, f"Paper/{variable}")
    expected = Scores.compute(fit, world, variable)
    answer, against = TOPICS.index(found.answer), TOPICS.index(found.against)
    assert found.score == pytest.approx(expected.scores[answer] - expected.scores[against], abs=1e-9)
    assert sum(one.amount for one in found.contributions) == pytest.approx(found.score, abs=1e-9)
    assert found.remainder == pytest.approx(0.0, abs=1e-9)
    own = sum(one.amount for one in found.contributions if one.kind == "itself")
    assert own == pytest.approx(expected.own[answer] - expected.own[against], abs=1e-9)
    neighbours = {neighbour_number(one): one for one in found.contributions if one.kind != "itself"}
    assert sorted(neighbours) == np.flatnonzero(world.links[variable]).tolist()
    for number, one in neighbours.items():
        term = expected.by_neighbour[number]
        assert one.amount == pytest.approx(term[answer] - term[against], abs=1e-9)
        assert one.kind == ("evidence" if world.known[number] else "neighbour")
        assert sum(part.amount for part in one.features) == pytest.approx(one.amount, abs=1e-12)
    assert sum(found.by_template().values()) == pytest.approx(found.score, abs=1e-9)


def test_probabilities_are_those_of_prediction(fit, world, grounding):
    hidden = np.arange(len(grounding.states)) % 3 == 0
    prediction = api.predict(fit, grounding, hidden=hidden)
    for variable, expected in list(zip(prediction.variables(), prediction.probabilities(), strict=True))[:8]:
        found = fit.explain(grounding, f"Paper/{variable}", hidden=hidden)
        np.testing.assert_allclose(list(found.probabilities.values()), expected, atol=1e-5)
        odds = np.log(found.probabilities[found.answer] / found.probabilities[found.against])
        assert found.log_odds == pytest.approx(odds, abs=1e-9)


def test_sources_add_up_at_every_depth(fit, grounding):
    pending = list(fit.explain(grounding, "Paper/5", depth=3).contributions)
    n_nested = 0
    while pending:
        one = pending.pop()
        if one.sources:
            n_nested += 1
            assert sum(source.amount for source in one.sources) == pytest.approx(one.amount, abs=1e-9)
            pending += one.sources
    assert n_nested > 5


def test_chosen_settings_are_used(world, grounding):
    fit = api.fit(relcrf.parse(MODEL), grounding, "propagate")
    assert fit.learned.settings["alpha"] == 0.0 != fit.learned.chosen_settings["alpha"]
    prediction = api.predict(fit, grounding)
    variable = int(prediction.variables()[0])
    found = fit.explain(grounding, f"Paper/{variable}")
    np.testing.assert_allclose(list(found.probabilities.values()), prediction.probabilities()[0], atol=1e-5)


def test_flips_change_labels(fit, world, grounding):
    variable = 5
    found = fit.flips(grounding, f"Paper/{variable}")
    names = [flip.changes[0].subject for flip in found.single]
    assert names, "labels can change"
    assert all(world.known[int(name.removeprefix("Paper(").removesuffix(").topic"))] for name in names)
    assert found.nearest is not None
    changed = World(world.truth.copy(), world.known, world.size, world.links)
    for change in found.nearest.changes:
        changed.truth[int(change.subject.removeprefix("Paper(").removesuffix(").topic"))] = TOPICS.index(change.after)
    again = fit.explain(changed.data, f"Paper/{variable}")
    assert again.answer == found.nearest.answer != found.answer
    assert again.probabilities[again.answer] == pytest.approx(found.nearest.probability, abs=1e-5)


def test_estimates_of_flips_are_derivatives_of_scores(world, grounding):
    """The scores of `propagate` are linear in the labels, so that the estimates are exact."""
    fit = api.fit(relcrf.parse(MODEL), grounding, "propagate", **SETTINGS["propagate"])
    case = ExplanationCase.from_model(fit.learned, grounding, 5)
    influence = case.propagated_contributions().influence()
    expected = np.linalg.inv(np.eye(N) - 0.9 * world.normalised)[5] * 0.1
    known = world.known & (np.arange(N) != 5)
    scores = np.eye(3)[world.truth[known]].T @ expected[known]
    np.testing.assert_allclose(influence, expected / scores.sum(), atol=1e-5)


def test_unlinked_variable_has_no_neighbours(fit, grounding):
    found = fit.explain(grounding, f"Paper/{N - 1}")
    assert {one.kind for one in found.contributions} <= {"itself"}
    assert fit.flips(grounding, f"Paper/{N - 1}").single == ()


def test_picture_names_the_score(fit, grounding):
    pytest.importorskip("matplotlib")
    figure = neighbourhood.draw_neighbourhood(fit.explain(grounding, "Paper/5", depth=2))
    assert any(text.get_text().startswith("score difference") for text in figure.texts)
