"""Small random factor graphs, built without tables and models."""

from __future__ import annotations

import numpy as np

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Keyed, Ones, Sparse
from relcrf.graph.weights import WeightBlock, WeightLayout


def random_features(rng, n):
    kind = rng.integers(5)
    if kind == 0:
        return Ones(n)
    if kind == 1:
        return Dense(rng.normal(size=(n, int(rng.integers(1, 4)))))
    n_keys = int(rng.integers(1, 4))
    if kind == 2:
        return Keyed(rng.integers(n_keys, size=n).astype(np.int32), np.empty((0, 1)), n_keys)
    if kind == 3:
        return Keyed(rng.integers(n_keys, size=n).astype(np.int32), rng.normal(size=(n, 2)), n_keys)
    lengths = rng.integers(0, 4, size=n)
    row_start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    column = rng.integers(5, size=row_start[-1]).astype(np.int32)
    values = np.empty(0, dtype=np.float32) if rng.random() < 0.5 else rng.normal(size=row_start[-1]).astype(np.float32)
    return Sparse(row_start, column, values, 5)


def dense_features(features):
    """Return the features as a dense matrix, computed entry by entry."""
    out = np.zeros((features.n_rows, features.n_features))
    for n in range(features.n_rows):
        for feature, value in features.row(n):
            out[n, feature] += value
    return out


def random_graph(rng, n_variables=6, forest=False, max_arity=3):
    """Return a graph of variables with 2 or 3 states, and groups of arity 1 to `max_arity` with random features and patterns.

    With `forest`, pair factors connect each variable to at most one earlier variable (parallel factors are allowed).
    """
    half = n_variables // 2
    cardinality = np.array([2] * half + [3] * (n_variables - half), dtype=np.int32)
    parts = (np.arange(half), np.arange(half, n_variables))
    tree = [(int(rng.integers(v)), v) for v in range(1, n_variables) if rng.random() < 0.8]
    groups, blocks = [], []
    arities = [1, 1, 2, 2, 2] + ([3] if max_arity >= 3 else [])
    for arity in arities:
        kinds = tuple(int(rng.integers(2)) for _ in range(arity))
        cards = tuple((2, 3)[k] for k in kinds)
        if arity == 1:
            rows = rng.permutation(parts[kinds[0]])[: int(rng.integers(1, half + 1))][:, None]
        elif arity == 2 and forest:
            fitting = [
                (a, b) if rng.random() < 0.5 or kinds[0] != kinds[1] else (b, a)
                for pair in tree
                for a, b in (pair, pair[::-1])
                if a in parts[kinds[0]] and b in parts[kinds[1]]
            ]
            rows = np.array(fitting or [(parts[kinds[0]][0], parts[kinds[1]][0])])
            if not fitting and kinds[0] != kinds[1]:
                continue
        else:
            rows = np.column_stack([rng.choice(parts[k], size=4) for k in kinds])
        n_joint = int(np.prod(cards))
        patterns = None if rng.random() < 0.5 else rng.integers(0, 2, size=(n_joint, 2)).astype(float)
        features = random_features(rng, len(rows))
        blocks.append(WeightBlock(f"t{len(blocks)}", features.n_features, n_joint if patterns is None else 2))
        scope = tuple(np.ascontiguousarray(rows[:, place]).astype(np.int32) for place in range(arity))
        groups.append(FactorGroup(scope, cards, features, patterns, len(blocks) - 1))
    return FactorGraph(cardinality, tuple(groups), WeightLayout(tuple(blocks)))


def joint_score(graph, weights, states):
    """Return the sum of log potentials in a joint state of all variables, computed factor by factor."""
    return float(joint_scores(graph, weights, np.asarray(states)[None])[0])


def joint_scores(graph, weights, states):
    """Return the sum of log potentials in each joint state of all variables, computed factor by factor.

    Args:
        states: The joint states, shape (n, n_variables).

    Returns:
        The sums, shape (n,).
    """
    total = np.zeros(len(states))
    for group in graph.groups:
        patterns = np.eye(group.n_joint_states) if group.patterns is None else group.patterns
        tables = dense_features(group.features) @ graph.layout.matrix(weights, group.block) @ patterns.T
        for n, table in enumerate(tables):
            joint = np.zeros(len(states), dtype=np.int64)
            for variable, card in zip(group.scope, group.cardinalities, strict=True):
                joint = joint * card + states[:, variable[n]]
            total += table[joint]
    return total


def all_states(cardinality, states, free):
    """Return all joint states of the variables `free`, where the others have given states, shape (n, n_variables)."""
    sizes = [int(cardinality[v]) for v in free]
    out = np.repeat(np.asarray(states)[None], int(np.prod(sizes)), axis=0)
    out[:, free] = np.indices(sizes).reshape(len(sizes), len(out)).T
    return out
