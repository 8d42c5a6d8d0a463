"""Priors of agreement weights: estimates on sampled pairs with a known weight, and the choice of the data."""

import math

import numpy as np
import pytest

from relcrf.graph.agreement_prior import (
    MAX_CRITICAL_AGREEMENT,
    MIN_PAIRS,
    PRIOR_DEVIATION,
    _agreement_probability,
    critical_agreement,
    estimate_agreement,
)
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Ones
from relcrf.graph.weights import WeightBlock, WeightLayout


def pair_graph(first, second, n_states, n_variables, features=None):
    """Return a graph with one agreement template (block 0) and, if there are features, a template of features (block 1)."""
    scope = (np.asarray(first, np.int32), np.asarray(second, np.int32))
    equal = np.eye(n_states).reshape(-1, 1)
    groups = [FactorGroup(scope, (n_states, n_states), Ones(len(first)), equal, 0)]
    blocks = [WeightBlock("linked", 1, 1)]
    if features is not None:
        own = np.arange(n_variables, dtype=np.int32)
        groups.append(FactorGroup((own,), (n_states,), Dense(features), None, 1))
        blocks.append(WeightBlock("own", features.shape[1], n_states))
    return FactorGraph(np.full(n_variables, n_states, np.int32), tuple(groups), WeightLayout(tuple(blocks)))


def sample_pairs(rng, n_pairs, frequency, weight):
    """Draw independent pairs of states with probability proportional to `pi_a pi_b exp(w [a = b])`."""
    table = np.outer(frequency, frequency) * np.exp(weight * np.eye(len(frequency)))
    drawn = rng.choice(table.size, size=n_pairs, p=(table / table.sum()).ravel())
    return np.column_stack(np.divmod(drawn, len(frequency))).ravel()  # variables 2 i and 2 i + 1 are a pair


def estimate(graph, labels):
    return estimate_agreement(graph, {0: [graph.groups[0]]}, labels).get(0)


@pytest.mark.parametrize("weight", [-1.0, 0.0, 1.0, 3.0])
def test_labelled_pairs_recover_the_weight_within_the_standard_error(weight):
    frequency, errors = np.array([0.4, 0.3, 0.2, 0.1]), []
    for seed in range(40):
        labels = sample_pairs(np.random.default_rng(seed), 100, frequency, weight)
        found = estimate(pair_graph(np.arange(0, 200, 2), np.arange(1, 200, 2), 4, 200), labels)
        assert found.pairs == 100 and not found.from_features
        errors.append((found.log_odds - weight) / found.standard_error)
    assert abs(np.mean(errors)) < 0.5 and 0.6 < np.std(errors) < 1.4


def test_prior_is_the_posterior_of_a_plain_sum():
    """Twelve pairs, nine of them equal, two states: integrate the binomial likelihood and the normal prior."""
    labels = np.array([0, 0] * 5 + [1, 1] * 4 + [0, 1] * 3)
    found = estimate(pair_graph(np.arange(0, 24, 2), np.arange(1, 24, 2), 2, 24), labels)
    by_chance = 0.5  # the correction of ((13 / 24)^2 + (11 / 24)^2) is at its limit, equal frequencies
    density = []
    weights = np.linspace(-9, 9, 1801)
    for w in weights:
        agree = math.exp(w) * by_chance / (math.exp(w) * by_chance + 1 - by_chance)
        density.append(agree**9 * (1 - agree) ** 3 * math.exp(-0.5 * (w / PRIOR_DEVIATION) ** 2))
    mean = np.average(weights, weights=density)
    assert found.by_chance == pytest.approx(by_chance) and found.fraction == 0.75
    assert found.log_odds == pytest.approx(mean, abs=0.01)
    assert found.standard_error == pytest.approx(np.sqrt(np.average((weights - mean) ** 2, weights=density)), abs=0.01)
    assert found.l2 == pytest.approx(found.deviation**-2) and 0 < found.mean < found.log_odds


def test_agreement_probability_is_that_of_a_table_with_these_marginals():
    """Draw u, and compare the agreement of the table `u_a u_b exp(w [a = b])` with that computed from its marginals."""
    weights = np.linspace(-8, 8, 321)
    for seed, weight in enumerate((-2.0, 0.5, 3.0)):
        u = np.random.default_rng(seed).random(5) + 0.1
        table = np.outer(u, u) * np.exp(weight * np.eye(5))
        table /= table.sum()
        found = _agreement_probability(table.sum(axis=1))
        assert found[np.abs(weights - weight).argmin()] == pytest.approx(np.trace(table), abs=1e-4)
    equal = np.exp(weights) / (np.exp(weights) + 3)
    assert _agreement_probability(np.full(4, 0.25)) == pytest.approx(equal, abs=1e-6)


