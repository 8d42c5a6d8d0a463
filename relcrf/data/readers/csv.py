"""A reader of delimited text with a header row, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.readers.csv_format import (
    DEFAULT_ENCODING,
    CsvFormat,
    copy_as_utf8,
    decimal_comma_columns,
    detect_delimiter,
    detect_encoding,
)
from relcrf.data.readers.missing_texts import replace_missing_texts
from relcrf.data.store import Store, literal, quoted
from relcrf.errors import listing


@dataclass(frozen=True)
class CsvReader(AbstractReader):
    """A reader that reads every column as text. Binding to a model converts the texts and reports invalid rows.

    Args:
        format: The properties of the format that the manifest states; the others are detected.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz", ".csv.zst")
    default_delimiter: ClassVar[str | None] = None
    """The delimiter that the suffix promises; None to detect it."""

    format: CsvFormat = field(default_factory=CsvFormat)

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        encoding = self.format.encoding or detect_encoding(path)
        is_utf8 = encoding.lower().replace("_", "-") in (DEFAULT_ENCODING, "utf8")
        file = store.file_literal(path if is_utf8 else copy_as_utf8(path, encoding, store))
        delimiter = self.format.delimiter or self.default_delimiter or detect_delimiter(path, encoding)
        # Format detection is off: it would skip the lines above a ragged line instead of reporting the ragged line.
        options = f"all_varchar = true, header = true, delim = {literal(delimiter)}, quote = '\"', escape = '\"'"
        strict = "skip = 0, comment = '', strict_mode = true, null_padding = false, hive_partitioning = false"
        table = SourceTable(name, str(path), f"read_csv({file}, {options}, {strict})")
        # A text of a missing value would prevent the detection of decimal commas.
        scan = replace_missing_texts(table, self.format.missing, store.connection).scan
        converted: tuple[str, ...] = ()
        # A decimal comma in a file with the delimiter ',' needs quotes, so it is rare; it must be stated.
        if self.format.decimal == "," or (self.format.decimal is None and delimiter != ","):
            columns = [str(row[0]) for row in store.connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()]
            converted = decimal_comma_columns(scan, columns, store, is_stated=self.format.decimal is not None)
        if converted:
            numbers = (f"replace(replace({quoted(c)}, '.', ''), ',', '.') AS {quoted(c)}" for c in converted)
            scan = f"(SELECT * REPLACE ({', '.join(numbers)}) FROM {scan})"
        found = []
        if self.format.delimiter is None and delimiter not in (",", self.default_delimiter):
            found.append(f"the delimiter {delimiter!r}")
        if self.format.encoding is None and not is_utf8:
            found.append(f"the encoding {encoding}")
        if self.format.decimal is None and converted:
            found.append(f"decimal commas in {listing(converted)}")
        note = f"{path}: read with {listing(found)}" if found else ""
        yield replace(table, scan=scan, note=note)
