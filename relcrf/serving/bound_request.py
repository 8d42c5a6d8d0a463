"""The bound model of a request, whose tables are loaded into a database only when an SQL statement reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import Dataset, quoted
from relcrf.data.names import attribute_column, domain_table, entity_table
from relcrf.grounding.engines.duckdb import StatementEngine
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.model.spec import ModelSpec
from relcrf.serving.coding import CodedColumn, CodedRequest


class BoundRequest(BoundModel):
    """The bound model of one request at a time; the most frequently read columns are returned without an SQL statement."""

    is_fixed = False

    def __init__(self, spec: ModelSpec) -> None:
        self._is_loaded = True
        super().__init__(spec, Dataset({}))
        self.connection.execute("SET threads = 1")  # a dozen rows do not need two threads
        schema = f"requests.{self.schema}"  # creating tables takes 10 % less time in memory than in a file
        self.connection.execute(f"ATTACH ':memory:' AS requests; CREATE SCHEMA {schema}; SET schema = '{schema}'")
        self.schema = schema
        self._is_small = False
        self._model_of_views: LoweredModel | None = None
        """The lowered model for which the views of derived relations were created."""
        self._statements: dict[str, duckdb.Statement] = {}
        self._optimizer_disabled = False
        self._loaded_domains: dict[str, tuple[str, ...]] = {}
        """The values of each domain whose table exists."""

    def assign(self, coded: CodedRequest, lowered_model: LoweredModel, *, is_small: bool) -> None:
        """Replace the request.

        Args:
            is_small: Whether joins have so few rows that the optimizer of the database takes longer than it saves.
        """
        self._coded, self._lowered_model, self._is_small, self._is_loaded = coded, lowered_model, is_small, False
        self.external_tables = dict(coded.bags)
        self.sizes, self.domains, self.vector_lengths = coded.sizes, {**coded.domains}, coded.vector_lengths
        self.closed_world, self.product_relations, self.notes = coded.closed_world, set(), []

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection to the database, into which the tables of the request are loaded first."""
        if not self._is_loaded:
            self._load_tables()
        return self._connection

    @connection.setter
    def connection(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def cursor(self, query: str | None = None) -> duckdb.DuckDBPyConnection:
        _ = self.connection  # loads the tables
        return super().cursor(query)

    def open_engine(self) -> StatementEngine:
        """Return an engine that runs plans in the database."""
        return StatementEngine(self.connection, self._lowered_model.statements)

    def keys(self, entity: str) -> np.ndarray:
        return np.array(self.key_texts(entity), dtype=object)

    def key_texts(self, entity: str) -> Sequence[str]:
        return tuple(str(key) for key in self._coded.tables[entity_table(entity)]["key"].values)

    def codes(self, entity: str, attribute: str) -> np.ndarray:
        codes = self.read_column(entity_table(entity), attribute_column(attribute))
        assert codes is not None
        return codes

    def numbers(self, entity: str, attribute: str) -> np.ndarray:
        return np.array(self._coded.tables[entity_table(entity)][attribute_column(attribute)].values, dtype=np.float64)

    def read_column(self, table: str, column: str) -> np.ndarray | None:
        """Return a column of vids or codes with -1 for null, shape (n,), int32; None if the column has another type."""
        if table in self._coded.bags:
            values = self._coded.bags[table][column]
            return values if values.dtype == np.int32 else None
        coded_column = self._coded.tables.get(table, {}).get(column)
        if coded_column is None or coded_column.type != "INTEGER":
            return None
        return np.array([-1 if value is None else value for value in coded_column.values], dtype=np.int32)

    def _load_tables(self) -> None:
        """Load the coded tables into the database."""
        coded, model = self._coded, self._lowered_model
        for name, columns in coded.tables.items():
            self._create_table(name, columns)
        for name, bag in coded.bags.items():
            if name in model.tables:
                types = {"vid": "INTEGER", "code": "INTEGER", "count": "FLOAT"}
                self._create_table(name, {column: CodedColumn(types[column], bag[column].tolist()) for column in bag})
        for domain, values in coded.domains.items():
            if domain_table(domain) in model.tables and self._loaded_domains.get(domain) is not values:
                codes = CodedColumn("INTEGER", range(len(values)))
                self._create_table(domain_table(domain), {"code": codes, "value": CodedColumn("VARCHAR", values)})
                self._loaded_domains[domain] = values
        self._is_loaded = True
        if model is not self._model_of_views:
            model.create_views(self)
            self._model_of_views = model
        if self._is_small != self._optimizer_disabled:
            self._connection.execute(f"PRAGMA {'disable' if self._is_small else 'enable'}_optimizer")
            self._optimizer_disabled = self._is_small

    def _create_table(self, name: str, columns: Mapping[str, CodedColumn]) -> None:
        selected = ", ".join(_unnest_sql(column, coded_column.type) for column, coded_column in columns.items())
        text = f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT {selected}"
        if text not in self._statements:
            (self._statements[text],) = self._connection.extract_statements(text)
        self._connection.execute(self._statements[text], [list(column.values) for column in columns.values()])


def _unnest_sql(column: str, kind: str) -> str:
    """Return the SQL that converts a list parameter into a column; vectors are passed as lists and cast."""
    vector = kind.partition("[")[0]
    if vector != kind:
        return f"unnest(?::{vector}[][])::{kind} AS {quoted(column)}"
    return f"unnest(?::{kind}[]) AS {quoted(column)}"
