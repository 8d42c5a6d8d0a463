"""Vectors that represent a number: indicators of quantile bins, and linear splines. They are fitted to the training data."""

from __future__ import annotations

import numpy as np


def fit_basis(function: str, values: np.ndarray, size: int) -> np.ndarray:
    """Return the thresholds between the bins of `quantiles`, shape (size - 1,), or the knots of `spline`, shape (size,).

    Both are quantiles of the known values; without known values, they are 0.

    Args:
        values: the numbers, shape (n,); a missing number is NaN.
        size: the number of bins or knots.
    """
    levels = np.linspace(0.0, 1.0, size + 1)[1:-1] if function == "quantiles" else np.linspace(0.0, 1.0, size)
    known = values[~np.isnan(values)]
    return np.quantile(known, levels) if len(known) else np.zeros(len(levels))


def evaluate_basis(function: str, values: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Return the components for each number, shape (n, n_components); those of a missing number are 0."""
    known = np.flatnonzero(~np.isnan(values))
    if function == "quantiles":
        out = np.zeros((len(values), len(fitted) + 1))
        out[known, np.searchsorted(fitted, values[known], side="right")] = 1.0
        return out
    out = np.zeros((len(values), len(fitted)))
    knots, components = np.unique(fitted, return_index=True)
    if len(knots) == 1:
        out[known, 0] = 1.0
        return out
    clipped = np.clip(values[known], knots[0], knots[-1])
    interval = np.minimum(np.searchsorted(knots, clipped, side="right") - 1, len(knots) - 2)
    position = (clipped - knots[interval]) / (knots[interval + 1] - knots[interval])
    out[known, components[interval]] = 1.0 - position
    out[known, components[interval + 1]] = position
    return out
