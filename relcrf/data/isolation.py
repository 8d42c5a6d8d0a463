"""Reading of untrusted data in a guarded process, which stores the rows in a database file for the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relcrf.data.readers.base import SourceTable
from relcrf.data.store import Store, literal
from relcrf.errors import DataError, DataLocation, Diagnostic, UsageError
from relcrf.execution.guarded import ProcessDied

_ERRORS = {"DataError": DataError, "UsageError": UsageError}

MEMORY_HINT = "raise --memory if the data are large; otherwise the file may be damaged or malicious"
"""Hint for a process that died; a native library ends the process also when it cannot allocate memory."""


def copy_tables(reader: str, path: Path, name: str, store: Store, **options: str | None) -> list[SourceTable]:
    """Return the tables that the function `copy_tables` of a reader's module stores in the guarded process.

    Args:
        reader: The reader, a key of `reader_process.READERS`.
        name: The file's name without its suffix.
        options: Further arguments of the function.

    Raises:
        DataError, UsageError: The function raised it, or the process died (E204).
    """
    folder, database = store.new_folder(), store.new_name("file")
    try:
        reply = store.guarded_process.call(
            "copy",
            reader=reader,
            path=str(path),
            name=name,
            folder=str(folder),
            database=database,
            memory_limit=store.memory_limit,
            options=options,
        )
    except ProcessDied as death:
        location = f"{path}, {death.step}" if death.step else str(path)
        raise DataError(
            Diagnostic("E204", f"{location} cannot be read", DataLocation(location), MEMORY_HINT, death_notes(death))
        ) from None
    if "error" in reply:
        store.end_guarded_process()  # the memory that a damaged file requested may not have been released
        raise _ERRORS[reply["error"]](map(_parse_diagnostic, reply["diagnostics"]))
    store.connection.execute(f"ATTACH {literal(reply['file'])} AS {database} (READ_ONLY)")
    return [
        SourceTable(
            **{
                **table,
                **dict.fromkeys(("files", "missing_texts", "parquet_files", "csv_formats"), ()),
                "problem": problem,
            }
        )
        for table in reply["tables"]
        for problem in [table["problem"] and _parse_diagnostic(table["problem"])]
    ]


def death_notes(death: ProcessDied) -> tuple[str, ...]:
    """Return the notes of a diagnostic about a process that died."""
    lines = death.output.splitlines()
    return (f"the process that read it was ended by {death.cause}", *lines[-1:])


def _parse_diagnostic(values: dict[str, Any]) -> Diagnostic:
    """Return a diagnostic from the result of its method `as_dict`."""
    location = values["location"] and DataLocation(**values["location"])
    return Diagnostic(values["code"], values["message"], location, values["hint"], tuple(values["notes"]))
