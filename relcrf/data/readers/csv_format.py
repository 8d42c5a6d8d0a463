"""Formats of CSV files: what a manifest states, and the detection of the encoding and the delimiter.

A format is stated in the manifest or detected. A detected format other than commas and UTF-8 is reported. The formats of
numbers and dates are in `csv_values.py`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import duckdb

from relcrf.data.store import BATCH_ROWS, Store, unreadable_error

DECIMAL_SEPARATORS = (".", ",")

THOUSANDS_SEPARATORS = (",", ".", "'", " ")

DEFAULT_ENCODING = "utf-8"

LEGACY_ENCODING = "cp1252"
"""The encoding of files that are not UTF-8 and have no byte order mark; spreadsheets on Windows write it."""

SAMPLE_LINES = 100
"""Maximum number of lines from which the delimiter is detected."""

MAX_SHOWN_TEXT = 60
"""Maximum number of characters of a row that a message shows."""

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file; None for each property to detect.

    Args:
        delimiter: The character between cells.
        encoding: Name of a text encoding that Python knows.
        decimal: The decimal separator, `.` or `,`.
        thousands: The separator between groups of three digits, one of THOUSANDS_SEPARATORS.
        dates: The format of dates for `strptime`, such as `%d.%m.%Y`.
        missing: Texts of cells that have no value, besides the empty text.
        skip: The number of lines above the header.
        units: The units of numbers, such as `EUR`, which are removed.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    dates: str | None = None
    missing: tuple[str, ...] = ()
    skip: int | None = None
    units: tuple[str, ...] | None = None


def is_text_encoding(name: str) -> bool:
    """Return True if Python can decode text with an encoding of this name."""
    try:
        b"a".decode(name, errors="replace")
    except (LookupError, ValueError):
        return False
    return True


def detect_encoding(path: Path, location: Path) -> str:
    """Return the encoding of a CSV file, which is read whole: UTF-8, UTF-16 with a byte order mark, or Windows-1252.

    Args:
        location: The path for messages.

    Raises:
        DataError: The file has bytes that are not text in any of these encodings (E204).
    """
    decoder = codecs.getincrementaldecoder(DEFAULT_ENCODING)()
    is_ascii, offset = True, 0
    try:
        with _open_bytes(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                if offset == 0 and chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    return "utf-16"
                if (
                    not chunk.isascii() or decoder.getstate()[0]
                ):  # to decode ASCII text takes ten times longer than this test
                    is_ascii &= decoder.decode(chunk).isascii()
                offset += len(chunk)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        valid = bytes(error.object[: error.start])
        if is_ascii and valid.isascii() and _is_legacy_text(path):
            return LEGACY_ENCODING
        # Valid characters of several bytes before the invalid byte show that the file is UTF-8, and damaged.
        hint = 'save it as UTF-8, or state its encoding: [tables.NAME.csv] encoding = "..." in dataset.toml'
        raise unreadable_error(str(location), hint, ("it is neither UTF-8 nor Windows-1252 text",)) from None
    return DEFAULT_ENCODING


def _is_legacy_text(path: Path) -> bool:
    """Return True if a file is text in LEGACY_ENCODING; a byte 0 occurs in binary data only."""
    decoder = codecs.getincrementaldecoder(LEGACY_ENCODING)()
    try:
        with _open_bytes(path) as file:
            return all("\0" not in decoder.decode(chunk) for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))
    except UnicodeDecodeError:
        return False


def measure_lines(path: Path) -> tuple[bool, int]:
    """Return whether lines of a text file, which is read whole, end with different characters, and the size of a long line.

    Line breaks within quoted cells are counted, too. The size is the maximum over the lines that are longer than a chunk of the
    file; other lines may be longer than the returned size.
    """
    n_pairs, n_returns, n_feeds, rest = 0, 0, 0, b""
    size, max_size = 0, 0
    with _open_bytes(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            chunk = rest + chunk
            ends = [k for k in (chunk.find(b"\n"), chunk.find(b"\r"), chunk.rfind(b"\n"), chunk.rfind(b"\r")) if k >= 0]
            max_size = max(max_size, size + min(ends, default=len(chunk)))
            size = len(chunk) - max(ends) if ends else size + len(chunk)
            rest = b"\r" if chunk.endswith(b"\r") else b""  # a line feed may follow
            n_feeds += chunk.count(b"\n")
            if b"\r" in chunk:
                n_pairs += chunk.count(b"\r\n")
                n_returns += chunk.count(b"\r") - len(rest)
    n_kinds = sum(n > 0 for n in (n_pairs, n_feeds - n_pairs, n_returns + len(rest) - n_pairs))
    return n_kinds > 1, max_size


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


def copy_as_utf8(path: Path, encoding: str, store: Store, location: Path, newline: str | None = "") -> Path:
    """Write the text of a CSV file as UTF-8 to a file of the store, and return the path of the copy.

    Args:
        location: The path for messages.
        newline: "" to keep all line ends, None to replace each of them by a line feed.

    Raises:
        DataError: The file has bytes that are not text in this encoding (E204).
    """
    copy = store.new_folder() / "table.csv"
    try:
        with (
            _open_bytes(path) as file,
            TextIOWrapper(file, encoding=encoding, newline=newline) as text,
            copy.open("w", encoding=DEFAULT_ENCODING, newline="") as target,
        ):
            shutil.copyfileobj(text, target, _CHUNK_BYTES)
    except UnicodeError as error:
        hint = 'state its encoding in dataset.toml: [tables.NAME.csv] encoding = "..."'
        raise unreadable_error(str(location), hint, (f"it is not {encoding} text: {error}",)) from None
    return copy


def is_utf8_zst(path: Path, store: Store) -> bool:
    """Return True if a file that is compressed with Zstandard contains UTF-8 text; DuckDB decompresses and decodes it."""
    try:
        store.connection.execute(f"SELECT count(line) FROM {_zst_lines(path, store, DEFAULT_ENCODING)}").fetchall()
    except duckdb.InvalidInputException as error:
        if "unicode" in str(error):
            return False
        raise
    return True


def decompress_zst(path: Path, store: Store) -> Path:
    """Write the bytes of a file that is compressed with Zstandard to a file of the store, and return its path.

    The standard library decompresses Zstandard from Python 3.14. In Latin-1, DuckDB returns one character for each byte.
    """
    copy = store.new_folder() / "table.csv"
    result = store.connection.execute(f"SELECT line FROM {_zst_lines(path, store, 'latin-1')}")
    with copy.open("wb") as file:
        while rows := result.fetchmany(BATCH_ROWS):
            file.writelines((line or "").encode("latin-1") + b"\n" for (line,) in rows)
    return copy


def _zst_lines(path: Path, store: Store, encoding: str) -> str:
    """Return a table expression for the lines of a compressed file, as the only column `line`."""
    options = (
        "auto_detect = false, header = false, columns = {line: 'VARCHAR'}, delim = '\x01', quote = '', escape = ''"
    )
    return f"read_csv({store.file_literal(path)}, {options}, strict_mode = false, encoding = '{encoding}')"


def read_sample(path: Path, encoding: str, store: Store) -> tuple[list[str], bool]:
    """Return the first lines of a CSV file, and True if the last of them may be incomplete or the file has more lines."""
    if path.suffix.lower() == ".zst":
        sql = f"SELECT line FROM {_zst_lines(path, store, encoding)} LIMIT {SAMPLE_LINES}"
        lines = [f"{line or ''}\n" for (line,) in store.connection.execute(sql).fetchall()]
        return lines, len(lines) == SAMPLE_LINES
    with _open_bytes(path) as file, TextIOWrapper(file, encoding=encoding, errors="replace", newline="") as text:
        sample = text.read(_CHUNK_BYTES)
    lines = list(islice(StringIO(sample, newline=""), SAMPLE_LINES))
    return lines, len(lines) == SAMPLE_LINES or len(sample) == _CHUNK_BYTES


def describe_ragged_row(path: Path, encoding: str, delimiter: str, skip: int) -> str:
    """Return a description of the first row without one cell for each column of the header; empty if there is none.

    Args:
        skip: The number of lines above the header.
    """
    with _open_bytes(path) as file, TextIOWrapper(file, encoding=encoding, errors="replace", newline="") as text:
        rows, line, width = csv.reader(islice(text, skip, None), delimiter=delimiter, strict=True), skip + 1, 0
        try:
            for row in rows:
                width = width or len(row)
                if row and len(row) != width:
                    counts = f"{len(row):,} cell{'s' * (len(row) != 1)}, and the header has {width:,}"
                    return f"the row in line {line:,} has {counts}: {delimiter.join(row)[:MAX_SHOWN_TEXT]!r}"
                line = skip + rows.line_num + 1
        except csv.Error as error:
            is_open = "unexpected end of data" in str(error)
            problem = "contains a quote that is not closed" if is_open else f"cannot be read: {error}"
            return f"the row that begins in line {line:,} {problem}"
    return ""
