"""Penalties of an objective: L2, group L1 smoothed at 0, and the strengths of the L1 penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SMOOTHING_NORM = 1e-3
"""Norm below which the group L1 penalty is smoothed; groups with a final norm below ten times this are set to 0."""


@dataclass(frozen=True, eq=False)
class Penalties:
    """The penalty `sum l2 / 2 (w - centre)^2 + sum over groups of group_l1 sqrt(size) (sqrt(|w_g|^2 + s^2) - s)`.

    s is `SMOOTHING_NORM`.

    Args:
        l2: L2 strength of each weight, shape (n,).
        learned: Mask of the weights that may change, shape (n,), bool.
        groups: Disjoint groups of weights: arrays of weight indices with one group per row.
        l1: L1 strength of the weights in groups. The optimiser applies the L1 penalty; `__call__` does not include it.
        group_l1: Group L1 strength of the groups.
        scale: Multiplier of all penalties.
        centre: The weights without L2 penalty, shape (n,).
    """

    l2: np.ndarray
    learned: np.ndarray
    groups: Sequence[np.ndarray] = ()
    l1: float = 0.0
    group_l1: float = 0.0
    scale: float = 1.0
    centre: np.ndarray | float = 0.0

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient of the penalty."""
        difference = point - self.centre
        value, gradient = 0.5 * float((self.l2 * difference**2).sum()), self.l2 * difference
        for rows in self.groups if self.group_l1 else ():
            strength = self.group_l1 * np.sqrt(rows.shape[1])
            smooth = np.sqrt((point[rows] ** 2).sum(axis=1) + SMOOTHING_NORM**2)
            value += strength * float((smooth - SMOOTHING_NORM).sum())
            gradient[rows] += strength * point[rows] / smooth[:, None]
        return self.scale * value, self.scale * gradient

    @property
    def l1_strengths(self) -> np.ndarray:
        """Return the L1 strength of each weight, shape (n,)."""
        out = np.zeros(len(self.l2))
        for rows in self.groups:
            out[rows] = self.scale * self.l1
        return np.where(self.learned, out, 0.0)

    def prune_groups(self, point: np.ndarray) -> np.ndarray:
        """Return a copy of the weights; the learned weights of each group with a negligible norm are set to 0."""
        out = point.copy()
        for rows in self.groups if self.group_l1 else ():
            small = rows[np.sqrt((out[rows] ** 2).sum(axis=1)) < 10 * SMOOTHING_NORM]
            out[small] = np.where(self.learned[small], 0.0, out[small])
        return out
