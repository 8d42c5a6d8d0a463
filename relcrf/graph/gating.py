"""What opens the gates on pairs: weights shared by all gates of a template, and deviations for each of its keys.

A gate stands on every factor over two variables, unless both are evidence. The log odds that it is open are, with the features
of its evidence f and the key c of its factor,

    logit = base + base[c] + f . (shared + deviation[c])

where f is what the model's `gate ... by` says, or else which of all pairs of statuses the two variables have: the state of
one that is evidence, `asked`, or `hidden`. Templates without keys have the shared part alone.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012), section 4.2; that keys deviate
from what they share is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Sparse, Tiled
from relcrf.graph.weights import WeightBlock, WeightLayout

ASKED, HIDDEN = 0, 1
"""Statuses of variables that are no evidence, counted from their number of states on."""


@dataclass(frozen=True)
class GatedGroup:
    """The gates on one group of factors over two variables.

    Args:
        block: of the gates' weights.
        by: their features, a row for each factor of the group; None: the statuses of the two variables.
    """

    block: int
    by: AbstractFeatures | None


def n_statuses(group: FactorGroup) -> int:
    """How many pairs of statuses two variables can have."""
    first, second = group.cardinalities
    return (first + 2) * (second + 2)


def block_for(group: FactorGroup, by: AbstractFeatures | None, name: str) -> WeightBlock:
    """The weights of the gates on a group: for each key, and then once for all, a base and one for each feature."""
    width = 1 + (n_statuses(group) if by is None else by.n_features)
    return WeightBlock(name, width * (group.features.n_blocks + 1 if has_keys(group) else 1), 1)


def has_keys(group: FactorGroup) -> bool:
    """Whether its factors have keys; there may be one alone, and more in other data."""
    features = group.features
    return isinstance(features.tile if isinstance(features, Tiled) else features, Keyed)


@dataclass(frozen=True)
class Gating:
    """The gates of a graph.

    Args:
        groups: those of each group of the graph; None where it has none.
        layout: of their weights.
    """

    groups: tuple[GatedGroup | None, ...]
    layout: WeightLayout

    def rows(self, graph: FactorGraph, factors: Sequence[tuple[int, np.ndarray]], status: np.ndarray) -> csr_array:
        """The features of some gates: their log odds are this matrix times the gates' weights, shape (n, layout.size).

        Args:
            factors: of groups with gates, by their places, the factors that are meant; one after the other.
            status: of each variable its state where it is evidence, else its number of states plus `ASKED` or `HIDDEN`.
        """
        out = [csr_array((0, self.layout.size))]
        for number, factor in factors:
            group, gates = graph.groups[number], self.groups[number]
            assert gates is not None, "a group without gates"
            out.append(self._rows(group, gates, factor, status))
        return csr_array(vstack(out, format="csr"))

    def _rows(self, group: FactorGroup, gates: GatedGroup, factor: np.ndarray, status: np.ndarray) -> csr_array:
        one = np.ones((len(factor), 1))
        if gates.by is None:
            first, second = (np.asarray(place)[factor] for place in group.scope)
            pair = status[first] * (group.cardinalities[1] + 2) + status[second]
            place = np.arange(len(factor) + 1)
            features = csr_array((one.ravel(), pair, place), shape=(len(factor), n_statuses(group)))
        else:
            features = _as_sparse(gates.by, factor)
        row = csr_array(hstack((csr_array(one), features), format="csr"))
        width, n_keys = row.shape[1], group.features.n_blocks if has_keys(group) else 0
        start = self.layout.starts[gates.block]
        parts = [_moved(row, np.full(len(factor), start + n_keys * width), self.layout.size)]
        if n_keys:
            key = group.features.block_of(factor).astype(np.int64)
            parts.append(_moved(row, start + key * width, self.layout.size))
        return csr_array(sum(parts[1:], parts[0]))

    def of_features(self, graph: FactorGraph) -> np.ndarray:
        """Which weights are of features, and no bases, shape (layout.size,), bool."""
        return self._each(graph, lambda place, width, n: place % width > 0)

    def of_keys(self, graph: FactorGraph) -> np.ndarray:
        """Which weights are of one key, and not shared by all, shape (layout.size,), bool."""
        return self._each(graph, lambda place, width, n: place < n - width)

    def _each(self, graph: FactorGraph, which: Callable[[np.ndarray, int, int], np.ndarray]) -> np.ndarray:
        """What `which` says of the weights of each block by their places, the width of a row and their number."""
        out = np.zeros(self.layout.size, dtype=bool)
        for group, gates in zip(graph.groups, self.groups, strict=True):
            if gates is not None:
                width = 1 + (n_statuses(group) if gates.by is None else gates.by.n_features)
                start, stop = self.layout.starts[gates.block], self.layout.starts[gates.block + 1]
                out[start:stop] = which(np.arange(stop - start), width, stop - start)
        return out


def _as_sparse(by: AbstractFeatures, rows: np.ndarray) -> csr_array:
    taken = by.take(rows)
    if isinstance(taken, Sparse):
        values = taken.values if len(taken.values) else np.ones(len(taken.column))
        return csr_array((values.astype(np.float64), taken.column, taken.row_start), shape=(len(rows), by.n_features))
    return csr_array(taken.values if isinstance(taken, Dense) else np.ones((len(rows), by.n_features)))


def _moved(rows: csr_array, offset: np.ndarray, n_columns: int) -> csr_array:
    """The same entries, in each row as many columns further on."""
    column = rows.indices + np.repeat(offset, np.diff(rows.indptr))
    return csr_array((rows.data, column, rows.indptr), shape=(rows.shape[0], n_columns))
