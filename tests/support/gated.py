"""A reference implementation of gated belief propagation: messages in dictionaries, loops over factors and gate features."""

from __future__ import annotations

import itertools

import numpy as np
from graphs import dense_features

from relcrf.graph.features import Dense
from relcrf.graph.gates import GateGroup, Gates, gate_weight_block, has_keys
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightLayout


def random_gating(rng, graph):
    """Return gates on all groups of pair factors, some with separate features."""
    groups, blocks = {}, []
    for number, group in enumerate(graph.groups):
        if len(group.scope) != 2:
            continue
        by = None
        if rng.random() < 0.4:
            by = Dense(rng.normal(size=(group.n_factors, int(rng.integers(1, 3)))))
        groups[number] = GateGroup(len(blocks), by)
        blocks.append(gate_weight_block(group, by, f"gate{number}"))
    return Gates(groups, WeightLayout(tuple(blocks)))


def log_odds(graph, gating, number, factor, roles, states, asked, gates):
    """Return the log odds of the gate of a factor."""
    group, gate = graph.groups[number], gating.groups[number]
    matrix = gating.layout.matrix(gates, gate.block).ravel()
    if gate.features is not None:
        features = dense_features(gate.features)[factor]
    else:
        features = np.zeros([k + 2 for k in group.cardinalities])
        place = []
        for variable, k in zip((v[factor] for v in group.scope), group.cardinalities, strict=True):
            free = roles[variable] == Role.FREE
            place.append(int(states[variable]) if not free else k if asked[variable] else k + 1)
        features[tuple(place)] = 1.0
        features = features.ravel()
    row = np.append(1.0, features)
    n_keys = group.features.n_blocks
    if not has_keys(group):
        return float(matrix @ row)
    table = matrix.reshape(n_keys + 1, len(row))
    key = int(group.features.block_of(np.array([factor]))[0])
    return float((table[key] + table[n_keys]) @ row)


def gated_factors(graph, gating, roles, states, asked, weights, gates):
    """Return all factors with free variables: these variables, a log table over them, and the log odds of the gate or None."""
    for number, group in enumerate(graph.groups):
        matrix = graph.layout.matrix(weights, group.block)
        x = dense_features(group.features)
        patterns = np.eye(group.n_joint_states) if group.patterns is None else group.patterns
        for factor in range(group.n_factors):
            scope = [int(place[factor]) for place in group.scope]
            if any(roles[v] == Role.ABSENT for v in scope):
                continue
            free = sorted({v for v in scope if roles[v] == Role.FREE})
            if not free:
                continue
            score = (x[factor] @ matrix @ patterns.T).reshape(group.cardinalities)
            table = np.zeros([graph.cardinality[v] for v in free])
            for cell in itertools.product(*(range(k) for k in table.shape)):
                value = dict(zip(free, cell, strict=True))
                table[cell] = score[tuple(value.get(v, states[v]) for v in scope)]
            gate = None
            if len(set(scope)) == 2:
                gate = log_odds(graph, gating, number, factor, roles, states, asked, gates)
            yield free, table, gate


def propagated(graph, roles, factors, iterations):
    """Return the beliefs of the free variables; factors are tuples of free variables and log tables."""
    nodes = {v: np.zeros(graph.cardinality[v]) for v in np.flatnonzero(roles == Role.FREE)}
    pairs = []
    for free, table in factors:
        if len(free) == 1:
            nodes[free[0]] = nodes[free[0]] + table
        else:
            pairs.append((free, np.exp(table)))
    message = {(p, v): np.ones(graph.cardinality[v]) for p, (free, _) in enumerate(pairs) for v in free}
    for _ in range(iterations):
        new = {}
        for p, (free, table) in enumerate(pairs):
            for place, v in enumerate(free):
                other = free[1 - place]
                cavity = np.exp(nodes[other])
                for q, (scope, _) in enumerate(pairs):
                    if other in scope and q != p:
                        cavity = cavity * message[q, other]
                into = table @ cavity if place == 0 else cavity @ table
                new[p, v] = into / into.sum()
        message = new
    beliefs = {}
    for v, own in nodes.items():
        product = np.exp(own)
        for p, (free, _) in enumerate(pairs):
            if v in free:
                product = product * message[p, v]
        beliefs[v] = product / product.sum()
    return beliefs


def count_useful_messages(factors, is_open, is_query, iterations):
    """Return the number of messages of each gated factor that influence a query over the open factors.

    Args:
        factors: The free variables of each gated factor: one or two.
        is_open: Whether each factor is open.
        is_query: Whether each variable is a query.
    """
    pairs = [p for p, free in enumerate(factors) if len(free) == 2 and is_open[p]]

    def is_useful(p, variable, t):
        """Return whether a message of factor p to a variable in iteration t influences a query."""
        if t == iterations:
            return is_query[variable]
        return any(
            is_useful(q, factors[q][1 - factors[q].index(variable)], t + 1)
            for q in pairs
            if q != p and variable in factors[q]
        )

    counts = []
    for p, free in enumerate(factors):
        if len(free) == 2:
            counts.append(sum(is_useful(p, v, t) for v in free for t in range(1, iterations + 1)))
        else:  # its message arrives before the first iteration
            counts.append(any(is_useful(p, *free, t) for t in range(iterations + 1)))
    return np.array(counts)


def count_row_messages(free):
    """Return the number of useful messages in three iterations over rows with a factor for each pair of a row's variables.

    Args:
        free: Mask of the free variables, which are queries, shape (n_rows, n_variables); the others are evidence.
    """
    n_free = free.sum(axis=1)
    # With two free variables, no message is passed on, so only those of the last iteration are useful.
    pairs = np.where(n_free == 2, 2, 3 * n_free * (n_free - 1))
    return int((n_free * (free.shape[1] - n_free) + pairs).sum())
