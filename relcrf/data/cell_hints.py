"""Hints for bad cells: the line of a manifest with which the cell has a value of the declared type."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime

from relcrf.data.raw_table import RawTable
from relcrf.data.readers.csv_values import NUMBER_FORMATS
from relcrf.data.toml_text import toml_value
from relcrf.model.types import AttributeType, Date, Datetime, Integer, Real

_DATE_FORMATS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%d-%m-%y"),
    *("%m-%d-%Y", "%y-%m-%d"),
    *("%Y%m%d", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%Y.%m.%d"),
)
"""Formats of dates that are tried on a cell; several may match, such as the first two."""

_TIME_FORMATS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
"""Formats of the times that may follow the date in a cell of the type `datetime`."""

_MISSING = re.compile(r"[-.?#/]+|#?n[/.]?[av]|nil|none|null|nan|unknown|missing|tbd", re.IGNORECASE)
"""Regular expression of texts that usually stand for a missing value."""


def manifest_hint(value: str, kind: AttributeType | None, table: RawTable, column: str) -> str:
    """Return the line of a manifest that accepts a bad cell, as the continuation of a hint; '' if there is none.

    Args:
        value: Text of the cell.
        kind: The declared type; None for a domain.
        column: The column of the cell.
    """
    text = value.strip()
    if _MISSING.fullmatch(text):
        return f"""; or write missing = ["{text}"] below [tables.{table.name}] in dataset.toml"""
    if not table.is_csv:
        # Data frames of a Python program have no manifest in which a format could be written.
        return _format_hint(text, kind, table, table.source_columns.get(column, column)) if table.path.is_file() else ""
    lines: list[str] = []
    if isinstance(kind, Real | Integer):
        lines = _number_lines(text)
    elif isinstance(kind, Date | Datetime):
        lines = [f'dates = "{format}"' for format in _date_formats(text, kind)]
    return f"; or write {' or '.join(lines)} below [tables.{table.name}.csv] in dataset.toml" if lines else ""


def _format_hint(text: str, kind: AttributeType | None, table: RawTable, column: str) -> str:
    """Return the hint for a cell of a table that is not a CSV file, whose texts are not converted unless it is stated."""
    formats: list[str] = []
    if isinstance(kind, Real | Integer):
        lines = {'decimal = ","': "1.234,5"} | {
            f'thousands = "{name}"': format for format, name in NUMBER_FORMATS.items()
        }
        formats = [lines[line] for line in _number_lines(text) if line in lines]
    elif isinstance(kind, Date | Datetime):
        formats = _date_formats(text, kind)
    stated = [f"formats = {toml_value({column: format})}" for format in formats]
    return f"; or write {' or '.join(stated)} below [tables.{table.name}] in dataset.toml" if stated else ""


def _number_lines(text: str) -> list[str]:
    """Return the lines that accept a text as a number."""
    if re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+", text):
        return ['thousands = ","', 'decimal = ","']
    if re.fullmatch(r"[+-]?(\d+|\d{1,3}([.' \xa0\u202f]\d{3})+),\d+", text):
        return ['decimal = ","']
    for separator, pattern in ((",", ","), ("'", "'"), (" ", "[ \xa0\u202f]"), (".", "[.]")):
        if re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}({pattern}\d{{3}})+([.,]\d+)?", text):
            return [f'thousands = "{separator}"']
    return []


def _date_formats(text: str, kind: Date | Datetime) -> list[str]:
    """Return at most two formats that accept a text."""
    times = _TIME_FORMATS if isinstance(kind, Datetime) else ("",)
    return [each for date in _DATE_FORMATS for time in times if _is_date(text, each := date + time)][:2]


def _is_date(text: str, format: str) -> bool:
    with suppress(ValueError):
        datetime.strptime(text, format)
        return True
    return False
