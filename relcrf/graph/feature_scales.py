"""The scale of each feature column: a power of 16 near the median magnitude of the column's nonzero values.

A median is robust: a few extreme values, such as 1e20 for a missing number, do not change it. Powers of 2 convert weights
between units without rounding. Values are counted by magnitude, so that the scales do not depend on the order of the factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Sparse, Tiled
from relcrf.graph.magnitudes import EXPONENT_BITS, UNIT_CLASS, exceed

EXTREME_RATIO = 1024.0
"""Minimum ratio of the magnitude of an *extreme* value to the scale of its column."""

LIMIT_RATIO = 2.0**26
"""Maximum ratio of a magnitude to the scale of its column in learning.

A larger value would take all digits of a double-precision number in sums with ordinary values. The limit has no other
effect: such a factor is certain as soon as the weight is large enough for ordinary values to matter.
"""

_MAX_SCALE_EXPONENT = 400
"""Maximum magnitude of the binary exponent of a scale."""


def weight_scales(graph: FactorGraph) -> np.ndarray:
    """Return the scale of each weight's feature, shape (layout.size,); see `column_scales`."""
    out = np.zeros(graph.layout.size)
    for (number, _), scales in column_scales(graph.groups).items():
        out_block = graph.layout.matrix(out, number)
        np.maximum(out_block, np.resize(scales, len(out_block))[:, None], out=out_block)
    return np.where(out > 0.0, out, 1.0)


def column_scales(groups: Iterable[FactorGroup]) -> dict[tuple[int, int], np.ndarray]:
    """Return the scale of each feature column, shape (n_columns,), by index of the weight block and number of columns.

    Groups with the same block and as many columns share the scales. For the columns see `magnitude_counts`.
    """
    counts: dict[tuple[int, int], np.ndarray] = {}
    for group in groups:
        key = scale_key(group)
        counts[key] = counts.get(key, 0) + group.magnitude_counts
    return {key: _median_scales(each) for key, each in counts.items()}


def scale_key(group: FactorGroup) -> tuple[int, int]:
    """Return the key of a group in the result of `column_scales`."""
    return group.block, len(group.magnitude_counts)


def limit_extremes(graph: FactorGraph) -> FactorGraph:
    """Return a graph without magnitudes above `LIMIT_RATIO` times the scale of their column; others are shared."""
    scales = column_scales(graph.groups)

    def limit(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
        # The values keep their type, which shards require; the bounds are powers of 2, so that they are exact in each type.
        bound = np.minimum(LIMIT_RATIO * scale, np.finfo(values.dtype).max).astype(values.dtype)
        return np.clip(values, -bound, bound) if exceed(values, bound) else values

    def limit_group(group: FactorGroup) -> FactorGroup:
        features = _map_values(group.features, scales[scale_key(group)], limit)
        return group if features is group.features else replace(group, features=features)

    return replace(graph, groups=tuple(map(limit_group, graph.groups)))


def ordinary_values(features: AbstractFeatures, scales: np.ndarray) -> AbstractFeatures:
    """Return a feature matrix with each extreme value replaced by the scale of its column.

    Args:
        scales: Scale of each column of `features`, as in `column_scales`, shape (n_columns,).
    """

    def replace_extremes(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
        bound = EXTREME_RATIO * scales
        return np.where(np.abs(values) > bound, scales, values) if exceed(values, bound) else values

    return _map_values(features, scales, replace_extremes)


def _map_values(
    features: AbstractFeatures, scales: np.ndarray, function: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> AbstractFeatures:
    """Apply a function to the stored values of a feature matrix and the scales of their columns; share unchanged values."""
    match features:
        case Tiled(tile, times):
            mapped = _map_values(tile, scales, function)
            return features if mapped is tile else Tiled(mapped, times)
        case Dense(values) | Keyed(_, values, _) | Sparse(_, _, values, _) if len(values):
            changed = function(values, scales)
            return features if changed is values else replace(features, values=changed)
    return features


def _median_scales(counts: np.ndarray) -> np.ndarray:
    """Return the scale of each column from the numbers of its nonzero values by class; 1 for a column without any."""
    cumulated = counts.cumsum(axis=1)
    totals = cumulated[:, -1:]
    median = np.where(totals[:, 0] > 0, (2 * cumulated >= totals).argmax(axis=1), UNIT_CLASS)
    # The squares of larger scales would overflow, and those of smaller ones vanish.
    return np.asarray(
        np.ldexp(1.0, np.clip(EXPONENT_BITS * (median - UNIT_CLASS), -_MAX_SCALE_EXPONENT, _MAX_SCALE_EXPONENT))
    )
