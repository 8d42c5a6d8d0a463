"""The files of a RelBench dataset: `db/TABLE.parquet` and `tasks/TASK/PART.parquet`, whose metadata name keys and times.

Source: relbench.base.Table of RelBench, which stores `pkey_col`, `fkey_col_to_pkey_table` and `time_col` as JSON in the metadata
of each Parquet file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from relcrf.errors import Diagnostic, UsageError, listing, suggestion

PARTS = ("train", "val", "test")
"""The names of the files of a task."""

_METADATA_KEYS = ("pkey_col", "fkey_col_to_pkey_table", "time_col")


@dataclass(frozen=True)
class RelBenchTable:
    """A table of a database or a part of a task.

    Args:
        path: the Parquet file, relative to the folder of the dataset.
        columns: the columns with their types in DuckDB.
        key: the column of the primary key; None if there is none.
        foreign_keys: the table to which each foreign key refers, by column.
        time: the column with the time of a row; None if there is none.
    """

    name: str
    path: str
    columns: Mapping[str, str]
    key: str | None
    foreign_keys: Mapping[str, str]
    time: str | None

    @property
    def values(self) -> dict[str, str]:
        """The columns that are neither keys nor the time, with their types."""
        others = {self.key, self.time, *self.foreign_keys}
        return {name: kind for name, kind in self.columns.items() if name not in others}


def task_error(message: str, hint: str) -> UsageError:
    return UsageError(Diagnostic("E467", message, hint=hint))


def read_database(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, RelBenchTable]:
    """Return the tables of the database of a dataset, by name.

    Raises:
        UsageError: if the folder contains no such tables, or a key refers to an unknown table.
    """
    paths = sorted((folder / "db").glob("*.parquet"))
    if not paths:
        raise task_error(f"'{folder}' has no tables 'db/*.parquet'", "pass the folder of a dataset, such as rel-f1")
    tables = {path.stem: _read_table(connection, folder, path) for path in paths}
    for table in tables.values():
        for column, target in table.foreign_keys.items():
            if target not in tables or tables[target].key is None:
                message = f"'{column}' of '{table.path}' refers to '{target}', which is not a table with a primary key"
                raise task_error(message, f"the tables are {listing(tables)}")
    return tables


def read_task(connection: duckdb.DuckDBPyConnection, folder: Path, task: str) -> dict[str, RelBenchTable]:
    """Return the parts of a task, by name.

    Raises:
        UsageError: if there is no such task, or a part is missing.
    """
    tasks = sorted(path.name for path in (folder / "tasks").glob("*") if path.is_dir())
    if task not in tasks:
        hint = suggestion(task, tasks) or (
            f"the tasks are {listing(tasks)}" if tasks else "its folder 'tasks' is empty"
        )
        raise task_error(f"'{folder}' has no task '{task}'", hint)
    parts = {part: folder / "tasks" / task / f"{part}.parquet" for part in PARTS}
    missing = [path.name for path in parts.values() if not path.is_file()]
    if missing:
        message = f"the task '{task}' lacks {listing(missing)}"
        raise task_error(
            message, "let RelBench write its tables: task.get_table('train'), and likewise 'val' and 'test'"
        )
    return {part: _read_table(connection, folder, path) for part, path in parts.items()}


def _read_table(connection: duckdb.DuckDBPyConnection, folder: Path, path: Path) -> RelBenchTable:
    query = "SELECT decode(key), decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) IN (?, ?, ?)"
    try:
        rows = connection.execute(query, [str(path), *_METADATA_KEYS]).fetchall()
        described = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
        metadata: dict[str, Any] = {key: json.loads(value) for key, value in rows}
    except (duckdb.Error, ValueError) as error:
        raise task_error(f"'{path}' cannot be read: {str(error).splitlines()[0]}", "write the file again") from None
    if missing := [key for key in _METADATA_KEYS if key not in metadata]:
        raise task_error(f"the metadata of '{path}' lack {listing(missing)}", "save the table with RelBench")
    columns = {name: kind for name, kind, *_ in described}
    relative = path.relative_to(folder).as_posix()
    keys = metadata["fkey_col_to_pkey_table"]
    return RelBenchTable(path.stem, relative, columns, metadata["pkey_col"], keys, metadata["time_col"])
