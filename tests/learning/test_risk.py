"""Tests of the risk of gated propagation: its value, its gradient, and inference with hard gates."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from gated import count_useful_messages, gated_factors, propagated, random_gating
from graphs import random_graph
from objectives import finite_differences, require_derivatives
from scipy.special import expit, logit

from relcrf.backends.base import Problem
from relcrf.backends.gated_risks import build_risk
from relcrf.graph.gates import LazyGates
from relcrf.graph.reduction import Role
from relcrf.learning.penalties import SMOOTHING_NORM, Penalties
from relcrf.learning.risk import LOSSES, RiskSettings


def world(seed):
    """Return a problem with gates, the scored variables, weights of both kinds, and settings."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=8, max_arity=2)
    roles = rng.choice([Role.FREE, Role.FREE, Role.FREE, Role.CLAMPED, Role.ABSENT], size=8).astype(np.int8)
    roles[:2] = Role.FREE
    states = np.array([rng.integers(k) for k in graph.cardinality], dtype=np.int32)
    wanted = rng.random(8) < 0.7
    wanted[0] = True
    gates = random_gating(rng, graph)
    problem = Problem(graph, roles, states, lazy_gates=LazyGates(lambda: gates), queries=wanted)
    scored = wanted & (roles == Role.FREE)
    point = rng.normal(size=graph.layout.size + problem.gates.layout.size)
    settings = RiskSettings("squared", 0.1 * rng.random(), int(rng.integers(1, 4)), 0.4)
    return problem, scored, point, settings


def loss_of(kind, beliefs, problem, scored):
    nodes = np.flatnonzero(scored)
    if kind == "squared":
        return np.mean([0.5 * ((beliefs[v] - np.eye(len(beliefs[v]))[problem.states[v]]) ** 2).sum() for v in nodes])
    if kind == "cross-entropy":
        return np.mean([-np.log(beliefs[v][problem.states[v]]) for v in nodes])
    total = 0.0
    for k in np.unique(problem.graph.cardinality[nodes]):
        some = [v for v in nodes if problem.graph.cardinality[v] == k]
        measures = []
        for state in range(1, 2) if k == 2 else range(k):
            true = np.array([problem.states[v] == state for v in some])
            b = np.array([beliefs[v][state] for v in some])
            measures.append(2 * (b * true).sum() / max(b.sum() + true.sum(), 1e-12))
        total += len(some) / len(nodes) * (1 - np.mean(measures))
    return total


def cells_per_message(problem, gated):
    """Return the size of each factor's table over its free variables."""
    return np.array([problem.graph.cardinality[free].prod() for free in gated], dtype=float)


@cache
def soft_reference(seed):
    """Return the beliefs of a world by definition, and the cost of its messages per scored variable."""
    problem, scored, point, settings = world(seed)
    size = problem.graph.layout.size
    factors, gated, fractions = [], [], []
    known = gated_factors(
        problem.graph, problem.gates, problem.roles, problem.states, problem.queries, point[:size], point[size:]
    )
    for free, table, z in known:
        if z is None:
            factors.append((free, table))
            continue
        counted = expit(1.5 * (z - logit(settings.threshold)))
        factors.append((free, expit(z) * counted * table))
        gated.append(free)
        fractions.append(counted)
    beliefs = propagated(problem.graph, problem.roles, factors, settings.iterations)
    is_open = np.array(fractions) >= 0.5
    messages = count_useful_messages(gated, is_open, problem.queries, settings.iterations)
    cost = np.dot(messages * np.array(fractions), cells_per_message(problem, gated)) / 4
    return beliefs, settings.message_cost * cost / scored.sum()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(12))
def test_value_by_definition_and_gradient_by_finite_differences(seed, loss):
    problem, scored, point, settings = world(seed)
    beliefs, cost = soft_reference(seed)
    risk = partial(build_risk(problem, scored, replace(settings, loss=loss), "gated"), steepness=1.5)
    assert risk(point)[0] == pytest.approx(loss_of(loss, beliefs, problem, scored) + cost, rel=1e-9)
    layouts = problem.graph.layout, problem.gates.layout
    require_derivatives(risk, point, [block for layout in layouts for block in layout.blocks], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_hard_gates_leave_factors_out(seed):
    problem, scored, point, settings = world(seed)
    risk = build_risk(problem, scored, settings, "gated")
    size = problem.graph.layout.size
    factors, gated, is_open = [], [], []
    known = gated_factors(
        problem.graph, problem.gates, problem.roles, problem.states, problem.queries, point[:size], point[size:]
    )
    for free, table, z in known:
        if z is None:
            factors.append((free, table))
            continue
        gated.append(free)
        is_open.append(expit(z) >= 0.45 and table.any())
        if is_open[-1]:
            factors.append((free, expit(z) * table))
    messages = count_useful_messages(gated, is_open, problem.queries, settings.iterations) * np.array(
        is_open, dtype=int
    )
    beliefs = propagated(problem.graph, problem.roles, factors, settings.iterations)
    for skip in (True, False):
        found = risk.infer_with_hard_gates(point, 0.45, skip_closed=skip)
        for node, variable in enumerate(risk.graph.ungated.variables):
            if problem.queries[variable] or not skip:
                states = slice(*risk.graph.ungated.state_start[node : node + 2])
                np.testing.assert_allclose(found.beliefs[states], beliefs[variable], atol=1e-9)
        assert found.n_messages == messages.sum()
        assert found.open_factors.sum() == sum(is_open)
        assert found.cost == np.dot(messages, cells_per_message(problem, gated)) / 4
    for loss in LOSSES:
        value = build_risk(problem, scored, replace(settings, loss=loss), "gated").evaluate(found)
        assert value == pytest.approx(loss_of(loss, beliefs, problem, scored), rel=1e-9)


def test_without_gates_all_are_open():
    problem, scored, point, settings = world(3)
    risk = build_risk(problem, scored, replace(settings, has_gates=False, message_cost=0.0), "gated")
    value, gradient = risk(point)
    assert (gradient[problem.graph.layout.size :] == 0.0).all()
    assert risk.evaluate(risk.infer_with_hard_gates(point, 0.3)) == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(gradient, finite_differences(risk, point), rtol=1e-5, atol=1e-8)


def test_penalties():
    rng = np.random.default_rng(0)
    groups = (np.arange(6).reshape(3, 2), np.arange(6, 9).reshape(1, 3))
    penalties = Penalties(rng.random(10), rng.random(10) < 0.8, groups, 0.7, 2.0, 0.1)
    point = rng.normal(size=10)
    value, gradient = penalties(point)
    np.testing.assert_allclose(gradient, finite_differences(penalties, point), atol=1e-8)
    norms = [np.linalg.norm(point[rows], axis=1) * np.sqrt(rows.shape[1]) for rows in groups]
    exact = 0.1 * (0.5 * (penalties.l2 * point**2).sum() + 2.0 * np.concatenate(norms).sum())
    assert exact - 0.1 * 2.0 * 4 * 2 * SMOOTHING_NORM < value < exact
    np.testing.assert_allclose(penalties.l1_strengths, np.where(penalties.learned & (np.arange(10) < 9), 0.07, 0.0))
    point[2:4] = SMOOTHING_NORM
    pruned = np.where(penalties.learned[:5], [*point[:2], 0.0, 0.0, point[4]], point[:5])
    np.testing.assert_array_equal(penalties.prune_groups(point)[:5], pruned)
