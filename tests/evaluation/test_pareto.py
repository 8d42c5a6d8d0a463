"""Sweeps over the message cost: higher costs close gates, points equal manual fits, each fit is warm-started."""

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gated import count_row_messages

import relcrf
from relcrf import api
from relcrf.backends.base import Monitor
from relcrf.backends.problems import training_problem
from relcrf.errors import UsageError
from relcrf.evaluation.pareto import ParetoFront, ParetoPoint, make_systems, pareto_optimal
from relcrf.evaluation.splits import Fold
from relcrf.graph.reduction import Role
from relcrf.resources import resource_path

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))
import random_fields

COSTS = (1e-2, 0.0, 3e-3, 3e-2)
SETTINGS = {"batch_size": 20, "max_iterations": 60}
MEDIUM = {**SETTINGS, "max_iterations": 15}
"""Settings of tests in which some gates must have closed."""
SHORT = {**SETTINGS, "max_iterations": 3}
"""Settings of tests whose results do not depend on the quality of the weights."""


@pytest.fixture(scope="module")
def fields():
    """Return rows of ten variables, and the mask of held-out labels: the outputs of half of the rows."""
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
    return api.pareto(grounding, COSTS, [Fold.from_test("late", hidden)], **SETTINGS)


def point(loss, messages):
    return ParetoPoint("evidence", 0.0, loss, 0.5, -1.0, 1, 1, messages, 1, 1, 1, 0.0, 0.0)


@pytest.fixture(scope="module")
def messages_of_open_gates(fields):
    """Return the number of useful messages per query variable if all gates are open."""
    _, grounding, hidden = fields
    free = Fold.from_test("late", hidden).query_problem(training_problem(grounding)).roles == Role.FREE
    return count_row_messages(free.reshape(240, 10)) / free.sum()


def test_higher_costs_give_fewer_messages(front, messages_of_open_gates):
    assert not front.interrupted
    assert [one.cost for one in front.points] == sorted(COSTS)
    each = [one.messages_per_query for one in front.points]
    assert front.points[0].open_fraction == 1.0 and each[0] == messages_of_open_gates
    assert all(after <= before * 1.05 for before, after in pairwise(each)), each
    assert each[-1] < 0.2 * each[0]
    for one in front.points:
        assert one.messages <= 6 * one.open_factors, "three iterations, and at most two free variables"
        assert 0 <= one.open_factors <= one.factors and one.seconds_infer > 0.0


def test_point_equals_manual_fit(fields, front):
    model, grounding, hidden = fields
    fit = api.fit(model, grounding, "gated", hidden=hidden, message_cost=0.0, **SETTINGS)
    found = api.predict(fit, grounding, hidden=hidden)
    score = found.score(subset=hidden)
    first = front.points[0]
    assert (first.accuracy, first.n) == (score.accuracy, score.n)
    assert first.log_likelihood == pytest.approx(score.log_likelihood, abs=1e-6)
    assert (first.messages, first.n_queries) == (found.inferred.n_messages, len(found.inferred.variables))
    truth = grounding.states[found.variables()]
    is_test = hidden[found.variables()]
    errors = 0.5 * ((found.probabilities() - np.eye(2)[truth]) ** 2).sum(axis=1)
    assert first.loss == pytest.approx(errors[is_test].mean(), abs=1e-6)


def test_each_fit_is_warm_started(fields, front, messages_of_open_gates):
    """Check that likelihood training is skipped, and that the result is as good as from a cold start."""
    _, grounding, hidden = fields
    stages = {}

    class Stages(Monitor):
        def __init__(self, what):
            self.seen = stages.setdefault(what, [])

        def step(self, stage, state, max_iterations):
            self.seen.append(stage)

    api.pareto(grounding, (0.0, 3e-3), [Fold.from_test("late", hidden)], progress=Stages, **SHORT)
    assert list(stages) == ["gates evidence, message cost 0", "gates evidence, message cost 0.003"]
    assert [("likelihood" in seen) for seen in stages.values()] == [True, False]
    (cold,) = api.pareto(grounding, (3e-3,), [Fold.from_test("late", hidden)], **SETTINGS).points
    warm = next(one for one in front.points if one.cost == 3e-3)
    assert warm.loss + 3e-3 * warm.messages_per_query < 1.1 * (cold.loss + 3e-3 * cold.messages_per_query)
    assert warm.messages_per_query < messages_of_open_gates, "gates that a low cost has opened close again"


