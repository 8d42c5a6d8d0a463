"""Kernels of approximate inference, compared with enumeration of all joint states."""

import itertools

import networkx as nx
import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, hard

from relcrf.graph.scopes import Scopes
from relcrf.inference.mean_field import MeanField
from relcrf.kernels import dual_decomposition, factors, induced_forests, mean_field

NETWORKS = {**FORESTS, **LOOPS, **CLIQUES}
NAMES = [n for n in NETWORKS if n not in ("nothing", "nodes alone", "one node")]


def make_network(name, seed):
    """Make a network; some of its cells are impossible if it has no agreements."""
    rng = np.random.default_rng(seed)
    network = NETWORKS[name](rng)
    return rng, *(hard(rng, network, 0.2) if network[0].agreement is None else network)


def value(scopes, potentials, f, states):
    """Return a factor's log potential at the states of its nodes."""
    if scopes.agreement is not None and scopes.agreement[f]:
        return potentials.factors[scopes.table_start[f]] if len(set(states)) == 1 else 0.0
    shape = scopes.cardinality[scopes.node[scopes.start[f] : scopes.start[f + 1]]]
    return potentials.factors[scopes.table_start[f] + np.ravel_multi_index(states, shape)]


def joint_states(scopes, f):
    nodes = scopes.node[scopes.start[f] : scopes.start[f + 1]]
    return nodes, itertools.product(*(range(scopes.cardinality[v]) for v in nodes))


@pytest.mark.parametrize("name", NAMES)
def test_conditional(name):
    rng, scopes, potentials = make_network(name, 0)
    states = np.array([rng.integers(k) for k in scopes.cardinality], dtype=np.int32)
    arrays = scopes.kernel_factors
    value_sums, violations = np.empty(5), np.empty(5, dtype=np.int64)
    for v in range(scopes.n_nodes):
        factors.compute_conditional(arrays, *potentials, v, states, value_sums, violations)
        touching = [f for f in range(scopes.n_factors) if v in joint_states(scopes, f)[0]]
        for x in range(scopes.cardinality[v]):
            changed = np.where(np.arange(scopes.n_nodes) == v, x, states)
            node_potential = potentials.nodes[scopes.state_start[v] + x]
            values = [value(scopes, potentials, f, tuple(changed[joint_states(scopes, f)[0]])) for f in touching]
            assert violations[x] == np.isneginf(values).sum() + np.isneginf(node_potential) * (1 + len(touching))
            assert value_sums[x] == pytest.approx(sum(w for w in (node_potential, *values) if w > -np.inf))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("max_sweeps", [1, 2, 100])
def test_conditional_modes(name, max_sweeps):
    """Compare with sweeps over all nodes."""
    for seed in range(5):
        rng, scopes, potentials = make_network(name, seed)
        states = np.array([rng.integers(k) for k in scopes.cardinality], dtype=np.int32)
        wanted, value_sums, violations = states.copy(), np.empty(5), np.empty(5, dtype=np.int64)
        for _ in range(max_sweeps):
            for v, k in enumerate(scopes.cardinality):
                factors.compute_conditional(scopes.kernel_factors, *potentials, v, wanted, value_sums, violations)
                keys = [(violations[x], -value_sums[x], x != wanted[v], x) for x in range(k)]
                wanted[v] = min(keys)[-1]
        factors.iterate_conditional_modes(scopes.kernel_factors, *potentials, max_sweeps, states)
        np.testing.assert_array_equal(states, wanted)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_blocks", [None, 2, 3])
