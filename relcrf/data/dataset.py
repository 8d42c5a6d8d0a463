"""A dataset: named raw tables behind one DuckDB connection, not yet tied to a model."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import duckdb

from relcrf.columns.growing import Storage
from relcrf.data.readers.base import AbstractReader
from relcrf.errors import DataError, DataPlace, Diagnostic, UsageError, listing
from relcrf.model.spec import folded

DEFAULT_MEMORY = "1GB"
"""DuckDB's buffers; what does not fit is spilled to disk. NumPy's arrays come on top."""


def quoted(name: str) -> str:
    """A SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class RawTable:
    """A table as it came.

    Args:
        name: the file's name without its ending, or the name that the caller gave.
        place: what messages call it.
        scan: a DuckDB table expression.
        columns: names, in order. types: DuckDB's, in order.
    """

    name: str
    place: str
    scan: str
    columns: tuple[str, ...]
    types: tuple[str, ...]

    def column(self, name: str) -> str | None:
        """The column of that name, case and underscores aside."""
        return next((c for c in self.columns if folded(c) == folded(name)), None)

    def type_of(self, column: str) -> str:
        """DuckDB's type of a column."""
        return self.types[self.columns.index(column)]


class Dataset:
    """Tables to ground models on.

    Args:
        source: a folder of CSV or Parquet files, or a mapping from table names to data frames (pandas, Polars, Arrow)
            or to paths of such files.
        memory: limit of DuckDB's buffers, such as `500MB`.

    Raises:
        DataError: where the folder does not exist, has no table, or a file cannot be read.
        UsageError: where `memory` is no size.
    """

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, Any], *, memory: str = DEFAULT_MEMORY) -> None:
        if not re.fullmatch(r"\d+(\.\d+)?\s*([KMGT]i?B|B)", memory.strip(), flags=re.IGNORECASE):
            hint = "write a size such as 500MB or 2GB"
            raise UsageError(Diagnostic("E311", f"'{memory}' is no amount of memory", hint=hint))
        self._spill = tempfile.mkdtemp(prefix="relcrf-")
        weakref.finalize(self, shutil.rmtree, self._spill, ignore_errors=True)
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": memory.strip(),
            "temp_directory": self._spill,
            "autoinstall_known_extensions": False,
        }
        try:
            self.connection = duckdb.connect(config=config)
        except duckdb.Error as error:
            message = f"'{memory}' of memory cannot be given to DuckDB"
            raise UsageError(
                Diagnostic("E311", message, hint="write a size such as 500MB", notes=(_first_line(error),))
            ) from None
        self.storage = Storage(Path(self._spill), int(1e12))
        self._frames: dict[str, Any] = {}
        self._schemas = 0
        self.connection.execute("SET enable_progress_bar = false")
        self.place = "the given tables" if isinstance(source, Mapping) else str(source)
        self.tables: dict[str, RawTable] = {}
        self.contents: dict[str, str] = {}
        """Hashes of tables, by their places, as they are asked for (`contents.py`)."""
        if isinstance(source, Mapping):
            for name, table in source.items():
                self._add(name, table)
        else:
            self._add_folder(Path(source))

    def __repr__(self) -> str:
        return f"Dataset({self.place}: {listing(t.name for t in self.tables.values())})"

    @cached_property
    def _readers(self) -> list[AbstractReader]:
        return [entry.load()() for entry in sorted(entry_points(group="relcrf.readers"), key=lambda e: e.name)]

    def _reader(self, path: Path) -> tuple[AbstractReader, str] | None:
        """The reader of a file and the file's name without the ending."""
        for reader in self._readers:
            for suffix in reader.suffixes:
                if path.name.lower().endswith(suffix):
                    return reader, path.name[: -len(suffix)]
        return None

    def _add_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            hint = "name a folder of CSV or Parquet tables"
            what = "is a file" if folder.exists() else "does not exist"
            raise DataError(Diagnostic("E201", f"the dataset folder '{folder}' {what}", hint=hint))
        for path in sorted(folder.iterdir()):
            found = self._reader(path) if path.is_file() else None
            if found:
                self._add(found[1], path)
        if not self.tables:
            endings = listing(s for reader in self._readers for s in reader.suffixes)
            message = f"the folder '{folder}' has no table"
            raise DataError(Diagnostic("E202", message, hint=f"tables are files ending in {endings}"))

    def _add(self, name: str, table: Any) -> None:
        if isinstance(table, str | os.PathLike):
            path = Path(table)
            found = self._reader(path)
            if found is None or not path.is_file():
                message = f"'{path}' is no table file" if path.is_file() else f"the table file '{path}' does not exist"
                raise DataError(Diagnostic("E203", message, hint="tables are CSV or Parquet files"))
            place, scan = str(path), found[0].scan(path)
        else:
            view = f"frame_{len(self.tables)}"
            try:
                self.connection.register(view, table)
            except (duckdb.Error, TypeError) as error:
                message = f"table '{name}' is a {type(table).__name__}, not a data frame"
                hint = "give a pandas, Polars or Arrow table, or the path of a CSV or Parquet file"
                raise DataError(Diagnostic("E203", message, hint=hint, notes=(_first_line(error),))) from None
            self._frames[view] = table
            place, scan = f"table '{name}'", view
        try:
            described = self.connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
        except duckdb.Error as error:
            message = f"{place} cannot be read"
            raise DataError(Diagnostic("E204", message, DataPlace(place), notes=(_first_line(error),))) from None
        if folded(name) in self.tables:
            other = self.tables[folded(name)]
            message = f"two tables answer to the name '{name}': {other.place} and {place}"
            raise DataError(
                Diagnostic("E205", message, hint="names are compared without case and underscores; rename one")
            )
        columns, types = (tuple(row[k] for row in described) for k in (0, 1))
        self.tables[folded(name)] = RawTable(name, place, scan, columns, types)

    def new_schema(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        """A cursor whose tables are its own, in a schema of that name; it sees all raw tables."""
        self._schemas += 1
        schema = f"model{self._schemas}"
        cursor = self.connection.cursor()
        for view, frame in self._frames.items():
            cursor.register(view, frame)
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"SET schema = '{schema}'")
        return cursor, schema

    def find(self, *names: str) -> RawTable | None:
        """The first of these tables that exists, case and underscores aside."""
        return next((self.tables[folded(n)] for n in names if folded(n) in self.tables), None)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
