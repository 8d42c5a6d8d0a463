"""Formats of CSV files: the delimiter, the encoding, the decimal separator, and texts of missing values.

A format is stated in the manifest or detected. A detected format other than commas and UTF-8 is reported.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from relcrf.data.store import Store, literal, quoted, unreadable_error

DELIMITERS = (",", ";", "\t", "|")
"""Delimiters that are detected, in order of preference."""

DECIMAL_SEPARATORS = (".", ",")

DEFAULT_ENCODING = "utf-8"

LEGACY_ENCODING = "cp1252"
"""The encoding of files that are not UTF-8 and have no byte order mark; spreadsheets on Windows write it."""

SAMPLE_LINES = 100
"""Maximum number of lines from which the delimiter is detected."""

_CHUNK_BYTES = 1 << 20

_DECIMAL_COMMA = r"[+-]?([0-9]+|[0-9]{1,3}([.][0-9]{3})+)(,[0-9]+)?"
_THOUSANDS_COMMA = r"[+-]?[0-9]{1,3}(,[0-9]{3})+"
"""Regular expressions of numbers with a decimal comma, and of numbers with commas between groups of three digits."""


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file; None for each property to detect.

    Args:
        delimiter: The character between cells.
        encoding: Name of a text encoding that Python knows.
        decimal: The decimal separator, `.` or `,`.
        missing: Texts of cells that have no value, besides the empty text.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: tuple[str, ...] = ()


def is_text_encoding(name: str) -> bool:
    """Return True if Python can decode text with an encoding of this name."""
    try:
        b"a".decode(name, errors="replace")
    except (LookupError, ValueError):
        return False
    return True


def detect_encoding(path: Path) -> str:
    """Return the encoding of a CSV file, which is read whole: UTF-8, UTF-16 with a byte order mark, or Windows-1252.

    The content of a file that is compressed with Zstandard is not examined; DuckDB reads it as UTF-8.

    Raises:
        DataError: The file has bytes that are not text in any of these encodings (E204).
    """
    if path.suffix.lower() == ".zst":
        return DEFAULT_ENCODING
    decoder = codecs.getincrementaldecoder(DEFAULT_ENCODING)()
    is_ascii, offset = True, 0
    try:
        with _open_bytes(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                if offset == 0 and chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    return "utf-16"
                is_ascii &= decoder.decode(chunk).isascii()
                offset += len(chunk)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        valid = bytes(error.object[: error.start])
        if is_ascii and valid.isascii() and _is_legacy_text(path):
            return LEGACY_ENCODING
        # Valid characters of several bytes before the invalid byte show that the file is UTF-8, and damaged.
        hint = 'save it as UTF-8, or state its encoding: [tables.NAME.csv] encoding = "..." in dataset.toml'
        raise unreadable_error(str(path), hint, ("it is neither UTF-8 nor Windows-1252 text",)) from None
    return DEFAULT_ENCODING


def _is_legacy_text(path: Path) -> bool:
    """Return True if a file is text in LEGACY_ENCODING; a byte 0 occurs in binary data only."""
    decoder = codecs.getincrementaldecoder(LEGACY_ENCODING)()
    try:
        with _open_bytes(path) as file:
            return all("\0" not in decoder.decode(chunk) for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))
    except UnicodeDecodeError:
        return False


@contextmanager
def _open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file, decompressed if its suffix is `.gz`.

    Raises:
        DataError: The compressed content is damaged (E204); raised where the content is read.
    """
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise unreadable_error(str(path), notes=(str(error),)) from None


