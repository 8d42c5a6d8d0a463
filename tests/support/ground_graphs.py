"""Bitwise comparison of ground graphs, and conversion of factors to plain Python data."""

from collections import defaultdict

import numpy as np

from relcrf.graph.factor_graph import RepeatedScope


def same_array(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


def assert_equal_groundings(found, expected):
    """Assert that two groundings have the same content and the same representation."""
    same_array(found.graph.cardinality, expected.graph.cardinality)
    same_array(found.states, expected.states)
    assert found.blocks == expected.blocks
    assert found.templates == expected.templates
    assert found.group_names == expected.group_names
    assert found.bindings == expected.bindings
    assert found.domains == expected.domains
    assert found.graph.layout.blocks == expected.graph.layout.blocks
    for a, b in zip(found.graph.groups, expected.graph.groups, strict=True):
        assert (a.cardinalities, a.block, a.nbytes) == (b.cardinalities, b.block, b.nbytes)
        assert isinstance(a.scope, RepeatedScope) == isinstance(b.scope, RepeatedScope)
        for x, y in zip(a.scope, b.scope, strict=True):
            same_array(x, y)
        assert type(a.features) is type(b.features)
        assert (a.features.n_rows, a.features.n_features) == (b.features.n_rows, b.features.n_features)
        for x, y in zip(a.features.arrays(), b.features.arrays(), strict=True):
            same_array(x, y)
        assert (a.patterns is None) == (b.patterns is None)
        if a.patterns is not None:
            same_array(a.patterns, b.patterns)


def variable(grounding, index):
    block = grounding.find_block(index)
    arguments = tuple(str(column[index - block.start]) for column in grounding.argument_texts(block))
    return block.owner, arguments, block.attribute


def engine_pattern(group):
    if group.patterns is None:
        return "table"
    return tuple(group.patterns[:, 0].tolist()) if group.patterns.shape[1] == 1 else "symmetric"


def engine_factors(grounding, group, info):
    """Yield the scope, the pattern and the non-zero features, (key, position) -> value, of each factor of a group."""
    for n in range(group.n_factors):
        scope = tuple(variable(grounding, int(slot[n])) for slot in group.scope)
        yield scope, engine_pattern(group), engine_features(group.features, info, n)


def engine_features(features, info, row):
    """Return the non-zero features of a row of a feature matrix: (key, position) -> value."""
    width = len(info.features)
    entries = defaultdict(float)
    for feature, value in features.row(row):
        key = info.keys.values[feature // width] if info.keys else ()
        entries[key, feature % width] += value
    return entries


def summed(factors):
    """Return the sums of features by scope and pattern, which determine the log potentials of a group."""
    out = defaultdict(lambda: defaultdict(float))
    for scope, pattern, entries in factors:
        for index, value in entries.items():
            out[scope, pattern][index] += value
    found = {s: {k: round(v, 4) for k, v in f.items() if abs(v) > 1e-9} for s, f in out.items()}
    return {s: f for s, f in found.items() if f}
