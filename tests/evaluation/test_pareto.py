"""Sweeps over the price of messages: prices close gates, figures are those of a fit by hand, each fit goes on from the last."""

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.backends.base import Monitor
from relcrf.backends.problems import training_problem
from relcrf.errors import UsageError
from relcrf.evaluation.pareto import ParetoFront, ParetoPoint, make_systems, pareto_optimal
from relcrf.evaluation.splits import Fold
from relcrf.resources import resource_path

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))
import random_fields

PRICES = (1e-2, 0.0, 1e-3, 3e-3, 3e-2)
SETTINGS = {"batch_size": 20, "max_iterations": 60}


@pytest.fixture(scope="module")
def fields():
    """Rows of ten variables, and which labels are held out: the asked ones of half of the rows."""
    rng = np.random.default_rng(0)
    rows = random_fields.make_rows(random_fields.make_field(rng, 10, 20, 3), 240, rng, 60)
    model = relcrf.load(resource_path("models", "random_field.rcrf"))
    grounding = model.ground(relcrf.Dataset(random_fields.tables(rows, with_outputs=True)))
    late = np.arange(240)[:, None] >= 120
    hidden = ((rows.statuses == random_fields.OUTPUT) & late).ravel()
    return model, grounding, hidden & (grounding.states >= 0)


@pytest.fixture(scope="module")
def front(fields):
    _, grounding, hidden = fields
    return api.pareto(grounding, PRICES, [Fold.from_test("late", hidden)], **SETTINGS)


def point(loss, messages):
    return ParetoPoint("evidence", 0.0, loss, 0.5, -1.0, 1, 1, messages, 1, 1, 1, 0.0, 0.0)


def test_dearer_messages_are_fewer(front):
    assert not front.interrupted
    assert [one.price for one in front.points] == sorted(PRICES)
    each = [one.messages_per_query for one in front.points]
    assert front.points[0].open_fraction == 1.0 and each[0] == 27.0, "three iterations over nine neighbours"
    assert all(after <= before * 1.05 for before, after in pairwise(each)), each
    assert each[-1] < 0.2 * each[0]
    for one in front.points:
        assert one.messages <= 6 * one.open_factors, "three iterations, and at most two ends"
        assert 0 <= one.open_factors <= one.factors and one.seconds_infer > 0.0


def test_a_point_is_what_a_fit_by_hand_gives(fields, front):
    model, grounding, hidden = fields
    fit = api.fit(model, grounding, "gated", hidden=hidden, message_cost=0.0, **SETTINGS)
    found = api.predict(fit, grounding, hidden=hidden)
    score = found.score(subset=hidden)
    first = front.points[0]
    assert (first.accuracy, first.n) == (score.accuracy, score.n)
    assert first.log_likelihood == pytest.approx(score.log_likelihood, abs=1e-6)
    assert (first.messages, first.asked) == (found.inferred.n_messages, len(found.inferred.variables))
    truth = grounding.states[found.variables()]
    judged = hidden[found.variables()]
    errors = 0.5 * ((found.probabilities() - np.eye(2)[truth]) ** 2).sum(axis=1)
    assert first.loss == pytest.approx(errors[judged].mean(), abs=1e-6)


def test_each_fit_goes_on_from_the_one_before(fields, front):
    """No likelihood any more, and what is found is as good as from the start."""
    _, grounding, hidden = fields
    stages = {}

    class Stages(Monitor):
        def __init__(self, what):
            self.seen = stages.setdefault(what, [])

        def step(self, stage, state, max_iterations):
            self.seen.append(stage)

    api.pareto(grounding, (0.0, 3e-3), [Fold.from_test("late", hidden)], progress=Stages, **SETTINGS)
    assert list(stages) == ["gates evidence, price 0", "gates evidence, price 0.003"]
    assert [("likelihood" in seen) for seen in stages.values()] == [True, False]
    (cold,) = api.pareto(grounding, (3e-3,), [Fold.from_test("late", hidden)], **SETTINGS).points
    warm = next(one for one in front.points if one.price == 3e-3)
    assert warm.loss + 3e-3 * warm.messages_per_query < 1.1 * (cold.loss + 3e-3 * cold.messages_per_query)
    assert warm.messages_per_query < 27.0, "gates that cheap messages have opened wide close all the same"


