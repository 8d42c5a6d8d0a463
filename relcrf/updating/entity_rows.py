"""The rows of raw tables by entity: digests that detect changed rows, connected entities, and the rows of some entities.

A row belongs to each entity whose key it contains. The digest of an entity is a sum of the hashes of its rows, so that it does
not depend on their order. Two entities are connected if a row contains the keys of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise, permutations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from relcrf.data.binding import entity_columns
from relcrf.data.coding import text_sql
from relcrf.data.dataset import Dataset, quoted
from relcrf.data.manifest import RowPolicies
from relcrf.data.raw_table import RawTable
from relcrf.data.store import literal, report_read_errors
from relcrf.data.table_hash import hash_rows
from relcrf.errors import listing
from relcrf.model.spec import ModelSpec

UNSIGNED_RANGE = 1 << 64
"""Number of values of a digest; sums are reduced modulo this number."""


@dataclass(frozen=True)
class EntityKeyColumn:
    """A column of a raw table with the keys of entities.

    Args:
        kind: Index of the entity type in the model.
        cells: DuckDB table of the distinct cells: `cell`, `key` (the text), `digest` and `n_rows` (of the rows with the cell).
    """

    name: str
    kind: int
    cells: str


@dataclass(frozen=True)
class Entities:
    """The entities that the rows of the tables mention, one per row of the arrays.

    Args:
        kind: Index of the entity type in the model, shape (n,), int32.
        key: Text of the key, shape (n,), object.
        digest: Digest of the rows, shape (n,), uint64.
    """

    kind: np.ndarray
    key: np.ndarray
    digest: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The arrays in the order of the fields."""
        return self.kind, self.key, self.digest

    def take(self, selected: np.ndarray) -> Entities:
        """Return the entities in a mask, shape (n,), bool."""
        return Entities(*(values[selected] for values in self.columns))

    def append(self, other: Entities) -> Entities:
        """Return these entities, followed by others."""
        pairs = zip(self.columns, other.columns, strict=True)
        return Entities(*(np.concatenate(pair) for pair in pairs))


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
    """The rows of a dataset's tables, by the entities that they mention."""

    def __init__(self, spec: ModelSpec, dataset: Dataset) -> None:
        self.dataset = dataset
        self._connection, _ = dataset.new_schema()
        kinds = {entity.name: k for k, entity in enumerate(spec.entities)}
        self.tables: dict[str, RawTable] = {}
        """The tables that the model reads, by name."""
        self.key_names: dict[str, str] = {}
        """The name of the key column in the user's table, by entity type."""
        self._columns: dict[str, list[EntityKeyColumn]] = {}
        for name, columns in entity_columns(spec, dataset).items():
            table = dataset.find_table(name)
            assert table is not None
            self.tables[name] = table
            with report_read_errors(table.location):
                self._columns[name] = [self._create_cells(table, column, kinds[kind.name]) for column, kind in columns]
        for entity in spec.entities:
            own = dataset.find_table(entity.name)
            column_name = own.column(entity.key) if own is not None else None
            if own is not None and column_name is not None:
                self.key_names[entity.name] = own.source_columns.get(column_name, column_name)
        parts = [f"SELECT {column.kind} AS kind, key, digest FROM {column.cells}" for column in self._key_columns()]
        union = " UNION ALL ".join(parts) or "SELECT 0 AS kind, NULL AS key, 0::UBIGINT AS digest WHERE false"
        self._connection.execute(
            f"CREATE TABLE entities AS SELECT kind::INTEGER AS kind, key, {_sum_sql('digest')} AS digest FROM ({union}) "
            "GROUP BY ALL"
        )

    def _key_columns(self) -> Iterator[EntityKeyColumn]:
        for columns in self._columns.values():
            yield from columns

    def _create_cells(self, table: RawTable, column: str, kind: int) -> EntityKeyColumn:
        name = self.dataset.store.new_name("cells")
        salt = literal(f"{table.name}.{column}")
        others = ", ".join(f"raw.{quoted(other)}" for other in table.columns if other != column)
        grouped = (
            f"SELECT raw.{quoted(column)}, {_sum_sql(f'hash({others})' if others else '1')} AS total, count(*) AS n_rows "
            f"FROM {table.scan} AS raw GROUP BY ALL"
        )
        self._connection.execute(
            f"CREATE TABLE {name} AS SELECT raw.{quoted(column)} AS cell, {text_sql(table, column)} AS key, "
            f"hash({salt}, cell, total) AS digest, n_rows FROM ({grouped}) AS raw"
        )
        return EntityKeyColumn(column, kind, name)

    def row_counts(self) -> dict[str, int]:
        """Return the number of rows of each table with keys of entities, by name."""
        return {
            name: int(self._query(f"SELECT coalesce(sum(n_rows), 0) AS n FROM {columns[0].cells}")["n"][0])
            for name, columns in self._columns.items()
            if columns
        }

    def global_reason(self) -> str:
        """Return why an entity may depend on rows that do not mention it, or on their order; empty if it does not."""
        if self._query("SELECT count(*) AS n FROM entities WHERE key IS NULL")["n"][0]:
            return "some rows lack the key of an entity"
        merged = [name for name, table in self.tables.items() if table.policies.duplicates != RowPolicies().duplicates]
        return f"duplicate rows of {listing(merged)} are merged in the order of the rows" if merged else ""

    def shared_inputs(self) -> dict[str, str]:
        """Return what determines the factors of all entities, by table: the columns, and the rows of tables without keys."""
        shared = {}
        for name, table in self.tables.items():
            columns = [table.columns, table.types, table.reading, table.is_open, asdict(table.policies)]
            keys = [(column.name, column.kind) for column in self._columns[name]]
            rows = "" if keys else hash_rows(self.dataset, table)
            shared[name] = json.dumps([columns, keys, rows])
        return shared

    def entities(self) -> Entities:
        """Return all entities, sorted by type and key."""
        rows = self._query("SELECT kind, key, digest FROM entities ORDER BY kind, key")
        return Entities(rows["kind"], np.asarray(rows["key"], dtype=object), rows["digest"])

    def components(self, entities: Entities) -> np.ndarray:
        """Return the number of the connected component of each entity, shape (n,), int32."""
        self._connection.register("numbered", {**_columns(entities), "row": np.arange(len(entities), dtype=np.int32)})
        edges = []
        for name, columns in self._columns.items():
            for first, second in pairwise(columns):
                left, right = (f"raw.{quoted(column.name)}" for column in (first, second))
                edges.append(
                    self._query(
                        f"SELECT DISTINCT a.row AS a, b.row AS b FROM {self.tables[name].scan} AS raw "
                        f"JOIN (SELECT cell, row FROM {first.cells} JOIN numbered USING (key) WHERE kind = {first.kind}) AS a "
                        f"ON {left} = a.cell "
                        f"JOIN (SELECT cell, row FROM {second.cells} JOIN numbered USING (key) WHERE kind = {second.kind}) "
                        f"AS b ON {right} = b.cell"
                    )
                )
        self._connection.unregister("numbered")
        a, b = (np.concatenate([np.empty(0, dtype=np.int32), *(each[name] for each in edges)]) for name in "ab")
        adjacency = coo_array((np.ones(len(a), dtype=bool), (a, b)), shape=(len(entities),) * 2)
        return np.asarray(connected_components(adjacency, directed=False)[1], dtype=np.int32)

    def compare(self, known: Entities, component: np.ndarray) -> EntityChanges:
        """Compare the entities with those of a run, and select the entities of all components that contain a change.

        The rows of an entity that did not change are the same as before, and connect it to the same entities. The components of
        the run that contain a changed entity, or one that a row of a changed entity mentions, are therefore closed: no row
        connects their entities, together with the changed entities, to any other entity.

        Args:
            component: Component of each known entity, shape (n,).
        """
        row = np.arange(len(known), dtype=np.int32)
        self._connection.register("known", {**_columns(known), "component": component, "row": row})
        self._connection.execute(
            "CREATE OR REPLACE TABLE compared AS SELECT kind, key, known.row, component, entities.digest IS NULL AS is_removed, "
            "entities.digest IS DISTINCT FROM known.digest AS differs FROM entities FULL JOIN known USING (kind, key)"
        )
        self._connection.unregister("known")
        counts = self._query(
            "SELECT count(*) FILTER (row IS NULL) AS added, count(*) FILTER (is_removed) AS removed, "
            "count(*) FILTER (differs) AS differences FROM compared"
        )
        n_added, n_removed, differences = (int(counts[name][0]) for name in ("added", "removed", "differences"))
        mentioned = "".join(f" UNION ALL {each}" for each in self._mentioned_sql())
        self._connection.execute(
            "CREATE OR REPLACE TABLE selected AS WITH touched AS (SELECT kind, key FROM compared WHERE differs"
            f"{mentioned}), reached AS (SELECT DISTINCT component FROM compared JOIN touched USING (kind, key)) "
            "SELECT kind, key, row FROM compared WHERE NOT is_removed AND "
            "(differs OR component IN (SELECT component FROM reached WHERE component IS NOT NULL))"
        )
        kept = np.ones(len(known), dtype=bool)
        for query in ("SELECT row FROM selected WHERE row IS NOT NULL", "SELECT row FROM compared WHERE is_removed"):
            kept[np.asarray(self._query(query)["row"], dtype=np.int64)] = False
        n_selected = int(self._query("SELECT count(*) AS n FROM selected")["n"][0])
        n_changed = differences - n_added - n_removed
        return EntityChanges("selected", kept, n_added, n_removed, n_changed, n_selected)

    def _mentioned_sql(self) -> Iterator[str]:
        """Yield SQL of the entities that a row mentions together with a changed entity."""
        for name, columns in self._columns.items():
            for first, second in permutations(columns, 2):
                changed = (
                    f"SELECT cell FROM {first.cells} JOIN compared USING (key) WHERE kind = {first.kind} AND differs"
                )
                cells = (
                    f"SELECT DISTINCT raw.{quoted(second.name)} FROM {self.tables[name].scan} AS raw "
                    f"WHERE raw.{quoted(first.name)} IN ({changed})"
                )
                yield f"SELECT {second.kind} AS kind, key FROM {second.cells} WHERE cell IN ({cells})"

    def select_rows(self, changes: EntityChanges) -> Dataset:
        """Return a dataset with only the rows that mention a selected entity; tables without keys keep all rows."""
        scans: dict[str, str] = {}
        for name, columns in self._columns.items():
            conditions = [
                f"raw.{quoted(column.name)} IN (SELECT cell FROM {column.cells} JOIN {changes.selected} USING (key) "
                f"WHERE kind = {column.kind})"
                for column in columns
            ]
            if not conditions:
                continue
            table = quoted(f"rows of {name}")
            self._connection.execute(
                f"CREATE OR REPLACE TABLE {table} AS SELECT raw.* FROM {self.tables[name].scan} AS raw "
                f"WHERE {' OR '.join(conditions)}"
            )
            ((schema,),) = self._connection.execute("SELECT current_schema()").fetchall()
            scans[name] = f"{quoted(str(schema))}.{table}"
        return self.dataset.with_scans(scans)

    def _query(self, sql: str) -> Mapping[str, np.ndarray]:
        return self._connection.execute(sql).fetchnumpy()


def _columns(entities: Entities) -> dict[str, np.ndarray]:
    return {"kind": entities.kind, "key": entities.key, "digest": entities.digest}


def _sum_sql(digest: str) -> str:
    """Return SQL that sums digests modulo `UNSIGNED_RANGE`."""
    return f"(sum({digest}) % {UNSIGNED_RANGE})::UBIGINT"
