"""Gates on pairwise factors. A gate is open with a probability given by the evidence; if closed, it removes the factor.

Every pairwise factor has a gate, unless both variables are evidence. All gates of a template share weights. If the
template has keys (values of its `per` clause), each key also has a deviation from the shared weights. With features f
of the evidence, the log odds that the gate of a factor with key c is open are

    logit = base + base[c] + f . (shared + deviation[c])

The `gate ... by` declaration of the model defines the features f. Without such a declaration, f is an indicator of the
pair of statuses of the two variables. The status of an evidence variable is its state; the status of any other variable
is `query` or `hidden`. A template without keys has only the shared weights.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012), section 4.2. The
source does not have deviations per key.
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
"""The status of a query or hidden variable is its cardinality plus this number; the status of evidence is its state."""


@dataclass(frozen=True)
class GateGroup:
    """The gates of one group of pairwise factors.

    Args:
        block: Index of the gates' weight block in the layout of the gate weights.
        features: Features of the gates, one row per factor of the group; None selects the indicator of statuses.
    """

    block: int
    features: AbstractFeatures | None


def n_status_pairs(group: FactorGroup) -> int:
    """Return the number of possible pairs of statuses of a factor's two variables."""
    first, second = group.cardinalities
    return (first + 2) * (second + 2)


def gate_weight_block(group: FactorGroup, features: AbstractFeatures | None, name: str) -> WeightBlock:
    """Return the weight block of a group's gates: rows (base, feature weights), one per key, then a shared row."""
    width = 1 + (n_status_pairs(group) if features is None else features.n_features)
    return WeightBlock(name, width * (group.features.n_blocks + 1 if has_keys(group) else 1), 1)


def has_keys(group: FactorGroup) -> bool:
    """Return True if the group's factors have keys, even if the data contain a single key."""
    features = group.features
    return isinstance(features.tile if isinstance(features, Tiled) else features, Keyed)


@dataclass(frozen=True, eq=False)
class GroupGateFeatures:
    """Features of some gates of one group. The weight matrix of the gates has a row for each key, then a shared row.

    Args:
        weights: Slice of the group's weights in the vector of all gate weights.
        width: Length of a row of the weight matrix; the first entry of a row is the base.
        n_keys: Number of keys; 0 if the template has no keys.
        features: Feature matrix, shape (n, n_columns); its product with `_key_weights` is the log odds.
        by_status: If True, a gate's features are the indicator of the pair of statuses, and each weight includes the
            base.
    """

    weights: slice
    width: int
    n_keys: int
    features: AbstractFeatures
    by_status: bool

    def _key_weights(self, vector: np.ndarray) -> np.ndarray:
        """Return the sum of the shared weights and each key's deviation, shape (n_columns, 1)."""
        matrix = vector[self.weights].reshape(-1, self.width)
        matrix = matrix[:-1] + matrix[-1] if self.n_keys else matrix
        return (matrix[:, :1] + matrix[:, 1:] if self.by_status else matrix).reshape(-1, 1)

    def log_odds(self, vector: np.ndarray) -> np.ndarray:
        """Return the log odds that each gate is open, shape (n,), given the weights of all gates."""
        scores = self.features.scores(self._key_weights(vector), slice(None))
        return np.broadcast_to(scores[:, 0], self.features.n_rows)

    def add_gradient(self, log_odds_gradient: np.ndarray, out: np.ndarray) -> None:
        """Add the gradient with respect to all gate weights to `out`; `log_odds_gradient` has shape (n,)."""
        sums = np.zeros((self.features.n_features, 1))
        self.features.accumulate(np.ascontiguousarray(log_odds_gradient[:, None]), slice(None), sums)
        sums = sums.reshape(max(self.n_keys, 1), -1)
        if self.by_status:
            sums = np.column_stack((sums.sum(axis=1), sums))
        matrix = out[self.weights].reshape(-1, self.width)
        matrix += np.concatenate((sums, sums.sum(axis=0, keepdims=True))) if self.n_keys else sums


@dataclass(frozen=True, eq=False)
class GateFeatures:
    """Features of some gates of several groups, concatenated.

    Args:
        parts: Features of the gates of each group.
        n_weights: Total number of gate weights.
    """

    parts: Sequence[GroupGateFeatures]
    n_weights: int

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(part.features.n_rows for part in self.parts)]

    def __len__(self) -> int:
        return self._starts[-1]

    def log_odds(self, weights: np.ndarray) -> np.ndarray:
        """Return the log odds that each gate is open, shape (n,), given weights of shape (n_weights,)."""
        return np.concatenate([np.empty(0), *(part.log_odds(weights) for part in self.parts)])

    def gradient(self, log_odds_gradient: np.ndarray) -> np.ndarray:
        """Return the gradient with respect to all gate weights; `log_odds_gradient` has shape (n,)."""
        out = np.zeros(self.n_weights)
        for part, (lo, hi) in zip(self.parts, pairwise(self._starts), strict=True):
            part.add_gradient(log_odds_gradient[lo:hi], out)
        return out


