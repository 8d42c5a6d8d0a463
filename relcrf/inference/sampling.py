"""Exact joint states of forests."""

from __future__ import annotations

import numpy as np

from relcrf.graph.incidence import factors_of
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.induced_forests import whole_forest
from relcrf.kernels import sampling as kernel


def sample_forest(scopes: Scopes, potentials: Potentials, n: int, seed: int = 0) -> np.ndarray:
    """Independent draws of joint states; parallel factors are as good as one.

    Returns:
        Shape (n, n_nodes), int32.

    Raises:
        ValueError: where the factors form no forest, or no joint state is possible.
    """
    factors = factors_of(scopes)
    sets = whole_forest(factors)
    states = np.empty((n, scopes.n_nodes), dtype=np.int32)
    uniform = np.random.default_rng(seed).random(states.shape)
    if not kernel.draws(factors, sets, potentials.nodes, potentials.factors, uniform, states):
        raise ValueError("no joint state is possible")
    return states
