"""The texts of the cells of one column of Python values, as in a table that contains the column."""

from __future__ import annotations

from typing import Any

from relcrf.data.coding import text_sql
from relcrf.data.dataset import Dataset


def column_texts(name: str, column: Any) -> list[str | None]:
    """Return the text of each cell, None if the cell is empty; keys and values of tables have the same texts.

    Args:
        name: Name of the column in messages.
        column: A pandas or Polars series, a list or an array, of shape (n,).

    Raises:
        DataError: The column has an unsupported type (E203).
    """
    dataset = Dataset({name: column.to_frame() if hasattr(column, "to_frame") else {name: column}})
    (table,) = dataset.tables.values()
    query = f"SELECT {text_sql(table, table.columns[0])} FROM {table.scan} AS raw"
    return [text for (text,) in dataset.connection.execute(query).fetchall()]