def test_mean_field_expectations(name, n_blocks):
    """Test the expected log potentials of every block for random distributions of the others that are not products."""
    rng, scopes, potentials = make_network(name, 1)
    block_of = np.arange(scopes.n_nodes) if n_blocks is None else rng.integers(n_blocks, size=scopes.n_nodes)
    block_of = np.unique(block_of, return_inverse=True)[1]
    method = MeanField(scopes, blocks=block_of)
    arrays, parts, q = scopes.kernel_factors, method._parts, np.zeros(method._q_size)
    joint = {}  # nodes of each block, and the probability of each of their joint states
    for b in range(block_of.max() + 1):
        nodes = np.flatnonzero(block_of == b)
        all_states = list(itertools.product(*(range(scopes.cardinality[v]) for v in nodes)))
        joint[b] = nodes, dict(zip(all_states, rng.dirichlet(np.ones(len(all_states))), strict=True))
        for state, p in joint[b][1].items():
            q[scopes.state_start[nodes] + np.array(state)] += p
    for part in range(len(parts.factor)):
        slots = slice(parts.slot_start[part], parts.slot_start[part + 1])
        part_nodes = scopes.node[parts.slot[slots]]
        if len(part_nodes) > 1:
            nodes, table = joint[block_of[part_nodes[0]]]
            for state, p in table.items():
                q[
                    parts.table_start[part] + np.array(state)[np.searchsorted(nodes, part_nodes)] @ parts.stride[slots]
                ] += p
    field, violations = np.full(len(q), np.nan), np.full(len(q), np.nan)
    for b in joint:
        scratch = np.empty((2, mean_field.max_arity(arrays)), dtype=np.int64)
        mean_field.compute_fields(arrays, parts, *potentials, b, q, *scratch, field, violations)
        for state in joint[b][1]:
            expected = expected_violations = found = found_violations = 0.0
            own = dict(zip(joint[b][0], state, strict=True))
            for v, x in own.items():
                at = scopes.state_start[v] + x
                found, found_violations = found + field[at], found_violations + violations[at]
                node_potential = potentials.nodes[at]
                expected += node_potential if node_potential > -np.inf else 0.0
                expected_violations += np.isneginf(node_potential) * (1 + (scopes.node == v).sum())
            for f in range(scopes.n_factors):
                nodes, all_states = joint_states(scopes, f)
                if not set(own) & set(nodes):
                    continue
                for cell in all_states:
                    states = dict(zip(nodes, cell, strict=True))
                    if any(own.get(v, x) != x for v, x in states.items()):
                        continue
                    weight = 1.0
                    for other in {int(block_of[v]) for v in nodes} - {b}:
                        members, table = joint[other]
                        weight *= sum(
                            p
                            for s, p in table.items()
                            if all(states.get(v, x) == x for v, x in zip(members, s, strict=True))
                        )
                    log_potential = value(scopes, potentials, f, cell)
                    expected += weight * log_potential if log_potential > -np.inf else 0.0
                    expected_violations += weight * np.isneginf(log_potential)
            for part in parts.block_part[parts.block_part_start[b] : parts.block_part_start[b + 1]]:
                slots = slice(parts.slot_start[part], parts.slot_start[part + 1])
                part_nodes = scopes.node[parts.slot[slots]]
                if len(part_nodes) > 1:
                    at = parts.table_start[part] + np.array([own[v] for v in part_nodes]) @ parts.stride[slots]
                    found, found_violations = found + field[at], found_violations + violations[at]
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
            assert found_violations == pytest.approx(expected_violations, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_max_marginals(name):
    """Compare the max-marginals of each factor with enumeration of its joint states."""
    rng, scopes, potentials = make_network(name, 2)
    arrays = scopes.kernel_factors
    message_start = np.concatenate(([0], np.cumsum(scopes.cardinality[scopes.node])))
    message = rng.normal(size=int(message_start[-1]))
    alive = rng.random(int(scopes.state_start[-1])) < 0.7
    out, state = np.empty(5), np.empty(5, dtype=np.int64)
    for slot in range(len(scopes.node)):
        f = int(np.searchsorted(scopes.start, slot, side="right") - 1)
        nodes, cells = joint_states(scopes, f)
        expected = np.full(scopes.cardinality[scopes.node[slot]], -np.inf)
        for cell in cells:
            score = value(scopes, potentials, f, cell)
            for p, v, x in zip(range(scopes.start[f], scopes.start[f + 1]), nodes, cell, strict=True):
                if p != slot:
                    score -= message[message_start[p] + x] if alive[scopes.state_start[v] + x] else np.inf
            own_state = cell[slot - scopes.start[f]]
            expected[own_state] = max(expected[own_state], score)
        dual_decomposition.compute_max_marginals(
            arrays, potentials.factors, slot, message_start, message, alive, state, out
        )
        np.testing.assert_allclose(out[: len(expected)], expected)


@pytest.mark.parametrize("seed", range(20))
def test_induced_forests_are_maximal(seed):
    """Test that the set has no cycle and no factor with three nodes, and that no further node can be added."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    scopes_of = [rng.permutation(n)[: rng.integers(1, min(n, 3) + 1)] for _ in range(int(rng.integers(1, 15)))]
    start = np.concatenate(([0], np.cumsum([len(s) for s in scopes_of])))
    scopes = Scopes(np.full(n, 2, dtype=np.int32), start, np.concatenate(scopes_of).astype(np.int32))

    def is_forest(nodes):
        inside = [set(s.tolist()) & nodes for s in scopes_of]
        graph = nx.Graph([tuple(s) for s in inside if len(s) == 2])
        return max(map(len, inside)) <= 2 and (not graph or nx.is_forest(graph))

    arrays, inside, order = scopes.kernel_factors, np.empty(n, dtype=bool), rng.permutation(n)
    induced_forests.grow_node_set(arrays, order, inside)
    chosen = set(np.flatnonzero(inside).tolist())
    assert is_forest(chosen)
    assert not any(is_forest(chosen | {v}) for v in range(n) if v not in chosen)
    node, parent, entry_start, slot, parent_slot = induced_forests.root_trees(arrays, order, inside)
    assert sorted(node) == sorted(chosen)
    seen = set()
    for k, v in enumerate(node):
        assert parent[k] < 0 or parent[k] in seen
        seen.add(v)
        for e in range(entry_start[k], entry_start[k + 1]):
            assert scopes.node[slot[e]] == v
            assert parent_slot[e] < 0 or scopes.node[parent_slot[e]] == parent[k]
    touched = [f for f, s in enumerate(scopes_of) if chosen & set(s.tolist())]
    assert sorted(arrays.factor[slot]) == touched, "each touching factor has one entry"
