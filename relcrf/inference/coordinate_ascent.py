"""Joint states that single changes cannot better, and joint states that can be."""

from __future__ import annotations

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import factors as kernel
from relcrf.kernels.factors import Factors

MAX_SWEEPS = 100
"""Of an ascent; it ends much earlier, or is of no more use."""

MAX_LOG_ODDS = 3.0
"""Log odds that a random start takes for the highest: 95 to 5."""

SEARCH_SWEEPS = 200
"""After which a search for a joint state that breaks no rule gives up."""


def ascend_states(factors: Factors, potentials: Potentials, states: np.ndarray) -> np.ndarray:
    """The joint state to which changing one node after the other leads: fewer broken rules first, then a higher score."""
    out = states.astype(np.int32)
    kernel.iterate_conditional_modes(factors, potentials.nodes, potentials.factors, MAX_SWEEPS, out)
    return out


def independent_states(scopes: Scopes, potentials: Potentials, rng: np.random.Generator | None = None) -> np.ndarray:
    """Each node without its factors: its best state, or with a generator a draw. Shape (n_nodes,), int32.

    A draw takes log odds for no more than `MAX_LOG_ODDS`, so that several of them are far apart.
    """
    scores = potentials.nodes
    if rng is not None:
        top = np.repeat(np.maximum.reduceat(scores, scopes.state_start[:-1]), scopes.cardinality)
        below = np.where(np.isneginf(scores), 0.0, scores - np.maximum(top, -1e300))
        lowest = np.minimum.reduceat(below, scopes.state_start[:-1])
        scale = MAX_LOG_ODDS / np.maximum(MAX_LOG_ODDS, -lowest)
        scores = np.where(np.isneginf(scores), scores, below * np.repeat(scale, scopes.cardinality))
        scores = scores + rng.gumbel(size=len(scores))  # the best of these is a draw (Gumbel 1954)
    return modes(scores, scopes.state_start)


def modes(values: np.ndarray, state_start: np.ndarray) -> np.ndarray:
    """Return the state of the largest value of each node, the first of equals, shape (n_nodes,), int32.

    Args:
        values: flat over the nodes' states, which begin at `state_start`, shape (n_nodes + 1,).
    """
    sizes = np.diff(state_start)
    states = np.empty(len(sizes), dtype=np.int32)
    for k in np.unique(sizes):
        alike = np.flatnonzero(sizes == k)
        states[alike] = values[state_start[alike, None] + np.arange(k)].argmax(axis=1)
    return states


def find_feasible_states(
    factors: Factors, potentials: Potentials, states: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """A joint state that breaks no rule, from another one on; and whether it was found."""
    out = states.astype(np.int32)
    if not (np.isneginf(potentials.nodes).any() or np.isneginf(potentials.factors).any()):
        return out, True
    at_a_time = max(1, (1 << 20) // max(1, len(out)))  # random numbers that are held
    for first in range(0, SEARCH_SWEEPS, at_a_time):
        uniform = rng.random((min(at_a_time, SEARCH_SWEEPS - first), len(out), 2))
        if kernel.search_feasible_state(factors, potentials.nodes, potentials.factors, uniform, out):
            return out, True
    return out, False