def test_hidden_labels_are_not_learned_from(fields):
    _, grounding, hidden = fields
    turned = replace(grounding, states=np.where(hidden & (grounding.states >= 0), 0, grounding.states))
    one, other = (
        api.pareto(g, (1e-3,), [Fold.from_test("late", hidden)], **SETTINGS).points[0] for g in (grounding, turned)
    )
    assert (one.messages, one.open_factors) == (other.messages, other.open_factors)
    assert one.loss != other.loss


def test_folds_are_pooled(fields):
    _, grounding, hidden = fields
    first = hidden & (np.arange(len(hidden)) % 20 < 10)
    parts = [
        api.pareto(grounding, (1e-3,), [Fold.from_test("1", one)], **SETTINGS).points[0]
        for one in (first, hidden & ~first)
    ]
    (both,) = api.pareto(
        grounding, (1e-3,), [Fold.from_test("1", first), Fold.from_test("2", hidden & ~first)], **SETTINGS
    ).points
    assert both.n == parts[0].n + parts[1].n == int(hidden[grounding.states >= 0].sum())
    assert both.messages == sum(part.messages for part in parts)
    assert both.loss == pytest.approx(sum(part.loss * part.n for part in parts) / both.n)


def test_gates_that_are_none_have_one_point(fields):
    _, grounding, hidden = fields
    (one,) = api.pareto(grounding, PRICES, [Fold.from_test("late", hidden)], gates="none", **SETTINGS).points
    assert (one.gates, one.cost, one.open_fraction) == ("none", 0.0, 1.0)


def test_what_is_unbeaten():
    points = [point(0.2, 10), point(0.1, 20), point(0.2, 10), point(0.3, 10), point(0.1, 21), point(0.4, 0)]
    assert pareto_optimal(points) == [True, True, True, False, False, True]
    assert pareto_optimal([]) == []


def test_ctrl_c_gives_what_there_is(fields):
    _, grounding, hidden = fields

    def watch(what):
        if what.endswith("0.003"):
            raise KeyboardInterrupt
        return Monitor()

    found = api.pareto(grounding, (0.0, 1e-3, 3e-3), [Fold.from_test("late", hidden)], progress=watch, **SETTINGS)
    assert found.interrupted and [one.cost for one in found.points] == [0.0, 1e-3]
    assert api.pareto(grounding, (3e-3,), [Fold.from_test("late", hidden)], progress=watch, **SETTINGS) == ParetoFront(
        (), interrupted=True
    )


def test_what_cannot_be_swept(fields):
    _, grounding, hidden = fields
    for prices, code in ((("many",), "E305"), ((-1.0,), "E305"), ((float("nan"),), "E305"), ((), "E319")):
        with pytest.raises(UsageError, match=code):
            make_systems("gated", prices, {})
    with pytest.raises(UsageError, match=r"E319.*has no gates"):
        make_systems("ess", (0.0,), {})
    with pytest.raises(UsageError, match=r"E319.*among the settings"):
        make_systems("gated", (0.0,), {"message_cost": 1.0})
    with pytest.raises(UsageError, match=r"E319.*has a label"):
        api.pareto(grounding, (0.0,), [Fold.from_test("late", np.zeros_like(hidden))])


def test_gates_that_were_open_beyond_doubt_close_all_the_same(fields):
    _, grounding, hidden = fields
    fold, problem = Fold.from_test("late", hidden), training_problem(grounding)
    learning = fold.learning_problem(problem)
    (cheap,), (dear,) = (make_systems("gated", (price,), SETTINGS) for price in (0.0, 3e-3))
    start = dict(cheap.fit(learning, Monitor()).vectors)
    start["gates"] = np.where(start["gates"] == start["gates"].max(), 30.0, 0.0)
    found = dear.infer(fold.query_problem(problem), dear.fit(learning, Monitor(), start).vectors)
    assert found.n_messages < 0.8 * 27.0 * len(found.variables)
