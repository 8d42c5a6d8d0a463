"""The guarded process that reads untrusted data. Its imports are few, because each dataset may start one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from relcrf.data.readers.base import SourceTable
from relcrf.data.sandbox_queries import check_query, run_queries
from relcrf.data.store import TableStore, out_of_memory_error, report_file_errors
from relcrf.errors import RelcrfError
from relcrf.execution.guarded import serve_requests

READERS = {name: f"relcrf.data.readers.{name}" for name in ("arrow", "duckdb", "excel", "sqlite")}
"""Modules with a function `copy_tables`. Each is imported when a request names it."""


def main(memory_bytes: int, parent: int) -> None:
    """Answer the requests of the parent process.

    Args:
        memory_bytes: Limit of the memory that this process can allocate.
        parent: Process identifier of the parent.
    """
    # By default, PyArrow reserves address space of 1 GiB, which would count as allocated memory.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    serve_requests({"copy": _copy, "check": check_query, "run": run_queries}, memory_bytes, parent)


def _copy(
    report_step: Callable[[str], None],
    reader: str,
    path: str,
    name: str,
    folder: str,
    database: str,
    memory_limit: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Copy the tables of a file to a new database; return the file and the tables, or the diagnostics of the error."""
    module = import_module(READERS[reader])
    try:
        with report_file_errors(Path(path)):
            file = Path(folder, f"{database}.duckdb")
            store = TableStore(Path(folder), memory_limit, file, f"{database}.main")
            with store.connection:
                tables: Sequence[SourceTable] = module.copy_tables(Path(path), name, store, report_step, **options)
            return {"file": str(file), "tables": [_table_values(table) for table in tables]}
    except RelcrfError as error:
        failure = error
    except MemoryError as error:
        failure = out_of_memory_error(error)
    return {"error": type(failure).__name__, "diagnostics": [d.as_dict() for d in failure.diagnostics]}


def _table_values(table: SourceTable) -> dict[str, Any]:
    """Return the fields of a table as JSON values."""
    return {**vars(table), "problem": table.problem and table.problem.as_dict()}
