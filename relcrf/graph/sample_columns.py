"""Nodes as a table of samples by columns: what every relation over rows is, complete or not."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from relcrf.graph.candidates import CandidateSide, PairSpace

MAX_CELLS_PER_NODE = 8
"""Places of a table for each node, above which it is no table: nearly all would be looked at in vain."""


@dataclass(frozen=True, eq=False)
class SampleColumns:
    """A table of nodes; those that no side of a space speaks of have columns of their own.

    Args:
        node: shape (n_columns, n_samples), int32; -1 where there is none. All of a column have the same number of states.
        side_columns: of each space, for each of its sides the column of each key, shape (n_keys,), int64.
    """

    node: np.ndarray
    side_columns: tuple[tuple[np.ndarray, ...], ...]

    @classmethod
    def from_spaces(cls, cardinality: np.ndarray, spaces: tuple[PairSpace, ...]) -> SampleColumns | None:
        """None where nodes are no such table: one is in two cells, sides have unlike ones, or most cells are missing.

        Args:
            cardinality: of each node, shape (n_nodes,).
            spaces: whose sides have nodes as variables.
        """
        n_samples = max((space.n_samples for space in spaces), default=1)
        places = _NodePositions(np.full(len(cardinality), -1), np.full(len(cardinality), -1))
        of_sides = []
        for space in spaces:
            found = []
            for side in space.sides:
                columns = places.assign_columns(side)
                if columns is None:
                    return None
                found.append(columns)
            of_sides.append(tuple(found))
        for n_states in np.unique(cardinality[places.column < 0]):
            rest = np.flatnonzero((places.column < 0) & (cardinality == n_states))
            columns, places.sample[rest] = np.divmod(np.arange(len(rest)), n_samples)
            places.column[rest] = columns + places.add_columns(int(columns[-1]) + 1)
        if places.n_columns * n_samples > MAX_CELLS_PER_NODE * len(cardinality):
            return None
        node = np.full((places.n_columns, n_samples), -1, dtype=np.int32)
        node[places.column, places.sample] = np.arange(len(cardinality))
        return cls(node, tuple(of_sides))


@dataclass(eq=False)
class _NodePositions:
    """Where each node is so far, shape (n_nodes,); -1 where it is nowhere. Places are filled in as sides come."""

    column: np.ndarray
    sample: np.ndarray
    n_columns: int = field(default=0)

    def add_columns(self, n: int) -> int:
        """The first of some more columns."""
        self.n_columns += n
        return self.n_columns - n

    def assign_columns(self, side: CandidateSide) -> np.ndarray | None:
        """The column of each key of a side, whose nodes are put there; None where these are elsewhere, or in two places."""
        node, known = side.variable, self.column[side.variable] >= 0
        if np.bincount(node).max(initial=0) > 1:
            return None
        columns = np.arange(side.n_keys) + self.n_columns
        if known.all() and len(node):
            # A column of which a side has only some of the nodes would lend it the others.
            columns[side.key] = self.column[node]
            sizes = np.bincount(self.column[self.column >= 0], minlength=self.n_columns + side.n_keys)
            same = (columns[side.key] == self.column[node]).all() and (self.sample[node] == side.sample).all()
            if not same or (sizes[columns] != np.diff(side.start)).any():
                return None
        elif known.any():
            return None
        self.add_columns(side.n_keys)
        self.column[node], self.sample[node] = columns[side.key], side.sample
        return columns
