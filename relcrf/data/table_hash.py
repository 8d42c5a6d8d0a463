"""What tables contain, as a hash: the same content, the same hash."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import Dataset, RawTable
from relcrf.data.store import report_read_errors


def table_content_hash(bound: BoundModel, location: str) -> str:
    """The hash of a raw table: the names and types of its columns, and of a file its bytes, of anything else its rows,
    whatever their order.

    Args:
        location: of the table, as messages call it.
    """
    known = bound.content_hashes
    if location not in known:
        table = next(t for t in bound.dataset.tables.values() if t.location == location)
        path = Path(location)
        if path.is_file():
            with path.open("rb") as file:
                rows = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()
        else:
            rows = hash_rows(bound.dataset, table)
        known[location] = json.dumps([table.columns, table.types, rows])
    return known[location]


def hash_rows(dataset: Dataset, table: RawTable) -> str:
    """The number of rows of a table and their hash, whatever their order; of one version of DuckDB."""
    sql = f"SELECT count(*), bit_xor(hash(raw)), sum(hash(raw)::HUGEINT) FROM {table.scan} AS raw"
    with report_read_errors(table.location):
        (found,) = dataset.connection.execute(sql).fetchall()
    return "-".join(map(str, found))
