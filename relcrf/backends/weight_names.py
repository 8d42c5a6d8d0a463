"""Tables of named weights, and the selection of the largest weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.data.frame import Frame

NAME_COLUMNS = ("template", "key", "feature", "pattern")
"""Columns that identify a weight; the key is empty if the template has no keys."""


def weight_table(learned: LearnedModel, positions: np.ndarray | None = None) -> Frame:
    """Return a table with one row per weight and the columns `NAME_COLUMNS` and `weight`.

    Args:
        positions: Offsets of the weights in the layout, shape (n,); None selects all weights.
    """
    positions = np.arange(learned.layout.size) if positions is None else positions
    columns = {name: np.empty(len(positions), dtype=object) for name in NAME_COLUMNS}
    owner = np.searchsorted(learned.layout.starts, positions, side="right") - 1
    for block, info in enumerate(learned.templates):
        rows = np.flatnonzero(owner == block)
        start, n_patterns = learned.layout.starts[block], learned.layout.blocks[block].n_patterns
        feature, pattern = np.divmod(positions[rows] - start, n_patterns)
        distinct, inverse = np.unique(feature, return_inverse=True)
        named = [info.feature_name(index) for index in distinct.tolist()]
        columns["template"][rows] = info.name
        columns["key"][rows] = np.array([", ".join(key) for key, _ in named], dtype=object)[inverse]
        columns["feature"][rows] = np.array([name for _, name in named], dtype=object)[inverse]
        columns["pattern"][rows] = np.array(info.patterns, dtype=object)[pattern]
    return Frame({**columns, "weight": np.asarray(learned.vectors["weights"], dtype=np.float64)[positions]})


def largest_of_blocks(learned: LearnedModel, blocks: Sequence[int], max_count: int) -> np.ndarray:
    """Return the offsets of the weights of largest magnitude in some blocks of the layout, in descending order."""
    starts = learned.layout.starts
    offsets = np.concatenate([np.empty(0, dtype=np.int64), *(np.arange(starts[b], starts[b + 1]) for b in blocks)])
    return np.asarray(offsets[largest_indices(learned.vectors["weights"][offsets], max_count)])


def largest_indices(values: np.ndarray, max_count: int) -> np.ndarray:
    """Return the indices of the values of largest magnitude, descending; ties keep their order, and NaN is last."""
    return np.argsort(-np.abs(values), kind="stable")[:max_count]
