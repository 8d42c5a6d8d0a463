"""A reader of JSON Lines, one object per line, plain or compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.readers.structures import fields_of
from relcrf.data.store import Store, literal, quoted

_PRESERVED_TYPES = re.compile(r"(BIGINT|DOUBLE|BOOLEAN|VARCHAR)(\[\])*")


class JsonlReader(AbstractReader):
    """A reader that keeps numbers, booleans, objects and lists of these; dates become text."""

    suffixes: ClassVar[tuple[str, ...]] = tuple(f"{s}{c}" for s in (".jsonl", ".ndjson") for c in ("", ".gz", ".zst"))

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        file = f"{store.file_literal(path)}, format = 'newline_delimited', hive_partitioning = false"
        rows = store.connection.sql(f"SELECT * FROM read_json({file}, sample_size = -1)")
        types = {column: _read_type(kind) for column, kind in zip(rows.columns, rows.types, strict=True)}
        columns = ", ".join(f"{quoted(column)}: {literal(kind)}" for column, kind in types.items())
        yield SourceTable(name, str(path), f"read_json({file}, columns = {{{columns}}})")


def _read_type(kind: Any) -> str:
    """Return the type as which values of a detected type are read."""
    if fields := fields_of(kind):
        return f"STRUCT({', '.join(f'{quoted(name)} {_read_type(inner)}' for name, inner in fields)})"
    if kind.id == "list" and fields_of(kind.child):
        return f"{_read_type(kind.child)}[]"
    return str(kind) if _PRESERVED_TYPES.fullmatch(str(kind)) else "VARCHAR"
