"""Formats of the cells of CSV files: decimal commas, separators of thousands, and dates other than 2024-01-31.

A column is converted if all its cells have a format, and the file shows which format it is: `1,234` may be a thousand
or a number with a decimal comma, and `03/04/2024` a date in March or in April.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from relcrf.data.readers.csv_format import CsvFormat
from relcrf.data.store import Store, literal, quoted
from relcrf.errors import listing

SAMPLE_ROWS, SAMPLE_CELLS = 10_000, 2_000_000
"""Maximum number of rows and cells that rule out the columns with other cells before all cells are tested, which is slow."""

MAX_TEXT = 1000
"""Number of characters of a sampled cell that are tested; a longer text is neither a number nor a date."""

_SAMPLE = "temp.main.sampled_cells"

MAX_TESTS = 200
"""Maximum number of tests in a query of a table; each needs memory for its regular expression, and a table may have thousands
of columns."""

_BLANKS = (" ", "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}")

BLANK = f"[{''.join(_BLANKS)}]"
"""Regular expression of a blank between thousands; it may be a no-break space."""

_TIME = r"([ T][0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?)?"

_DATE_PATTERNS = {
    "%d.%m.%Y": r"[0-9]{1,2}[.][0-9]{1,2}[.][0-9]{4}",
    "%d/%m/%Y": r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}",
    "%m/%d/%Y": r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}",
    "%d-%m-%Y": r"[0-9]{1,2}-[0-9]{1,2}-[0-9]{4}",
}
"""Regular expressions of dates, by their format. Only dates with slashes begin with the day or with the month."""

WHOLE_FORMAT = "1.0"
"""Format of whole numbers such as `12.0`, as which pandas writes integers beside missing values."""

WHOLE_NUMBER = "[+-]?[0-9]+[.]0"
"""Regular expression of these numbers."""

NUMBER_FORMATS = {"1.234,5": ".", "1,234.5": ",", "1'234.5": "'", "1 234.5": " ", WHOLE_FORMAT: ""}
"""Examples of numbers that a manifest may state as a format, with their separator of thousands."""

_SLASHES = ("%d/%m/%Y", "%m/%d/%Y")

DATE_FORMAT = re.compile(r"(?=.*%d)(?=.*%[mbB])(?=.*%[yY])([^%]|%[dmbByYHIMSpfaA%])+")
"""Regular expression of the formats that a manifest may state."""


@dataclass(frozen=True)
class ColumnFormat:
    """The conversion of a column to texts that every reader writes: numbers with a decimal point, and dates of ISO 8601.

    Args:
        converted: SQL of the converted text of the column's cell.
        description: The format, for notes.
        key: The key of `[tables.NAME.csv]` that states the format.
        format: The format as the key `formats` of a table states it, or the unit.
    """

    column: str
    converted: str
    description: str
    key: str
    format: str


def column_formats(
    tester: ColumnTester, format: CsvFormat, delimiter: str, excluded: Collection[str] = ()
) -> list[ColumnFormat]:
    """Return the conversions of the columns of a CSV file, as stated or detected.

    Args:
        excluded: Columns that are not converted.
    """
    columns = [column for column in tester.columns if column not in excluded]
    found: list[ColumnFormat] = []
    # A decimal comma in a file with the delimiter ',' needs quotes, so it is rare; it must be stated.
    if format.decimal == "," or (format.decimal is None and format.thousands != "," and delimiter != ","):
        found += tester.decimal_commas(columns, is_stated=format.decimal is not None)
    remaining = [column for column in columns if column not in {each.column for each in found}]
    if format.thousands != "." and (format.thousands or format.decimal != ","):
        found += tester.thousands(remaining, format.thousands)
    remaining = [column for column in columns if column not in {each.column for each in found}]
    return found + (tester.dates(remaining) if format.dates is None else tester.stated_dates(remaining, format.dates))


def describe_formats(formats: Sequence[ColumnFormat]) -> list[str]:
    """Return the formats for a note, each with its columns."""
    by_description: dict[str, list[str]] = {}
    for each in formats:
        by_description.setdefault(each.description, []).append(each.column)
    return [f"{description} in {listing(columns)}" for description, columns in by_description.items()]


def _grouped(separator: str, count: str = "+") -> str:
    """Return a regular expression of a whole number with a separator, itself a regular expression, between thousands.

    It does not begin with 0: `0.123` is a fraction.
    """
    return f"[1-9][0-9]{{0,2}}({separator}[0-9]{{3}}){count}"


_DECIMAL_COMMAS = "[+-]?([0-9]+|" + "|".join(map(_grouped, ("[.]", "[']", BLANK))) + ")(,[0-9]+)?"
"""Regular expression of numbers with a decimal comma, or without decimals."""


def _separator(name: str) -> str:
    """Return a regular expression of a separator of thousands; a blank is also a no-break space."""
    return BLANK if name == " " else f"[{name}]"


def _thousands(name: str) -> str:
    """Return a regular expression of numbers with a decimal point and, possibly, a separator of thousands."""
    return f"[+-]?([0-9]+|{_grouped(_separator(name))})([.][0-9]+)?"


def number_format(column: str, format: str) -> ColumnFormat:
    """Return the conversion of a column of numbers such as one of NUMBER_FORMATS."""
    name = NUMBER_FORMATS[format]
    if format == WHOLE_FORMAT:
        sql = _convert(column, _matches(WHOLE_NUMBER), "regexp_replace({cell}, '[.]0$', '')")
        return ColumnFormat(column, sql, "whole numbers such as 1.0", "decimal", format)
    if name == ".":
        removed = literal(f"[.']|{BLANK}")
        converted = f"replace(regexp_replace({{cell}}, {removed}, '', 'g'), ',', '.')"
        sql = _convert(column, _matches(_DECIMAL_COMMAS), converted)
        return ColumnFormat(column, sql, "decimal commas", "decimal", format)
    converted = f"regexp_replace({{cell}}, {literal(_separator(name))}, '', 'g')"
    description = f"{'blanks' if name == ' ' else repr(name)} between thousands"
    return ColumnFormat(
        column, _convert(column, _matches(_thousands(name)), converted), description, "thousands", format
    )


def date_format(column: str, format: str) -> ColumnFormat:
    """Return the conversion of a column of dates in a format that a manifest states."""
    if format in _DATE_PATTERNS:
        return _date_format(column, format, "date")
    return _date_format(column, format, "time" if _has_time(format) else "date", stated=True)


def _has_time(format: str) -> bool:
    return re.search("%[HIMSfT]", format) is not None


@dataclass(frozen=True)
class ColumnTester:
    """Tests of the cells of a table, whose columns are texts; see `open_tester`.

    Args:
        scan: A DuckDB table expression.
        is_small: Whether the sample contains all cells, so that it replaces the table.
    """

    scan: str
    columns: tuple[str, ...]
    is_small: bool
    store: Store

    def test(self, columns: Sequence[str], conditions: Sequence[str]) -> dict[str, tuple[bool, ...]]:
        """Return whether each condition holds, by column. `{cell}` in a condition is the trimmed text of a cell."""
        if self.is_small:
            return self._test_sample(columns, conditions)
        n = len(conditions)
        found: dict[str, tuple[bool, ...]] = {}
        n_columns = max(1, MAX_TESTS // n)
        for start in range(0, len(columns), n_columns):
            chosen = columns[start : start + n_columns]
            tests = [c.replace("{cell}", f"trim({quoted(column)})") for column in chosen for c in conditions]
            ((*results,),) = self.store.connection.execute(f"SELECT {', '.join(tests)} FROM {self.scan}").fetchall()
            found |= {c: tuple(map(bool, results[k * n : (k + 1) * n])) for k, c in enumerate(chosen)}
        return found

    def _test_sample(self, columns: Sequence[str], conditions: Sequence[str]) -> dict[str, tuple[bool, ...]]:
        if not columns:
            return {}
        tests = ", ".join(c.replace("{cell}", "cell") for c in conditions)
        is_chosen = "" if len(columns) == len(self.columns) else f"WHERE name IN ({', '.join(map(literal, columns))})"
        rows = self.store.connection.execute(
            f"SELECT name, {tests} FROM {_SAMPLE} {is_chosen} GROUP BY name"
        ).fetchall()
        found = {name: tuple(map(bool, results)) for name, *results in rows}
        return {column: found[column] for column in columns if column in found}

    def filter(self, columns: Sequence[str], condition: str) -> list[str]:
        """Return the columns in which all sampled cells satisfy a condition, or are empty."""
        tested = self._test_sample(columns, [f"coalesce({holds(condition, is_stated=False)}, true)"])
        return [column for column, (is_possible,) in tested.items() if is_possible]

    def decimal_commas(self, columns: Sequence[str], *, is_stated: bool) -> list[ColumnFormat]:
        """Return the conversion of columns whose cells are all numbers such as `1.234,5` or `1.234`, or empty.

        In `1,234`, the comma may also separate thousands, and in `1.234`, the point may be a decimal point. If the
        decimal separator is not stated, columns are converted only if a number of the file, such as `2,5`, needs a
        decimal comma. If it is stated, most cells of a column must be such numbers, and none may be `1234.5`.
        """
        if not is_stated and not any(
            found for (found,) in self.test(columns, ["bool_or(contains({cell}, ','))"]).values()
        ):
            return []
        number, thousands = _matches(_DECIMAL_COMMAS), _matches(f"[+-]?{_grouped(',')}")
        tests = (
            holds(number, is_stated=is_stated),
            f"coalesce(bool_or(NOT {number} AND {_matches('[+-]?[0-9]*[.][0-9]+')}), false)",
            r"bool_or(regexp_matches({cell}, '[.,''\x{00A0}\x{202F}]'))",  # a plain blank alone may be part of a code
            f"bool_or(contains({{cell}}, ',') AND NOT {thousands})",
        )
        numeric = {
            c: certain
            for c, (is_number, has_point, has, certain) in self.test(columns, tests).items()
            if is_number and has and not has_point
        }
        if not is_stated and not any(numeric.values()):
            return []
        return [number_format(c, "1.234,5") for c in numeric]

    def thousands(self, columns: Sequence[str], stated: str | None) -> list[ColumnFormat]:
        """Return the conversion of columns whose cells are all numbers such as `1,234.50` or `1234.5`, or empty.

        If the separator is not stated, a number of the file must need it, such as `1,234.50` or `1,234,567`.
        """
        found: list[ColumnFormat] = []
        if not stated:
            columns = self.filter(columns, _matches(f"[+-]?[0-9]([0-9.,']|{BLANK})*"))
        # The first number with a separator may be in any row, e.g. in a sorted column.
        has_separator = " OR ".join(f"contains({{cell}}, {literal(c)})" for c in (",", "'", *_BLANKS))
        try:
            columns = [c for c, (has,) in self.test(columns, [f"bool_or({has_separator})"]).items() if has]
        except duckdb.InvalidInputException:
            return []  # a later row cannot be read; models that need the table report this
        for name in (stated,) if stated else (",", "'", " "):
            separator, number = _separator(name), _matches(_thousands(name))
            all_numbers = holds(number, is_stated=stated is not None)
            some = f"bool_or({_matches(f'[+-]?{_grouped(separator)}([.][0-9]+)?')})"
            # An apostrophe within a number has no other meaning; `1,234` and `12 345` may have one.
            shapes = {",": f"({_grouped(',')}[.][0-9]+|{_grouped(',', '{2,}')})", " ": f"{_grouped(BLANK)}[.][0-9]+"}
            certain = f"bool_or({_matches('[+-]?' + shapes[name])})" if name in shapes else some
            candidates = columns if stated else self.filter(columns, number)
            results = self.test(candidates, [all_numbers, some, certain])
            numeric = {c: is_certain for c, (is_number, has, is_certain) in results.items() if is_number and has}
            if not stated and (name == " " or not any(numeric.values())):
                numeric = {column: is_certain for column, is_certain in numeric.items() if is_certain}
            found += [number_format(column, f"1{name}234.5") for column in numeric]
            columns = [column for column in columns if column not in numeric]
        return found

    def dates(self, columns: Sequence[str]) -> list[ColumnFormat]:
        """Return the conversion of columns whose cells are all dates of one format, optionally with times, or empty.

        The day and the month of dates with slashes have the order that a day above 12 in the file shows.
        """
        patterns = list(dict.fromkeys(_DATE_PATTERNS.values()))
        columns = self.filter(columns, "regexp_matches({cell}, '^[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{4}')")
        valid: dict[str, list[str]] = {}
        for pattern in patterns:
            formats = [format for format, other in _DATE_PATTERNS.items() if other == pattern]
            is_date = f"{_matches(pattern + _TIME)} AND {{parsed}} IS NOT NULL"
            tests = [
                f"bool_and({is_date.replace('{parsed}', _parsed(format))}) FILTER ({{cell}} <> '')"
                for format in formats
            ]
            candidates = self.filter(columns, _matches(pattern + _TIME))
            for column, holds in self.test(candidates, tests).items():
                found_formats = [format for format, holds_one in zip(formats, holds, strict=True) if holds_one]
                valid.setdefault(column, []).extend(found_formats)
        orders = {formats[0] for formats in valid.values() if len(formats) == 1} & {*_SLASHES}
        found = []
        for column, formats in valid.items():
            chosen = [format for format in formats if len(formats) == 1 or orders == {format}]
            found += [_date_format(column, format, "date") for format in chosen]
        return found

    def stated_dates(self, columns: Sequence[str], format: str) -> list[ColumnFormat]:
        """Return the conversion of columns most of whose cells are dates of a stated format; the others stay unchanged."""
        test = holds(_has_full_year(f"try_strptime({{cell}}, {literal(format)})"), is_stated=True)
        shown = "time" if _has_time(format) else "date"
        results = self.test(columns, [test]).items()
        return [_date_format(column, format, shown, stated=True) for column, (is_date,) in results if is_date]


@contextmanager
def open_tester(scan: str, store: Store) -> Iterator[ColumnTester]:
    """Return a tester of the cells of a table.

    The cells of its first rows are stored until the end of the context, as pairs of a column's name and a text. To open a
    file for each test, or to compile a regular expression for each column, would take most of the time.
    """
    connection = store.connection
    columns = tuple(str(row[0]) for row in connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall())
    n_rows = min(SAMPLE_ROWS, 1 + SAMPLE_CELLS // len(columns))
    cells = f"(FROM {scan} LIMIT {n_rows}) UNPIVOT INCLUDE NULLS (cell FOR name IN (COLUMNS(*)))"
    connection.execute(
        f"CREATE TEMP TABLE {_SAMPLE} AS SELECT name, left(trim(cell), {MAX_TEXT + 1}) AS cell FROM {cells}"
    )
    try:
        size = f"SELECT count(*), coalesce(max(length(cell)), 0) FROM {_SAMPLE}"
        ((n_cells, length),) = connection.execute(size).fetchall()
        yield ColumnTester(scan, columns, n_cells < n_rows * len(columns) and length <= MAX_TEXT, store)
    finally:
        connection.execute(f"DROP TABLE {_SAMPLE}")


def convert_columns(scan: str, formats: Sequence[ColumnFormat]) -> str:
    """Return a table expression with the converted columns."""
    converted = ", ".join(f"{each.converted} AS {quoted(each.column)}" for each in formats)
    return f"(SELECT * REPLACE ({converted}) FROM {scan})" if formats else scan


def holds(condition: str, *, is_stated: bool) -> str:
    """Return SQL that tests whether a condition holds for all cells with a text, or for most if the format is stated."""
    if is_stated:
        return f"2 * count(*) FILTER ({condition}) > count(nullif({{cell}}, ''))"
    return f"bool_and({condition}) FILTER ({{cell}} <> '')"


def _convert(column: str, condition: str, converted: str) -> str:
    """Return SQL that converts the cells of a column that satisfy a condition, and leaves the others unchanged."""
    cell = f"trim({quoted(column)})"
    return f"CASE WHEN {condition} THEN {converted} ELSE {quoted(column)} END".replace("{cell}", cell)


def _matches(pattern: str) -> str:
    return f"regexp_full_match({{cell}}, {literal(pattern)})"


def _parsed(format: str) -> str:
    """Return SQL of the date at the beginning of a cell."""
    return f"try_strptime(regexp_extract({{cell}}, '^[^ T]+'), {literal(format)})"


def _has_full_year(date: str) -> str:
    """Return a SQL condition that a date has a year of four digits: `%Y` also reads the year 24."""
    return f"year({date}) > 999"


def _iso_text(date: str, format: str) -> str:
    """Return SQL of the text of a date in a format of ISO 8601; NULL if its year does not have four digits."""
    return f"(CASE WHEN {_has_full_year(date)} THEN strftime({date}, '{format}') END)"


def _date_format(column: str, format: str, shown: str, *, stated: bool = False) -> ColumnFormat:
    """Return the conversion of a column of dates to `2024-01-31`, followed by the time of the cell."""
    cell = f"trim({quoted(column)})"
    if stated:
        iso = "%Y-%m-%d %H:%M:%S" if shown == "time" else "%Y-%m-%d"
        converted = f"coalesce({_iso_text(f'try_strptime({cell}, {literal(format)})', iso)}, {quoted(column)})"
    else:
        rest = f"regexp_replace({cell}, '^[^ T]+', '')"
        converted = f"{_iso_text(_parsed(format).replace('{cell}', cell), '%Y-%m-%d')} || {rest}"
    return ColumnFormat(column, converted, f"dates {format}", "dates", format)
