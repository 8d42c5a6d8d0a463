"""Columns of texts in requests: a request may contain the texts from which the manifest of the run derives bags of words."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import duckdb

from relcrf.data.readers.words import words_sql
from relcrf.errors import DataError, DataLocation, Diagnostic
from relcrf.model.spec import Entity, ModelSpec, fold_name
from relcrf.model.types import Bag
from relcrf.serving.cells import WHITESPACE
from relcrf.serving.request_table import RequestTable


@dataclass(frozen=True)
class TextColumn:
    """A column of texts of an entity table.

    Args:
        bag: The bag of their words.
        missing: The texts that the manifest declares as missing.
        is_read: Whether the model also reads the texts themselves, as the key or an attribute.
    """

    name: str
    bag: str
    missing: frozenset[str]
    is_read: bool


def find_text_columns(spec: ModelSpec, mapping: str | None) -> dict[str, list[TextColumn]]:
    """Return the columns of texts from which a manifest derives bags of the model, by folded name of their table.

    Args:
        mapping: The section `tables` of the manifest of the training data; None without a manifest.
    """
    entries = {fold_name(name): entry for name, entry in tomllib.loads(mapping or "tables = {}")["tables"].items()}
    return {
        fold_name(entity.name): [*_columns_of_entry(entity, entry)]
        for entity in spec.entities
        if "words" in (entry := entries.get(fold_name(entity.name), {}))
    }


def _columns_of_entry(entity: Entity, entry: Mapping[str, Any]) -> list[TextColumn]:
    """Return the columns of texts of an entity table, by their names in the model."""
    names = {source: name for name, source in entry.get("columns", {}).items()}
    read = {fold_name(name) for name in (entity.key, *(a.name for a in entity.attributes))}
    bags = {fold_name(a.name): a.name for a in entity.attributes if isinstance(a.type, Bag)}
    found = []
    for words, text in entry["words"].items():
        bag = bags.get(fold_name(names.get(words, words)))
        missing = entry.get("missing", [])
        texts = missing.get(text, []) if isinstance(missing, dict) else missing
        name = names.get(text, text)
        if bag is not None:
            found.append(TextColumn(name, bag, frozenset(texts), fold_name(name) in read))
    return found


class TextSplitter:
    """A converter of texts in requests to lists of their words, as the manifest of a run converts those of its tables.

    Args:
        columns: The result of `find_text_columns`.
    """

    def __init__(self, columns: Mapping[str, Sequence[TextColumn]]) -> None:
        self.columns = columns

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(config={"threads": 1})

    def split(self, table: RequestTable) -> RequestTable:
        """Return a table in which lists of words replace the texts.

        Raises:
            DataError: A cell is not a text, or the table also contains the words (E203).
        """
        columns = dict(table.columns)
        for text in self.columns.get(fold_name(table.name), ()):
            column = table.column(text.name)
            if column is None or (text.is_read and table.column(text.bag) is not None):
                continue
            if (words := table.column(text.bag)) is not None:
                message = f"table '{table.name}' has the texts '{column}' and their words '{words}'"
                raise DataError(Diagnostic("E203", message, DataLocation(f"table '{table.name}'"), "send one of them"))
            cells = columns[column] if text.is_read else columns.pop(column)
            columns[text.bag] = self._word_lists(table.name, column, cells, text.missing)
        return replace(table, columns=columns)

    def _word_lists(self, table: str, column: str, cells: Sequence[Any], missing: frozenset[str]) -> list[list[str]]:
        for row, cell in enumerate(cells, 1):
            if not isinstance(cell, str | None):
                message = f"'{cell}' in row {row} of the column '{column}' is not a text"
                hint = "send the text as it is in the tables, or null"
                raise DataError(Diagnostic("E203", message, DataLocation(f"table '{table}'", row, column), hint))
        texts = [None if cell is None or cell.strip(WHITESPACE) in missing else cell for cell in cells]
        query = f"SELECT coalesce({words_sql('text')}, []) FROM (SELECT unnest(?::VARCHAR[]) AS text)"
        return [words for (words,) in self._connection.cursor().execute(query, [texts]).fetchall()]