def copy_as_utf8(path: Path, encoding: str, store: Store) -> Path:
    """Write the text of a CSV file as UTF-8 to a file of the store, and return the path of the copy.

    Raises:
        DataError: The file has bytes that are not text in this encoding, or it is compressed with Zstandard (E204).
    """
    if path.suffix.lower() == ".zst":
        raise unreadable_error(str(path), f"decompress it, or save it as UTF-8 instead of {encoding}")
    copy = store.new_folder() / "table.csv"
    try:
        with (
            _open_bytes(path) as file,
            TextIOWrapper(file, encoding=encoding, newline="") as text,
            copy.open("w", encoding=DEFAULT_ENCODING, newline="") as target,
        ):
            shutil.copyfileobj(text, target, _CHUNK_BYTES)
    except UnicodeError as error:
        hint = 'state its encoding in dataset.toml: [tables.NAME.csv] encoding = "..."'
        raise unreadable_error(str(path), hint, (f"it is not {encoding} text: {error}",)) from None
    return copy


def detect_delimiter(path: Path, encoding: str) -> str:
    """Return the delimiter of a CSV file, according to its first lines; `,` if it is compressed with Zstandard.

    A comma is the delimiter if it divides the header, unless only another delimiter divides all rows into as many cells
    as the header. If no comma divides the header, another delimiter that does so is the delimiter.
    """
    if path.suffix.lower() == ".zst":
        return DELIMITERS[0]
    with _open_bytes(path) as file, TextIOWrapper(file, encoding=encoding, errors="replace", newline="") as text:
        sample = text.read(_CHUNK_BYTES)
    lines = list(islice(StringIO(sample, newline=""), SAMPLE_LINES))
    is_cut = len(lines) == SAMPLE_LINES or len(sample) == _CHUNK_BYTES
    widths = {delimiter: _row_widths(lines, delimiter, is_cut=is_cut) for delimiter in DELIMITERS}
    divided = [d for d in DELIMITERS if widths[d] and widths[d][0] > 1]
    consistent = [d for d in divided if len(widths[d]) > 1 and set(widths[d]) == {widths[d][0]}]
    return (consistent or divided or [DELIMITERS[0]])[0]


def _row_widths(lines: Sequence[str], delimiter: str, *, is_cut: bool) -> list[int]:
    """Return the number of cells of each row; if the sample is cut, without its last row."""
    try:
        widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return []
    return widths[:-1] if is_cut else widths


def decimal_comma_columns(table: str, columns: Sequence[str], store: Store, *, is_stated: bool) -> tuple[str, ...]:
    """Return the columns with separators whose cells are all numbers such as `1.234,5` or `1.234`, or empty.

    In `1,234`, the comma may also separate thousands, and in `1.234`, the point may be a decimal point. If the decimal
    separator is not stated, columns are returned only if a number of the file, such as `2,5`, needs a decimal comma.

    Args:
        table: A DuckDB table expression whose columns are texts.
        is_stated: True if the manifest states that the comma is the decimal separator.
    """

    def test_columns(columns: Sequence[str], *conditions: str) -> list[tuple[bool | None, ...]]:
        tests = [condition.format(cell=f"trim({quoted(column)})") for column in columns for condition in conditions]
        ((*results,),) = store.connection.execute(f"SELECT {', '.join(tests)} FROM {table}").fetchall()
        return [tuple(results[k : k + len(conditions)]) for k in range(0, len(results), len(conditions))]

    if not any(found for (found,) in test_columns(columns, "bool_or(contains({cell}, ','))")):
        return ()
    number, thousands = (
        f"regexp_full_match({{cell}}, {literal(pattern).replace('{', '{{').replace('}', '}}')})"
        for pattern in (_DECIMAL_COMMA, _THOUSANDS_COMMA)
    )
    tested = test_columns(
        columns,
        f"bool_and({number}) FILTER ({{cell}} <> '')",
        "bool_or(contains({cell}, ',') OR contains({cell}, '.'))",
        f"bool_or(contains({{cell}}, ',') AND NOT {thousands})",
    )
    numeric = [
        (column, is_certain)
        for column, (is_number, has_separator, is_certain) in zip(columns, tested, strict=True)
        if is_number and has_separator
    ]
    if is_stated or any(is_certain for _, is_certain in numeric):
        return tuple(column for column, _ in numeric)
    return ()
