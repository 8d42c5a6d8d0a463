"""Pseudo-likelihood of rows of binary states with chosen pairs, in single precision and without a graph: for 100 million cells.

What `InducedLikelihood` is for a table of rows whose states have a bias each, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.graph.candidates import KeyRelation, PairSpace, Side
from relcrf.kernels import active_pairs, conditionals
from relcrf.kernels.threads import frozen
from relcrf.learning.induced import AbstractInduced, Chosen


@dataclass(frozen=True, eq=False)
class RowsLikelihood(AbstractInduced):
    """Minus the log pseudo-likelihood; the base's weights are the biases.

    Args:
        on: whether each state is on in each row, by state and then by row, shape (n_states * n_rows,), float32.
        space: all pairs of states.
    """

    on: np.ndarray
    space: PairSpace
    chosen: Chosen

    @classmethod
    def of(cls, on: np.ndarray) -> RowsLikelihood:
        """With nothing chosen. `on` has shape (n_rows, n_states), bool."""
        n_rows, n_states = on.shape
        start = n_rows * np.arange(n_states + 1, dtype=np.int64)
        sample = np.tile(np.arange(n_rows, dtype=np.int32), n_states)
        side = Side(start, sample, np.arange(on.size, dtype=np.int32), np.array([0.0, 1.0]))
        space = PairSpace("pairs", side, side, KeyRelation.ASCENDING, n_rows)
        return cls(np.ascontiguousarray(on.T).ravel().astype(np.float32), space, Chosen.none())

    @property
    def n_base(self) -> int:
        return self.space.first.n_keys

    @property
    def sides(self) -> tuple[tuple[Side, Side], ...]:
        return ((self.space.first, self.space.second),)

    @property
    def holds(self) -> np.ndarray:
        return self.on

    def having(self, chosen: Chosen) -> RowsLikelihood:
        other = replace(self, chosen=chosen)
        other.__dict__["counts"] = self.counts
        return other

    def held_out(self) -> None:
        return None

    @cached_property
    def counts(self) -> np.ndarray:
        """In how many rows each state is on, shape (n_states,)."""
        return np.asarray(self.on.reshape(self.n_base, -1).sum(axis=1, dtype=np.float64))

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        value, errors = self.errors(point)
        arrays, (a, b) = self.space.first.arrays, self._keys
        chosen = active_pairs.gradient(arrays, arrays, self.space.n_samples, a, b, errors, self.on)
        return value, np.append(errors.reshape(self.n_base, -1).sum(axis=1, dtype=np.float64), chosen)

    def errors(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        scores = np.repeat(point[: self.n_base].astype(np.float32), self.space.n_samples)
        arrays, (a, b) = self.space.first.arrays, self._keys
        active_pairs.add_scores(arrays, arrays, self.space.n_samples, a, b, point[self.n_base :], self.on, scores)
        return float(conditionals.binary_errors(frozen(self.on, np.float32), scores)), scores

    @property
    def _keys(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ascontiguousarray(self.chosen.first), np.ascontiguousarray(self.chosen.second)

    def curvature(self) -> np.ndarray:
        biases = np.full(self.n_base, 0.25 * self.space.n_samples)
        return np.append(biases, 0.25 * (self.counts[self.chosen.first] + self.counts[self.chosen.second]))
