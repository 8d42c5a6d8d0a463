"""The entries of evidence features, one a row: which factor has which feature, and its value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relcrf.columns.offsets import entries_of_runs
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse, Tiled


class Entries(NamedTuple):
    """Entries of a feature matrix that may be other than 0; each array has shape (n,).

    Args:
        place: which of the rows that were asked for.
    """

    place: np.ndarray
    feature: np.ndarray
    value: np.ndarray


def entries_of(features: AbstractFeatures, rows: np.ndarray) -> Entries:
    """The entries of some rows, row after row. `rows` has shape (n,)."""
    match features:
        case Tiled(tile):
            return entries_of(tile, rows % tile.n_rows)
        case Sparse(row_start, column, values):
            sizes = np.diff(row_start)[rows]
            at = entries_of_runs(row_start, rows)
            value = values[at] if len(values) else np.ones(len(at))
            return Entries(np.repeat(np.arange(len(rows)), sizes), column[at], value)
        case Ones():
            values = np.ones((1, features.n_features))
        case Dense() | Keyed() if len(features.values):
            values = features.values[rows]
        case _:
            values = np.ones((1, 1))
    values = np.broadcast_to(values, (len(rows), values.shape[1]))
    width = values.shape[1]
    column = features.block_of(rows)[:, None].astype(np.int64) * width + np.arange(width)
    return Entries(np.repeat(np.arange(len(rows)), width), column.ravel(), values.ravel())
