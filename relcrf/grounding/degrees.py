"""How often each thing or value stands in a column, and joins counted with that.

Vids and codes are dense, so a column's degrees are one vector, filled by counting while the column streams by. The rows
of a join whose scans form a tree, each tied to the one above by one column, follow from the vectors by products and
sums from the leaves to the root: a pass over each table in the place of the join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np

from relcrf.columns.storage import read_rows
from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import ARGUMENT_COLUMN
from relcrf.data.stream import stream_batches
from relcrf.grounding import sql
from relcrf.grounding.plan import Column, Condition, Scan

CHUNK_ROWS = 1 << 20

MAX_EXACT = 2.0**53
"""Sums of whole numbers in double precision are exact up to here."""


@dataclass
class DegreeCache:
    """The degrees of columns, each counted once. The tables must not change in the meantime."""

    bound: BoundModel
    _cache: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def count_degrees(self, table: str, column: str) -> np.ndarray:
        """The number of rows that have each vid or code, shape (highest + 1,), int64; missing values are not counted."""
        if (table, column) not in self._cache and table in self.bound.external_tables:
            self._cache[table, column] = _count_column(self.bound.external_tables[table][column])
        elif (table, column) not in self._cache:
            rows = f"SELECT {quoted(column)}::INTEGER AS k FROM {quoted(table)} WHERE {quoted(column)} IS NOT NULL"
            self._cache[table, column] = self._sum_by_key(rows, ("k",), {})
        return self._cache[table, column]

    def is_coded(self, table: str, column: str) -> bool:
        """Whether a column holds vids or codes."""
        described = self.bound.connection.execute(f"DESCRIBE SELECT {quoted(column)} FROM {quoted(table)}").fetchall()
        return str(described[0][1]) == "INTEGER"

    def count_subtree_rows(
        self, scan: Scan, key: Column | None, child_rows: Mapping[Column, np.ndarray], conditions: Sequence[Condition]
    ) -> np.ndarray:
        """For each value of a scan's key, the rows of the scan with all that hangs below it; for no key, their sum.

        Args:
            child_rows: for some columns of the scan, the rows that hang on each value.
        """
        if not conditions and not child_rows:
            return (
                self.count_degrees(scan.table, key.name)
                if key is not None
                else np.array([self.bound.count_rows(scan.table)])
            )
        if not conditions and key is None and len(child_rows) == 1:
            ((column, vector),) = child_rows.items()
            return np.array([_dot(self.count_degrees(scan.table, column.name), vector)])
        names = dict.fromkeys(([key.name] if key is not None else []) + [column.name for column in child_rows])
        present = [f"{quoted(scan.alias)}.{quoted(name)} IS NOT NULL" for name in names]
        present += [f"({sql.condition_text(condition)})" for condition in conditions]
        selected = (
            ", ".join(f"{quoted(scan.alias)}.{quoted(n)}::INTEGER AS {quoted(n)}" for n in names) or "1::INTEGER AS one"
        )
        where = f" WHERE {' AND '.join(present)}" if present else ""
        rows = f"SELECT {selected} FROM {quoted(scan.table)} AS {quoted(scan.alias)}{where}"
        vectors = {column.name: vector for column, vector in child_rows.items()}
        return self._sum_by_key(rows, tuple(names) or ("one",), vectors, key.name if key is not None else None)

    def _sum_by_key(
        self, query: str, names: tuple[str, ...], child_rows: Mapping[str, np.ndarray], key: str | None = "k"
    ) -> np.ndarray:
        """Sums over the rows of a query, by a key or over all."""
        out = np.zeros(0 if key is not None else 1, dtype=np.float64 if child_rows else np.int64)
        with self.bound.cursor() as cursor:
            for batch in stream_batches(cursor.sql(query), dict.fromkeys(names, np.int32)):
                weight = None
                for name, vector in child_rows.items():
                    hanging = _gather(vector, batch[name])
                    weight = hanging if weight is None else weight * hanging
                if key is None:
                    out[0] += len(batch[names[0]]) if weight is None else weight.sum()
                    continue
                counted = np.bincount(batch[key], weight, minlength=len(out))
                counted[: len(out)] += out.astype(counted.dtype, copy=False)
                out = counted
        return out


def _count_column(column: np.ndarray) -> np.ndarray:
    """The degrees of a column outside of DuckDB, which is read in parts."""
    out = np.zeros(0, dtype=np.int64)
    for start in range(0, len(column), CHUNK_ROWS):
        counted = np.bincount(read_rows(column, start, start + CHUNK_ROWS), minlength=len(out))
        counted[: len(out)] += out
        out = counted
    return out


def _gather(vector: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Entries of a vector as doubles; 0 beyond its end."""
    found = np.zeros(len(index))
    inside = index < len(vector)
    found[inside] = vector[index[inside]]
    return found


def multiply_vectors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Entry by entry; 0 beyond the end of either."""
    n = min(len(a), len(b))
    return np.asarray(a[:n].astype(np.float64) * b[:n])


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    n = min(len(a), len(b))
    return float(np.dot(a[:n].astype(np.float64), b[:n].astype(np.float64)))


def argument_columns(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """The columns of a relation's table that tell its tuples apart."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {quoted(table)}").fetchall()
    return [str(row[0]) for row in described if ARGUMENT_COLUMN.fullmatch(str(row[0]))]
