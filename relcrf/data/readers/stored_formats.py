"""Formats of CSV columns of the training data, which apply to the same columns of other files.

A small file may not show its formats: `8.500` is a number with three decimals or, if the training file had `8.500,00`,
a number of thousands, and `03/04/2024` is a date in March or in April.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.data.readers.base import StoredFormat
from relcrf.data.readers.cell_formats import format_problem
from relcrf.data.readers.csv_format import CsvFormat
from relcrf.data.readers.csv_values import NUMBER_FORMATS, ColumnFormat, date_format, number_format
from relcrf.data.store import Store, quoted
from relcrf.model.spec import fold_name

_NUMBER_KEYS = ("decimal", "thousands")

_UNCHANGED_NUMBERS = {"decimal": "[+-]?[0-9]+", "thousands": "[+-]?[0-9]+([.][0-9]+)?"}
"""Regular expressions of the numbers that have a format and that its conversion does not change."""


def require_valid_formats(formats: Sequence[StoredFormat]) -> None:
    """Raise ValueError if a format that was read from a file is invalid."""
    for each in formats:
        is_number = each.format in NUMBER_FORMATS
        is_valid = bool(each.format) if each.key == "units" else format_problem(each.format) is None
        if not is_valid or each.key not in (*_NUMBER_KEYS, "dates", "units") or is_number != (each.key in _NUMBER_KEYS):
            raise ValueError(f"the format of the column '{each.column}' is invalid")


@dataclass(frozen=True)
class FormatComparison:
    """The comparison of the formats of a file with those of the training data.

    Args:
        restored: Conversions of columns that do not show a format, and whose cells have that of the training data.
        notes: Notes on the columns that have other formats than in the training data.
    """

    restored: tuple[ColumnFormat, ...] = ()
    notes: tuple[str, ...] = ()


def compare_formats(
    scan: str, found: Sequence[ColumnFormat], stored: Sequence[StoredFormat], stated: CsvFormat, store: Store
) -> FormatComparison:
    """Compare the formats of the columns of a CSV file with those of the training data.

    A format of the training data is restored only if all cells of the column have it, and no number of the file
    contradicts the formats of its numbers.

    Args:
        scan: A DuckDB table expression whose columns are texts without units.
        found: The formats that were detected.
        stored: The formats of the table in the training data.
        stated: What the manifest states; formats that it states are not compared.
    """
    if not stored:
        return FormatComparison()
    described = store.connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
    columns = {fold_name(str(name)): str(name) for name, *_ in described}
    current = {(each.column, each.key == "units"): each for each in found}
    restored: list[ColumnFormat] = []
    differing: list[tuple[str, StoredFormat]] = []
    is_contradicted = False
    for each in stored:
        column = columns.get(fold_name(each.column))
        if column is None or _is_stated(each, stated):
            continue
        now = current.get((column, each.key == "units"))
        if now is not None:
            if now.format != each.format:
                differing.append((column, each))
                is_contradicted |= {now.key, each.key} <= {*_NUMBER_KEYS}
            continue
        if each.key == "units":
            sql = f"SELECT count(nullif(trim({quoted(column)}), '')) FROM {scan}"
            ((count,),) = store.connection.execute(sql).fetchall()
            differing += [(column, each)] if count else []
            continue
        conversion = _conversion(column, each)
        holds, changes, is_other_number = _test(scan, conversion, store)
        is_contradicted |= is_other_number
        if not holds:
            differing.append((column, each))
        elif changes:
            restored.append(conversion)
    if is_contradicted:
        by_column = {fold_name(each.column): each for each in stored if each.key in _NUMBER_KEYS}
        differing += [(f.column, by_column[fold_name(f.column)]) for f in restored if f.key in _NUMBER_KEYS]
        restored = [each for each in restored if each.key not in _NUMBER_KEYS]
    notes = tuple(_describe_difference(c, each, current.get((c, each.key == "units"))) for c, each in differing)
    return FormatComparison(tuple(restored), notes)


def _is_stated(stored: StoredFormat, stated: CsvFormat) -> bool:
    """Return True if a manifest states the format of the numbers, dates or units."""
    keys = _NUMBER_KEYS if stored.key in _NUMBER_KEYS else (stored.key,)
    return any(getattr(stated, key) is not None for key in keys)


def _conversion(column: str, stored: StoredFormat) -> ColumnFormat:
    convert = number_format if stored.key in _NUMBER_KEYS else date_format
    return convert(column, stored.format)


def _test(scan: str, conversion: ColumnFormat, store: Store) -> tuple[bool, bool, bool]:
    """Return whether all cells have a format, whether the conversion changes one, and whether one is another number."""
    cell, converted = f"trim({quoted(conversion.column)})", f"trim({conversion.converted})"
    is_changed = f"coalesce({converted} <> {cell}, false)"
    if conversion.key in _NUMBER_KEYS:
        holds = f"({is_changed} OR regexp_full_match({cell}, '{_UNCHANGED_NUMBERS[conversion.key]}'))"
        other = f"(NOT {holds} AND regexp_full_match({cell}, '[+-]?[0-9.,]*[0-9]'))"
    else:
        holds, other = is_changed, "false"
    tests = f"coalesce(bool_and({holds}) FILTER ({cell} <> ''), true), bool_or({is_changed}), bool_or({other})"
    ((*results,),) = store.connection.execute(f"SELECT {tests} FROM {scan}").fetchall()
    all_hold, changes, is_other_number = map(bool, results)
    return all_hold, changes, is_other_number


def _describe_difference(column: str, stored: StoredFormat, current: ColumnFormat | None) -> str:
    """Return a note on a column whose format differs from that of the training data."""
    value: object = {"decimal": ",", "thousands": NUMBER_FORMATS.get(stored.format)}.get(stored.key, stored.format)
    was = f"the unit {stored.format!r}" if stored.key == "units" else _conversion(column, stored).description
    now = f"is read with {current.description}" if current else "is not converted"
    text = json.dumps([value] if stored.key == "units" else value, ensure_ascii=False)
    return (
        f"{column} {now}, and had {was} in the training data; "
        f"if it still has, state this in a manifest: [tables.{stored.table}.csv] {stored.key} = {text}"
    )
