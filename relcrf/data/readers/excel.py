"""A reader of Excel workbooks. The header of a sheet is its first row that is not empty or, below titles, a later one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from relcrf.data import isolation
from relcrf.data.extras import import_extra, require_extra
from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.readers.excel_parts import count_unreadable_cells
from relcrf.data.readers.header import count_rows_above_header
from relcrf.data.store import BATCH_ROWS, Store, TableStore, first_line, unreadable_error
from relcrf.errors import listing
from relcrf.model.spec import fold_name

N_SAMPLED_ROWS = 100
"""Number of rows from which the header is detected."""


class ExcelReader(AbstractReader):
    """A reader that copies each sheet in a guarded process. A column has the common type of its cells, or is text.

    The table of a workbook with one sheet is named after the file, and the tables of other workbooks after the sheets.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".xlsx",)

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        require_extra("python_calamine", "excel", f"'{path.name}'")
        yield from isolation.copy_tables("excel", path, name, store)


def copy_tables(path: Path, name: str, store: TableStore, report_step: Callable[[str], None]) -> list[SourceTable]:
    """Return the sheets of a workbook.

    Raises:
        DataError: The file is damaged, or two columns of a sheet have the same name (E204).
        UsageError: A package is not installed (E351).
    """
    calamine = import_extra("python_calamine", "excel", f"'{path.name}'")
    tables = []
    try:
        with calamine.CalamineWorkbook.from_path(str(path)) as workbook:
            titles = [s.name for s in workbook.sheets_metadata if s.typ == calamine.SheetTypeEnum.WorkSheet]
            sheets = {}
            for title in titles:
                report_step(f"sheet '{title}'")
                sheets[title] = workbook.get_sheet_by_name(title)
            full = {title: sheet for title, sheet in sheets.items() if sheet.height > 0}
            unreadable = count_unreadable_cells(path)
            for title, sheet in full.items():
                location = f"{path}, sheet '{title}'"
                report_step(f"sheet '{title}'")
                n_above = count_rows_above_header([*islice(sheet.iter_rows(), N_SAMPLED_ROWS)])
                notes = [f"the header is row {n_above + 1}, below a title"] if n_above else []
                notes += _describe_missing(sheet, n_above, None if unreadable is None else unreadable.get(title))
                scan = _copy_sheet(sheet, n_above, location, store)
                table, form = name if len(full) == 1 else title, f"Excel, sheet '{title}'"
                tables.append(SourceTable(table, location, scan, format=form, note="; ".join(notes), inner_name=title))
    except (calamine.CalamineError, OSError) as error:
        raise unreadable_error(str(path), notes=(first_line(error),)) from None
    return tables


def _describe_missing(sheet: Any, n_above: int, counts: tuple[int, int] | None) -> list[str]:
    """Return notes on the cells of a sheet that have no value although a spreadsheet program may show one.

    Args:
        n_above: Number of rows above the header.
        counts: The numbers of errors and of formulas without a result; None if they are unknown.
    """
    notes = []
    merged = [(start, end) for start, end in sheet.merged_cell_ranges or () if end[0] >= n_above and start != end]
    if merged:
        names = listing(f"{_cell_name(*start)}:{_cell_name(*end)}" for start, end in merged)
        notes.append(f"only the first cell of the merged cells {names} has a value")
    n_errors, n_formulas = counts or (0, 0)
    if n_errors:
        notes.append(f"cells with an error such as #N/A are read as missing: {n_errors:,}")
    if n_formulas:
        hint = "save the workbook in a spreadsheet program, which stores the results"
        notes.append(f"formulas without a result are read as missing: {n_formulas:,}; {hint}")
    if counts is None:
        notes.append("cells with an error, and formulas without a result, are read as missing; they cannot be counted")
    return notes


def _cell_name(row: int, column: int) -> str:
    """Return the name of a cell, such as `AB3` for the row 2 and the column 27."""
    letters, rest = "", column + 1
    while rest:
        rest, letter = divmod(rest - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return f"{letters}{row + 1}"


def _copy_sheet(sheet: Any, n_above: int, location: str, store: TableStore) -> str:
    """Copy the rows of a sheet below its header, and return a table expression for them.

    Args:
        n_above: Number of rows above the header.

    Raises:
        DataError: Two columns have the same name (E204).
    """
    header, *_ = islice(sheet.iter_rows(), n_above, n_above + 1)
    has_values, kinds = [False] * len(header), [set[str]() for _ in header]
    for row in islice(sheet.iter_rows(), n_above + 1, None):
        for k, cell in enumerate(row):
            if cell != "":
                has_values[k] = True
                kinds[k].add(_cell_kind(cell))
    used = [k for k, cell in enumerate(header) if cell != "" or has_values[k]]
    names = [_cell_text(header[k]) or f"column{k + 1}" for k in used]
    repeated = [name for name in names if sum(fold_name(name) == fold_name(other) for other in names) > 1]
    if repeated:
        raise unreadable_error(
            location, "rename one of them", (f"several columns are named {listing(dict.fromkeys(repeated))}",)
        )
    types = [_column_type(kinds[k]) for k in used]

    def batches() -> Iterator[list[list[Any]]]:
        rows = islice(sheet.iter_rows(), n_above + 1, None)
        while batch := list(islice(rows, BATCH_ROWS)):
            yield [_convert_column([row[k] for row in batch], kind) for k, kind in zip(used, types, strict=True)]

    return store.add_rows(dict(zip(names, types, strict=True)), batches())


def _cell_kind(cell: Any) -> str:
    """Return the DuckDB type of a cell."""
    if isinstance(cell, bool):
        return "BOOLEAN"
    if isinstance(cell, int | float):
        return "BIGINT" if math.isfinite(cell) and cell == int(cell) and abs(cell) < 2**53 else "DOUBLE"
    if isinstance(cell, datetime):
        return "TIMESTAMP"
    return "DATE" if isinstance(cell, date) else "VARCHAR"


def _column_type(kinds: set[str]) -> str:
    """Return the type of a column whose cells have these types."""
    for kind, narrower in (("DOUBLE", "BIGINT"), ("TIMESTAMP", "DATE")):
        if kinds == {kind, narrower}:
            return kind
    return kinds.pop() if len(kinds) == 1 else "VARCHAR"


def _convert_column(cells: Sequence[Any], kind: str) -> list[Any]:
    return [None if cell == "" else _cell_text(cell) if kind == "VARCHAR" else cell for cell in cells]


def _cell_text(cell: Any) -> str:
    """Return the text of a cell: `5` for the number 5.0, and `2024-01-31` for a date."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and _cell_kind(cell) == "BIGINT":
        return str(int(cell))
    if isinstance(cell, datetime | date | time):
        return cell.isoformat(" ") if isinstance(cell, datetime) else cell.isoformat()
    return str(cell) if isinstance(cell, timedelta) else str(cell).strip()
