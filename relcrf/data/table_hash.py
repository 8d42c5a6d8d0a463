"""Content hashes of raw tables: equal content gives equal hashes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import Dataset
from relcrf.data.raw_table import RawTable
from relcrf.data.store import report_read_errors


def table_content_hash(bound: BoundModel, location: str) -> str:
    """Return the content hash of a raw table: the names and types of the columns, what the manifest declares about its
    rows, and a hash of the bytes of the file; if the table is not a file, an order-independent hash of the rows.

    Args:
        location: The table's location, as shown in messages.
    """
    hashes = bound.content_hashes
    if location not in hashes:
        table = next(t for t in bound.dataset.tables.values() if t.location == location)
        path = Path(location)
        if path.is_file():
            with path.open("rb") as file:
                rows = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()
        else:
            rows = hash_rows(bound.dataset, table)
        declared = [table.format, table.reading, asdict(table.policies)]
        hashes[location] = json.dumps([table.columns, table.types, rows, *declared])
    return hashes[location]


def hash_rows(dataset: Dataset, table: RawTable) -> str:
    """Return the row count of a table and an order-independent hash of its rows, which depends on DuckDB's version."""
    sql = f"SELECT count(*), bit_xor(hash(raw)), sum(hash(raw)::HUGEINT) FROM {table.scan} AS raw"
    with report_read_errors(table.location):
        (result,) = dataset.connection.execute(sql).fetchall()
    return "-".join(map(str, result))
