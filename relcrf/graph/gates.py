"""Gates on factors over two variables: weights shared by all gates of a template, and deviations for each of its keys.

Every factor over two variables has a gate, unless both are evidence. The log odds that it is open are, with the features
of its evidence f and the key c of its factor,

    logit = base + base[c] + f . (shared + deviation[c])

where f is what the model's `gate ... by` says, or else which of all pairs of statuses the two variables have: the state of
one that is evidence, `asked`, or `hidden`. Templates without keys have the shared part alone.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012), section 4.2; that keys deviate
from what they share is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from scipy.special import expit

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse, Tiled
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout

QUERY, HIDDEN = 0, 1
"""Statuses of variables that are no evidence, counted from their number of states on."""


@dataclass(frozen=True)
class GateGroup:
    """The gates on one group of factors over two variables.

    Args:
        block: index of their weight block in the layout of the gates.
        features: their features, a row for each factor of the group; None: the statuses of the two variables.
    """

    block: int
    features: AbstractFeatures | None


def n_status_pairs(group: FactorGroup) -> int:
    """Return the number of pairs of statuses that two variables can have."""
    first, second = group.cardinalities
    return (first + 2) * (second + 2)


def gate_weight_block(group: FactorGroup, features: AbstractFeatures | None, name: str) -> WeightBlock:
    """Return the weight block of the gates on a group: for each key, and then once for all, a base and one weight per feature."""
    width = 1 + (n_status_pairs(group) if features is None else features.n_features)
    return WeightBlock(name, width * (group.features.n_blocks + 1 if has_keys(group) else 1), 1)


def has_keys(group: FactorGroup) -> bool:
    """Return True if its factors have keys; there may be a single key, and more in other data."""
    features = group.features
    return isinstance(features.tile if isinstance(features, Tiled) else features, Keyed)


@dataclass(frozen=True, eq=False)
class GroupGateFeatures:
    """Features of some gates of one group. Their weights are a matrix: a row for each key, if there are keys, and one for all.

    Args:
        weights: where they are in the vector of all gates' weights.
        width: length of a row of weights, the base first.
        n_keys: 0 where there are no keys.
        features: shape (n, n_columns), to be multiplied by the column that `_key_weights` returns.
        by_status: the only feature of a gate is an indicator, whose column includes the base.
    """

    weights: slice
    width: int
    n_keys: int
    features: AbstractFeatures
    by_status: bool

    def _key_weights(self, vector: np.ndarray) -> np.ndarray:
        """Return each key's weights with those that all keys share added, shape (n_columns, 1)."""
        own = vector[self.weights].reshape(-1, self.width)
        own = own[:-1] + own[-1] if self.n_keys else own
        return (own[:, :1] + own[:, 1:] if self.by_status else own).reshape(-1, 1)

    def log_odds(self, vector: np.ndarray) -> np.ndarray:
        """Return the log odds that each gate is open, shape (n,), at the weights of all gates."""
        found = self.features.scores(self._key_weights(vector), slice(None))
        return np.broadcast_to(found[:, 0], self.features.n_rows)

    def add_gradient(self, slope: np.ndarray, out: np.ndarray) -> None:
        """Add the derivatives by the weights of all gates, from those by the log odds, shape (n,)."""
        sums = np.zeros((self.features.n_features, 1))
        self.features.accumulate(np.ascontiguousarray(slope[:, None]), slice(None), sums)
        sums = sums.reshape(max(self.n_keys, 1), -1)
        if self.by_status:
            sums = np.column_stack((sums.sum(axis=1), sums))
        own = out[self.weights].reshape(-1, self.width)
        own += np.concatenate((sums, sums.sum(axis=0, keepdims=True))) if self.n_keys else sums


@dataclass(frozen=True, eq=False)
class GateFeatures:
    """Features of some gates of several groups, one after the other.

    Args:
        n_weights: of all gates.
    """

    parts: Sequence[GroupGateFeatures]
    n_weights: int

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(part.features.n_rows for part in self.parts)]

    def __len__(self) -> int:
        return self._starts[-1]

    def log_odds(self, weights: np.ndarray) -> np.ndarray:
        """Return the log odds that each gate is open, shape (n,), at weights of shape (n_weights,)."""
        return np.concatenate([np.empty(0), *(part.log_odds(weights) for part in self.parts)])

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """Return derivatives by the weights, shape (n_weights,), from those by the log odds, shape (n,)."""
        out = np.zeros(self.n_weights)
        for part, (lo, hi) in zip(self.parts, pairwise(self._starts), strict=True):
            part.add_gradient(slope[lo:hi], out)
        return out


