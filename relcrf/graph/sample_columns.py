"""Nodes arranged as a table of columns by samples; for keys, samples, sides and spaces see `candidates.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from relcrf.graph.candidates import CandidateSide, PairSpace

MAX_CELLS_PER_NODE = 8
"""Maximum number of table cells per node; a scan of a larger table would read mostly missing cells."""


@dataclass(frozen=True, eq=False)
class SampleColumns:
    """A table of nodes by column and sample. A column contains the nodes of one key, or nodes that are in no side.

    Args:
        node: Node of each cell, shape (n_columns, n_samples), int32; -1 for a missing cell. All nodes of a column have
            the same cardinality.
        side_columns: `side_columns[space][side]` is the column of each key, shape (n_keys,), int64.
    """

    node: np.ndarray
    side_columns: tuple[tuple[np.ndarray, ...], ...]

    @classmethod
    def from_spaces(cls, cardinality: np.ndarray, spaces: tuple[PairSpace, ...]) -> SampleColumns | None:
        """Lay out the nodes of some spaces as a table; return None if the nodes do not form a table.

        Nodes do not form a table if a side contains a node twice, if two sides share some but not all nodes of a
        column, or if most cells are missing.

        Args:
            cardinality: Cardinality of each node, shape (n_nodes,).
            spaces: Pair spaces; the `variable` arrays of their sides contain node indices.
        """
        n_samples = max((space.n_samples for space in spaces), default=1)
        positions = _NodePositions(np.full(len(cardinality), -1), np.full(len(cardinality), -1))
        side_columns = []
        for space in spaces:
            space_columns = []
            for side in space.sides:
                columns = positions.assign_columns(side)
                if columns is None:
                    return None
                space_columns.append(columns)
            side_columns.append(tuple(space_columns))
        for n_states in np.unique(cardinality[positions.column < 0]):
            rest = np.flatnonzero((positions.column < 0) & (cardinality == n_states))
            columns, positions.sample[rest] = np.divmod(np.arange(len(rest)), n_samples)
            positions.column[rest] = columns + positions.add_columns(int(columns[-1]) + 1)
        if positions.n_columns * n_samples > MAX_CELLS_PER_NODE * len(cardinality):
            return None
        node = np.full((positions.n_columns, n_samples), -1, dtype=np.int32)
        node[positions.column, positions.sample] = np.arange(len(cardinality))
        return cls(node, tuple(side_columns))


@dataclass(eq=False)
class _NodePositions:
    """The column and the sample of each assigned node, shape (n_nodes,); -1 for unassigned nodes."""

    column: np.ndarray
    sample: np.ndarray
    n_columns: int = field(default=0)

    def add_columns(self, n: int) -> int:
        """Add `n` columns and return the index of the first."""
        self.n_columns += n
        return self.n_columns - n

    def assign_columns(self, side: CandidateSide) -> np.ndarray | None:
        """Assign a side's nodes to columns; return the column of each key, or None if an earlier side conflicts."""
        node, assigned = side.variable, self.column[side.variable] >= 0
        if np.bincount(node).max(initial=0) > 1:
            return None
        columns = np.arange(side.n_keys) + self.n_columns
        if assigned.all() and len(node):
            # A column that an earlier side assigned must contain only nodes of this side.
            columns[side.key] = self.column[node]
            sizes = np.bincount(self.column[self.column >= 0], minlength=self.n_columns + side.n_keys)
            same = (columns[side.key] == self.column[node]).all() and (self.sample[node] == side.sample).all()
            if not same or (sizes[columns] != np.diff(side.start)).any():
                return None
        elif assigned.any():
            return None
        self.add_columns(side.n_keys)
        self.column[node], self.sample[node] = columns[side.key], side.sample
        return columns
