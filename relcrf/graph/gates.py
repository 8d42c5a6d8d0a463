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
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Sparse, Tiled
from relcrf.graph.gate_rows import AbstractGateRows, FeatureRows, GateRows, StatusRows
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout

ASKED, HIDDEN = 0, 1
"""Statuses of variables that are no evidence, counted from their number of states on."""


@dataclass(frozen=True)
class GateGroup:
    """The gates on one group of factors over two variables.

    Args:
        block: index of their weight block in the layout of the gates.
        by: their features, a row for each factor of the group; None: the statuses of the two variables.
    """

    block: int
    by: AbstractFeatures | None


def n_statuses(group: FactorGroup) -> int:
    """Return the number of pairs of statuses that two variables can have."""
    first, second = group.cardinalities
    return (first + 2) * (second + 2)


def block_for(group: FactorGroup, by: AbstractFeatures | None, name: str) -> WeightBlock:
    """Return the weight block of the gates on a group: for each key, and then once for all, a base and one weight per feature."""
    width = 1 + (n_statuses(group) if by is None else by.n_features)
    return WeightBlock(name, width * (group.features.n_blocks + 1 if has_keys(group) else 1), 1)


def has_keys(group: FactorGroup) -> bool:
    """Return True if its factors have keys; there may be a single key, and more in other data."""
    features = group.features
    return isinstance(features.tile if isinstance(features, Tiled) else features, Keyed)


@dataclass(frozen=True)
class Gates:
    """The gates of a graph.

    Args:
        groups: by the index of their group in the graph, ascending; groups without gates have none.
        layout: of their weights.
    """

    groups: Mapping[int, GateGroup]
    layout: WeightLayout

    def rows(self, graph: FactorGraph, factors: Sequence[tuple[int, np.ndarray]], status: np.ndarray) -> GateRows:
        """The features of some gates.

        Args:
            factors: of groups with gates, by their places, the factors that are meant; one after the other.
            status: of each variable its state where it is evidence, else its number of states plus `ASKED` or `HIDDEN`.
        """
        parts = []
        for number, factor in factors:
            parts.append(self._rows(graph.groups[number], self.groups[number], factor, status))
        return GateRows(parts, self.layout.size)

    def _rows(self, group: FactorGroup, gates: GateGroup, factor: np.ndarray, status: np.ndarray) -> AbstractGateRows:
        n_keys = group.features.n_blocks if has_keys(group) else 0
        key = group.features.block_of(factor).astype(np.int64) if n_keys else None
        start = int(self.layout.starts[gates.block])
        if gates.by is not None:
            return FeatureRows(start, 1 + gates.by.n_features, key, n_keys, _as_sparse(gates.by, factor))
        first, second = (status[np.asarray(place)[factor]] for place in group.scope)
        return StatusRows(start, 1 + n_statuses(group), key, n_keys, first * (group.cardinalities[1] + 2) + second)

    def opened(
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
            log_odds = self.rows(graph, ((number, gated),), status).log_odds(weights)
            kept = np.ones(group.n_factors, dtype=bool)
            kept[gated] = expit(log_odds) >= threshold
            if not kept.all():
                rows = np.flatnonzero(kept)
                groups[number] = replace(group, scope=(first[rows], second[rows]), features=group.features.take(rows))
                left[number] = replace(gates, by=None if gates.by is None else gates.by.take(rows))
        return replace(graph, groups=tuple(groups)), replace(self, groups=left)

    def of_features(self, graph: FactorGraph) -> np.ndarray:
        """Which weights are of features, and no bases, shape (layout.size,), bool."""
        return self._each(graph, lambda place, width, n: place % width > 0)

    def of_keys(self, graph: FactorGraph) -> np.ndarray:
        """Which weights are of one key, and not shared by all, shape (layout.size,), bool."""
        return self._each(graph, lambda place, width, n: place < n - width)

    def _each(self, graph: FactorGraph, which: Callable[[np.ndarray, int, int], np.ndarray]) -> np.ndarray:
        """What `which` says of the weights of each block by their places, the width of a row and their number."""
        out = np.zeros(self.layout.size, dtype=bool)
        for number, gates in self.groups.items():
            width = 1 + (n_statuses(graph.groups[number]) if gates.by is None else gates.by.n_features)
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


def gates_on(graph: FactorGraph, by: Mapping[int, tuple[str, AbstractFeatures]] | None = None) -> Gates:
    """Return gates on all factors over two variables. Groups with the same weights share theirs, but for features of their own.

    Args:
        by: by the index of a group, a name and the features of its gates, a row for each factor; other groups have gates by
            statuses.
    """
    groups: dict[int, GateGroup] = {}
    places: dict[tuple[int, str | None, tuple[int, ...]], int] = {}
    blocks: list[WeightBlock] = []
    for number, group in enumerate(graph.groups):
        if len(group.scope) != 2:
            continue
        gate, features = (by or {}).get(number, (None, None))
        kind = (group.block, gate, group.cardinalities)
        if kind not in places:
            places[kind] = len(blocks)
            name = graph.layout.blocks[group.block].name + ("" if gate is None else f" by {gate}")
            if any(other.name == name for other in blocks):
                name = f"{name} of {group.cardinalities}"
            blocks.append(block_for(group, features, name))
        groups[number] = GateGroup(places[kind], features)
    return Gates(groups, WeightLayout(tuple(blocks)))


def _as_sparse(by: AbstractFeatures, rows: np.ndarray) -> csr_array:
    taken = by.take(rows)
    if isinstance(taken, Sparse):
        values = taken.values if len(taken.values) else np.ones(len(taken.column))
        return csr_array((values.astype(np.float64), taken.column, taken.row_start), shape=(len(rows), by.n_features))
    return csr_array(taken.values if isinstance(taken, Dense) else np.ones((len(rows), by.n_features)))
