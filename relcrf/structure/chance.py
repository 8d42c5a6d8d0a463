"""How steep the objective is by chance along edges whose ends are independent: a penalty to begin with."""

from __future__ import annotations

import numpy as np

from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.structure.pair_order import PairNumbers, Shuffled

LOOKED_AT = 512
"""Edges of a space, drawn at random."""


def chance_gradient(model: EdgeLikelihood, space: int, seed: int) -> float:
    """The root of the mean square of the gradient's components of edges of a space, at the model without edges.

    It is what labels with the frequencies that they have would give if those of two ends were independent: counts of joint
    states then have the covariance `n (diag p - p p') x (diag q - q q')`, and the gradient is twice how far they are from their
    expectations.
    """
    whole = model.spaces[space]
    if not whole.n_pairs:
        return 0.0
    numbers = Shuffled(whole.n_pairs, seed)(np.arange(min(LOOKED_AT, whole.n_pairs)))
    asked = PairNumbers((whole,)).chosen(numbers)
    shape = [len(side.truth) for side in whole.sides]
    counts = model.edge_counts(space, asked.pairs(np.arange(len(asked)))).reshape(-1, *shape).astype(np.float64)
    n = np.maximum(counts.sum(axis=(1, 2)), 1.0)
    first, second = (_covariance(counts.sum(axis=axis) / n[:, None]) for axis in (2, 1))
    patterns = whole.patterns.reshape(*shape, -1)
    squares = np.einsum("abw,cdw,eac,ebd->ew", patterns, patterns, first, second, optimize=True)
    return float(np.sqrt((4.0 * n[:, None] * squares).mean()))


def _covariance(shares: np.ndarray) -> np.ndarray:
    """Of indicators of states with some probabilities, shape (n, k): shape (n, k, k)."""
    out: np.ndarray = shares[:, :, None] * (np.eye(shares.shape[1]) - shares[:, None, :])
    return out
