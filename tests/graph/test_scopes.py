"""Scopes and potentials accept any arrays and convert them to the types that kernels are compiled for."""

import numpy as np
import pytest
from networks import FORESTS

from relcrf.graph import scopes as graph_scopes
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials


def read_only(values):
    out = values.copy()
    out.flags.writeable = False
    return out


def spaced(values):
    return np.repeat(values, 2)[::2]


def wide(values):
    return values.astype(np.int64 if values.dtype.kind == "i" else np.float32)


@pytest.mark.parametrize("convert", [read_only, spaced, wide])
def test_arrays_are_converted(convert):
    scopes, potentials = FORESTS["chain"](np.random.default_rng(0))
    other = Scopes(convert(scopes.cardinality), convert(scopes.start), convert(scopes.node))
    converted = (
        *Potentials(convert(potentials.nodes), convert(potentials.factors)),
        other.cardinality,
        other.start,
        other.node,
    )
    originals = (*potentials, scopes.cardinality, scopes.start, scopes.node)
    for array, original in zip(converted, originals, strict=True):
        assert (array.dtype, array.flags.c_contiguous, array.flags.writeable) == (original.dtype, True, True)
        np.testing.assert_allclose(array, original, rtol=1e-6)


def test_matching_arrays_are_not_copied():
    scopes, potentials = FORESTS["chain"](np.random.default_rng(0))
    assert Scopes(scopes.cardinality, scopes.start, scopes.node).node is scopes.node
    assert Potentials(*potentials).nodes is potentials.nodes


def test_shared_potentials_expand_and_sum(monkeypatch):
    scopes = Scopes(np.array([2, 3, 2, 3]), np.arange(0, 10, 2), np.array([0, 1, 2, 3, 0, 2, 2, 1]))
    shared = SharedPotentials(np.arange(10.0), np.arange(10.0), np.array([0, 6, 10]), np.array([0, 0, 1, 0]))
    expanded = shared.expand()
    np.testing.assert_array_equal(expanded.factors, [*range(6), *range(6), *range(6, 10), *range(6)])
    assert len(expanded.factors) == scopes.table_start[-1]
    np.testing.assert_array_equal(shared.first_cells(np.array([3, 2])), [0, 6])
    values = np.random.default_rng(0).normal(size=len(expanded.factors))
    assert shared.sum_tables(values) @ shared.tables == pytest.approx(values @ expanded.factors)
    states = np.array([-1, 2, -1, -1])
    np.testing.assert_array_equal(shared.clamp(scopes, states).nodes, expanded.clamp(scopes, states).nodes)
    joint = np.array([1, 2, 0, 1])
    assert shared.score(scopes, joint) == scopes.score(expanded, joint) == 1 + 4 + 5 + 8 + 5 + 1 + 8 + 2
    monkeypatch.setattr(graph_scopes, "MAX_TABLE_CELLS", 21)
    with pytest.raises(graph_scopes.TableSizeError, match="22 cells, more than 21 cells"):
        shared.expand()
    separate = SharedPotentials.from_potentials(scopes, expanded)
    assert separate.kernel_factors(scopes) is scopes.kernel_factors
    np.testing.assert_array_equal(shared.kernel_factors(scopes).table_start, [0, 0, 6, 0])
    assert separate.expand().factors is expanded.factors and separate.sum_tables(values) is values
