"""A model bound to a dataset: the coded tables that binding builds (see `binding.py`) and grounding reads.

A coded table contains integers: the *vid* of an entity is the index of the entity within its type, and the *code* of
a value is the index of the value within its domain.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

import duckdb
import numpy as np

from relcrf.columns.texts import store_texts
from relcrf.data.coding import text_sql
from relcrf.data.dataset import Dataset, quoted
from relcrf.data.names import attribute_column, entity_table, plugin_function_name
from relcrf.data.raw_table import RawTable
from relcrf.data.row_repairs import RowRepair
from relcrf.data.store import report_read_errors
from relcrf.data.stream import stream_batches
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion
from relcrf.execution.interruption import register_connection
from relcrf.language.render import render_declaration
from relcrf.model.functions import external_function
from relcrf.model.spec import Entity, Feature, Gate, Include, LearnedDefinition, ModelSpec, Rule, Template, fold_name

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class BoundModel:
    """The coded tables of a model, and the results of checking the data against the model.

    Args:
        sizes: Number of entities of each entity type.
        domains: Values of each domain, in the order of the codes; the values of an open domain come from the data.
        vector_lengths: Length of each vector attribute, by (entity type, attribute).
        notes: Messages to the user about the assumptions that binding made, and about the repairs.
        repairs: The applications of the policies of the manifest for invalid rows.
        missing_labels: Predicted attributes without a column, as (entity type, attribute).
        closed_world: Random relations whose tuples are false unless the data lists them.
        product_relations: Random relations with a variable for every combination of argument values.
        external_tables: Coded tables that are stored as NumPy columns outside DuckDB: bags, sorted by entity and value.
        row_counts: Number of rows of raw tables, by location, as far as binding counted them.
        sources: Locations of the raw tables, by entity type, relation, bag (`Entity.attribute`) or domain.
        repaired_tables: Raw tables to which the policies of the manifest were applied, by name.
        content_hashes: Cached content hashes of raw tables, by location; `table_hash.py` adds them.
        statistics: Document frequencies, means and deviations by expression; `grounding/entity_values.py` adds them.
        tokens: The tokens of `tfidf_cosine` in the training data, by the key of their document frequencies in `statistics`.
        given_statistics: The statistics of the training data, if the model is trained.
        learned_values: The values of learned features by name, each of shape (n_entities, n_components).
        learned_names: The tables and statistics of values that depend on learned features.
    """

    spec: ModelSpec
    dataset: Dataset
    sizes: dict[str, int] = field(default_factory=dict)
    domains: dict[str, Sequence[str]] = field(default_factory=dict)
    vector_lengths: dict[tuple[str, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    repairs: list[RowRepair] = field(default_factory=list)
    missing_labels: set[tuple[str, str]] = field(default_factory=set)
    closed_world: set[str] = field(default_factory=set)
    product_relations: set[str] = field(default_factory=set)
    row_counts: dict[str, int] = field(default_factory=dict)
    sources: dict[str, set[str]] = field(default_factory=dict)
    external_tables: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    repaired_tables: dict[str, RawTable] = field(default_factory=dict)
    content_hashes: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, np.ndarray] = field(default_factory=dict)
    tokens: dict[str, tuple[str, ...]] = field(default_factory=dict)
    given_statistics: Mapping[str, np.ndarray] = field(default_factory=dict)
    learned_values: dict[str, np.ndarray] = field(default_factory=dict)
    learned_names: set[str] = field(default_factory=set)
    is_fixed: ClassVar[bool] = True
    """Whether the coded tables stay the same; not those of requests."""
    connection: duckdb.DuckDBPyConnection = field(init=False)
    """A cursor on the dataset's database; its schema is separate, so several models can be bound to one dataset."""
    schema: str = field(init=False)

    def __post_init__(self) -> None:
        self.repairs += self.dataset.repairs
        for name in sorted(self.spec.functions):
            if (function := external_function(name)) is not None:
                self.dataset.store.add_function(plugin_function_name(name), function)
        self.connection, self.schema = self.dataset.new_schema()
        weakref.finalize(self, _drop_schema, self.connection, self.schema).atexit = False

    @cached_property
    def coding(self) -> str:
        """A hash of what determines the coded tables besides the dataset: declarations, and values of the domains.

        Among the features, these are the ones that other declarations mention, such as a derived relation.
        """
        declared = (d for d in self.spec.all_declarations if not isinstance(d, Template | Rule | Gate | Include))
        kept = [render_declaration(d) for d in declared if not isinstance(d, Feature)]
        features = {
            d.name: render_declaration(d) for d in self.spec.features if not isinstance(d.definition, LearnedDefinition)
        }
        while mentioned := [name for name in features if re.search(rf"\b{name}\b", "\n".join(kept))]:
            kept += [features.pop(name) for name in mentioned]
        digest = hashlib.sha256("\n".join(kept).encode())
        for name, values in sorted(self.domains.items()):
            digest.update(json.dumps([name, *values]).encode())
        return digest.hexdigest()

    def find_table(self, *names: str) -> RawTable | None:
        """Return the first existing raw table among `names`, repaired according to the manifest; None if there is none."""
        table = self.dataset.find_table(*names)
        return table and self.repaired_tables.get(fold_name(table.name), table)

    def key_name(self, entity: Entity) -> str:
        """Return the name of the key column of an entity type in the user's table, before the manifest renames it."""
        table = self.find_table(entity.name)
        column = table and table.column(entity.key)
        return table.source_columns.get(column, column) if table and column else entity.key

    def register_columns(self, table: str, columns: Mapping[str, np.ndarray]) -> None:
        """Register columns as a table of the bound model; DuckDB scans the columns without a copy."""
        self.external_tables[table] = dict(columns)
        self.connection.register(table, self.external_tables[table])

    def set_learned_values(self, values: Mapping[str, np.ndarray]) -> None:
        """Replace the values of learned features, and drop all tables and statistics that depend on them."""
        self.learned_values = dict(values)
        for name in self.learned_names:
            if self.external_tables.pop(name, None) is not None:
                self.connection.unregister(name)
            if name not in self.given_statistics:
                self.statistics.pop(name, None)
        self.learned_names.clear()

    def cursor(self, query: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return a new connection to the coded tables, but not to raw data frames; registering one would take 1 ms.

        Args:
            query: The query for which the connection is opened. External tables that it does not name are not registered.
        """
        cursor = register_connection(self.dataset.connection.cursor())
        cursor.execute(f"SET schema = '{self.schema}'")
        for table, columns in self.external_tables.items():
            if query is None or quoted(table)[1:-1] in query:
                cursor.register(table, columns)
        return cursor

    def size(self, type_name: str) -> int:
        """Return the number of entities of an entity type or of values of a domain."""
        return self.sizes[type_name] if type_name in self.sizes else len(self.domains[type_name])

    def count_rows(self, table: str) -> int:
        """Return the number of rows of a coded table."""
        if table in self.external_tables:
            return len(next(iter(self.external_tables[table].values())))
        ((n,),) = self.connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchall()
        return int(n)

    def keys(self, entity: str) -> np.ndarray:
        """Return the keys of an entity type as text, shape (n,), in the order of the vids."""
        rows = self.connection.execute(
            f"SELECT CAST(key AS VARCHAR) AS key FROM {quoted(entity_table(entity))} ORDER BY vid"
        )
        return np.asarray(rows.fetchnumpy()["key"], dtype=object)

    def texts(self, type_name: str) -> np.ndarray:
        """Return the keys of an entity type or the values of a domain, by vid or code; shape (n,), dtype object."""
        return (
            self.keys(type_name) if self.spec.entity(type_name) else np.asarray(self.domains[type_name], dtype=object)
        )

    def key_texts(self, entity: str) -> Sequence[str]:
        """Return the keys of an entity type as texts, in the order of the vids; many keys are not held in memory."""
        return self.read_texts(f"SELECT CAST(key AS VARCHAR) FROM {quoted(entity_table(entity))} ORDER BY vid")

    def read_texts(self, query: str) -> Sequence[str]:
        """Return the texts that a query selects, in the order of its rows; many texts are not held in memory."""
        ((count,),) = self.connection.execute(f"SELECT count(*) FROM ({query})").fetchall()
        batches = stream_batches(self.connection.sql(query), {"text": object})
        return store_texts((batch["text"] for batch in batches), int(count), self.dataset.storage)

    def codes(self, entity: str, attribute: str) -> np.ndarray:
        """Return the state of a predicted attribute by vid, shape (n,), int32; a missing state is -1."""
        column, table = quoted(attribute_column(attribute)), quoted(entity_table(entity))
        sql = f"SELECT coalesce({column}, -1)::INTEGER AS c FROM {table} ORDER BY vid"
        return np.asarray(self.connection.execute(sql).fetchnumpy()["c"], dtype=np.int32)

    def numbers(self, entity: str, attribute: str) -> np.ndarray:
        """Return the values of a predicted number by vid, shape (n,), float64; a missing number is nan."""
        column, table = quoted(attribute_column(attribute)), quoted(entity_table(entity))
        sql = f"SELECT coalesce({column}, 'nan')::DOUBLE AS value FROM {table} ORDER BY vid"
        return np.asarray(self.connection.execute(sql).fetchnumpy()["value"], dtype=np.float64)

    def vectors(self, entity: str, attribute: str) -> np.ndarray:
        """Return a vector attribute of all entities, shape (n, length)."""
        length = self.vector_lengths[entity, attribute]
        columns = ", ".join(f"{quoted(attribute_column(attribute))}[{d + 1}] AS c{d}" for d in range(length))
        rows = self.connection.execute(
            f"SELECT {columns} FROM {quoted(entity_table(entity))} ORDER BY vid"
        ).fetchnumpy()
        return np.column_stack([rows[f"c{d}"] for d in range(length)])

    def has_column(self, entity: str, column: str) -> bool:
        """Return True if the raw table of an entity type has a column, even if the model does not declare it."""
        table = self.find_table(entity)
        return table is not None and table.column(column) is not None

    def raw_column(self, entity: str, column: str) -> np.ndarray:
        """Return a column of an entity type's raw table as texts, in the order of the vids; a missing text is ''.

        Raises:
            DataError: The table has no such column (E212).
        """
        table = self.find_table(entity)
        column_name = table.column(column) if table else None
        declared = self.spec.entity(entity)
        if table is None or column_name is None or declared is None:
            columns = table.columns if table else ()
            message = f"the table of {entity} has no column '{column}'"
            location = DataLocation(table.location if table else self.dataset.location)
            raise DataError(
                Diagnostic(
                    "E212", message, location, suggestion(column, columns) or f"its columns are {listing(columns)}"
                )
            )
        key = table.column(declared.key)
        sql = (
            f"SELECT coalesce({text_sql(table, column_name)}, '') AS c FROM {table.scan} AS raw "
            f"JOIN {quoted(entity_table(entity))} AS e "
            f"ON CAST(e.key AS VARCHAR) = {text_sql(table, key or '')} ORDER BY e.vid"
        )
        with report_read_errors(table.location):
            return np.asarray(self.connection.execute(sql).fetchnumpy()["c"], dtype=object)


def reraises_plugin_errors(
    function: Callable[Concatenate[BoundModel, P], T],
) -> Callable[Concatenate[BoundModel, P], T]:
    """Decorate a function that runs queries: errors of plugin functions are raised unchanged, not as DuckDB errors."""

    @wraps(function)
    def wrapper(bound: BoundModel, /, *args: P.args, **settings: P.kwargs) -> T:
        with bound.dataset.store.reraise_plugin_errors():
            return function(bound, *args, **settings)

    return wrapper


def _drop_schema(connection: duckdb.DuckDBPyConnection, schema: str) -> None:
    """Drop the tables of a bound model when it is garbage-collected."""
    with suppress(duckdb.FatalException):  # a damaged file may have terminated the database
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
    connection.close()
