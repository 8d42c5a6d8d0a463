"""Local factors of a node compared with the definition of the log potentials."""

import numpy as np
import pytest
from graphs import joint_score, random_graph

from relcrf.graph.local_factors import bundle_factors
from relcrf.graph.reduction import Role, reduce_graph


@pytest.mark.parametrize("seed", range(30))
def test_bundles_explain_all_score_changes_of_a_node(seed):
    """A change of a node's state changes the score by the difference of its bundles' log potentials."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 7)
    weights = rng.normal(size=graph.layout.size)
    states = np.array([rng.integers(k) for k in graph.cardinality], dtype=np.int32)
    roles = np.where(rng.random(7) < 0.3, Role.CLAMPED, Role.FREE).astype(np.int8)
    roles[seed % 7] = Role.FREE
    reduced = reduce_graph(graph, roles, states)
    for node, variable in enumerate(reduced.variables):
        log_potentials = np.zeros(reduced.cardinality[node])
        for bundle in bundle_factors(reduced, node):
            cell = 0
            for other in bundle.others:
                cell = cell * reduced.cardinality[other] + states[reduced.variables[other]]
            table = bundle.log_potentials(reduced.graph, weights)
            each = [
                np.einsum("stp,p->st", factor.patterns(graph), _scores(graph, weights, factor))
                for factor in bundle.factors
            ]
            np.testing.assert_allclose(table, sum(each), atol=1e-9)
            log_potentials += table[:, cell]
        scores = []
        for state in range(graph.cardinality[variable]):
            changed = states.copy()
            changed[variable] = state
            scores.append(joint_score(graph, weights, changed))
        np.testing.assert_allclose(log_potentials - log_potentials[0], np.array(scores) - scores[0], atol=1e-8)


def _scores(graph, weights, factor):
    group = graph.groups[factor.group]
    (scores,) = group.features.scores(graph.layout.matrix(weights, group.block), np.array([factor.factor]))
    return scores