def test_templates_inform_each_other():
    """A template with few pairs is close to a template with many pairs; the latter hardly changes."""
    rng = np.random.default_rng(0)
    labels = np.concatenate(
        (sample_pairs(rng, 200, np.full(3, 1 / 3), 2.0), [0, 0, 1, 1, 2, 2] * 2, [0, 1, 1, 2, 2, 0] * 2)
    )
    graph = pair_graph(np.arange(0, 400, 2), np.arange(1, 400, 2), 3, 424)
    few = pair_graph(np.arange(400, 424, 2), np.arange(401, 424, 2), 3, 424).groups[0]
    both = estimate_agreement(graph, {0: [graph.groups[0]], 1: [few]}, labels)
    alone = estimate_agreement(graph, {1: [few]}, labels)[1]
    assert both[0].log_odds == pytest.approx(estimate(graph, labels).log_odds, abs=0.05)
    assert alone.log_odds < both[1].log_odds < both[0].log_odds
    assert both[1].standard_error < alone.standard_error


def linked_features(rng, weight, n_variables=2000, n_links=4000, n_labelled=60):
    """Return a graph of links and features that depend on the states only, and labels of variables without links."""
    states = rng.integers(4, size=n_variables)
    features = rng.normal(size=(4, 30))[states] + 1.5 * rng.normal(size=(n_variables, 30))
    first, second = rng.integers(n_labelled, n_variables, size=(2, 40 * n_links))
    accept = rng.random(len(first)) < np.where(states[first] == states[second], 1.0, math.exp(-weight))
    labels = np.where(np.arange(n_variables) < n_labelled, states, -1)
    return pair_graph(first[accept][:n_links], second[accept][:n_links], 4, n_variables, features), labels, states


@pytest.mark.parametrize("weight", [0.0, 1.0, 2.0])
def test_features_recover_the_weight_if_no_labels_are_linked(weight):
    errors = []
    for seed in range(8):
        graph, labels, _ = linked_features(np.random.default_rng(seed), weight)
        found = estimate(graph, labels)
        assert found.pairs == 0 and found.from_features
        errors.append((found.log_odds - weight) / found.standard_error)
    assert abs(np.mean(errors)) < 1.0 and np.abs(errors).max() < 3.0


def test_features_are_not_used_if_enough_labels_are_linked():
    graph, labels, states = linked_features(np.random.default_rng(0), 1.0)
    first, second = (variables[:MIN_PAIRS] for variables in graph.groups[0].scope)
    for number in (MIN_PAIRS - 1, MIN_PAIRS):
        known = labels.copy()
        ends = np.concatenate((first[:number], second[:number]))
        known[ends] = states[ends]
        assert estimate(graph, known).from_features == (number < MIN_PAIRS)


def test_no_proposal_without_data():
    graph, labels, _ = linked_features(np.random.default_rng(0), 1.0)
    without_features = pair_graph(*graph.groups[0].scope, 4, graph.n_variables)
    assert estimate(without_features, labels) is None
    assert estimate(graph, np.full_like(labels, -1)) is None
    noise = np.random.default_rng(1).normal(size=(graph.n_variables, 3))
    assert estimate(pair_graph(*graph.groups[0].scope, 4, graph.n_variables, noise), labels) is None
    assert estimate(pair_graph([], [], 4, graph.n_variables), labels) is None
    assert estimate(graph, np.where(labels >= 0, 0, -1)) is None  # all labels are equal
    # Features that are computed along links are more similar than those of equal labels.
    first, second = (np.asarray(variables) for variables in graph.groups[0].scope)
    smooth = 0.3 * graph.groups[1].features.values
    np.add.at(smooth, first, 5 * np.random.default_rng(2).normal(size=(len(first), 30)))
    np.add.at(smooth, second, smooth[first])
    assert estimate(pair_graph(first, second, 4, graph.n_variables, smooth), labels) is None


@pytest.mark.parametrize(("further", "n_states"), [(2, 3), (5, 2)])
def test_critical_agreement_is_where_messages_become_unstable(further, n_states):
    """On a regular graph, iterate the message recursion from a small perturbation below and above the critical weight."""
    n = 60
    first = np.repeat(np.arange(n), (further + 1) // 2 if further % 2 else 1)
    second = (first + np.tile(np.arange(1, len(first) // n + 1), n)) % n
    if further == 2:  # a prism has degree 3
        first = np.concatenate((np.arange(30), np.arange(30) + 30, np.arange(30)))
        second = np.concatenate(((np.arange(30) + 1) % 30, (np.arange(30) + 1) % 30 + 30, np.arange(30) + 30))
    graph = pair_graph(first, second, n_states, n)
    critical = critical_agreement([graph.groups[0]], n)

    def perturbation_grows(weight):
        message = np.full(n_states, 1.0) + 1e-6 * (np.arange(n_states) == 0)
        for _ in range(2000):
            belief = message**further
            message = belief.sum() + (math.exp(weight) - 1) * belief
            message /= message.mean()
        return message.max() - 1 > 1e-3

    assert not perturbation_grows(critical - 0.05) and perturbation_grows(critical + 0.05)
    assert critical_agreement([pair_graph([0, 2], [1, 3], 2, 4).groups[0]], 4) == MAX_CRITICAL_AGREEMENT
