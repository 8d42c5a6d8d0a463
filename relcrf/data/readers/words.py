"""The words of texts, such as titles and descriptions, as lists; a column of lists is a bag in models."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from relcrf.data.readers.base import SourceTable, require_columns
from relcrf.data.store import quoted
from relcrf.errors import DataError, Diagnostic, Span
from relcrf.model.spec import fold_name


def words_sql(cell: str) -> str:
    """Return SQL of the list of the different words of a text: its runs of letters and digits, in lower case."""
    text = f"lower(nfc_normalize(CAST({cell} AS VARCHAR)))"
    return f"list_distinct(regexp_extract_all({text}, '[\\pL\\pN]+'))"


def add_words(
    table: SourceTable, words: Mapping[str, str], location: Span | None, connection: duckdb.DuckDBPyConnection
) -> SourceTable:
    """Return a table with further columns, which contain the lists of the words of texts.

    Args:
        words: The column of the texts, by the name of the column of their words.
        location: The manifest's statement of the columns.

    Raises:
        DataError: The table lacks a column of texts, or has a column with the name of one of words (E232).
    """
    if not words:
        return table
    types = require_columns(table, words.values(), location, connection)
    for name in words:
        if fold_name(name) in map(fold_name, types):
            message = f"{table.location} already has a column '{name}'"
            raise DataError(Diagnostic("E232", message, location, "choose another name for the words"))
    lists = {name: words_sql(quoted(text)) for name, text in words.items()}
    return table.with_cells([*types], {**{name: quoted(name) for name in types}, **lists})
