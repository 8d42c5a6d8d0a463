"""The policies of a manifest for invalid rows: duplicates of keys or tuples, and orphans (references to unknown entities).

Each application of a policy is counted in a `RowRepair` of the bound model. Without a policy, binding reports the rows as errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from relcrf.data.bound_model import BoundModel
from relcrf.data.coding import row_number_column, scan_with_row_numbers, text_sql
from relcrf.data.dataset import quoted
from relcrf.data.names import repaired_table
from relcrf.data.raw_table import RawTable
from relcrf.data.row_repairs import RowRepair
from relcrf.model.spec import Entity, fold_name
from relcrf.model.types import Vector

_REPAIRS = {"duplicates": "first", "orphans": "drop"}
"""The value that hints recommend for each policy."""


def policy_hint(table: RawTable, policy: str) -> str:
    """Return a hint that names the line of the manifest that accepts invalid rows, such as `duplicates = "first"`."""
    name = table.name if re.fullmatch(r"[A-Za-z0-9_-]+", table.name) else json.dumps(table.name)
    return (
        f'to repair the rows when they are read, write {policy} = "{_REPAIRS[policy]}" in [tables.{name}] of a manifest'
    )


class RowRepairer:
    """A repairer of the raw tables of a bound model; it stores the repaired tables in `BoundModel.repaired_tables`."""

    def __init__(self, bound: BoundModel) -> None:
        self.bound = bound

    def merge_duplicates(self, table: RawTable, columns: Sequence[str], identity: str) -> None:
        """Apply the policy for rows with equal texts in some columns. A row without one of the texts is not a duplicate.

        Args:
            identity: What the columns contain, for the note.
        """
        policy = table.policies.duplicates
        if policy == "error":
            return
        texts, present = _identity_sql(table, columns)
        count = self._query_number(
            f"SELECT count(*) - count(DISTINCT [{texts}]) FROM {table.scan} AS raw WHERE {present}"
        )
        if not count:
            return
        example = self._describe_duplicate(table, columns)
        self._store(table, distinct_rows_sql(table, columns, policy))
        action = f"merged {_rows(count)} into" if policy == "merge" else f"dropped {_rows(count)} with"
        target = f"an earlier row with the same {identity}" if policy == "merge" else f"the {identity} of another row"
        self._record(table, f'duplicates = "{policy}"', count, f"{action} {target}", example)

    def add_entities(self, entity: Entity, references: Sequence[tuple[RawTable, str]]) -> None:
        """Add the entities to which columns refer, and which the entity table lacks, with all attributes missing.

        A vector cannot be missing, so an entity type with a vector remains unchanged.
        """
        table = self.bound.find_table(entity.name)
        key = table.column(entity.key) if table else None
        if table is None or key is None or any(isinstance(a.type, Vector) for a in entity.attributes):
            return
        keys = " UNION ".join(
            f"SELECT {text_sql(other, column)} AS key FROM {other.scan} AS raw WHERE {orphan_sql(other, column, table, key)}"
            for other, column in references
        )
        count = self._query_number(f"SELECT count(*) FROM ({keys})")
        if not count:
            return
        example = next(
            f"{text} of {other.name}"
            for other, column in references
            if (text := self._describe_row(other, [column], orphan_sql(other, column, table, key)))
        )
        known = ", ".join(text_sql(table, c) if c == key else f"raw.{quoted(c)}" for c in table.columns)
        added = ", ".join("added.key" if c == key else "NULL" for c in table.columns)
        number = f"raw.{row_number_column(table)}"
        types = tuple("VARCHAR" if c == key else kind for c, kind in zip(table.columns, table.types, strict=True))
        rows = f"SELECT {number}, {known} FROM {scan_with_row_numbers(table)}"
        self._store(replace(table, types=types), f"{rows} UNION ALL SELECT NULL, {added} FROM ({keys}) AS added")
        self.bound.sources.setdefault(entity.name, set()).update(other.location for other, _ in references)
        names = ", ".join(dict.fromkeys(other.name for other, _ in references))
        entities = f"{count:,} {entity.name}" + (" entity" if count == 1 else " entities")
        policy = f'orphans = "add" of {names}'
        self._record(table, policy, count, f"added {entities} to which rows refer", example)

    def drop_orphans(self, name: str, table: RawTable, references: Mapping[str, Entity]) -> None:
        """Drop the rows of a table with a reference that is missing or names an unknown entity.

        Args:
            name: The relation or bag, whose sources then include the tables of the entities.
            references: The entity types, by the columns that refer to them.
        """
        conditions = []
        for column, entity in references.items():
            entity_table = self.bound.find_table(entity.name)
            key = entity_table.column(entity.key) if entity_table else None
            if entity_table is None or key is None:
                return  # this is reported elsewhere
            conditions.append(f"{text_sql(table, column)} IS NULL OR {orphan_sql(table, column, entity_table, key)}")
            self.bound.sources.setdefault(name, set()).add(entity_table.location)
        condition = " OR ".join(conditions)
        count = self._query_number(f"SELECT count(*) FROM {table.scan} AS raw WHERE {condition}")
        if count:
            example = self._describe_row(table, [*references], condition)
            self._store(table, f"SELECT raw.* FROM {scan_with_row_numbers(table)} WHERE NOT ({condition})")
            kinds = " or ".join(dict.fromkeys(entity.name for entity in references.values()))
            self._record(
                table, 'orphans = "drop"', count, f"dropped {_rows(count)} without a known {kinds} entity", example
            )

    def _describe_duplicate(self, table: RawTable, columns: Sequence[str]) -> str:
        """Return the texts of the first duplicate, with the number of its row and of the row that it repeats."""
        texts, present = _identity_sql(table, columns)
        row = f"raw.{row_number_column(table)}"
        first = f"first_value({row}) OVER (PARTITION BY {texts} ORDER BY {row})"
        query = (
            f"SELECT {first}, {row}, {texts} FROM {scan_with_row_numbers(table)} WHERE {present} "
            f"QUALIFY {row} > {first} ORDER BY {'2' if table.is_ordered else texts} LIMIT 1"
        )
        ((earlier, later, *cells),) = self.bound.connection.execute(query).fetchall()
        if not table.is_ordered:
            return f"{_cell_list(cells)} in several rows"
        location, _ = table.row_location(earlier)
        return f"{_cell_list(cells)} in rows {table.row_name(earlier)} and {table.row_name(later, location)}"

    def _describe_row(self, table: RawTable, columns: Sequence[str], condition: str) -> str:
        """Return the texts of the first row that satisfies a SQL condition, and its number; empty if there is none."""
        texts, _ = _identity_sql(table, columns)
        query = (
            f"SELECT raw.{row_number_column(table)}, {texts} FROM {scan_with_row_numbers(table)} WHERE {condition} "
            f"ORDER BY {'1' if table.is_ordered else texts} LIMIT 1"
        )
        rows = self.bound.connection.execute(query).fetchall()
        if not rows:
            return ""
        number, *cells = rows[0]
        return _cell_list(cells) + (f" in row {table.row_name(number)}" if table.is_ordered else "")

    def _record(self, table: RawTable, policy: str, count: int, action: str, example: str) -> None:
        self.record(RowRepair(table.name, table.location, policy, count, action, example))

    def record(self, repair: RowRepair) -> None:
        """Add a repair, and a note on it, to the bound model."""
        self.bound.repairs.append(repair)
        self.bound.notes.append(str(repair))

    def _query_number(self, sql: str) -> int:
        ((number,),) = self.bound.connection.execute(sql).fetchall()
        return int(number)

    def _store(self, table: RawTable, sql: str) -> None:
        """Store the rows that a query returns, each after its row number, as the repaired table."""
        name = quoted(repaired_table(table.name))
        self.bound.connection.execute(f"CREATE OR REPLACE TABLE {name} AS {repaired_rows_sql(table, sql)}")
        self.bound.repaired_tables[fold_name(table.name)] = with_repaired_rows(table, name)


def distinct_rows_sql(table: RawTable, columns: Sequence[str], policy: str) -> str:
    """Return SQL of the rows that a policy for duplicates keeps, each after its row number.

    Args:
        columns: The columns whose texts are equal in duplicates.
    """
    texts, present = _identity_sql(table, columns)
    row, rows = f"raw.{row_number_column(table)}", scan_with_row_numbers(table)
    if policy == "merge":
        cells = ", ".join(
            f"arg_min(raw.{quoted(c)}, {row}) FILTER (WHERE {text_sql(table, c)} IS NOT NULL)" for c in table.columns
        )
        return f"SELECT min({row}), {cells} FROM {rows} GROUP BY {texts}, CASE WHEN NOT ({present}) THEN {row} END"
    order = "ASC" if policy == "first" else "DESC"
    number = f"row_number() OVER (PARTITION BY {texts} ORDER BY {row} {order})"
    return f"SELECT raw.* FROM {rows} QUALIFY NOT ({present}) OR {number} = 1"


def repaired_rows_sql(table: RawTable, sql: str) -> str:
    """Return SQL that names the columns of a query of repaired rows, and sorts the rows by number."""
    columns = ", ".join(map(quoted, (row_number_column(table), *table.columns)))
    return f"SELECT * FROM ({sql}) AS repaired({columns}) ORDER BY 1"


def with_repaired_rows(table: RawTable, rows: str) -> RawTable:
    """Return a raw table that reads its rows and their numbers from the stored results of `repaired_rows_sql`."""
    return replace(table, scan=f"(SELECT {', '.join(map(quoted, table.columns))} FROM {rows})", numbered_scan=rows)


def _identity_sql(table: RawTable, columns: Sequence[str]) -> tuple[str, str]:
    """Return SQL of the texts of some columns, separated by commas, and the condition that all of them are present."""
    texts = [text_sql(table, column) for column in columns]
    return ", ".join(texts), " AND ".join(f"{text} IS NOT NULL" for text in texts)


def orphan_sql(table: RawTable, column: str, entity_table: RawTable, key: str) -> str:
    """Return the SQL condition that a cell names an entity that is missing in the entity table."""
    key_text = text_sql(entity_table, key)
    keys = f"SELECT {key_text} FROM {entity_table.scan} AS raw WHERE {key_text} IS NOT NULL"
    text = text_sql(table, column)
    return f"({text} IS NOT NULL AND {text} NOT IN ({keys}))"


def _cell_list(cells: Sequence[str | None]) -> str:
    """Return the texts of cells in quotes, separated by commas; a missing text is `an empty cell`."""
    return ", ".join("an empty cell" if cell is None else f"'{cell}'" for cell in cells)


def _rows(count: int) -> str:
    return f"{count:,} row" + "s" * (count != 1)
