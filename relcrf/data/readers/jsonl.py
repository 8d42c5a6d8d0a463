"""A reader of JSON Lines, one object per line, plain or compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import Store, literal, quoted

_PRESERVED_TYPES = re.compile(r"(BIGINT|DOUBLE|BOOLEAN|VARCHAR)(\[\])*")


class JsonlReader(AbstractReader):
    """A reader that keeps numbers, booleans and lists; dates and objects become text."""

    suffixes: ClassVar[tuple[str, ...]] = tuple(f"{s}{c}" for s in (".jsonl", ".ndjson") for c in ("", ".gz", ".zst"))

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        file = f"{store.file_literal(path)}, format = 'newline_delimited', hive_partitioning = false"
        description_rows = store.connection.execute(
            f"DESCRIBE SELECT * FROM read_json({file}, sample_size = -1)"
        ).fetchall()
        types = {str(row[0]): row[1] if _PRESERVED_TYPES.fullmatch(row[1]) else "VARCHAR" for row in description_rows}
        columns = ", ".join(f"{quoted(column)}: {literal(kind)}" for column, kind in types.items())
        yield SourceTable(name, str(path), f"read_json({file}, columns = {{{columns}}})")
