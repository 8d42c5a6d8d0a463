"""The piecewise likelihood, compared with sums over the joint states of each piece."""

import itertools

import numpy as np
import pytest
from graphs import dense_features, random_graph
from objectives import finite_differences

from relcrf.graph.reduction import reduce_graph
from relcrf.learning.pair_likelihood import PairLikelihood
from relcrf.learning.piecewise import PiecewiseLikelihood


def factors(graph, weights):
    """Yield the distinct variables of each factor, and a function of the states of all variables: its log potential."""
    for group in graph.groups:
        scores = dense_features(group.features) @ graph.layout.matrix(weights, group.block)
        tables = scores @ (np.eye(group.n_joint_states) if group.patterns is None else group.patterns).T
        for n, table in enumerate(tables):
            scope = [int(variables[n]) for variables in group.scope]
            shaped = table.reshape(group.cardinalities)
            yield frozenset(scope), lambda states, scope=scope, shaped=shaped: shaped[tuple(states[scope])]


def log_likelihood(graph, weights, states):
    """Return the sum of the pieces' log probabilities; factors over the same two variables are one piece."""
    every = list(factors(graph, weights))
    pairs = {variables for variables, _ in every if len(variables) == 2}
    alone = set(range(len(states))) - set().union(*pairs)
    pieces = [(variables, [score for other, score in every if other == variables]) for variables in pairs]
    pieces += [(variables, [score]) for variables, score in every if len(variables) > 2]
    pieces += [(frozenset({variable}), []) for variable in alone]
    total = 0.0
    for variables, larger in pieces:
        scores = larger + [score for other, score in every if len(other) == 1 and other <= variables]
        values = []
        for joint in itertools.product(*(range(graph.cardinality[v]) for v in sorted(variables))):
            changed = states.copy()
            changed[sorted(variables)] = joint
            values.append(sum(score(changed) for score in scores))
        total += sum(score(states) for score in scores) - np.logaddexp.reduce(values)
    return total


@pytest.mark.parametrize("seed", range(8))
def test_value_and_gradient(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    reduced = reduce_graph(graph, np.zeros(graph.n_variables, dtype=np.int8), states)
    objective, weights = PiecewiseLikelihood(reduced, states), rng.normal(size=graph.layout.size)
    value, gradient = objective(weights)
    assert value == pytest.approx(-log_likelihood(graph, weights, states))
    np.testing.assert_allclose(gradient, finite_differences(objective, weights), rtol=1e-5, atol=1e-6)


def test_edges_only_are_the_likelihood_of_pairs():
    rng = np.random.default_rng(0)
    graph = random_graph(rng, max_arity=2)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    reduced = reduce_graph(graph, np.zeros(graph.n_variables, dtype=np.int8), states)
    weights = rng.normal(size=graph.layout.size)
    one, other = (kind(reduced, states)(weights) for kind in (PiecewiseLikelihood, PairLikelihood))
    assert one[0] == other[0]
    np.testing.assert_array_equal(one[1], other[1])
