"""Scopes and potentials take arrays as users have them; kernels get the types that they are compiled for."""

import numpy as np
import pytest
from networks import FORESTS

from relcrf.graph.scopes import Potentials, Scopes


def read_only(values):
    out = values.copy()
    out.flags.writeable = False
    return out


def spaced(values):
    return np.repeat(values, 2)[::2]


def wide(values):
    return values.astype(np.int64 if values.dtype.kind == "i" else np.float32)


@pytest.mark.parametrize("given", [read_only, spaced, wide])
def test_arrays_of_any_kind(given):
    scopes, potentials = FORESTS["chain"](np.random.default_rng(0))
    other = Scopes(given(scopes.cardinality), given(scopes.start), given(scopes.node))
    arrays = (
        *Potentials(given(potentials.nodes), given(potentials.factors)),
        other.cardinality,
        other.start,
        other.node,
    )
    before = (*potentials, scopes.cardinality, scopes.start, scopes.node)
    for array, same in zip(arrays, before, strict=True):
        assert (array.dtype, array.flags.c_contiguous, array.flags.writeable) == (same.dtype, True, True)
        np.testing.assert_allclose(array, same, rtol=1e-6)


def test_arrays_that_fit_are_not_copied():
    scopes, potentials = FORESTS["chain"](np.random.default_rng(0))
    assert Scopes(scopes.cardinality, scopes.start, scopes.node).node is scopes.node
    assert Potentials(*potentials).nodes is potentials.nodes
