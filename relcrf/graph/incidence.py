"""From each node to the factors that touch it: scopes as the kernels take them that go from node to node."""

from __future__ import annotations

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.scopes import Scopes
from relcrf.kernels.factors import Factors


def factors_of(scopes: Scopes) -> Factors:
    """The flat arrays of scopes, and for each node the places where it stands."""
    agreement = np.zeros(scopes.n_factors, dtype=bool) if scopes.agreement is None else scopes.agreement
    return Factors(
        cardinality=scopes.cardinality.astype(np.int32),
        state_start=scopes.state_start,
        start=scopes.start.astype(np.int64),
        node=scopes.node.astype(np.int32),
        stride=scopes.stride,
        table_start=scopes.table_start.astype(np.int64),
        agreement=agreement.astype(bool),
        factor=np.repeat(np.arange(scopes.n_factors), scopes.arity),
        touch_start=offsets(np.bincount(scopes.node, minlength=scopes.n_nodes)),
        touch=np.argsort(scopes.node, kind="stable"),
    )
