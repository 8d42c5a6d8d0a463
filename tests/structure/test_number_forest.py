"""Forests of numbers, compared with networkx and with correlations of dense matrices."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from gaussians import dense_distribution, random_numeric_graph

from relcrf.learning.gaussian_likelihood import NumberWeights
from relcrf.structure.number_forest import NumberForest

N = 14


@pytest.fixture(params=range(4))
def case(request):
    """Return a graph with a number that is linked to itself, a rule, and the information of each link by its ends."""
    rng = np.random.default_rng(request.param)
    graph = random_numeric_graph(rng, N, 30)
    graph = replace(graph, second=np.where(np.arange(graph.n_pairs) == 4, graph.first, graph.second))
    weights = NumberWeights(rng.normal(size=6), rng.normal(size=(2, 2)), is_forest=True)
    information = {}
    for ends in {frozenset(pair) for pair in zip(graph.first.tolist(), graph.second.tolist(), strict=True)}:
        a, b = min(ends), max(ends)
        if a != b:
            alone = graph.with_pairs(
                np.isin(graph.first, (a, b)) & np.isin(graph.second, (a, b)) & (graph.first != graph.second)
            )
            _, covariance = dense_distribution(alone, replace(weights, is_forest=False))
            r = covariance[a, b] / np.sqrt(covariance[a, a] * covariance[b, b])
            information[a, b] = -0.5 * np.log(1.0 - r**2)
    return graph, NumberForest(weights), information


def spanning_tree(information):
    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, value) for (a, b), value in information.items())
    return {(min(ends), max(ends)) for ends in nx.maximum_spanning_tree(graph).edges}


def selected_links(graph):
    assert set(graph.links[1].tolist()) == set(range(len(graph.links[0])))
    return set(map(tuple, graph.links[0].tolist()))


def test_all_numbers_form_a_forest_that_known_numbers_do_not_change(case):
    graph, rule, information = case
    is_known = np.random.default_rng(0).random(N) < 0.5
    expected = spanning_tree(information)
    for known in (is_known, ~is_known, np.zeros(N, dtype=bool)):
        found = rule.select(graph, known)
        assert selected_links(found) == selected_links(rule.select_for_left_out(graph, known)) == expected
    # All pairs of a link are selected, in both directions.
    n_pairs = sum((min(ends), max(ends)) in expected for ends in zip(graph.first, graph.second, strict=True))
    assert found.n_pairs == n_pairs > len(expected)


def test_all_links_to_known_numbers(case):
    graph, rule, information = case
    is_known = np.random.default_rng(1).random(N) < 0.4
    rule = replace(rule, uses_known=True)
    by_known = {count: {e: v for e, v in information.items() if is_known[list(e)].sum() == count} for count in range(3)}
    assert selected_links(rule.select(graph, is_known)) == spanning_tree(by_known[0]) | set(by_known[1])
    assert selected_links(rule.select_for_left_out(graph, is_known)) == set(by_known[2])


@pytest.mark.parametrize("uses_known", [False, True])
def test_minimum_information(case, uses_known):
    graph, rule, information = case
    limit = float(np.median(list(information.values()))) + 1e-9
    rule, is_known = replace(rule, min_information=limit, uses_known=uses_known), np.arange(N) < 5
    kept = {ends: value for ends, value in information.items() if value >= limit}
    known = {ends for ends in kept if uses_known and is_known[list(ends)].sum() == 1}
    candidates = {e: v for e, v in kept.items() if not (uses_known and is_known[list(e)].any())}
    assert selected_links(rule.select(graph, is_known)) == spanning_tree(candidates) | known
    left_out = {e for e in kept if is_known[list(e)].all()} if uses_known else spanning_tree(kept)
    assert selected_links(rule.select_for_left_out(graph, is_known)) == left_out
