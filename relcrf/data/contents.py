"""What tables contain, as a hash: the same content, the same hash."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

from relcrf.data.bound import Bound
from relcrf.data.dataset import Dataset, RawTable
from relcrf.data.store import reading


def content_of(bound: Bound, place: str) -> str:
    """The hash of a raw table: the names and types of its columns, and of a file its bytes, of anything else its rows,
    whatever their order.

    Args:
        place: of the table, as messages call it.
    """
    known = bound.contents
    if place not in known:
        table = next(t for t in bound.dataset.tables.values() if t.place == place)
        path = Path(place)
        if path.is_file():
            with path.open("rb") as file:
                rows = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()
        else:
            rows = hash_of_rows(bound.dataset, table)
        known[place] = json.dumps([table.columns, table.types, rows])
    return known[place]


def hash_of_rows(dataset: Dataset, table: RawTable) -> str:
    """The number of rows of a table and their hash, whatever their order; of one version of DuckDB."""
    sql = f"SELECT count(*), bit_xor(hash(raw)), sum(hash(raw)::HUGEINT) FROM {table.scan} AS raw"
    with reading(table.place):
        (found,) = dataset.connection.execute(sql).fetchall()
    return "-".join(map(str, found))
