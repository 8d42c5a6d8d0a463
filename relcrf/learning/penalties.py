"""Penalties of an objective: L2; group L1 with its corner rounded off; and what L1 an optimiser is to see to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SMOOTHING_NORM = 1e-3
"""Below about this norm group L1 is rounded off; a group that ends below ten times as much is taken for 0."""


@dataclass(frozen=True, eq=False)
class Penalties:
    """`sum l2 / 2 w^2 + sum over groups of group_l1 sqrt(size) (sqrt(|w_g|^2 + corner^2) - corner)`.

    Args:
        l2: shape (n,).
        learned: weights that may move, shape (n,), bool.
        groups: of weights, the rows of each array; disjoint.
        l1: of the weights in groups; no part of the value.
        scale: what all is multiplied by.
    """

    l2: np.ndarray
    learned: np.ndarray
    groups: Sequence[np.ndarray] = ()
    l1: float = 0.0
    group_l1: float = 0.0
    scale: float = 1.0

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient."""
        value, gradient = 0.5 * float((self.l2 * point**2).sum()), self.l2 * point
        for rows in self.groups if self.group_l1 else ():
            strength = self.group_l1 * np.sqrt(rows.shape[1])
            smooth = np.sqrt((point[rows] ** 2).sum(axis=1) + SMOOTHING_NORM**2)
            value += strength * float((smooth - SMOOTHING_NORM).sum())
            gradient[rows] += strength * point[rows] / smooth[:, None]
        return self.scale * value, self.scale * gradient

    @property
    def l1_strengths(self) -> np.ndarray:
        """The strength of L1 of each weight, shape (n,)."""
        out = np.zeros(len(self.l2))
        for rows in self.groups:
            out[rows] = self.scale * self.l1
        return np.where(self.learned, out, 0.0)

    def prune_groups(self, point: np.ndarray) -> np.ndarray:
        """The same weights with the groups at the corner 0, as far as they are learned."""
        out = point.copy()
        for rows in self.groups if self.group_l1 else ():
            small = rows[np.sqrt((out[rows] ** 2).sum(axis=1)) < 10 * SMOOTHING_NORM]
            out[small] = np.where(self.learned[small], 0.0, out[small])
        return out
