"""The features of some gates, as they act on weights: log odds, and back from derivatives by these.

A row of features is `1, f`; it counts once with the weights of the factor's key and once with those that all keys share, see
`gates`. Statuses have one f that is 1 and are held as its place; other features are sparse rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from scipy.sparse import csc_array, csr_array


@dataclass(frozen=True, eq=False)
class AbstractGateRows(ABC):
    """Rows of one group, whose weights are a matrix: a row for each key, if there are keys, and one for all.

    Args:
        start: where their weights begin.
        width: of a row of weights, the base first.
        key: of each gate, shape (n,); None where there are no keys.
        n_keys: 0 where there are none.
    """

    start: int
    width: int
    key: np.ndarray | None
    n_keys: int

    @property
    def place(self) -> slice:
        """Of their weights among all."""
        return slice(self.start, self.start + (self.n_keys + 1) * self.width)

    def by_key(self, weights: np.ndarray) -> np.ndarray:
        """What all share and what each key has together, shape (n_keys or 1, width)."""
        own = weights[self.place].reshape(-1, self.width)
        return own[:-1] + own[-1] if self.n_keys else own

    def to_weights(self, sums: np.ndarray) -> np.ndarray:
        """The adjoint of `by_key`, flat."""
        return np.concatenate((sums, sums.sum(axis=0, keepdims=True))).ravel() if self.n_keys else sums.ravel()

    @property
    def keys(self) -> np.ndarray | int:
        return 0 if self.key is None else self.key

    @abstractmethod
    def __len__(self) -> int:
        """How many gates there are."""

    @abstractmethod
    def log_odds(self, weights: np.ndarray) -> np.ndarray:
        """Shape (n,), at all weights."""

    @abstractmethod
    def sums(self, slope: np.ndarray) -> np.ndarray:
        """Derivatives by `by_key` from those by the log odds, shape (n,)."""


@dataclass(frozen=True, eq=False)
class StatusRows(AbstractGateRows):
    """
    Args:
        pair: which pair of statuses, shape (n,).
    """

    pair: np.ndarray

    def __len__(self) -> int:
        return len(self.pair)

    @cached_property
    def _cell(self) -> np.ndarray:
        """Of each gate its place in a table of keys and pairs of statuses."""
        return np.asarray(self.keys * (self.width - 1) + self.pair)

    def log_odds(self, weights: np.ndarray) -> np.ndarray:
        own = self.by_key(weights)
        return np.asarray((own[:, :1] + own[:, 1:]).ravel()[self._cell])

    def sums(self, slope: np.ndarray) -> np.ndarray:
        n = max(self.n_keys, 1)
        table = np.bincount(self._cell, slope, n * (self.width - 1)).reshape(n, -1)
        return np.column_stack((table.sum(axis=1), table))


@dataclass(frozen=True, eq=False)
class FeatureRows(AbstractGateRows):
    """
    Args:
        features: shape (n, width - 1).
    """

    features: csr_array

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @cached_property
    def _rows(self) -> csr_array:
        """Each gate's base and features, in the columns of its key, shape (n, n_keys * width)."""
        n, rows = len(self), self.features
        keys = np.broadcast_to(self.keys, n).astype(np.int64) * self.width
        place = rows.indptr[:-1] + np.arange(n)
        column = np.insert(rows.indices + 1 + np.repeat(keys, np.diff(rows.indptr)), rows.indptr[:-1], keys)
        values = np.insert(rows.data.astype(np.float64), rows.indptr[:-1], 1.0)
        shape = (n, max(self.n_keys, 1) * self.width)
        return csr_array((values, column, np.append(place, len(column))), shape=shape)

    @cached_property
    def _by_weight(self) -> csc_array:
        return csc_array(self._rows.T.tocsc())

    def log_odds(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self._rows @ self.by_key(weights).ravel())

    def sums(self, slope: np.ndarray) -> np.ndarray:
        return np.asarray(self._by_weight @ slope).reshape(-1, self.width)


@dataclass(frozen=True, eq=False)
class GateRows:
    """Rows of several groups, one after the other.

    Args:
        n_weights: of all gates.
    """

    parts: Sequence[AbstractGateRows]
    n_weights: int

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(part) for part in self.parts)]

    def __len__(self) -> int:
        return self._starts[-1]

    def log_odds(self, weights: np.ndarray) -> np.ndarray:
        """That each gate is open, shape (n,).

        Args:
            weights: shape (n_weights,).
        """
        return np.concatenate([np.empty(0), *(part.log_odds(weights) for part in self.parts)])

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """Derivatives by the weights, shape (n_weights,), from those by the log odds, shape (n,)."""
        out = np.zeros(self.n_weights)
        for part, (lo, hi) in zip(self.parts, pairwise(self._starts), strict=True):
            out[part.place] += part.to_weights(part.sums(slope[lo:hi]))
        return out
