"""Repeated scopes and tiled features compared with the same arrays in expanded form."""

from dataclasses import replace

import numpy as np
import pytest

from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import Dense, Keyed, Ones, Sparse, Tiled

ROWS = np.array([0, 1, 2], dtype=np.int32)
OFFSETS = (np.array([0, 0, 1, 3], dtype=np.int32), np.array([1, 2, 2, 0], dtype=np.int32))
SCOPE = RepeatedScope(ROWS, (10, 100), (4, 1), OFFSETS)


def expand_scope(scope):
    return [
        np.array([start + stride * row + offset for row in scope.rows for offset in offsets], dtype=np.int32)
        for start, stride, offsets in zip(scope.starts, scope.strides, scope.offsets, strict=True)
    ]


def test_repeated_scope_is_a_sequence_of_positions():
    expected = expand_scope(SCOPE)
    assert len(SCOPE) == 2
    for place in (0, 1, -1, -2):
        assert SCOPE[place].dtype == np.int32
        np.testing.assert_array_equal(SCOPE[place], expected[place])
    for found, wanted in zip(SCOPE, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    for part in (slice(None), slice(1), slice(1, None), slice(None, None, -1), slice(5, 9)):
        np.testing.assert_array_equal(SCOPE[part], expected[part])
    with pytest.raises(IndexError):
        SCOPE[2]
    assert SCOPE.nbytes == 4 * (3 + 4 + 4)


def test_empty_repeated_scope():
    none = np.empty(0, dtype=np.int32)
    assert [len(place) for place in RepeatedScope(none, (0, 0), (1, 1), OFFSETS)] == [0, 0]
    assert [len(place) for place in RepeatedScope(ROWS, (0, 0), (1, 1), (none, none))] == [0, 0]


def test_large_variable_indices_do_not_overflow():
    last = np.array([2**31 - 2], dtype=np.int32)
    scope = RepeatedScope(np.array([2**30], dtype=np.int32), (2**30 - 2,), (1,), (np.zeros(1, dtype=np.int32),))
    np.testing.assert_array_equal(scope[0], last)


rng = np.random.default_rng(0)
TILES = {
    "ones": Ones(4),
    "dense": Dense(rng.normal(size=(4, 2))),
    "keyed": Keyed(np.array([2, 0, 1, 2], np.int32), rng.normal(size=(4, 2)).astype(np.float32), 3),
    "keyed ones": Keyed(np.array([2, 0, 1, 2], np.int32), np.empty((0, 1), np.float32), 3),
    "sparse": Sparse(np.array([0, 2, 2, 3, 5]), np.array([0, 3, 1, 1, 2], np.int32), rng.normal(size=5), 4),
    "sparse ones": Sparse(np.array([0, 2, 2, 3, 5]), np.array([0, 3, 1, 1, 2], np.int32), np.empty(0, np.float32), 4),
    "nothing": Dense(np.empty((0, 2))),
}


def as_matrix(features):
    matrix = np.zeros((features.n_rows, features.n_features))
    for row in range(features.n_rows):
        for feature, value in features.row(row):
            matrix[row, feature] += value
    return matrix


@pytest.mark.parametrize("times", [0, 1, 3])
@pytest.mark.parametrize("name", TILES)
def test_tiled_matrix_equals_repeated_tile(name, times):
    tile = TILES[name]
    tiled = Tiled(tile, times)
    matrix = np.tile(as_matrix(tile), (times, 1))
    assert (tiled.n_rows, tiled.n_features) == matrix.shape
    np.testing.assert_array_equal(as_matrix(tiled), matrix)
    np.testing.assert_allclose(as_matrix(tiled.squared()), matrix**2)
    assert tiled.nbytes == tile.nbytes
    weights = rng.normal(size=(tile.n_features, 3))
    some = rng.permutation(tiled.n_rows)[:5]
    for rows in (slice(None), slice(1, 7), slice(5, 2), some):
        scores = tiled.scores(weights, rows)
        expected = matrix[rows] @ weights
        np.testing.assert_allclose(np.broadcast_to(scores, expected.shape), expected)
        residual = rng.normal(size=scores.shape if tiled.rows_are_equal else expected.shape)
        out = np.ones(weights.shape)
        tiled.accumulate(residual, rows, out)
        wanted = residual if tiled.rows_are_equal else matrix[rows].T @ residual
        np.testing.assert_allclose(out, 1 + wanted)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("tile", ["keyed", "sparse"])
def test_squares_of_single_precision_numbers_do_not_overflow(tile, scale):
    features = replace(TILES[tile], values=(scale * TILES[tile].values).astype(np.float32))
    np.testing.assert_allclose(as_matrix(features.squared()), as_matrix(features) ** 2, rtol=1e-6)


def test_group_counts_shared_bytes_once():
    group = FactorGroup(SCOPE, (2, 2), Tiled(TILES["dense"], 3), None, 0)
    assert group.n_factors == 12 == len(SCOPE[0])
    assert group.nbytes == SCOPE.nbytes + 4 * 2 * 8
    plain = FactorGroup(tuple(SCOPE), (2, 2), Dense(np.tile(TILES["dense"].values, (3, 1))), None, 0)
    assert plain.nbytes == 2 * 12 * 4 + 12 * 2 * 8
    assert (group.n_joint_states, group.n_patterns, group.strides) == (4, 4, (2, 1))
