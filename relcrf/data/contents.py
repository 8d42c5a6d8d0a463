"""What tables contain, as a hash: the same content, the same hash."""

from __future__ import annotations

import hashlib
from pathlib import Path

from relcrf.data.dataset import Dataset

BLOCK = 1 << 20


def content_of(dataset: Dataset, place: str) -> str:
    """The hash of a raw table: of a file its bytes, of anything else its rows, whatever their order.

    Args:
        place: of the table, as messages call it.
    """
    known = dataset.contents
    if place not in known:
        path = Path(place)
        known[place] = _hash_of_file(path) if path.is_file() else _hash_of_rows(dataset, place)
    return known[place]


def _hash_of_file(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _hash_of_rows(dataset: Dataset, place: str) -> str:
    table = next(t for t in dataset.tables.values() if t.place == place)
    sql = f"SELECT count(*), bit_xor(hash(raw)), sum(hash(raw)::HUGEINT) FROM {table.scan} AS raw"
    (found,) = dataset.connection.execute(sql).fetchall()
    return "-".join([*table.columns, *map(str, found)])
