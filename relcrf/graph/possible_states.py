"""Possible states: states that are left when the zeros of all factors have been propagated."""

from __future__ import annotations

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import zeros


def find_possible_states(scopes: Scopes, potentials: Potentials) -> np.ndarray | None:
    """Return a mask of the states that may occur in a possible joint state; None if no joint state is possible.

    Zeros are propagated locally. A state outside the mask is impossible; a state in the mask may be impossible, too. The same
    holds for the whole graph: None is a proof.

    Returns:
        The mask, shape (state_start[-1],), bool.
    """
    possible = potentials.nodes > -np.inf
    if possible.all() and (potentials.factors > -np.inf).all():
        return possible
    is_consistent = zeros.propagate_zeros(scopes.kernel_factors, potentials.factors, possible)
    return possible if is_consistent else None
