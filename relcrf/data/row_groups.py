"""Row groups of Parquet tables: hashes that detect unchanged rows, and scans that read only some row groups."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter

import duckdb

from relcrf.data.raw_table import RawTable
from relcrf.data.readers.base import ParquetFile
from relcrf.data.store import unreadable_error

READ_BYTES = 1 << 20
"""Number of bytes that are hashed at a time."""

MIN_OFFSET = 4
"""Minimum offset of a page: the length of the magic number at the start of a file; smaller offsets are unset."""

_PAGE_OFFSETS = ("dictionary_page_offset", "index_page_offset", "data_page_offset")

_LOCATIONS = ("file_name", "row_group_id", "file_offset", "bloom_filter_offset")
"""Further columns of `parquet_metadata` that depend on the location of a row group."""


@dataclass(frozen=True, order=True)
class RowGroup:
    """A row group of a Parquet table; row groups are ordered by their location.

    Args:
        file: Index of the file in `RawTable.parquet_files`.
        start: Number of the first row in the file.
        digest: SHA-256 hash of the bytes, and of the metadata with which they are decoded; equal hashes mean equal rows if the
            tables have the same columns, types and manifest entry.
    """

    file: int
    start: int
    n_rows: int
    digest: str


def read_row_groups(connection: duckdb.DuckDBPyConnection, table: RawTable) -> tuple[RowGroup, ...]:
    """Hash the row groups of a table, in the order of its rows; return none if it does not consist of Parquet files.

    Raises:
        DataError: A file cannot be read (E204).
    """
    found: list[RowGroup] = []
    for number, file in enumerate(table.parquet_files):
        try:
            row_groups = _read_file(connection, number, file)
        except OSError as error:
            raise unreadable_error(str(file.path), notes=(error.strerror or str(error),)) from None
        if row_groups is None or table.scan.count(file.scan) != 1:
            return ()
        found += row_groups
    return tuple(found)


def scan_row_groups(table: RawTable, row_groups: Sequence[RowGroup]) -> str:
    """Return a DuckDB table expression of the rows in some row groups of a table; DuckDB skips the others.

    Args:
        row_groups: Row groups of the table, in any order.
    """
    scan = table.scan
    by_file = {number: [*group] for number, group in groupby(sorted(row_groups), attrgetter("file"))}
    for number, file in enumerate(table.parquet_files):
        ranges: list[tuple[int, int]] = []
        for group in by_file.get(number, ()):
            first = ranges.pop()[0] if ranges and ranges[-1][1] == group.start else group.start
            ranges.append((first, group.start + group.n_rows))
        conditions = [f"file_row_number >= {first} AND file_row_number < {end}" for first, end in ranges]
        restricted = f"(SELECT * FROM {file.scan} WHERE {' OR '.join(conditions) or 'false'})"
        scan = scan.replace(file.scan, restricted)
    return scan


def _read_file(connection: duckdb.DuckDBPyConnection, number: int, file: ParquetFile) -> list[RowGroup] | None:
    """Hash the row groups of a file; return None if their bytes overlap or are not in the order of the rows.

    The bytes of a row group extend to the next one, because some writers declare smaller sizes than readers need.
    """
    ((footer_start, writer),) = connection.execute(
        f"SELECT file_size_bytes - footer_size - 8, created_by FROM parquet_file_metadata({file.literal})"
    ).fetchall()
    schema = connection.execute(f"SELECT * EXCLUDE (file_name) FROM parquet_schema({file.literal})").fetchall()
    chunks = connection.execute(
        f"SELECT row_group_id, row_group_num_rows, [{', '.join(_PAGE_OFFSETS)}], total_compressed_size, "
        f"* EXCLUDE ({', '.join((*_LOCATIONS, *_PAGE_OFFSETS))}) FROM parquet_metadata({file.literal}) "
        "ORDER BY row_group_id, column_id"
    ).fetchall()
    groups = [[*group] for _, group in groupby(chunks, itemgetter(0))]
    pages = [[[offset for offset in chunk[2] if (offset or 0) >= MIN_OFFSET] for chunk in group] for group in groups]
    if not all(offsets for group in pages for offsets in group):
        return None
    bounds = [*(min(map(min, group)) for group in pages), footer_start]
    found: list[RowGroup] = []
    row = 0
    with file.path.open("rb") as stream:
        for group, offsets, (start, end) in zip(groups, pages, pairwise(bounds), strict=True):
            if any(min(own) + chunk[3] > end for chunk, own in zip(group, offsets, strict=True)):
                return None
            columns = [(*chunk[1:2], [o and o - start for o in chunk[2]], *chunk[3:]) for chunk in group]
            digest = hashlib.sha256(repr((writer, schema, file.constants, columns, end - start)).encode())
            stream.seek(start)
            for position in range(start, end, READ_BYTES):
                digest.update(stream.read(min(READ_BYTES, end - position)))
            found.append(RowGroup(number, row, group[0][1], digest.hexdigest()))
            row += group[0][1]
    return found
