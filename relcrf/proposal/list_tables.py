"""Tables of the elements of list columns, such as the authors of the articles in a file of JSON Lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from relcrf.data.dataset import Dataset, quoted
from relcrf.data.raw_table import RawTable
from relcrf.data.readers.structures import leaf_paths
from relcrf.model.spec import fold_name
from relcrf.proposal.entity_candidates import MAX_INVALID, MIN_DISTINCT, MIN_KEYS, find_key
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.names import NamePool, attribute_name
from relcrf.proposal.near_misses import NearMiss
from relcrf.proposal.profile import TableProfile, profile_table

MIN_MATCHED = 0.5
"""Minimum fraction of the texts in lists that are keys of a table, for lists of references; texts hardly ever equal keys by
chance, and references to entities outside the tables are common, such as citations."""

ELEMENT = "list_element"
"""Name of the elements of a list in queries."""


def split_lists(
    dataset: Dataset, tables: Sequence[TableProfile], manifest: ManifestBuilder
) -> tuple[list[TableProfile], list[NearMiss]]:
    """Return tables with the elements of list columns in tables of their own, and notes on elements that are dropped.

    A list column is split if its elements are objects or, in most cases, keys of a table, and if its own table has a key.
    The manifest contains the queries.
    """
    splitter = _ListSplitter(dataset, tables, manifest)
    return [part for table in tables for part in splitter.split(table)], splitter.notes


class _ListSplitter:
    def __init__(self, dataset: Dataset, tables: Sequence[TableProfile], manifest: ManifestBuilder) -> None:
        self.dataset, self.manifest = dataset, manifest
        self.keys = [(table, key) for table in tables if (key := find_key(table, tables)) is not None]
        self.table_names = {fold_name(table.name) for table in tables}
        self.notes: list[NearMiss] = []

    def split(self, table: TableProfile) -> list[TableProfile]:
        """Return a table without the list columns that are split, and the tables of their elements."""
        key = next((key for other, key in self.keys if other is table), None)
        if key is None or not self.manifest.can_query(table):
            return [table]
        parts: dict[str, TableProfile] = {}
        for column in table.columns.values():
            part = None
            if column.kind == "objects":
                part = self._objects_table(table, key, column.name)
            elif column.kind in ("list", "ragged"):
                part = self._references_table(table, key, column.name)
            if part is not None and part.rows:
                parts[column.name] = part
        columns = {name: column for name, column in table.columns.items() if name not in parts}
        return [replace(table, columns=columns), *parts.values()]

    def _objects_table(self, table: TableProfile, key: str, column: str) -> TableProfile | None:
        """Return the table with a column for each field of the objects in a list column."""
        (kind,) = table.connection.sql(f"SELECT {quoted(column)} FROM {table.raw.scan} AS raw").types
        paths = [(path, each) for path, each in leaf_paths((), kind.child) if each.id != "list"]
        used = NamePool([self._owner_name(table, key)])
        cells = {
            used.reserve(attribute_name("_".join((column.removesuffix("s"), *path)))): ".".join(
                map(quoted, (ELEMENT, *path))
            )
            for path, _ in paths
        }
        return self._elements_table(table, key, column, cells) if cells else None

    def _references_table(self, table: TableProfile, key: str, column: str) -> TableProfile | None:
        """Return the table of the elements of a list column if most of them are keys of a table."""
        is_text = table.columns[column].kind == "list"
        name = self._element_name(table, key, column)
        elements = self._elements_table(table, key, column, {name: ELEMENT})
        if elements is None or elements.columns[name].distinct < MIN_DISTINCT:
            return None
        matches = [
            (self._count_keys(elements, name, target, target_key), -k)
            for k, (target, target_key) in enumerate(self.keys)
            if target.columns[target_key].kind == ("text" if is_text else "whole") and target.rows >= MIN_KEYS
        ]
        n_matched, k = max(matches, default=(0, 0))
        present = elements.columns[name].present
        # Numbers in lists, such as counts, equal keys by chance.
        if not n_matched or n_matched < (MIN_MATCHED if is_text else 1 - MAX_INVALID) * present:
            return None
        target, target_key = self.keys[-k]
        if not is_text:  # numbers refer to a table only if the name of their column shows it
            name = attribute_name(f"{name}_{target.name}")
            renamed = self._elements_table(table, key, column, {name: ELEMENT})
            assert renamed is not None
            elements = renamed
        if n_matched < elements.rows:
            elements = self._drop_unmatched(elements, name, f"{table.name}.{column}", target, target_key)
        return elements

    @staticmethod
    def _count_keys(elements: TableProfile, name: str, target: TableProfile, key: str) -> int:
        """Return the number of elements that are keys of a table."""
        return elements.query_number(f"SELECT count(*) FROM this WHERE {quoted(name)} IN ({_keys_sql(target, key)})")

    def _drop_unmatched(
        self, elements: TableProfile, name: str, lists: str, target: TableProfile, key: str
    ) -> TableProfile:
        """Return the table of elements without those that are not keys, and note that the manifest drops them.

        Args:
            name: The column with the elements.
            lists: The column with the lists, as `table.column`.
        """
        cell, keys = quoted(name), _keys_sql(target, key)
        ((count, example),) = elements.connection.execute(
            f"SELECT count(*), min({cell}) FROM {elements.scan} WHERE {cell} IS NULL OR {cell} NOT IN ({keys})"
        ).fetchall()
        counted = f"{count:,} of {elements.rows:,} elements"
        note = (
            f"refers to {target.name}.{key}, which lacks {counted} of {lists}, such as '{example or ''}': the manifest drops "
            'them (orphans = "drop"); if they are other spellings of keys, correct them'
        )
        self.notes.append(
            NearMiss(f"{elements.name}.{name}", note, f"{target.name}.{key}", elements.rows, 0, int(count))
        )
        self.manifest.add_policy(elements.name, "orphans", "drop", f"{counted} name no {target.name}.{key}")
        scan = self.dataset.store.add_query(f"SELECT * FROM {elements.raw.scan} AS raw WHERE {cell} IN ({keys})")
        return profile_table(self.dataset, replace(elements.raw, scan=scan))

    def _elements_table(
        self, table: TableProfile, key: str, column: str, cells: Mapping[str, str]
    ) -> TableProfile | None:
        """Return the table with a row for each element of the lists in a column, and the query that defines it.

        Args:
            cells: SQL of the cell of each column, by its name.
        """
        owner = self._owner_name(table, key)
        selected = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in cells.items())
        unnested = f"SELECT {quoted(key)} AS {quoted(owner)}, unnest({quoted(column)}) AS {ELEMENT} FROM "
        query = f"SELECT {quoted(owner)}, {selected} FROM ({unnested}", f") WHERE {ELEMENT} IS NOT NULL"
        scan = self.dataset.store.add_query(f"{table.raw.scan} AS raw".join(query))
        described = table.connection.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
        names, types = (tuple(str(row[k]) for row in described) for k in (0, 1))
        name = f"{table.name}_{attribute_name(column)}"
        if fold_name(name) in self.table_names:
            return None
        raw = RawTable(name, table.raw.location, scan, names, types, is_ordered=False)
        self.manifest.add_elements(name, table, query, f"the elements of {table.name}.{column}")
        return profile_table(self.dataset, raw)

    @staticmethod
    def _owner_name(table: TableProfile, key: str) -> str:
        """Return the name of the column with the key of the table that has the lists."""
        return attribute_name(table.name if fold_name(key) in ("id", "key") else key)

    def _element_name(self, table: TableProfile, key: str, column: str) -> str:
        """Return the name of the column with the elements of a list column."""
        used = NamePool([self._owner_name(table, key)])
        return used.reserve(attribute_name(column.removesuffix("s")), attribute_name(f"{column}_value"))


def _keys_sql(table: TableProfile, key: str) -> str:
    """Return SQL of the keys of a table."""
    return f"SELECT {quoted(key)} FROM {table.scan} WHERE {quoted(key)} IS NOT NULL"
