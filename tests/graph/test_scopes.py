"""Scopes and potentials accept any arrays and convert them to the types that kernels are compiled for."""

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
