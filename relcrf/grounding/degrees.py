"""Degrees of coded columns, and the sizes of joins, which are computed from the degrees.

A *vid* is the dense index of an entity or of a relation's tuple; a *code* is the dense index of a domain value. The *degree*
of a vid or code in a column is the number of rows that contain it. Vids and codes are dense, so the degrees of a column are
one vector, which is counted while the column is streamed. If the scans of a join form a tree and each edge is an equality of
two columns, the number of rows of the join is computed by products and sums of these vectors, from the leaves to the root.
This takes one pass over each table and does not run the join.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from relcrf.columns.storage import read_rows
from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import ARGUMENT_COLUMN
from relcrf.data.stream import stream_batches
from relcrf.grounding import sql
from relcrf.grounding.plan import Column, Condition, Scan

CHUNK_ROWS = 1 << 20
"""Number of rows of a column that are read at a time; it bounds the memory."""


@dataclass
class DegreeCache:
    """A cache of the columns, numbers of rows and degrees of tables, valid while the tables do not change."""

    bound: BoundModel
    _cache: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    _row_counts: dict[str, int] = field(default_factory=dict)
    _column_types: dict[str, dict[str, str]] = field(default_factory=dict)

    def count_degrees(self, table: str, column: str) -> np.ndarray:
        """Return the degrees of a column, shape (largest vid or code + 1,), int64; nulls are not counted."""
        if (table, column) not in self._cache and table in self.bound.external_tables:
            self._cache[table, column] = _count_column(self.bound.external_tables[table][column])
        elif (table, column) not in self._cache:
            query = f"SELECT {quoted(column)}::INTEGER AS k FROM {quoted(table)} WHERE {quoted(column)} IS NOT NULL"
            self._cache[table, column] = self._sum_by_key(query, ("k",), {})
        return self._cache[table, column]

    def forget(self, tables: Container[str]) -> None:
        """Remove what is known about tables that have changed."""
        self._cache = {key: degrees for key, degrees in self._cache.items() if key[0] not in tables}
        self._row_counts = {table: count for table, count in self._row_counts.items() if table not in tables}
        self._column_types = {table: types for table, types in self._column_types.items() if table not in tables}

    def count_rows(self, table: str) -> int:
        """Return the number of rows of a table."""
        if table not in self._row_counts:
            self._row_counts[table] = self.bound.count_rows(table)
        return self._row_counts[table]

    def column_types(self, table: str) -> dict[str, str]:
        """Return DuckDB's type of each column of a table, by column name."""
        if table not in self._column_types:
            described = self.bound.connection.execute(f"DESCRIBE SELECT * FROM {quoted(table)}").fetchall()
            self._column_types[table] = {str(row[0]): str(row[1]) for row in described}
        return self._column_types[table]

    def is_coded(self, table: str, column: str) -> bool:
        """Return True if a column contains vids or codes."""
        return self.column_types(table)[column] == "INTEGER"

    def argument_columns(self, table: str) -> list[str]:
        """Return the argument columns of a relation's table; together they identify a tuple."""
        return [name for name in self.column_types(table) if ARGUMENT_COLUMN.fullmatch(name)]

    def count_subtree_rows(
        self, scan: Scan, key: Column | None, child_rows: Mapping[Column, np.ndarray], conditions: Sequence[Condition]
    ) -> np.ndarray:
        """Count the joined rows of the subtree of a scan, by the column `key` or, if `key` is None, in total.

        Args:
            child_rows: for each column that joins a child, the number of joined rows of the child's subtree by column value.
        """
        if not conditions and not child_rows:
            return (
                self.count_degrees(scan.table, key.name) if key is not None else np.array([self.count_rows(scan.table)])
            )
        if not conditions and key is None and len(child_rows) == 1:
            ((column, vector),) = child_rows.items()
            return np.array([_dot(self.count_degrees(scan.table, column.name), vector)])
        names = dict.fromkeys(([key.name] if key is not None else []) + [column.name for column in child_rows])
        filters = [f"{quoted(scan.alias)}.{quoted(name)} IS NOT NULL" for name in names]
        filters += [f"({sql.condition_text(condition)})" for condition in conditions]
        selected = (
            ", ".join(f"{quoted(scan.alias)}.{quoted(n)}::INTEGER AS {quoted(n)}" for n in names) or "1::INTEGER AS one"
        )
        where = f" WHERE {' AND '.join(filters)}" if filters else ""
        query = f"SELECT {selected} FROM {quoted(scan.table)} AS {quoted(scan.alias)}{where}"
        vectors = {column.name: vector for column, vector in child_rows.items()}
        return self._sum_by_key(query, tuple(names) or ("one",), vectors, key.name if key is not None else None)

    def _sum_by_key(
        self, query: str, names: tuple[str, ...], child_rows: Mapping[str, np.ndarray], key: str | None = "k"
    ) -> np.ndarray:
        """Sum products of `child_rows` entries over the rows of a query, by column `key` or, if `key` is None, in total."""
        out = np.zeros(0 if key is not None else 1, dtype=np.float64 if child_rows else np.int64)
        for batch in stream_batches(self.bound.connection.sql(query), dict.fromkeys(names, np.int32)):
            weight = None
            for name, vector in child_rows.items():
                factor = _gather(vector, batch[name])
                weight = factor if weight is None else weight * factor
            if key is None:
                out[0] += len(batch[names[0]]) if weight is None else weight.sum()
                continue
            counts = np.bincount(batch[key], weight, minlength=len(out))
            counts[: len(out)] += out.astype(counts.dtype, copy=False)
            out = counts
        return out


def _count_column(column: np.ndarray) -> np.ndarray:
    """Return the degrees of a column that is stored outside DuckDB; the column is read in chunks."""
    out = np.zeros(0, dtype=np.int64)
    for start in range(0, len(column), CHUNK_ROWS):
        counts = np.bincount(read_rows(column, start, start + CHUNK_ROWS), minlength=len(out))
        counts[: len(out)] += out
        out = counts
    return out


def _gather(vector: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the entries of a vector at the given indices as doubles; 0 for indices beyond the end of the vector."""
    out = np.zeros(len(index))
    inside = index < len(vector)
    out[inside] = vector[index[inside]]
    return out


def multiply_vectors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the elementwise product of two vectors up to the end of the shorter vector; all later products are 0."""
    n = min(len(a), len(b))
    return np.asarray(a[:n].astype(np.float64) * b[:n])


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    n = min(len(a), len(b))
    return float(np.dot(a[:n].astype(np.float64), b[:n].astype(np.float64)))
