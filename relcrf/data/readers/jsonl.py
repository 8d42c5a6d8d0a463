"""A reader of JSON Lines, one object per line, plain or compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.readers.structures import fields_of
from relcrf.data.readers.zstandard import require_complete_zst
from relcrf.data.store import Store, literal, quoted, unreadable_error

_PRESERVED_TYPES = ("BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR")


class JsonlReader(AbstractReader):
    """A reader that keeps numbers, booleans, objects and lists of these; dates become text."""

    suffixes: ClassVar[tuple[str, ...]] = tuple(f"{s}{c}" for s in (".jsonl", ".ndjson") for c in ("", ".gz", ".zst"))

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        if path.suffix.lower() == ".zst":
            require_complete_zst(path)
        file = f"{store.file_literal(path)}, format = 'newline_delimited', hive_partitioning = false"
        # Objects with at least 200 similar fields would otherwise become a single column of type MAP.
        rows = store.connection.sql(f"SELECT * FROM read_json({file}, sample_size = -1, map_inference_threshold = -1)")
        types = {column: _read_type(kind) for column, kind in zip(rows.columns, rows.types, strict=True)}
        columns = ", ".join(f"{quoted(column)}: {literal(kind)}" for column, kind in types.items())
        relation = f"read_json({file}, columns = {{{columns}}})"
        for column in rows.columns:
            _require_one_spelling(column, rows.columns, relation, path, store)
        yield SourceTable(name, str(path), relation)


def _require_one_spelling(column: str, columns: Sequence[str], relation: str, path: Path, store: Store) -> None:
    """Raise an error if the fields `name` and `Name` both exist: DuckDB calls the second one `Name_1`, and does not read it.

    Raises:
        DataError: The field has several spellings (E204).
    """
    renamed = re.fullmatch(r"(.+)_\d+", column)
    if renamed is None or renamed[1].casefold() not in {each.casefold() for each in columns if each != renamed[1]}:
        return
    ((n_read,),) = store.connection.sql(f"SELECT count({quoted(column)}) FROM {relation}").fetchall()
    if not n_read:
        note = f"the field '{renamed[1]}' is also spelled with other capital letters"
        raise unreadable_error(str(path), "spell the field in the same way in all lines", (note,))


def _read_type(kind: Any) -> str:
    """Return the type as which values of a detected type are read."""
    if fields := fields_of(kind):
        return f"STRUCT({', '.join(f'{quoted(name)} {_read_type(inner)}' for name, inner in fields)})"
    if kind.id == "list":
        return f"{_read_type(kind.child)}[]"
    return str(kind) if str(kind) in _PRESERVED_TYPES else "VARCHAR"