@dataclass(frozen=True)
class Gates:
    """The gates of a graph's pairwise factors.

    Args:
        groups: Gates of each factor group, by index of the group, ascending; groups without gates have no entry.
        layout: Layout of the gate weights.
    """

    groups: Mapping[int, GateGroup]
    layout: WeightLayout

    def gate_features(
        self, graph: FactorGraph, factors: Sequence[tuple[int, np.ndarray]], status: np.ndarray
    ) -> GateFeatures:
        """Return the features of some gates.

        Args:
            factors: Tuples (group index, indices of factors in this group).
            status: Status of each variable: for evidence variables, the state; else the cardinality plus `QUERY` or
                `HIDDEN`.
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
        first, second = (status[np.asarray(variables)[factor]] for variables in group.scope)
        cell = key * pairs + first * (group.cardinalities[1] + 2) + second
        features = Keyed(cell.astype(np.int32), np.empty((0, 1)), n * pairs)
        return GroupGateFeatures(weights, 1 + pairs, n_keys, features, by_status=True)

    def drop_closed_factors(
        self, graph: FactorGraph, roles: np.ndarray, status: np.ndarray, weights: np.ndarray, threshold: float
    ) -> tuple[FactorGraph, Gates]:
        """Return the graph without factors whose gate probability is below a threshold, and the remaining gates.

        Args:
            roles: A `Role` for each variable.
            status: Status of each variable, see `gate_features`.
            weights: Gate weights.
            threshold: Minimum probability that a gate is open.
        """
        groups, gate_groups = list(graph.groups), dict(self.groups)
        for number, gates in self.groups.items():
            group = graph.groups[number]
            first, second = (np.asarray(variables) for variables in group.scope)
            role, other = roles[first], roles[second]
            present = (role != Role.ABSENT) & (other != Role.ABSENT)
            gated = np.flatnonzero(present & ((role == Role.FREE) | (other == Role.FREE)) & (first != second))
            log_odds = self.gate_features(graph, ((number, gated),), status).log_odds(weights)
            kept = np.ones(group.n_factors, dtype=bool)
            kept[gated] = expit(log_odds) >= threshold
            if not kept.all():
                rows = np.flatnonzero(kept)
                groups[number] = replace(group, scope=(first[rows], second[rows]), features=group.features.take(rows))
                gate_groups[number] = replace(
                    gates, features=None if gates.features is None else gates.features.take(rows)
                )
        return replace(graph, groups=tuple(groups)), replace(self, groups=gate_groups)

    def feature_weight_mask(self, graph: FactorGraph) -> np.ndarray:
        """Return a mask, True for weights of features and False for bases, shape (layout.size,)."""
        return self._weight_mask(graph, lambda index, width, n: index % width > 0)

    def key_weight_mask(self, graph: FactorGraph) -> np.ndarray:
        """Return a mask, True for weights of individual keys and False for shared weights, shape (layout.size,)."""
        return self._weight_mask(graph, lambda index, width, n: index < n - width)

    def _weight_mask(self, graph: FactorGraph, block_mask: Callable[[np.ndarray, int, int], np.ndarray]) -> np.ndarray:
        """Return a mask of all weights; `block_mask(indices, row width, count)` returns the mask of one block."""
        out = np.zeros(self.layout.size, dtype=bool)
        for number, gates in self.groups.items():
            width = 1 + (n_status_pairs(graph.groups[number]) if gates.features is None else gates.features.n_features)
            start, stop = self.layout.starts[gates.block], self.layout.starts[gates.block + 1]
            out[start:stop] = block_mask(np.arange(stop - start), width, stop - start)
        return out


class LazyGates:
    """Gates that are built on first access. Pickling stores the built gates.

    Args:
        make: Function that builds the gates; it is called at most once.
    """

    def __init__(self, make: Callable[[], Gates]) -> None:
        self._make = make

    @cached_property
    def gates(self) -> Gates:
        return self._make()

    def __getstate__(self) -> dict[str, Any]:
        return {"gates": self.gates}


def build_gates(graph: FactorGraph, gate_features: Mapping[int, tuple[str, AbstractFeatures]] | None = None) -> Gates:
    """Return gates on all pairwise factors.

    Groups with the same weight block, gate name and cardinalities share gate weights.

    Args:
        gate_features: Gate name and gate features (one row per factor), by index of the group; the gates of other
            groups depend on the statuses of their variables.
    """
    groups: dict[int, GateGroup] = {}
    block_index: dict[tuple[int, str | None, tuple[int, ...]], int] = {}
    blocks: list[WeightBlock] = []
    for number, group in enumerate(graph.groups):
        if len(group.scope) != 2:
            continue
        gate, features = (gate_features or {}).get(number, (None, None))
        kind = (group.block, gate, group.cardinalities)
        if kind not in block_index:
            block_index[kind] = len(blocks)
            name = graph.layout.blocks[group.block].name + ("" if gate is None else f" by {gate}")
            if any(other.name == name for other in blocks):
                name = f"{name} of {group.cardinalities}"
            blocks.append(gate_weight_block(group, features, name))
        groups[number] = GateGroup(block_index[kind], features)
    return Gates(groups, WeightLayout(tuple(blocks)))


def _prepend_base(features: AbstractFeatures, key: np.ndarray, n_keys: int) -> AbstractFeatures:
    """Return features with a column block per key; row i is a constant 1, then its features, in block `key[i]`."""
    match features:
        case Sparse(row_start, column, values, n_features):
            start = key.astype(np.int64) * (n_features + 1)
            column = np.insert(column + 1 + np.repeat(start, np.diff(row_start)), row_start[:-1], start)
            values = np.insert(values if len(values) else np.ones(len(column) - features.n_rows), row_start[:-1], 1.0)
            row_start = row_start + np.arange(len(row_start))
            return Sparse(row_start, column.astype(np.int32), values.astype(np.float32), n_keys * (n_features + 1))
        case Dense(values):
            return Keyed(key, np.column_stack((np.ones(len(values)), values)), n_keys)
    assert isinstance(features, Ones), f"gates do not support features of type {type(features).__name__}"
    return Keyed(key, np.ones((features.n_rows, 1 + features.n_features)), n_keys)
