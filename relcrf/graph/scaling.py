"""Scaling of factors: log potentials are multiplied by a factor-specific scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Sparse


def scale_factors(graph: FactorGraph, scales: Mapping[int, np.ndarray]) -> FactorGraph:
    """Return the graph with the log potentials of some groups' factors scaled; factors with scale 0 are removed.

    Args:
        scales: Scale of each factor of a group, shape (n_factors,), by index of the group.
    """
    groups = tuple(_scale_group(group, scales[k]) if k in scales else group for k, group in enumerate(graph.groups))
    return replace(graph, groups=groups)


def _scale_group(group: FactorGroup, scale: np.ndarray) -> FactorGroup:
    kept = np.flatnonzero(scale)
    scope = tuple(np.asarray(variables)[kept] for variables in group.scope)
    return replace(group, scope=scope, features=_scale_features(group.features.take(kept), scale[kept]))


def _scale_features(features: AbstractFeatures, scale: np.ndarray) -> AbstractFeatures:
    match features:
        case Dense(values):
            return Dense(values * scale[:, None])
        case Keyed(key, values, n_keys):
            return Keyed(key, (values if len(values) else 1.0) * scale[:, None], n_keys)
        case Sparse(row_start, column, values, n_features):
            entry_scale = np.repeat(scale, np.diff(row_start))
            return Sparse(row_start, column, values * entry_scale if len(values) else entry_scale, n_features)
    return Dense(np.repeat(scale[:, None], features.n_features, axis=1))
