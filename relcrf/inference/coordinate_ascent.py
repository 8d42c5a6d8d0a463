"""Coordinate ascent on the score of a joint state, initial states for the ascent, and a search for states that violate no rule.

A rule is a cell with log potential -inf; a joint state that selects this cell violates the rule.
"""

from __future__ import annotations

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import factors as kernel
from relcrf.kernels.factors import Factors

MAX_SWEEPS = 100
"""Maximum number of sweeps of an ascent; an ascent usually converges much earlier."""

MAX_LOG_ODDS = 3.0
"""Maximum log odds in the distribution of a random initial state, about 95 to 5; this limit makes initial states diverse."""

SEARCH_SWEEPS = 200
"""Maximum number of sweeps of a search for a joint state without violated rules."""


def ascend_states(factors: Factors, potentials: Potentials, states: np.ndarray) -> np.ndarray:
    """Return the result of coordinate ascent, which first minimises the number of violated rules, then maximises the score."""
    out = states.astype(np.int32)
    kernel.iterate_conditional_modes(factors, potentials.nodes, potentials.factors, MAX_SWEEPS, out)
    return out


def independent_states(scopes: Scopes, potentials: Potentials, rng: np.random.Generator | None = None) -> np.ndarray:
    """Return each node's best state under its own potentials, or a random state if `rng` is given; shape (n_nodes,), int32.

    The log odds for random states are scaled to at most `MAX_LOG_ODDS`, so that several samples differ.
    """
    scores = potentials.nodes
    if rng is not None:
        top = np.repeat(np.maximum.reduceat(scores, scopes.state_start[:-1]), scopes.cardinality)
        log_odds = np.where(np.isneginf(scores), 0.0, scores - np.maximum(top, -1e300))
        min_log_odds = np.minimum.reduceat(log_odds, scopes.state_start[:-1])
        scale = MAX_LOG_ODDS / np.maximum(MAX_LOG_ODDS, -min_log_odds)
        scores = np.where(np.isneginf(scores), scores, log_odds * np.repeat(scale, scopes.cardinality))
        scores = scores + rng.gumbel(size=len(scores))  # the Gumbel-max trick
    return modes(scores, scopes.state_start)


def modes(values: np.ndarray, state_start: np.ndarray) -> np.ndarray:
    """Return each node's state with the largest value, the first one in case of ties, shape (n_nodes,), int32.

    Args:
        values: Flat node tables.
        state_start: Offset of each node's states, shape (n_nodes + 1,).
    """
    sizes = np.diff(state_start)
    states = np.empty(len(sizes), dtype=np.int32)
    for k in np.unique(sizes):
        nodes = np.flatnonzero(sizes == k)
        states[nodes] = values[state_start[nodes, None] + np.arange(k)].argmax(axis=1)
    return states


def find_feasible_states(
    factors: Factors, potentials: Potentials, states: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """Search for a joint state without violated rules, starting from `states`; return the state and whether it is feasible."""
    out = states.astype(np.int32)
    if not (np.isneginf(potentials.nodes).any() or np.isneginf(potentials.factors).any()):
        return out, True
    sweeps_per_call = max(1, (1 << 20) // max(1, len(out)))  # bounds the memory of random numbers
    for first in range(0, SEARCH_SWEEPS, sweeps_per_call):
        uniform = rng.random((min(sweeps_per_call, SEARCH_SWEEPS - first), len(out), 2))
        if kernel.search_feasible_state(factors, potentials.nodes, potentials.factors, uniform, out):
            return out, True
    return out, False
