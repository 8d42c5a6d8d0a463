"""A reader of delimited text with a header row, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import duckdb

from relcrf.data.readers.base import AbstractReader, SourceTable, StoredFormat
from relcrf.data.readers.csv_format import (
    DEFAULT_ENCODING,
    MAX_SHOWN_TEXT,
    CsvFormat,
    copy_as_utf8,
    decompress_zst,
    describe_ragged_row,
    detect_encoding,
    is_utf8_zst,
    measure_lines,
    read_sample,
)
from relcrf.data.readers.csv_layout import detect_layout, header_notes
from relcrf.data.readers.csv_units import unit_formats
from relcrf.data.readers.csv_values import ColumnFormat, column_formats, convert_columns, describe_formats, open_tester
from relcrf.data.readers.missing_texts import replace_missing_texts
from relcrf.data.readers.stored_formats import compare_formats
from relcrf.data.readers.zstandard import require_complete_zst
from relcrf.data.store import Store, literal, unreadable_error
from relcrf.errors import Span, listing
from relcrf.model.spec import fold_name

_MAX_LINE_SIZE, _BUFFER_SIZE = 2_000_000, 32_000_000
"""DuckDB's default limit of the size of a row, and of its buffers, in bytes."""


@dataclass(frozen=True)
class CsvReader(AbstractReader):
    """A reader that reads every column as text. Binding to a model converts the texts and reports invalid rows.

    Args:
        format: The properties of the format that the manifest states; the others are detected.
        missing: The texts of cells without a value that the manifest states by column; `missing_location` is its span.
        table: The name of the table in the manifest; empty to use the file's name without its suffix.
        stored: The formats of the training data, which apply to columns that do not show their format.
        converted: The columns whose numbers or dates the manifest converts after the reader; their cells remain unchanged.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz", ".csv.zst")
    default_delimiter: ClassVar[str | None] = None
    """The delimiter that the suffix promises; None to detect it."""

    format: CsvFormat = field(default_factory=CsvFormat)
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing_location: Span | None = None
    table: str = ""
    stored: tuple[StoredFormat, ...] = ()
    converted: frozenset[str] = frozenset()

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        file, stated, table_name = path, self.format, fold_name(self.table or name)
        if path.suffix.lower() == ".zst":
            require_complete_zst(path)
            if not (_is_utf8(stated.encoding) and is_utf8_zst(path, store)):
                file = decompress_zst(path, store)
        is_zst = file.suffix.lower() == ".zst"
        encoding = stated.encoding or (DEFAULT_ENCODING if is_zst else detect_encoding(file, path))
        content = file if _is_utf8(encoding) else copy_as_utf8(file, encoding, store, path)
        lines, is_cut = read_sample(file, encoding, store)
        if not any(map(str.strip, lines)):
            raise unreadable_error(str(path), "the first line must contain the names of the columns", ("it is empty",))
        known_delimiter = stated.delimiter or self.default_delimiter
        delimiter, skip = detect_layout(lines, is_cut=is_cut, delimiter=known_delimiter, skip=stated.skip)
        # Format detection is off: it would skip the lines above a ragged line instead of reporting the ragged line.
        options = f"all_varchar = true, header = true, delim = {literal(delimiter)}, quote = '\"', escape = '\"'"
        strict = f"skip = {skip}, comment = '', strict_mode = true, null_padding = false, hive_partitioning = false"
        has_different_ends, line_size = (False, 0) if is_zst else measure_lines(content)
        if line_size > _MAX_LINE_SIZE // 2:
            limit = 2 * line_size  # a row may consist of several lines
            strict += f", max_line_size = {limit}, buffer_size = {max(limit, _BUFFER_SIZE)}"

        def scan_of(file: Path) -> str:
            return f"read_csv({store.file_literal(file)}, {options}, {strict})"

        has_unified_line_ends = has_different_ends and not _is_readable(scan_of(content), store.connection)
        if has_unified_line_ends:
            content = copy_as_utf8(file, encoding, store, path, newline=None)
        table = SourceTable(name, str(path), scan_of(content))
        try:
            # A text of a missing value would prevent the detection of the formats of numbers and dates.
            texts = self.missing or stated.missing
            table = replace_missing_texts(table, texts, store.connection, self.missing_location)
            units, formats = self._detect_formats(table.scan, delimiter, store)
            scan = convert_columns(table.scan, units)
            stored = [each for each in self.stored if each.table == table_name and each.column not in self.converted]
            compared = compare_formats(scan, [*units, *formats], stored, stated, store)
        except duckdb.InvalidInputException:
            if is_zst or not (problem := describe_ragged_row(file, encoding, delimiter, skip)):
                raise
            hint = (
                f"each row needs a cell for each column; put texts with {delimiter!r} or line breaks into double quotes"
            )
            raise unreadable_error(str(path), hint, (problem,)) from None
        scan, formats = convert_columns(scan, [*formats, *compared.restored]), [*units, *formats]
        all_formats = [*formats, *compared.restored]
        described = describe_formats(all_formats)
        found = []
        if stated.delimiter is None and delimiter not in (",", self.default_delimiter):
            found.append(f"the delimiter {delimiter!r}")
        if stated.encoding is None and not _is_utf8(encoding):
            found.append(f"the encoding {encoding}")
        if has_unified_line_ends:
            found.append("different line ends")
        found += describe_formats([each for each in formats if getattr(stated, each.key) is None])
        notes = [f"read with {listing(found)}"] if found else []
        if compared.restored:
            notes.append(f"read as in the training data: {listing(describe_formats(compared.restored))}")
        notes += compared.notes
        notes += header_notes(lines[skip:], delimiter)
        if skip and stated.skip is None:
            above = [repr(line.strip()[:MAX_SHOWN_TEXT]) for line in lines[:skip] if line.strip()]
            notes.append(f"the header is line {skip + 1:,}" + f", after {listing(above, limit=3)}" * bool(above))
        description = ", ".join(["CSV", f"delimiter {delimiter!r}", encoding, *described])
        csv_formats = tuple(StoredFormat(table_name, each.column, each.key, each.format) for each in all_formats)
        yield replace(table, scan=scan, format=description, note="; ".join(notes), csv_formats=csv_formats)

    def _detect_formats(self, scan: str, delimiter: str, store: Store) -> tuple[list[ColumnFormat], list[ColumnFormat]]:
        """Return the conversions of columns with units, and of columns with other formats, which are applied next."""
        with open_tester(scan, store) as tester:
            units = unit_formats(tester, self.format.units)
            if not units:
                return units, column_formats(tester, self.format, delimiter, self.converted)
        with open_tester(convert_columns(scan, units), store) as tester:
            return units, column_formats(tester, self.format, delimiter, self.converted)


def _is_readable(scan: str, connection: duckdb.DuckDBPyConnection) -> bool:
    """Return True if DuckDB can read all rows of a CSV file; it cannot if the rows have different line ends."""
    try:
        connection.execute(f"SELECT count(*) FROM {scan}").fetchall()
    except duckdb.InvalidInputException:
        return False
    return True


def _is_utf8(encoding: str | None) -> bool:
    """Return True for the names of UTF-8 and for None, an unknown encoding."""
    return encoding is None or encoding.lower().replace("_", "-") in (DEFAULT_ENCODING, "utf8")
