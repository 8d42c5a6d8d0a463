"""Joint label counts of candidate edges, computed only for the requested edges.

*Bit planes*, with one bit per sample, represent the labels of the cells of a key (see `kernels/packed_counts.py`).
See `edge_conditionals.py` for the terms space, side, cell, key, sample and edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.candidates import CandidateSide, PairSpace
from relcrf.kernels import edge_tables, packed_counts
from relcrf.kernels.threads import freeze, map_key_ranges
from relcrf.learning.edge_conditionals import to_edge_cells

MAX_WORDS_PER_CELL = 4
"""Maximum number of 64-bit words of bit planes per cell of a side; for sparser sides, merging cell lists is faster."""


@dataclass(frozen=True, eq=False)
class PackedSide:
    """The labels of the cells of a `CandidateSide` as bit planes.

    Args:
        planes: Bit planes of each key, one for each state, shape (n_keys, n_states, n_words), uint64.
        totals: Number of bits set in each plane, shape (n_keys, n_states), int64.
    """

    planes: np.ndarray
    totals: np.ndarray

    @classmethod
    def pack(cls, side: CandidateSide, n_samples: int, labels: np.ndarray) -> PackedSide:
        """Return the bit planes for the labels of the nodes, shape (n_nodes,); -1 marks a node that is not counted."""
        shape = (side.n_keys, len(side.truth), n_words(n_samples))
        planes, totals = np.zeros(shape, dtype=np.uint64), np.zeros(shape[:2], dtype=np.int64)
        packed_counts.pack(side.kernel_cells, labels, planes, totals)
        return cls(freeze(planes, np.uint64), freeze(totals, np.int64))


@dataclass(frozen=True, eq=False)
class EdgeCounts:
    """Counts of the joint states of the edges in one candidate space.

    Args:
        space: A candidate space; the `variable` arrays of the sides contain node indices.
        states: The label of each node, shape (n_nodes,), int32.
        counted_nodes: Mask of the nodes whose labels are counted, shape (n_nodes,), bool.
    """

    space: PairSpace
    states: np.ndarray
    counted_nodes: np.ndarray

    @cached_property
    def _labels(self) -> np.ndarray:
        """Return the label of each node, or -1 if the label is not counted."""
        return freeze(np.where(self.counted_nodes, self.states, -1), np.int32)

    @cached_property
    def packed(self) -> tuple[PackedSide, PackedSide] | None:
        """Return the two sides as bit planes, or None if a side has few cells."""
        space, (first, second) = self.space, self.space.sides
        for side in space.sides:
            if side.n_keys * len(side.truth) * n_words(space.n_samples) > MAX_WORDS_PER_CELL * len(side.variable):
                return None
        packed = PackedSide.pack(first, space.n_samples, self._labels)
        same_sides = len(first.truth) == len(second.truth) and all(
            map(np.array_equal, first.kernel_cells, second.kernel_cells)
        )
        return packed, packed if same_sides else PackedSide.pack(second, space.n_samples, self._labels)

    def __call__(self, pairs: np.ndarray) -> np.ndarray:
        """Count the joint states of some edges, given as pairs of keys of shape (n, 2).

        Returns:
            Shape (n, n_first_states, n_second_states), int64.
        """
        n_states = tuple(len(side.truth) for side in self.space.sides)
        out = np.zeros((len(pairs), *n_states), dtype=np.int64)
        if self.packed is None:
            edge_tables.count_joint_states(to_edge_cells(self.space, pairs), self._labels, out)
            return out
        first, second = self.packed
        keys = [freeze(key, np.int64) for key in pairs.T]

        def run(lo: int, hi: int) -> None:
            packed_counts.count_pairs(
                keys[0][lo:hi],
                keys[1][lo:hi],
                self.space.n_samples,
                first.planes,
                first.totals,
                second.planes,
                second.totals,
                out[lo:hi],
            )

        list(map_key_ranges(np.full(len(pairs), n_words(self.space.n_samples) * n_states[0] * n_states[1]), run))
        return out


def n_words(n_samples: int) -> int:
    """Return the number of 64-bit words for one bit per sample."""
    return -(-n_samples // 64)