@dataclass(frozen=True)
class Gates:
    """The gates of a graph.

    Args:
        groups: by the index of their group in the graph, ascending; groups without gates have none.
        layout: of their weights.
    """

    groups: Mapping[int, GateGroup]
    layout: WeightLayout

    def gate_features(
        self, graph: FactorGraph, factors: Sequence[tuple[int, np.ndarray]], status: np.ndarray
    ) -> GateFeatures:
        """The features of some gates.

        Args:
            factors: of groups with gates, by their places, the factors that are meant; one after the other.
            status: of each variable its state where it is evidence, else its number of states plus `QUERY` or `HIDDEN`.
        """
        parts = []
        for number, factor in factors:
            parts.append(self._group_features(graph.groups[number], self.groups[number], factor, status))
        return GateFeatures(parts, self.layout.size)

    def _group_features(
        self, group: FactorGroup, gates: GateGroup, factor: np.ndarray, status: np.ndarray
    ) -> GroupGateFeatures:
        n_keys = group.features.n_blocks if has_keys(group) else 0
        key = group.features.block_of(factor) if n_keys else np.zeros(len(factor), dtype=np.int32)
        weights = slice(self.layout.starts[gates.block], self.layout.starts[gates.block + 1])
        if gates.features is not None:
            features = _prepend_base(gates.features.take(factor), key, max(n_keys, 1))
            return GroupGateFeatures(weights, 1 + gates.features.n_features, n_keys, features, by_status=False)
        n, pairs = max(n_keys, 1), n_status_pairs(group)
        first, second = (status[np.asarray(place)[factor]] for place in group.scope)
        cell = key * pairs + first * (group.cardinalities[1] + 2) + second
        features = Keyed(cell.astype(np.int32), np.empty((0, 1)), n * pairs)
        return GroupGateFeatures(weights, 1 + pairs, n_keys, features, by_status=True)

    def drop_closed_factors(
        self, graph: FactorGraph, roles: np.ndarray, status: np.ndarray, weights: np.ndarray, threshold: float
    ) -> tuple[FactorGraph, Gates]:
        """The graph without the factors whose gates are less open than a threshold, and the gates of the others.

        Args:
            roles: a `Role` for each variable. status: see `rows`. weights: of the gates. threshold: of the probability.
        """
        groups, left = list(graph.groups), dict(self.groups)
        for number, gates in self.groups.items():
            group = graph.groups[number]
            first, second = (np.asarray(place) for place in group.scope)
            role, other = roles[first], roles[second]
            present = (role != Role.ABSENT) & (other != Role.ABSENT)
            gated = np.flatnonzero(present & ((role == Role.FREE) | (other == Role.FREE)) & (first != second))
            log_odds = self.gate_features(graph, ((number, gated),), status).log_odds(weights)
            kept = np.ones(group.n_factors, dtype=bool)
            kept[gated] = expit(log_odds) >= threshold
            if not kept.all():
                rows = np.flatnonzero(kept)
                groups[number] = replace(group, scope=(first[rows], second[rows]), features=group.features.take(rows))
                left[number] = replace(gates, features=None if gates.features is None else gates.features.take(rows))
        return replace(graph, groups=tuple(groups)), replace(self, groups=left)

    def feature_weight_mask(self, graph: FactorGraph) -> np.ndarray:
        """Which weights are of features, and no bases, shape (layout.size,), bool."""
        return self._weight_mask(graph, lambda place, width, n: place % width > 0)

    def key_weight_mask(self, graph: FactorGraph) -> np.ndarray:
        """Which weights are of one key, and not shared by all, shape (layout.size,), bool."""
        return self._weight_mask(graph, lambda place, width, n: place < n - width)

    def _weight_mask(self, graph: FactorGraph, which: Callable[[np.ndarray, int, int], np.ndarray]) -> np.ndarray:
        """What `which` says of the weights of each block by their places, the width of a row and their number."""
        out = np.zeros(self.layout.size, dtype=bool)
        for number, gates in self.groups.items():
            width = 1 + (n_status_pairs(graph.groups[number]) if gates.features is None else gates.features.n_features)
            start, stop = self.layout.starts[gates.block], self.layout.starts[gates.block + 1]
            out[start:stop] = which(np.arange(stop - start), width, stop - start)
        return out


class LazyGates:
    """Gates that are made when they are first read. A pickle of them holds the gates.

    Args:
        make: makes them; called once at most.
    """

    def __init__(self, make: Callable[[], Gates]) -> None:
        self._make = make

    @cached_property
    def gates(self) -> Gates:
        return self._make()

    def __getstate__(self) -> dict[str, Any]:
        return {"gates": self.gates}


def build_gates(graph: FactorGraph, gate_features: Mapping[int, tuple[str, AbstractFeatures]] | None = None) -> Gates:
    """Return gates on all factors over two variables. Groups with the same weights share theirs, but for features of their own.

    Args:
        gate_features: by the index of a group, a name and the features of its gates, a row for each factor; other groups have gates by
            statuses.
    """
    groups: dict[int, GateGroup] = {}
    places: dict[tuple[int, str | None, tuple[int, ...]], int] = {}
    blocks: list[WeightBlock] = []
    for number, group in enumerate(graph.groups):
        if len(group.scope) != 2:
            continue
        gate, features = (gate_features or {}).get(number, (None, None))
        kind = (group.block, gate, group.cardinalities)
        if kind not in places:
            places[kind] = len(blocks)
            name = graph.layout.blocks[group.block].name + ("" if gate is None else f" by {gate}")
            if any(other.name == name for other in blocks):
                name = f"{name} of {group.cardinalities}"
            blocks.append(gate_weight_block(group, features, name))
        groups[number] = GateGroup(places[kind], features)
    return Gates(groups, WeightLayout(tuple(blocks)))


def _prepend_base(features: AbstractFeatures, key: np.ndarray, n_keys: int) -> AbstractFeatures:
    """Return features with a constant 1 before them, in the block of columns of each row's key, shape (n_rows,)."""
    match features:
        case Sparse(row_start, column, values, n_features):
            start = key.astype(np.int64) * (n_features + 1)
            column = np.insert(column + 1 + np.repeat(start, np.diff(row_start)), row_start[:-1], start)
            values = np.insert(values if len(values) else np.ones(len(column) - features.n_rows), row_start[:-1], 1.0)
            row_start = row_start + np.arange(len(row_start))
            return Sparse(row_start, column.astype(np.int32), values.astype(np.float32), n_keys * (n_features + 1))
        case Dense(values):
            return Keyed(key, np.column_stack((np.ones(len(values)), values)), n_keys)
    assert isinstance(features, Ones), f"gates have no features of the kind {type(features).__name__}"
    return Keyed(key, np.ones((features.n_rows, 1 + features.n_features)), n_keys)
