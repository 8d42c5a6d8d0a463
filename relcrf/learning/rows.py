"""Pseudo-likelihood of rows of many binary states of which few are on, with chosen pairs and without a graph.

What `InducedLikelihood` is for a table of rows whose states have a bias each, and nothing else; but what it costs grows with
the states that are on and not with rows times states, of which there may be 100 million. It is for Python: no backend takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from relcrf.columns.offsets import offsets
from relcrf.graph.candidates import KeyRelation, PairSpace, Side
from relcrf.kernels import sparse_rows
from relcrf.kernels.induction import Sparse
from relcrf.kernels.sparse_rows import Rows
from relcrf.kernels.threads import frozen, in_runs
from relcrf.learning.induced import AbstractGrowing, Chosen


@dataclass(frozen=True, eq=False)
class RowsLikelihood(AbstractGrowing):
    """Minus the log pseudo-likelihood; the base's weights are the biases.

    Args:
        space: all pairs of states; the cells of its sides are those that are on.
    """

    space: PairSpace
    chosen: Chosen

    @classmethod
    def of(cls, on: csr_array) -> RowsLikelihood:
        """With nothing chosen. `on` has shape (n_rows, n_states); its entries are the states that are on."""
        by_state = csr_array(on.T)
        by_state.sort_indices()
        place = np.arange(by_state.nnz, dtype=np.int32)
        start, row = by_state.indptr.astype(np.int64), by_state.indices.astype(np.int32)
        side = Side(start, row, place, np.array([0.0, 1.0]))
        return cls(PairSpace("pairs", side, side, KeyRelation.ASCENDING, on.shape[0]), Chosen.none())

    @property
    def n_base(self) -> int:
        return self.space.first.n_keys

    def having(self, chosen: Chosen) -> RowsLikelihood:
        return replace(self, chosen=chosen)

    def held_out(self) -> None:
        return None

    @property
    def counts(self) -> np.ndarray:
        """In how many rows each state is on, shape (n_states,)."""
        return np.diff(self.space.first.start).astype(np.float64)

    @cached_property
    def _incidence(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where each state's partners begin; of each the state, and its pair's place among the chosen."""
        ends = np.concatenate((self.chosen.first, self.chosen.second))
        order = np.argsort(ends, kind="stable")
        start = offsets(np.bincount(ends, minlength=self.n_base))
        partner = np.concatenate((self.chosen.second, self.chosen.first))[order]
        return start, partner, order % max(len(self.chosen), 1)

    def _rows(self, point: np.ndarray) -> Rows:
        start, partner, pair = self._incidence
        return Rows(
            frozen(self.space.first.start, np.int64),
            frozen(self.space.first.sample, np.int32),
            frozen(start, np.int64),
            frozen(partner, np.int32),
            frozen(point[self.n_base :][pair], np.float64),
        )

    @cached_property
    def _work(self) -> np.ndarray:
        """How many cells that are on a visit of each state reads."""
        start, partner, _ = self._incidence
        read = offsets(self.counts[partner])
        work: np.ndarray = 1 + self.counts + np.diff(read[start])
        return work.astype(np.int64)

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if not np.isfinite(point).all():
            return np.nan, np.full(len(point), np.nan)
        rows, bias = self._rows(point), np.ascontiguousarray(point[: self.n_base])
        value, of_bias, of_incident = np.empty(self.n_base), np.empty(self.n_base), np.empty(2 * len(self.chosen))

        def run(lo: int, hi: int) -> None:
            sparse_rows.value_and_gradient(rows, bias, self.space.n_samples, lo, hi, value, of_bias, of_incident)

        list(in_runs(self._work, run))
        of_pair = np.bincount(self._incidence[2], of_incident, len(self.chosen))
        return float(value.sum()), np.concatenate((of_bias, of_pair))

    def large_errors(self, point: np.ndarray, least: float) -> Sparse:
        """Of each state, by row, its probability less whether it is on, where that is larger than the least."""
        rows, bias = self._rows(point), np.ascontiguousarray(point[: self.n_base])
        size, none = np.zeros(self.n_base, dtype=np.int64), (np.empty(0, dtype=np.int32), np.empty(0))

        def fill(place: np.ndarray, row: np.ndarray, error: np.ndarray) -> None:
            def run(lo: int, hi: int) -> None:
                sparse_rows.large_errors(rows, bias, self.space.n_samples, least, lo, hi, place, row, error)

            list(in_runs(self._work, run))

        fill(size, *none)
        start = offsets(size)
        found = Sparse(start, np.empty(start[-1], dtype=np.int32), np.empty(start[-1]))
        if len(found.column):
            fill(start[:-1].copy(), found.column, found.value)
        return found

    def curvature(self) -> np.ndarray:
        biases = np.full(self.n_base, 0.25 * self.space.n_samples)
        return np.append(biases, 0.25 * (self.counts[self.chosen.first] + self.counts[self.chosen.second]))
