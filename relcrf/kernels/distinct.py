"""The distinct ones of many numbers, by sorting; and rows told apart by numbers.

Where nothing but the values is asked for, `np.unique` hashes since NumPy 2.3: 800,000 different int64 take it 0.7 s, and this
5 ms.
"""

from __future__ import annotations

import numpy as np

MAX_COMBINED_KEYS = 1 << 62
"""That rows are told apart by at a time."""


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values of an array of any shape, ascending, shape (n,)."""
    ordered = values.ravel()
    if len(ordered) < 2:
        return ordered.copy()
    if not (ordered[1:] >= ordered[:-1]).all():
        ordered = np.sort(ordered)
    return np.asarray(ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))])


def distinct_rows(rows: np.ndarray) -> np.ndarray:
    """The distinct rows of whole numbers from 0 on, shape (n, n_columns), ascending; a column's largest number plus 1, times
    those of the others, is to be below 2^63.
    """
    if not len(rows):
        return rows.copy()
    sizes = tuple(int(largest) + 1 for largest in rows.max(axis=0))
    numbers = distinct(np.ravel_multi_index(tuple(rows.T), sizes))
    return np.column_stack(np.unravel_index(numbers, sizes)).astype(rows.dtype)


def number_rows(*columns: np.ndarray) -> np.ndarray:
    """A number for each row of some columns of whole numbers, the same for the same rows, without gaps; shape (n,)."""
    found, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        least, most = int(column.min(initial=0)), int(column.max(initial=0))
        width = most - least + 1
        if size * width >= MAX_COMBINED_KEYS:
            found, size = _rank_densely(found, size)
        if width > 1:
            found = found * width + (column - least)
            size *= width
    return _rank_densely(found, size)[0]


def _rank_densely(numbers: np.ndarray, size: int) -> tuple[np.ndarray, int]:
    """Numbers from 0 to size - 1 as their ranks among those that are there, and how many these are."""
    if size > 4 * len(numbers):
        found = distinct(numbers)
        return np.searchsorted(found, numbers), len(found)
    there = np.zeros(size, dtype=bool)
    there[numbers] = True
    rank = np.cumsum(there) - 1
    return rank[numbers], int(rank[-1]) + 1
