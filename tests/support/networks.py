"""Small networks of all shapes for the conformance tests: functions of a random generator that return scopes and potentials."""

from __future__ import annotations

import itertools

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes


def network(rng, cardinality, scopes, scale=1.0, agreement=None):
    """Return a network with random log potentials on the factors in `scopes`, which are tuples of nodes."""
    start = np.concatenate(([0], np.cumsum([len(s) for s in scopes], dtype=np.int64)))
    node = np.array([v for s in scopes for v in s], dtype=np.int32)
    agree = None if agreement is None else np.asarray(agreement, dtype=bool)
    network_scopes = Scopes(np.asarray(cardinality, dtype=np.int32), start, node, agree)
    tables = scale * rng.normal(size=int(network_scopes.table_start[-1]))
    return network_scopes, Potentials(scale * rng.normal(size=int(network_scopes.state_start[-1])), tables)


def joint_states(scopes, potentials):
    """Return all joint states of a small graph, shape (n_nodes, n_joint_states), and the log potential of each."""
    scopes, tables = scopes.expand_agreements(potentials)
    states = np.indices(tuple(scopes.cardinality)).reshape(scopes.n_nodes, int(np.prod(scopes.cardinality)))
    scores = tables.nodes[scopes.state_start[:-1, None] + states].sum(axis=0)
    for factor, (start, stop) in enumerate(itertools.pairwise(scopes.start)):
        cells = scopes.table_start[factor] + scopes.stride[start:stop] @ states[scopes.node[start:stop]]
        scores += tables.factors[cells]
    return states, scores


def tree_edges(rng, n, share=1.0):
    """Return edges from each node to an earlier one, in random direction."""
    edges = [(int(rng.integers(v)), v) for v in range(1, n) if rng.random() < share]
    return [e if rng.random() < 0.5 else e[::-1] for e in edges]


def grid_edges(n_rows, n_columns):
    at = np.arange(n_rows * n_columns).reshape(n_rows, n_columns)
    pairs = [
        *zip(at[:, :-1].ravel(), at[:, 1:].ravel(), strict=True),
        *zip(at[:-1].ravel(), at[1:].ravel(), strict=True),
    ]
    return [(int(i), int(j)) for i, j in pairs]


def hard(rng, made, share):
    """Make cells of a network impossible, except for those of one joint state."""
    scopes, potentials = made
    states = np.array([rng.integers(k) for k in scopes.cardinality])
    nodes, factors = potentials.nodes.copy(), potentials.factors.copy()
    spare_nodes = np.zeros(len(nodes), dtype=bool)
    spare_nodes[scopes.state_start[:-1] + states] = True
    spare = np.zeros(len(factors), dtype=bool)
    spare[scopes.cells(states)] = True
    nodes[(rng.random(len(nodes)) < share / 2) & ~spare_nodes] = -np.inf
    factors[(rng.random(len(factors)) < share) & ~spare] = -np.inf
    return scopes, Potentials(nodes, factors)


def forest(rng, n=7, scale=1.0, cardinality=None, share=0.85):
    sizes = rng.integers(1, 5, size=n) if cardinality is None else np.full(n, cardinality)
    return network(rng, sizes, tree_edges(rng, n, share), scale)


def agreements(rng, edges, n, k=3, scale=1.0):
    """Return a network in which some edges are agreement potentials with one number, the others tables."""
    return network(rng, np.full(n, k), edges, scale, agreement=[i % 3 != 2 for i in range(len(edges))])


FORESTS = {
    "forest of mixed cardinalities": forest,
    "forest, k = 2": lambda rng: forest(rng, cardinality=2),
    "forest, k = 3": lambda rng: forest(rng, cardinality=3),
    "forest, k = 5": lambda rng: forest(rng, n=6, cardinality=5),
    "chain": lambda rng: network(rng, np.full(8, 3), [(v, v + 1) for v in range(7)]),
    "star": lambda rng: network(rng, np.full(8, 2), [(v, 0) for v in range(1, 8)], 2.0),
    "nodes alone": lambda rng: network(rng, rng.integers(1, 5, size=5), []),
    "one node": lambda rng: network(rng, [3], []),
    "nothing": lambda rng: network(rng, [], []),
    "forest with hard rules": lambda rng: hard(rng, forest(rng), 0.3),
    "forest with weights of 1e4": lambda rng: forest(rng, scale=1e4),
    "forest with weights of 300": lambda rng: forest(rng, scale=300.0, cardinality=4),
    "forest with weights of 1e4 and hard rules": lambda rng: hard(rng, forest(rng, scale=1e4), 0.3),
    "forest of agreements": lambda rng: agreements(rng, tree_edges(rng, 7), 7),
    "star that pulls both ways": lambda rng: pulling_star(rng),
}
"""Networks of pair factors without a cycle."""

LOOPS = {
    "one loop": lambda rng: network(rng, rng.integers(2, 4, size=5), [(v, (v + 1) % 5) for v in range(5)], 0.7),
    "grid": lambda rng: network(rng, np.full(9, 2), grid_edges(3, 3), 0.5),
    "grid, k = 3": lambda rng: network(rng, np.full(6, 3), grid_edges(2, 3), 0.5),
    "grid of agreements": lambda rng: agreements(rng, grid_edges(2, 4), 8, 3, 0.5),
    "all pairs": lambda rng: network(rng, np.full(5, 3), [(i, j) for i in range(5) for j in range(i)], 0.3),
    "parallel factors": lambda rng: network(rng, [2, 3, 2], [(0, 1), (1, 0), (1, 2), (0, 1)], 0.7),
}
"""Networks of pair factors with cycles."""

CLIQUES = {
    "factors of any size": lambda rng: network(
        rng, rng.integers(2, 4, size=6), [(0, 1, 2), (2, 3), (3, 1, 4, 0), (5, 4), (1, 5, 2)], 0.6
    ),
    "a tree of triples": lambda rng: network(rng, rng.integers(2, 4, size=7), [(0, 1, 2), (2, 3, 4), (6, 5, 4)], 1.0),
    "larger agreements": lambda rng: network(
        rng, np.full(6, 3), [(0, 1, 2), (2, 3), (3, 4, 5), (5, 0)], 0.6, agreement=[True, True, False, True]
    ),
    "hard transitivity": lambda rng: hard(
        rng, network(rng, np.full(6, 2), [(0, 1, 2), (1, 2, 3), (3, 4, 5)], 0.5), 0.3
    ),
}
"""Networks with factors over three nodes or more."""


def pulling_star(rng):
    """Return a star whose leaves alternately force their centre into opposite states, so that products of messages overflow."""
    scopes, potentials = network(rng, np.full(13, 2), [(0, v) for v in range(1, 13)], 0.5)
    tables = potentials.factors.reshape(-1, 2, 2)
    tables[::2, 0] += 200.0
    tables[1::2, 1] += 200.0
    return scopes, potentials
