"""The error for a damaged file of a run folder."""

from __future__ import annotations

from pathlib import Path

from relcrf.errors import DataError, DataLocation, Diagnostic


def damaged_file_error(path: Path, error: Exception) -> DataError:
    message = f"'{path}' is damaged or missing"
    note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return DataError(Diagnostic("E336", message, DataLocation(str(path)), "train again, or restore the file", (note,)))
