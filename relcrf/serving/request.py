"""Requests to a predictor: tables (rows or data frames) are converted to columns of plain Python values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from relcrf.data.ambiguous_names import find_ambiguous_names
from relcrf.data.frame import Frame
from relcrf.data.names import bag_table_names, bag_value_names, state_column_names, vector_column_pattern
from relcrf.data.store import is_utf8, same_name_error
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion
from relcrf.model.spec import Entity, ModelSpec, fold_name
from relcrf.model.types import Bag, Vector
from relcrf.serving.request_table import RequestTable
from relcrf.serving.text_columns import TextSplitter, find_text_columns

PLAIN_TYPES = (str, int, float, bool, type(None))
"""Types of cells that need no conversion."""


@dataclass(frozen=True)
class ExpectedTable:
    """A table that a model reads.

    Args:
        columns: The accepted column names, as strings, or as patterns for numbered columns.
        empty_columns: The columns that the table has if the request contains no rows for it.
    """

    name: str
    columns: tuple[str | re.Pattern[str], ...]
    empty_columns: tuple[str, ...]

    def accepts(self, column: str) -> bool:
        return any(
            bool(name.fullmatch(column)) if isinstance(name, re.Pattern) else fold_name(name) == fold_name(column)
            for name in self.columns
        )


class RequestSchema:
    """The tables and columns that requests to a model can have.

    Args:
        mapping: The section `tables` of the manifest of the training data, from which the columns of texts are known.
    """

    def __init__(self, spec: ModelSpec, mapping: str | None = None) -> None:
        self.spec = spec
        self.text_columns = find_text_columns(spec, mapping)
        self._splitter = TextSplitter(self.text_columns)

    @cached_property
    def tables(self) -> dict[str, ExpectedTable]:
        """The tables that the model reads, by folded name: lower case, without underscores."""
        expected: list[ExpectedTable] = []
        for entity in self.spec.entities:
            expected.append(_expected_entity_table(entity))
            for attribute in entity.attributes:
                if isinstance(attribute.type, Bag):
                    columns = (entity.name, entity.key, *bag_value_names(attribute), "count")
                    empty_columns, names = (entity.name, attribute.name), bag_table_names(entity, attribute)
                    expected += [ExpectedTable(name, columns, empty_columns) for name in names]
        for relation in self.spec.relations:
            names = tuple(p.name for p in relation.parameters)
            attributes = tuple(a.name for a in relation.attributes)
            expected.append(ExpectedTable(relation.name, (*names, *attributes), (*names, *attributes)))
        for random in self.spec.random_relations:
            names = tuple(p.name for p in random.parameters)
            columns = (*names, *state_column_names(random))
            expected.append(ExpectedTable(random.name, columns, names))
        return {fold_name(e.name): e for e in reversed(expected)}

    def read(self, tables: Mapping[str, Any]) -> dict[str, RequestTable]:
        """Return the tables of a request by folded name. Missing tables, except those of random relations, are empty.

        Raises:
            DataError: The model does not read a table or a column, a value of `tables` is not a table, or two tables or columns
                have the same name.
        """
        if not isinstance(tables, Mapping):
            message = f"a request must be a mapping from table names to rows, but has type {type(tables).__name__}"
            raise DataError(Diagnostic("E203", message, hint='write {"page": [{"id": "new"}]}'))
        request: dict[str, RequestTable] = {}
        for name, value in ((str(key), value) for key, value in tables.items()):
            expected = self.tables.get(fold_name(name))
            if expected is None:
                names = [e.name.lower() for e in self.tables.values()]
                hint = suggestion(name, names) or f"the model reads the tables {listing(names)}"
                raise DataError(Diagnostic("E248", f"the model does not read a table '{name}'", hint=hint))
            if (other := request.get(fold_name(name))) is not None:
                raise same_name_error(name, f"table '{other.name}'", f"table '{name}'")
            table = RequestTable(name, _columns(name, value) or {column: [] for column in expected.empty_columns})
            _require_unicode(table)
            table = self._splitter.split(table)
            if isinstance(value, Mapping | list | tuple):
                _require_known_columns(table, expected)
            request[fold_name(name)] = table
        if problems := [*find_ambiguous_names(self.spec, request, lambda table: f"table '{table.name}'", _has_lists)]:
            raise DataError(problems)
        self._add_missing_tables(request)
        return request

    def _add_missing_tables(self, request: dict[str, RequestTable]) -> None:
        """Add an empty table for each missing table, except for random relations: their tuples are query variables."""
        for entity in self.spec.entities:
            own_table = self._add_empty(request, entity.name)
            for attribute in entity.attributes:
                if not isinstance(attribute.type, Bag):
                    continue
                names = bag_table_names(entity, attribute)
                if (column := own_table.column(attribute.name)) is not None:
                    lists = own_table.columns[column]
                    lists[:] = ([] if cell is None else cell for cell in lists)  # a column of nulls has no lists
                elif not any(fold_name(name) in request for name in names):
                    self._add_empty(request, names[0])
        for relation in self.spec.relations:
            self._add_empty(request, relation.name)

    def _add_empty(self, request: dict[str, RequestTable], name: str) -> RequestTable:
        empty = RequestTable(name, {column: [] for column in self.tables[fold_name(name)].empty_columns})
        return request.setdefault(fold_name(name), empty)


def _expected_entity_table(entity: Entity) -> ExpectedTable:
    columns: list[str | re.Pattern[str]] = [entity.key]
    empty = [entity.key]
    for attribute in entity.attributes:
        columns.append(attribute.name)
        if isinstance(attribute.type, Vector):
            columns.append(vector_column_pattern(attribute.name))
        if not isinstance(attribute.type, Bag):
            empty.append(attribute.name)
    return ExpectedTable(entity.name, tuple(columns), tuple(empty))


def _require_known_columns(table: RequestTable, expected: ExpectedTable) -> None:
    for column in table.columns:
        if not expected.accepts(column):
            columns = [c for c in expected.columns if isinstance(c, str)]
            message = f"the model does not read a column '{column}' of '{table.name}'"
            hint = suggestion(column, columns) or f"the model reads the columns {listing(columns)}"
            raise DataError(Diagnostic("E249", message, DataLocation(f"table '{table.name}'"), hint))


def _has_lists(table: RequestTable, column: str) -> bool:
    return all(isinstance(cell, list | None) for cell in table.columns[column])


def _require_unicode(table: RequestTable) -> None:
    """Raise an error for a text with a lone surrogate, such as `"\\ud800"` of JSON: no file or database can store it.

    Raises:
        DataError: The table contains such a text (E203).
    """
    for column, cells in table.columns.items():
        for row, cell in enumerate(cells, 1):
            if isinstance(cell, str) and not cell.isascii() and not is_utf8(cell):
                message = f"column '{column}' of table '{table.name}' has the text {cell!a}, which is not Unicode, in row {row}"
                hint = "remove the lone surrogate (a half of a character of UTF-16)"
                raise DataError(Diagnostic("E203", message, DataLocation(f"table '{table.name}'"), hint))


def _columns(name: str, value: Any) -> dict[str, list[Any]]:
    """Return the columns of a row, of a list of rows, or of a data frame."""
    if isinstance(value, Mapping):
        return {str(column): [_plain_value(cell)] for column, cell in value.items()}
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(type(row) is dict or isinstance(row, Mapping) for row in value)
    ):
        names = dict.fromkeys(column for row in value for column in row)
        return {str(column): [_plain_value(row.get(column)) for row in value] for column in names}
    if (frame_columns := _frame_columns(value)) is not None:
        columns: dict[str, list[Any]] = {}
        for column, cells in frame_columns:
            if str(column) in columns:
                message = f"two columns of table '{name}' have the name '{column}'"
                raise DataError(Diagnostic("E203", message, DataLocation(f"table '{name}'"), "rename a column"))
            columns[str(column)] = [_plain_value(cell) for cell in cells]
        return columns
    message = f"table '{name}' has type {type(value).__name__}; expected a row, a list of rows or a data frame"
    raise DataError(Diagnostic("E203", message, hint="pass a mapping, a list of mappings, or a data frame"))


def _plain_value(cell: Any) -> Any:
    """Return a cell as a plain Python value; None for NaN and pandas' NA."""
    if type(cell) in PLAIN_TYPES:
        return None if cell != cell else cell
    if isinstance(cell, np.ndarray | np.generic):
        return _plain_value(cell.tolist())
    return None if type(cell).__name__ in ("NAType", "NaTType") else cell


def _frame_columns(value: Any) -> Iterable[tuple[str, Iterable[Any]]] | None:
    """Return the columns of a data frame of a supported package; None for any other value."""
    if isinstance(value, Frame):
        return value.columns.items()
    if hasattr(value, "to_pydict"):  # Arrow
        columns: dict[str, list[Any]] = value.to_pydict()
        return columns.items()
    if type(value).__module__.partition(".")[0] == "polars":
        columns = (value.collect() if hasattr(value, "collect") else value).to_dict(as_series=False)
        return columns.items()
    if hasattr(value, "iloc") and hasattr(value, "columns"):  # pandas
        return [(name, value.iloc[:, k].tolist()) for k, name in enumerate(value.columns)]
    if hasattr(value, "fetchall") and hasattr(value, "columns"):  # DuckDB
        rows = value.fetchall()
        return [(name, [row[k] for row in rows]) for k, name in enumerate(value.columns)]
    return None