def test_hidden_labels_are_not_learned_from(fields):
    _, grounding, hidden = fields
    changed = replace(grounding, states=np.where(hidden & (grounding.states >= 0), 0, grounding.states))
    one, other = (
        api.pareto(g, (1e-3,), [Fold.from_test("late", hidden)], **MEDIUM).points[0] for g in (grounding, changed)
    )
    assert (one.messages, one.open_factors) == (other.messages, other.open_factors)
    assert one.loss != other.loss


def test_folds_are_pooled(fields):
    _, grounding, hidden = fields
    first = hidden & (np.arange(len(hidden)) % 20 < 10)
    parts = [
        api.pareto(grounding, (1e-3,), [Fold.from_test("1", one)], **SHORT).points[0]
        for one in (first, hidden & ~first)
    ]
    (both,) = api.pareto(
        grounding, (1e-3,), [Fold.from_test("1", first), Fold.from_test("2", hidden & ~first)], **SHORT
    ).points
    assert both.n == parts[0].n + parts[1].n == int(hidden[grounding.states >= 0].sum())
    assert both.messages == sum(part.messages for part in parts)
    assert both.loss == pytest.approx(sum(part.loss * part.n for part in parts) / both.n)


def test_sweep_without_gates_has_one_point(fields):
    _, grounding, hidden = fields
    (one,) = api.pareto(grounding, COSTS, [Fold.from_test("late", hidden)], gates="none", **SHORT).points
    assert (one.gates, one.cost, one.open_fraction) == ("none", 0.0, 1.0)


def test_pareto_optimal():
    points = [point(0.2, 10), point(0.1, 20), point(0.2, 10), point(0.3, 10), point(0.1, 21), point(0.4, 0)]
    assert pareto_optimal(points) == [True, True, True, False, False, True]
    assert pareto_optimal([]) == []


def test_ctrl_c_returns_finished_points(fields):
    _, grounding, hidden = fields

    def progress(what):
        if what.endswith("0.003"):
            raise KeyboardInterrupt
        return Monitor()

    found = api.pareto(grounding, (0.0, 1e-3, 3e-3), [Fold.from_test("late", hidden)], progress=progress, **SHORT)
    assert found.interrupted and [one.cost for one in found.points] == [0.0, 1e-3]
    assert api.pareto(grounding, (3e-3,), [Fold.from_test("late", hidden)], progress=progress, **SHORT) == ParetoFront(
        (), interrupted=True
    )


def test_invalid_sweeps_raise_error(fields):
    _, grounding, hidden = fields
    for costs, code in ((("many",), "E305"), ((-1.0,), "E305"), ((float("nan"),), "E305"), ((), "E319")):
        with pytest.raises(UsageError, match=code):
            make_systems("gated", costs, {})
    with pytest.raises(UsageError, match=r"E319.*has no gates"):
        make_systems("ess", (0.0,), {})
    with pytest.raises(UsageError, match=r"E319.*among the settings"):
        make_systems("gated", (0.0,), {"message_cost": 1.0})
    with pytest.raises(UsageError, match=r"E319.*has a label"):
        api.pareto(grounding, (0.0,), [Fold.from_test("late", np.zeros_like(hidden))])


def test_saturated_gates_close_at_a_higher_cost(fields, messages_of_open_gates):
    _, grounding, hidden = fields
    fold, problem = Fold.from_test("late", hidden), training_problem(grounding)
    learning = fold.learning_problem(problem)
    (cheap,), (expensive,) = (make_systems("gated", (cost,), SETTINGS) for cost in (0.0, 3e-3))
    start = dict(cheap.fit(learning, Monitor()).vectors)
    start["gates"] = np.where(start["gates"] == start["gates"].max(), 30.0, 0.0)
    found = expensive.infer(fold.query_problem(problem), expensive.fit(learning, Monitor(), start).vectors)
    assert found.n_messages < 0.8 * messages_of_open_gates * len(found.variables)
