"""The factors around a node against the definition of the log potentials."""

import numpy as np
import pytest
from graphs import joint_score, random_graph

from relcrf.graph.local_factors import bundle_factors
from relcrf.graph.reduction import Role, reduce_graph


@pytest.mark.parametrize("seed", range(30))
def test_bundles_are_all_that_depends_on_a_node(seed):
    """What a node's change of state does to the score is what its bundles say, whatever the other states are."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 7)
    weights = rng.normal(size=graph.layout.size)
    states = np.array([rng.integers(k) for k in graph.cardinality], dtype=np.int32)
    roles = np.where(rng.random(7) < 0.3, Role.CLAMPED, Role.FREE).astype(np.int8)
    roles[seed % 7] = Role.FREE
    reduced = reduce_graph(graph, roles, states)
    for node, variable in enumerate(reduced.variables):
        told = np.zeros(reduced.cardinality[node])
        for bundle in bundle_factors(reduced, node):
            cell = 0
            for other in bundle.others:
                cell = cell * reduced.cardinality[other] + states[reduced.variables[other]]
            table = bundle.log_potentials(reduced.graph, weights)
            each = [
                np.einsum("stp,p->st", piece.patterns(graph), _scores(graph, weights, piece))
                for piece in bundle.factors
            ]
            np.testing.assert_allclose(table, sum(each), atol=1e-9)
            told += table[:, cell]
        scores = []
        for state in range(graph.cardinality[variable]):
            changed = states.copy()
            changed[variable] = state
            scores.append(joint_score(graph, weights, changed))
        np.testing.assert_allclose(told - told[0], np.array(scores) - scores[0], atol=1e-8)


def _scores(graph, weights, piece):
    group = graph.groups[piece.group]
    (scores,) = group.features.scores(graph.layout.matrix(weights, group.block), np.array([piece.factor]))
    return scores
