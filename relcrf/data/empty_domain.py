"""The error for an open domain without values (E221), with the line of a manifest that names the column of the labels."""

from __future__ import annotations

import tomllib

from relcrf.data.bound_model import BoundModel
from relcrf.data.coding import text_sql
from relcrf.data.names import vector_column_pattern
from relcrf.data.raw_table import RawTable
from relcrf.data.toml_text import toml_key, toml_value
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion
from relcrf.model.spec import Entity, fold_name
from relcrf.model.types import Vector

_MAX_ROWS = 100_000
"""Number of rows from which the column of the labels is guessed; it bounds the time of the guess."""


def empty_domain_error(bound: BoundModel, owner: str, attribute: str | None) -> DataError:
    """Return the error for a random attribute or, if `attribute` is None, a random relation whose domain has no values."""
    name = owner if attribute is None else f"{owner}.{attribute}"
    message = f"the domain of {name} has no values"
    hint = "list the values of the domain in the model"
    table, entity = bound.find_table(owner), bound.spec.entity(owner)
    if table is None:
        names = bound.dataset.table_names
        message += f": the table '{fold_name(owner)}' is missing"
        hint = suggestion(owner, names) or f"the tables are {listing(names)}; {hint}"
        return DataError(Diagnostic("E221", message, DataLocation(bound.dataset.location), hint))
    if attribute is None or entity is None or (owner, attribute) not in bound.missing_labels:
        hint = f"label some rows of {table.location}, or {hint}"
        return DataError(Diagnostic("E221", f"{message} in the data", DataLocation(table.location), hint))
    message += f": {table.location} has no column '{attribute}'"
    notes = [f"its columns are {listing(table.columns, 40)}"]
    unused = _unused_columns(bound, entity, table)
    guess = _guess_label_column(bound, attribute, table, unused)
    if guess is not None:
        hint = f"if '{guess}' has the labels, {_manifest_advice(bound, table, attribute, guess)}"
    elif unused:
        notes.append(f"the model does not use {listing(unused, 40)}")
        hint = f"if the column NAME has the labels, {_manifest_advice(bound, table, attribute, 'NAME')}"
    else:
        hint = f"add a column '{attribute}' with the labels of some rows, or {hint}"
    return DataError(Diagnostic("E221", message, DataLocation(table.location), hint, tuple(notes)))


def _unused_columns(bound: BoundModel, entity: Entity, table: RawTable) -> list[str]:
    """Return the columns of an entity table that neither the entity type nor the split of the manifest names."""
    split = "" if bound.dataset.split is None else bound.dataset.split.column.rpartition(".")[2]
    names = {fold_name(name) for name in (entity.key, *(a.name for a in entity.attributes), split)}
    vectors = [vector_column_pattern(a.name) for a in entity.attributes if isinstance(a.type, Vector)]
    return [c for c in table.columns if fold_name(c) not in names and not any(v.fullmatch(c) for v in vectors)]


def _guess_label_column(bound: BoundModel, attribute: str, table: RawTable, unused: list[str]) -> str | None:
    """Return the unused column whose name is similar, or the only one with repeated texts; None if there is none."""
    similar = [column for column in unused if suggestion(attribute, [column])]
    if similar:
        return similar[0] if len(similar) == 1 else None
    texts = [c for c in unused if table.column_type(c) == "VARCHAR" or table.column_type(c).startswith("ENUM")]
    if not texts:
        return None
    counts = ", ".join(
        f"count({cell}), count(DISTINCT {cell}), count({cell}) FILTER (coalesce(TRY_CAST({cell} AS DOUBLE)::VARCHAR, "
        f"TRY_CAST({cell} AS TIMESTAMP)::VARCHAR) IS NULL)"
        for cell in (text_sql(table, column) for column in texts)
    )
    (row,) = bound.connection.execute(f"SELECT {counts} FROM (FROM {table.scan} LIMIT {_MAX_ROWS}) AS raw").fetchall()
    fitting = [
        column
        for k, column in enumerate(texts)
        if 2 <= row[3 * k + 1] <= row[3 * k] / 2 and row[3 * k + 2] > row[3 * k] / 2
    ]
    return fitting[0] if len(fitting) == 1 else None


def _manifest_advice(bound: BoundModel, table: RawTable, attribute: str, column: str) -> str:
    """Return the advice to write the line of a manifest that renames a column."""
    mapping = bound.dataset.mapping
    entries = {} if mapping is None else tomllib.loads(mapping)["tables"]
    if table.name in entries:
        columns = entries[table.name].get("columns", {})
        renamed = {name: old for name, old in columns.items() if name != column} | {
            attribute: columns.get(column, column)
        }
        return f"write columns = {toml_value(renamed)} below [tables.{toml_key(table.name)}] in the manifest"
    line = f"{'.'.join(map(toml_key, ('tables', table.name, 'columns', attribute)))} = {toml_value(column)}"
    if entries or bound.dataset.split is not None:
        return f"write this line at the beginning of the manifest: {line}"
    return f"write this line to a file columns.toml and add --manifest columns.toml: {line}"
