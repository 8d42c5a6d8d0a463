"""Domains of the variables of a ground graph: variables of one domain have the same states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Domains:
    """The domain of each variable.

    Args:
        number: Number of each variable's domain, from 0, shape (n_variables,), int32.
        sizes: Number of states of each domain.
    """

    number: np.ndarray
    sizes: tuple[int, ...]

    @classmethod
    def from_cardinality(cls, cardinality: np.ndarray) -> Domains:
        """Return one domain per number of states, for graphs whose domains are not known."""
        sizes, number = np.unique(cardinality, return_inverse=True)
        return cls(number.astype(np.int32), tuple(sizes.tolist()))
