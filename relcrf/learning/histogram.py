"""Histograms of values over fixed bins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

MAX_ABSOLUTE_EDGE = 1e100
"""Maximum absolute value of bin edges and thresholds; sums and differences of edges are then finite."""


@dataclass(frozen=True, eq=False)
class Histogram:
    """The number of values in each bin.

    Args:
        edges: Bin edges, ascending, shape (n + 1,).
        counts: Shape (n,), int64.
        threshold: Absolute value above which a value is counted in `n_beyond`, or None.
        n_beyond: Number of values whose absolute value exceeds the threshold.
    """

    edges: np.ndarray
    counts: np.ndarray
    threshold: float | None = None
    n_beyond: int = 0

    def __post_init__(self) -> None:
        edges, counts = self.edges, self.counts
        if edges.ndim != 1 or edges.shape != (len(counts) + 1,) or not (np.diff(edges) > 0).all():
            raise ValueError(f"expected {len(counts) + 1} ascending edges for {len(counts)} bins")
        if not (np.abs((*edges, self.threshold or 0.0)) <= MAX_ABSOLUTE_EDGE).all():
            raise ValueError("an edge or the threshold is infinite, NaN or too large")
        if counts.min(initial=0) < 0 or not 0 <= self.n_beyond <= self.total:
            raise ValueError("a count is negative, or n_beyond exceeds the total")

    @classmethod
    def from_chunks(cls, chunks: Iterable[np.ndarray], edges: np.ndarray, threshold: float | None = None) -> Histogram:
        """Count the values of all chunks; values that rounding moves beyond the edges are counted in the outer bins."""
        counts, n_beyond = np.zeros(len(edges) - 1, dtype=np.int64), 0
        for values in chunks:
            counts += np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
            n_beyond += 0 if threshold is None else int((np.abs(values) > threshold).sum())
        return cls(edges, counts, threshold, n_beyond)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Histogram:
        """Return the histogram from the result of `as_dict`.

        Raises:
            ValueError, TypeError, KeyError: If `plain` does not have the form of this result.
        """
        edges, counts = np.asarray(plain["edges"], dtype=np.float64), np.asarray(plain["counts"], dtype=np.int64)
        threshold = plain["threshold"]
        return cls(edges, counts, None if threshold is None else float(threshold), int(plain["n_beyond"]))

    def as_dict(self) -> dict[str, Any]:
        """Return the histogram as numbers and lists that JSON can represent."""
        return {**asdict(self), "edges": self.edges.tolist(), "counts": self.counts.tolist()}

    @property
    def total(self) -> int:
        """Return the number of values."""
        return int(self.counts.sum())
