"""Tests of the margin loss against its definition over all joint states, and of its gradient."""

import itertools

import numpy as np
import pytest
from objectives import finite_differences, problem

from relcrf.inference.enumeration import Enumeration
from relcrf.learning.likelihood import ForestLikelihood, InferredLikelihood
from relcrf.learning.margin import MarginLoss
from relcrf.learning.mixture import MixtureLikelihood


def margins(graph, weights, states):
    """Return score + cost of every joint state, minus the score of the observed one."""
    potentials = graph.potentials(weights)
    own = graph.scopes.score(potentials, states)
    every = (np.array(s, dtype=np.int32) for s in itertools.product(*(range(k) for k in graph.cardinality)))
    return np.array([graph.scopes.score(potentials, s) + (s != states).sum() - own for s in every])


def losses(graph, states, sharpness):
    return [
        MarginLoss(ForestLikelihood.build(graph, states), sharpness),
        MarginLoss(InferredLikelihood(graph, states, Enumeration), sharpness),
    ]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sharpness", [1.0, 10.0])
def test_the_smoothed_hinge(seed, sharpness):
    graph, states, weights = problem(seed, forest=True)
    found = margins(graph, weights, states)
    smoothed = np.log(np.exp(sharpness * (found - found.max())).sum()) / sharpness + found.max()
    hinge = found.max()
    for loss in losses(graph, states, sharpness):
        value, gradient = loss(weights)
        assert value == pytest.approx(smoothed, rel=1e-9, abs=1e-9)
        assert hinge - 1e-9 <= value <= hinge + np.log(graph.cardinality).sum() / sharpness + 1e-9
        np.testing.assert_allclose(gradient, finite_differences(loss, weights), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_of_a_mixture(seed):
    graph, states, weights = problem(seed, forest=True)
    parts = [graph.with_edges(np.arange(n)) for n in (graph.n_edges, graph.n_edges // 2)]
    loss = MixtureLikelihood(tuple(ForestLikelihood.build(part, states) for part in parts))
    value, gradient = loss(weights)
    assert np.exp(-value) == pytest.approx(np.mean([np.exp(-part(weights)[0]) for part in loss.components]))
    np.testing.assert_allclose(gradient, finite_differences(loss, weights), rtol=1e-5, atol=1e-6)
