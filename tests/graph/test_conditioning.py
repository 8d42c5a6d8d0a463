"""Conditioning compared with clamping on small networks; components inferred separately compared with the whole graph."""

import zlib

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS

from relcrf.graph.conditioning import condition
from relcrf.graph.scope_components import extract_components, label_scope_components
from relcrf.inference.enumeration import Enumeration

NETWORKS = {**FORESTS, **LOOPS, **CLIQUES}


def random_network(name, seed):
    return NETWORKS[name](np.random.default_rng([zlib.crc32(name.encode()), seed]))


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_conditioning_equals_clamping(name, fraction):
    for seed in range(4):
        scopes, potentials = random_network(name, seed)
        rng = np.random.default_rng(seed)
        states = rng.integers(scopes.cardinality) if scopes.n_nodes else np.empty(0, dtype=np.int64)
        if seed % 2:
            states = Enumeration(scopes).map_states(potentials).states.astype(np.int64)
        states[rng.random(scopes.n_nodes) >= fraction] = -1
        clamped = Enumeration(scopes).marginals(potentials.clamp(scopes, states))
        conditioned = condition(scopes, potentials, states)
        found = Enumeration(conditioned.scopes).marginals(conditioned.potentials)
        assert (conditioned.free_nodes == np.flatnonzero(states < 0)).all()
        assert (conditioned.scopes.arity > 1).all()
        scale = max(1.0, abs(clamped.log_partition)) if np.isfinite(clamped.log_partition) else 1.0
        assert conditioned.constant + found.log_partition == pytest.approx(clamped.log_partition, abs=1e-12 * scale)
        if np.isfinite(clamped.log_partition):
            free = np.repeat(states < 0, scopes.cardinality)
            np.testing.assert_allclose(found.nodes, clamped.nodes[free], atol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_components_together_equal_the_graph(name):
    scopes, potentials = random_network(name, 0)
    whole = Enumeration(scopes).marginals(potentials)
    component = label_scope_components(scopes)
    total, nodes, factors = 0.0, np.full(len(whole.nodes), np.nan), np.full(len(whole.factors), np.nan)
    for label in np.unique(component):
        one = extract_components(scopes, component == label)
        found = Enumeration(one.scopes).marginals(one.potentials(potentials))
        total += found.log_partition
        nodes[one.node_cells], factors[one.factor_cells] = found.nodes, found.factors
    assert total == pytest.approx(whole.log_partition, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(nodes, whole.nodes, atol=1e-9)
    np.testing.assert_allclose(factors, whole.factors, atol=1e-9)
