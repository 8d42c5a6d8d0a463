"""A graph some of whose factors count in part: their log potentials times a share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Sparse


def scale_factors(graph: FactorGraph, scales: Mapping[int, np.ndarray]) -> FactorGraph:
    """The graph with the shares of the factors of some groups, by the group's index, shape (n_factors,); those of 0 go."""
    groups = tuple(_scale_group(group, scales[k]) if k in scales else group for k, group in enumerate(graph.groups))
    return replace(graph, groups=groups)


def _scale_group(group: FactorGroup, scale: np.ndarray) -> FactorGroup:
    kept = np.flatnonzero(scale)
    scope = tuple(np.asarray(place)[kept] for place in group.scope)
    return replace(group, scope=scope, features=_scale_features(group.features.take(kept), scale[kept]))


def _scale_features(features: AbstractFeatures, scale: np.ndarray) -> AbstractFeatures:
    match features:
        case Dense(values):
            return Dense(values * scale[:, None])
        case Keyed(key, values, n_keys):
            return Keyed(key, (values if len(values) else 1.0) * scale[:, None], n_keys)
        case Sparse(row_start, column, values, n_features):
            of_entry = np.repeat(scale, np.diff(row_start))
            return Sparse(row_start, column, values * of_entry if len(values) else of_entry, n_features)
    return Dense(np.repeat(scale[:, None], features.n_features, axis=1))
