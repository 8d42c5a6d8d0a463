"""The layout of a CSV file, as its first lines show it: the delimiter, and the number of lines above the header."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from relcrf.data.readers.header import NUMBER, count_rows_above_header, repeated_name_notes

DELIMITERS = (",", ";", "\t", "|")
"""Delimiters that are detected, in order of preference."""

csv.field_size_limit(max(csv.field_size_limit(), (1 << 31) - 1))  # otherwise, a cell of 131,073 characters is an error

_SEPARATOR_LINE = re.compile(r"\ufeff?\"?sep=(.)\"?\s*", re.IGNORECASE)
"""Regular expression of a first line with which spreadsheets state the delimiter."""


def detect_layout(
    lines: Sequence[str], *, is_cut: bool, delimiter: str | None = None, skip: int | None = None
) -> tuple[str, int]:
    """Return the delimiter of a CSV file, and the number of lines above the header, according to its first lines.

    The delimiter divides all rows into as many cells as the header, which is the first line or follows comments and titles;
    see `count_rows_above_header`. If there is none, the delimiter is one that divides the first line.

    Args:
        is_cut: Whether the last line may be incomplete.
        delimiter, skip: What is known; None to detect it.
    """
    if skip is None and (stated := _SEPARATOR_LINE.fullmatch(lines[0])):
        found, n_skipped = detect_layout(lines[1:] or [""], is_cut=is_cut, delimiter=delimiter or stated[1])
        return found, n_skipped + 1
    delimiters = DELIMITERS if delimiter is None else (delimiter,)
    widths = {d: _row_widths(lines[skip or 0 :], d, is_cut=is_cut) for d in delimiters}
    divided = [d for d in delimiters if widths[d] and widths[d][0] > 1]
    consistent = [d for d in divided if len(widths[d]) > 1 and set(widths[d]) == {widths[d][0]}]
    if skip is None:
        whole = lines[:-1] if is_cut else lines
        if consistent:  # also if a cell of the header contains a line break
            skips = {d: _count_lines_above_header(whole, d) for d in consistent}
        else:
            skips = {d: count_rows_above_header([_cells(line, d) for line in whole]) for d in delimiters}
        if possible := [d for d in skips if skips[d]]:
            delimiter = min(possible, key=lambda d: skips[d])
            return delimiter, skips[delimiter]
    return (consistent or divided or delimiters)[0], skip or 0


def header_notes(lines: Sequence[str], delimiter: str) -> list[str]:
    """Return notes on a header, the first row of `lines`: names that DuckDB changes, and a row that may be one of the data."""
    try:
        header = [cell.lstrip("\ufeff") for cell in next(csv.reader(lines, delimiter=delimiter), [])]
    except csv.Error:
        return []
    notes = repeated_name_notes(header)
    if header and all(NUMBER.fullmatch(cell) for cell in header):
        notes.append(
            "the first row has only numbers and is read as the names of the columns; add a header if it is none"
        )
    return notes


def _count_lines_above_header(lines: Sequence[str], delimiter: str) -> int:
    reader = csv.reader(lines, delimiter=delimiter)
    rows, ends = [], [0]
    for row in reader:
        rows.append(row)
        ends.append(reader.line_num)
    return ends[count_rows_above_header(rows)]


def _cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line; the line itself if it cannot be divided, e.g. because a cell is very long."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return [line]


def _row_widths(lines: Sequence[str], delimiter: str, *, is_cut: bool) -> list[int]:
    """Return the number of cells of each row; if the sample is cut, without its last row."""
    try:
        widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return []
    return widths[:-1] if is_cut else widths
