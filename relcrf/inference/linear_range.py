"""Potentials in the linear domain (not logarithms), and the test whether products of messages remain in its range."""

from __future__ import annotations

import numpy as np

from relcrf.graph.scopes import Scopes, SharedPotentials

MAX_LINEAR_SPREAD = 600.0
"""Maximum spread of the log potentials at a node, in nats, for messages in the linear domain; float64 supports about 708."""


def fits_linear_range(scopes: Scopes, potentials: SharedPotentials) -> bool:
    """Return True if, at every node, the product of linear messages stays within the range of float64."""
    top = np.maximum.reduceat(potentials.nodes, scopes.state_start[:-1])
    if np.isneginf(top).any() or np.isneginf(potentials.tables).any():
        return False
    low = np.where(np.isneginf(potentials.nodes), np.inf, potentials.nodes)
    spread = top - np.minimum.reduceat(low, scopes.state_start[:-1])
    begin = potentials.table_start[:-1]
    table_spread = np.maximum.reduceat(potentials.tables, begin) - np.minimum.reduceat(potentials.tables, begin)
    factor_spread = potentials.spread(table_spread)
    if scopes.agreement is not None:
        weights = potentials.spread(potentials.tables[begin])
        factor_spread = np.where(scopes.is_agreement, np.abs(weights), factor_spread)
    spread += np.bincount(scopes.node, np.repeat(factor_spread, scopes.arity), scopes.n_nodes)
    return bool((spread <= MAX_LINEAR_SPREAD).all())


def linear_potentials(scopes: Scopes, nodes: np.ndarray) -> np.ndarray:
    """Return node potentials in the linear domain, scaled to a maximum of 1 per node; `nodes` are log potentials."""
    top = np.maximum.reduceat(nodes, scopes.state_start[:-1])
    return np.asarray(np.exp(nodes - np.repeat(top, scopes.cardinality)))
