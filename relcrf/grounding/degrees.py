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

from relcrf.columns.growing import part_of
from relcrf.data.bound import Bound
from relcrf.data.dataset import quoted
from relcrf.data.names import ARGUMENT
from relcrf.data.stream import stream
from relcrf.grounding import sql
from relcrf.grounding.plan import Column, Condition, Scan

PART_ROWS = 1 << 20

EXACT = 2.0**53
"""Sums of whole numbers in double precision are exact up to here."""


@dataclass
class Degrees:
    """The degrees of columns, each counted once. The tables must not change in the meantime."""

    bound: Bound
    _known: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def of(self, table: str, column: str) -> np.ndarray:
        """The number of rows that have each vid or code, shape (highest + 1,), int64; missing values are not counted."""
        if (table, column) not in self._known and table in self.bound.given:
            self._known[table, column] = _counted(self.bound.given[table][column])
        elif (table, column) not in self._known:
            rows = f"SELECT {quoted(column)}::INTEGER AS k FROM {quoted(table)} WHERE {quoted(column)} IS NOT NULL"
            self._known[table, column] = self._sum(rows, ("k",), {})
        return self._known[table, column]

    def is_coded(self, table: str, column: str) -> bool:
        """Whether a column holds vids or codes."""
        described = self.bound.connection.execute(f"DESCRIBE SELECT {quoted(column)} FROM {quoted(table)}").fetchall()
        return str(described[0][1]) == "INTEGER"

    def below(
        self, scan: Scan, key: Column | None, hanging: Mapping[Column, np.ndarray], conditions: Sequence[Condition]
    ) -> np.ndarray:
        """For each value of a scan's key, the rows of the scan with all that hangs below it; for no key, their sum.

        Args:
            hanging: for some columns of the scan, the rows that hang on each value.
        """
        if not conditions and not hanging:
            return self.of(scan.table, key.name) if key is not None else np.array([self.bound.count_rows(scan.table)])
        if not conditions and key is None and len(hanging) == 1:
            ((column, vector),) = hanging.items()
            return np.array([_dot(self.of(scan.table, column.name), vector)])
        names = dict.fromkeys(([key.name] if key is not None else []) + [column.name for column in hanging])
        present = [f"{quoted(scan.alias)}.{quoted(name)} IS NOT NULL" for name in names]
        present += [f"({sql.condition_text(condition)})" for condition in conditions]
        selected = (
            ", ".join(f"{quoted(scan.alias)}.{quoted(n)}::INTEGER AS {quoted(n)}" for n in names) or "1::INTEGER AS one"
        )
        where = f" WHERE {' AND '.join(present)}" if present else ""
        rows = f"SELECT {selected} FROM {quoted(scan.table)} AS {quoted(scan.alias)}{where}"
        vectors = {column.name: vector for column, vector in hanging.items()}
        return self._sum(rows, tuple(names) or ("one",), vectors, key.name if key is not None else None)

    def _sum(
        self, query: str, names: tuple[str, ...], below: Mapping[str, np.ndarray], key: str | None = "k"
    ) -> np.ndarray:
        """Sums over the rows of a query, by a key or over all."""
        out = np.zeros(0 if key is not None else 1, dtype=np.float64 if below else np.int64)
        with self.bound.cursor() as cursor:
            for batch in stream(cursor.sql(query), dict.fromkeys(names, np.int32)):
                weight = None
                for name, vector in below.items():
                    hanging = _at(vector, batch[name])
                    weight = hanging if weight is None else weight * hanging
                if key is None:
                    out[0] += len(batch[names[0]]) if weight is None else weight.sum()
                    continue
                counted = np.bincount(batch[key], weight, minlength=len(out))
                counted[: len(out)] += out.astype(counted.dtype, copy=False)
                out = counted
        return out


def _counted(column: np.ndarray) -> np.ndarray:
    """The degrees of a column outside of DuckDB, which is read in parts."""
    out = np.zeros(0, dtype=np.int64)
    for start in range(0, len(column), PART_ROWS):
        counted = np.bincount(part_of(column, start, start + PART_ROWS), minlength=len(out))
        counted[: len(out)] += out
        out = counted
    return out


def _at(vector: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Entries of a vector as doubles; 0 beyond its end."""
    found = np.zeros(len(index))
    inside = index < len(vector)
    found[inside] = vector[index[inside]]
    return found


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Entry by entry; 0 beyond the end of either."""
    n = min(len(a), len(b))
    return np.asarray(a[:n].astype(np.float64) * b[:n])


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    n = min(len(a), len(b))
    return float(np.dot(a[:n].astype(np.float64), b[:n].astype(np.float64)))


def arguments(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """The columns of a relation's table that tell its tuples apart."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {quoted(table)}").fetchall()
    return [str(row[0]) for row in described if ARGUMENT.fullmatch(str(row[0]))]
