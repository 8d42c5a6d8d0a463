"""The rows of raw tables by entity: digests that detect changed rows, connected entities, and the rows of some entities.

A row belongs to each entity whose key it contains. The digest of an entity is a sum of the hashes of its rows, so that it does
not depend on their order. Two entities are connected if a row contains the keys of both.

An update of a run reads only rows that may have changed. The *parts* of a Parquet table are known segments, whose totals the run
stores, and new row groups. An entity is *examined* if it is new, or if the new parts and the segments that are missing now have
different totals of its rows; the others did not change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from relcrf.data.binding import entity_columns
from relcrf.data.coding import text_sql
from relcrf.data.dataset import Dataset, quoted
from relcrf.data.manifest import RowPolicies
from relcrf.data.raw_table import RawTable
from relcrf.data.row_groups import read_row_groups, scan_row_groups
from relcrf.data.store import literal, report_read_errors
from relcrf.data.table_hash import hash_rows
from relcrf.errors import listing
from relcrf.model.spec import ModelSpec
from relcrf.updating.entities import Entities
from relcrf.updating.segments import (
    CellTotals,
    EntityTotals,
    Segment,
    TablePart,
    divide_table,
    merge_segments,
    sum_segments,
)

UNSIGNED_RANGE = 1 << 64
"""Number of values of a digest; sums are reduced modulo this number."""


@dataclass(frozen=True)
class KnownRows:
    """The rows of a run, with which an update compares its tables.

    Args:
        component: Number of each entity's connected component, shape (n,), int32.
        shared: See `EntityRows.shared_inputs`.
        segments: The segments of each table that has them, by name.
    """

    entities: Entities = field(default_factory=Entities.empty)
    component: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    shared: Mapping[str, str] = field(default_factory=dict)
    segments: Mapping[str, Sequence[Segment]] = field(default_factory=dict)


@dataclass(frozen=True)
class NumberedCells:
    """The known entities of the new cells of a key column.

    Args:
        cell: Row identifier in the DuckDB table `new_cells`, shape (n_cells,), int64.
        part: Index of the part, shape (n_cells,), int32.
        row: Index of the known entity, -1 for an entity that is not known, shape (n_cells,), int32.
        total: See `new_cells`, shape (n_cells,), uint64.
    """

    cell: np.ndarray
    part: np.ndarray
    row: np.ndarray
    total: np.ndarray

    def take(self, selected: np.ndarray) -> NumberedCells:
        """Return the cells in a mask, shape (n_cells,), bool."""
        return NumberedCells(*(values[selected] for values in (self.cell, self.part, self.row, self.total)))


@dataclass(frozen=True)
class EntityKeyColumn:
    """A column of a raw table with the keys of entities.

    Args:
        kind: Index of the entity type in the model.
        cell_type: DuckDB type of the cells.
        new_cells: DuckDB table of the distinct cells of each new part: `part` (its index), `cell`, `key` (the text), `total` (the
            sum of the hashes of the other columns) and `n_rows`.
        cells: DuckDB table of the distinct cells of examined entities: `cell`, `key` and `digest`.
        known: Totals of the parts that are known segments.
        missing: Totals of the known segments that the table lacks.
    """

    name: str
    kind: int
    cell_type: str
    new_cells: str
    cells: str
    known: EntityTotals
    missing: EntityTotals


@dataclass(frozen=True)
class EntityChanges:
    """The difference between the entities of a run and those of other tables.

    Args:
        selected: DuckDB table of the entities whose rows are grounded again: `kind`, `key`.
        kept: Mask of the entities of the run that are not selected, and were not removed.
        n_added, n_removed, n_changed: Numbers of entities with new rows only, with old rows only, and with other rows.
        n_selected: Number of selected entities.
    """

    selected: str
    kept: np.ndarray
    n_added: int
    n_removed: int
    n_changed: int
    n_selected: int

    @property
    def n_kept(self) -> int:
        """The number of entities of the run that are kept."""
        return int(self.kept.sum())

    @property
    def n_differences(self) -> int:
        """The number of entities whose rows differ."""
        return self.n_added + self.n_removed + self.n_changed


class EntityRows:
    """The rows of a dataset's tables, by the entities that they mention.

    Args:
        known: The rows of a run; only rows that may differ from them are read.
    """

    def __init__(self, spec: ModelSpec, dataset: Dataset, known: KnownRows | None = None) -> None:
        self.dataset, self.known = dataset, known or KnownRows()
        self._connection, self._schema = dataset.new_schema()
        kinds = {entity.name: k for k, entity in enumerate(spec.entities)}
        self.tables: dict[str, RawTable] = {}
        """The tables that the model reads, by name."""
        self.key_names: dict[str, str] = {}
        """The name of the key column in the user's table, by entity type."""
        self._keys: dict[str, list[tuple[str, int]]] = {}
        self._columns: dict[str, list[EntityKeyColumn]] = {}
        self._parts: dict[str, list[TablePart]] = {}
        self._is_examined = np.zeros(len(self.known.entities), dtype=bool)
        self._numbered: dict[str, NumberedCells] = {}
        """The numbered cells of each table `new_cells`; empty if all entities were examined from the start."""
        for name, columns in entity_columns(spec, dataset).items():
            table = dataset.find_table(name)
            assert table is not None
            self.tables[name] = table
            self._keys[name] = [(column, kinds[kind.name]) for column, kind in columns]
            with report_read_errors(table.location):
                self._read_parts(table)
        for entity in spec.entities:
            own = dataset.find_table(entity.name)
            column_name = own.column(entity.key) if own is not None else None
            if own is not None and column_name is not None:
                self.key_names[entity.name] = own.source_columns.get(column_name, column_name)
        self._find_examined()
        self._create_cells()

    def _key_columns(self) -> Iterator[EntityKeyColumn]:
        for columns in self._columns.values():
            yield from columns

    def _read_parts(self, table: RawTable) -> None:
        """Divide a table into parts, and read the cells of the new ones."""
        name, known = table.name, self.known
        row_groups = read_row_groups(self._connection, table) if self._keys[name] else ()
        is_same = known.shared.get(name) == self._shared_input(name, "")
        parts, missing = divide_table(row_groups, known.segments.get(name, ()) if is_same else ())
        self._parts[name] = parts
        if self._keys[name] and not (is_same and name in known.segments):
            self._is_examined[:] = True
        segments = [part.known for part in parts if part.known is not None]
        self._columns[name] = []
        for index, (column, kind) in enumerate(self._keys[name]):
            new_cells, cells = (self.dataset.store.new_name(each) for each in ("new_cells", "cells"))
            totals = (sum_segments(each, index, len(known.entities)) for each in (segments, missing))
            key_column = EntityKeyColumn(column, kind, table.column_type(column), new_cells, cells, *totals)
            self._columns[name].append(key_column)
            self._read_new_cells(table, key_column)

    def _read_new_cells(self, table: RawTable, column: EntityKeyColumn) -> None:
        others = ", ".join(f"raw.{quoted(other)}" for other in table.columns if other != column.name)
        total = _sum_sql(f"hash({others})" if others else "1")
        columns = f"raw.{quoted(column.name)} AS cell, {text_sql(table, column.name)} AS key, total, n_rows"
        grouped = f"SELECT raw.{quoted(column.name)}, {total} AS total, count(*) AS n_rows FROM"
        self._connection.execute(
            f"CREATE TABLE {column.new_cells} AS "
            f"SELECT 0::INTEGER AS part, {columns} FROM ({grouped} {table.scan} AS raw WHERE false GROUP BY ALL) AS raw"
        )
        parts = self._parts[table.name]
        for number, part in enumerate(parts):
            if part.known is not None:
                continue
            rows = f"{table.scan} AS raw"
            if len(parts) > 1:
                # DuckDB would read the row groups of a part once for each of several ranges of keys, which takes 4 times as
                # long. It does not divide a query with a volatile condition.
                rows = f"{scan_row_groups(table, part.row_groups)} AS raw WHERE random() >= 0"
            self._connection.execute(
                f"INSERT INTO {column.new_cells} SELECT {number}, {columns} FROM ({grouped} {rows} GROUP BY ALL) AS raw"
            )

    def _find_examined(self) -> None:
        """Find the known entities whose rows in the new parts differ from those in the missing segments."""
        n_known = len(self.known.entities)
        if self._is_examined.all():
            return
        with self._registered("known_entities", self.known.entities):
            self._connection.execute("CREATE TABLE known AS SELECT kind, key, row FROM known_entities")
        for column in self._key_columns():
            cells = self._query(
                f"SELECT cells.rowid AS cell, part, coalesce(known.row, -1)::INTEGER AS row, total, "
                f"{_is_determined(column)} AS is_determined FROM {column.new_cells} AS cells "
                f"LEFT JOIN (SELECT key AS known_key, row FROM known WHERE kind = {column.kind}) AS known ON key = known_key"
            )
            numbered = NumberedCells(*(np.asarray(cells[name]) for name in ("cell", "part", "row", "total")))
            self._numbered[column.new_cells] = numbered
            is_known = numbered.row >= 0
            rows = numbered.row[is_known]
            new = EntityTotals(np.zeros(n_known, dtype=np.uint64), np.zeros(n_known, dtype=bool))
            np.add.at(new.total, rows, numbered.total[is_known])
            new.is_present[rows] = True
            self._is_examined |= (new.total != column.missing.total) | (new.is_present != column.missing.is_present)
            self._is_examined[rows[~np.asarray(cells["is_determined"])[is_known]]] = True

    def _create_cells(self) -> None:
        """Create the tables of the cells of examined entities, and of their digests."""
        is_complete = bool(self._is_examined.all())
        parts = []
        for name, columns in self._columns.items():
            for column in columns:
                query = f"SELECT cell, key, hash({literal(f'{name}.{column.name}')}, cell, total) AS digest FROM"
                kind = f"{column.kind} AS kind"
                parts.append(f"SELECT {kind}, key, digest FROM {column.cells}")
                if [part.known for part in self._parts[name]] == [None] and is_complete:
                    self._connection.execute(f"DROP TABLE IF EXISTS {column.cells}")
                    self._connection.execute(f"CREATE VIEW {column.cells} AS {query} {column.new_cells}")
                    continue
                if is_complete:
                    wanted, condition = np.empty(0, dtype=np.int64), ""
                else:
                    numbered = self._numbered[column.new_cells]
                    wanted = numbered.cell[(numbered.row < 0) | self._is_examined[numbered.row]]
                    condition = "SEMI JOIN wanted_cells ON cells.rowid = wanted_cells.cell"
                rows = np.flatnonzero(self._is_examined & column.known.is_present)
                known = {"key": self.known.entities.key[rows], "total": column.known.total[rows]}
                self._connection.register("known_cells", known)
                self._connection.register("wanted_cells", {"cell": wanted})
                self._connection.execute(
                    f"CREATE OR REPLACE TABLE {column.cells} AS {query} "
                    f"(SELECT cell, any_value(key) AS key, {_sum_sql('total')} AS total FROM "
                    f"(SELECT cell, key, total FROM {column.new_cells} AS cells {condition} UNION ALL "
                    f"SELECT key::{column.cell_type}, key, total FROM known_cells) GROUP BY cell)"
                )
                self._connection.unregister("known_cells")
                self._connection.unregister("wanted_cells")
        union = " UNION ALL ".join(parts) or "SELECT 0 AS kind, NULL AS key, 0::UBIGINT AS digest WHERE false"
        self._connection.execute(
            f"CREATE OR REPLACE TABLE entities AS SELECT kind::INTEGER AS kind, key, {_sum_sql('digest')} AS digest "
            f"FROM ({union}) GROUP BY ALL"
        )

    @contextmanager
    def _registered(self, name: str, entities: Entities, rows: np.ndarray | None = None) -> Iterator[None]:
        """Provide entities as a DuckDB view with the columns `kind`, `key`, `digest` and `row`.

        Args:
            rows: The number of each entity; None for its index.
        """
        numbers = np.arange(len(entities)) if rows is None else rows
        columns = {
            "kind": entities.kind,
            "key": entities.key,
            "digest": entities.digest,
            "row": numbers.astype(np.int32),
        }
        self._connection.register(name, columns)
        yield
        self._connection.unregister(name)

    def row_counts(self) -> dict[str, int]:
        """Return the number of rows of each table with keys of entities, by name."""
        counts = {}
        for name, columns in self._columns.items():
            if columns:
                rows = self._query(f"SELECT coalesce(sum(n_rows), 0) AS n FROM {columns[0].new_cells}")["n"][0]
                counts[name] = int(rows) + sum(part.n_rows for part in self._parts[name] if part.known is not None)
        return counts

    def global_reason(self) -> str:
        """Return why an entity may depend on rows that do not mention it, or on their order; empty if it does not."""
        if self._query("SELECT count(*) AS n FROM entities WHERE key IS NULL")["n"][0]:
            return "some rows lack the key of an entity"
        merged = [name for name, table in self.tables.items() if table.policies.duplicates != RowPolicies().duplicates]
        return f"duplicate rows of {listing(merged)} are merged in the order of the rows" if merged else ""

    def shared_inputs(self) -> dict[str, str]:
        """Return what determines the factors of all entities, by table: the columns, and the rows of tables without keys."""
        return {
            name: self._shared_input(name, "" if self._keys[name] else hash_rows(self.dataset, table))
            for name, table in self.tables.items()
        }

    def _shared_input(self, name: str, rows: str) -> str:
        table = self.tables[name]
        columns = [table.columns, table.types, table.reading, table.is_open, asdict(table.policies)]
        return json.dumps([columns, self._keys[name], rows])

    def entities(self) -> Entities:
        """Return all entities, sorted by type and key."""
        self._examine_all()
        rows = self._query("SELECT kind, key, digest FROM entities ORDER BY kind, key")
        return Entities(rows["kind"], np.asarray(rows["key"], dtype=object), rows["digest"])

    def _examine_all(self) -> None:
        if not self._is_examined.all():
            self._is_examined[:] = True
            self._create_cells()

    def components(self, entities: Entities) -> np.ndarray:
        """Return the number of the connected component of each entity, shape (n,), int32."""
        self._examine_all()
        edges = []
        with self._registered("numbered", entities):
            for name, columns in self._columns.items():
                for first, second in pairwise(columns):
                    left, right = (f"raw.{quoted(column.name)}" for column in (first, second))
                    edges.append(
                        self._query(
                            f"SELECT DISTINCT a.row AS a, b.row AS b FROM {self.tables[name].scan} AS raw "
                            f"JOIN (SELECT cell, row FROM {first.cells} JOIN numbered USING (key) WHERE kind = {first.kind}) "
                            f"AS a ON {left} = a.cell "
                            f"JOIN (SELECT cell, row FROM {second.cells} JOIN numbered USING (key) "
                            f"WHERE kind = {second.kind}) AS b ON {right} = b.cell"
                        )
                    )
        a, b = (np.concatenate([np.empty(0, dtype=np.int32), *(each[name] for each in edges)]) for name in "ab")
        adjacency = coo_array((np.ones(len(a), dtype=bool), (a, b)), shape=(len(entities),) * 2)
        return np.asarray(connected_components(adjacency, directed=False)[1], dtype=np.int32)

    def compare(self) -> EntityChanges:
        """Compare the entities with those of the run, and select the entities of all components that contain a change.

        The rows of an entity that did not change are the same as before, and connect it to the same entities. The components of
        the run that contain a changed entity are therefore closed: no row connects their entities, or new ones, to any other
        entity.
        """
        known, component = self.known.entities, self.known.component
        examined = np.flatnonzero(self._is_examined)
        with self._registered("old", known.take(examined), examined):
            self._connection.execute(
                "CREATE OR REPLACE TABLE changed AS SELECT kind, key, old.row, entities.digest IS NULL AS is_removed "
                "FROM entities FULL JOIN old USING (kind, key) WHERE entities.digest IS DISTINCT FROM old.digest"
            )
        changed = self._query("SELECT row, is_removed FROM changed WHERE row IS NOT NULL")
        rows = np.asarray(changed["row"], dtype=np.int64)
        removed = rows[np.asarray(changed["is_removed"], dtype=bool)]
        is_reached = np.zeros(int(component.max(initial=-1)) + 1, dtype=bool)
        is_reached[component[rows]] = True
        is_selected = is_reached[component]
        is_selected[removed] = False
        kept = ~is_selected
        kept[removed] = False
        selected = np.flatnonzero(is_selected)
        with self._registered("reached", known.take(selected), selected):
            self._connection.execute(
                "CREATE OR REPLACE TABLE selected AS SELECT kind, key, row FROM reached "
                "UNION ALL SELECT kind, key, row FROM changed WHERE row IS NULL"
            )
        n_added = int(self._query("SELECT count(*) AS n FROM changed WHERE row IS NULL")["n"][0])
        n_changed, n_selected = len(rows) - len(removed), len(selected) + n_added
        return EntityChanges("selected", kept, n_added, len(removed), n_changed, n_selected)

    def select_rows(self, changes: EntityChanges) -> Dataset:
        """Return a dataset with only the rows that mention a selected entity; tables without keys keep all rows."""
        scans: dict[str, str] = {}
        for name, columns in self._columns.items():
            conditions = [
                f"raw.{quoted(column.name)} IN (SELECT cell FROM {self._find_cells(column, changes.selected)})"
                for column in columns
            ]
            if not conditions:
                continue
            table = quoted(f"rows of {name}")
            self._connection.execute(
                f"CREATE OR REPLACE TABLE {table} AS SELECT raw.* FROM {self._scan_entities(name, changes.selected)} AS raw "
                f"WHERE {' OR '.join(conditions)}"
            )
            scans[name] = f"{quoted(self._schema)}.{table}"
        return self.dataset.with_scans(scans)

    def _find_cells(self, column: EntityKeyColumn, entities: str) -> str:
        """Create a DuckDB table of the cells of some entities, and return its name.

        Args:
            entities: DuckDB table of the entities: `kind`, `key` and `row` (the index of a known entity).
        """
        name = self.dataset.store.new_name("cells")
        rows = self._known_rows(entities)
        keys = self.known.entities.key[rows[column.known.is_present[rows] | column.missing.is_present[rows]]]
        self._connection.register("known_keys", {"key": keys})
        self._connection.execute(
            f"CREATE TABLE {name} AS SELECT cell FROM {column.cells} JOIN {entities} USING (key) WHERE kind = {column.kind} "
            f"UNION SELECT key::{column.cell_type} FROM known_keys"
        )
        self._connection.unregister("known_keys")
        return name

    def _known_rows(self, entities: str) -> np.ndarray:
        """Return the indices of the known entities in a DuckDB table, shape (n,)."""
        return np.asarray(self._query(f"SELECT row FROM {entities} WHERE row IS NOT NULL")["row"], dtype=np.int64)

    def _scan_entities(self, name: str, entities: str) -> str:
        """Return a DuckDB table expression of the parts of a table that mention some entities.

        Args:
            entities: See `_find_cells`.
        """
        parts = self._parts[name]
        if len(parts) == 1:
            return self.tables[name].scan
        is_wanted = np.zeros(len(self.known.entities), dtype=bool)
        is_wanted[self._known_rows(entities)] = True
        found = {
            k
            for k, part in enumerate(parts)
            if part.known and any(is_wanted[c.entity].any() for c in part.known.columns)
        }
        for column in self._columns[name]:
            query = (
                f"SELECT DISTINCT part FROM {column.new_cells} JOIN {entities} USING (key) WHERE kind = {column.kind}"
            )
            found.update(self._query(query)["part"].tolist())
        groups = [group for k in sorted(found) for group in parts[k].row_groups]
        return scan_row_groups(self.tables[name], groups)

    def segments(self, entities: Entities, kept: np.ndarray | None = None) -> dict[str, tuple[Segment, ...]]:
        """Return the segments of the tables that have row groups, by name.

        A cell of a segment is stored as its entity, so that tables whose cells do not follow from the keys have no segments.

        Args:
            entities: The entities of the tables: first the known entities that `kept` selects, then others.
            kept: Mask of known entities, shape (n,); None for none of them.
        """
        if self.dataset.changed_files():
            return {}
        known = self.known.entities
        is_kept = np.zeros(len(known), dtype=bool) if kept is None else kept
        n_kept = int(is_kept.sum())
        index = np.full(len(known), -1, dtype=np.int32)
        index[is_kept] = np.arange(n_kept)
        others, remaining = np.arange(n_kept, len(entities)), np.flatnonzero(~is_kept)
        with self._registered("added", entities.take(others), others):
            with self._registered("replaced", known.take(remaining), remaining):
                found = self._query(
                    "SELECT replaced.row AS old, added.row AS new FROM replaced JOIN added USING (kind, key)"
                )
            index[found["old"]] = found["new"]
        segments = {}
        for name, parts in self._parts.items():
            if parts[0].row_groups and not any(map(self._has_other_cells, self._columns[name])):
                cells = [
                    self._new_totals(column, entities, index, others, len(parts)) for column in self._columns[name]
                ]
                found_segments = [
                    Segment(tuple(group.digest for group in part.row_groups), tuple(each[k] for each in cells))
                    if part.known is None
                    else part.known.renumber(index)
                    for k, part in enumerate(parts)
                ]
                segments[name] = merge_segments(parts, found_segments)
        return segments

    def _has_other_cells(self, column: EntityKeyColumn) -> bool:
        """Return True if a key does not determine a new cell of a column."""
        query = f"SELECT count(*) AS n FROM {column.new_cells} WHERE NOT ({_is_determined(column)})"
        return bool(self._query(query)["n"][0])

    def _new_totals(
        self, column: EntityKeyColumn, entities: Entities, index: np.ndarray, others: np.ndarray, n_parts: int
    ) -> list[CellTotals]:
        """Return the cells of each new part.

        Args:
            entities, index: The entities of the tables, and the number of each known entity among them.
            others: The numbers of the entities that are not known.
        """
        source = f"{column.new_cells} AS cells"
        numbered = self._numbered.get(column.new_cells)
        part, entity, total = [], [], []
        rows = np.arange(len(entities))
        if numbered is not None:
            known, rows = numbered.take(numbered.row >= 0), others
            part, entity, total = [known.part], [index[known.row]], [known.total]
            self._connection.register("wanted_cells", {"cell": numbered.cell[numbered.row < 0]})
            source += " SEMI JOIN wanted_cells ON cells.rowid = wanted_cells.cell"
        with self._registered("numbered", entities.take(rows), rows):
            new = self._query(
                f"SELECT part, row, total FROM (SELECT part, key, total FROM {source}) JOIN numbered USING (key) "
                f"WHERE kind = {column.kind}"
            )
        parts = np.concatenate([*part, new["part"]])
        numbers, totals = np.concatenate([*entity, new["row"]]), np.concatenate([*total, new["total"]])
        order = np.lexsort((numbers, parts))
        bounds = np.searchsorted(parts[order], np.arange(n_parts + 1))
        return [CellTotals(numbers[order[a:b]], totals[order[a:b]]) for a, b in pairwise(bounds.tolist())]

    def _query(self, sql: str) -> Mapping[str, np.ndarray]:
        return self._connection.execute(sql).fetchnumpy()


def _is_determined(column: EntityKeyColumn) -> str:
    """Return SQL that is true if the key of a cell determines the cell."""
    return f"TRY_CAST(key AS {column.cell_type}) IS NOT DISTINCT FROM cell"


def _sum_sql(digest: str) -> str:
    """Return SQL that sums digests modulo `UNSIGNED_RANGE`."""
    return f"(sum({digest}) % {UNSIGNED_RANGE})::UBIGINT"
