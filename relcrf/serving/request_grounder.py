"""Where requests are ground, one after the other: coded tables in one schema, and the model's recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import Dataset, quoted
from relcrf.data.names import attribute_column, domain_table, entity_table, relation_table
from relcrf.grounding.engines.duckdb import StatementEngine
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.ground import ground
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.lower import LoweringContext
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.language.render import render
from relcrf.model.disjunctions import extract_disjunctions
from relcrf.model.spec import DerivedRelation, ModelSpec, RandomRelation
from relcrf.serving.cells import FastPathUnavailable
from relcrf.serving.coding import CodedColumn, CodedRequest, Vocabulary, code_request
from relcrf.serving.request import RequestTable

MAX_FETCHED_ROWS = 1_000_000
"""Maximum rows of a result that is fetched at once; larger ones are streamed."""

MAX_RECIPES = 8
"""One is enough, unless vectors of several lengths come, which no weights fit."""


class BoundRequest(BoundModel):
    """Coded tables of which the columns that are asked for most are at hand, and no query away."""

    coded: CodedRequest

    def keys(self, entity: str) -> np.ndarray:
        return np.array([str(key) for key in self._column(entity, "key")], dtype=object)

    def codes(self, entity: str, attribute: str) -> np.ndarray:
        found = self._column(entity, attribute_column(attribute))
        return np.array([-1 if code is None else code for code in found], dtype=np.int32)

    def _column(self, entity: str, column: str) -> Sequence[Any]:
        return self.coded.tables[entity_table(entity)][column].values


class RequestGrounder:
    """Grounds one request at a time. A grounding of it is good until the next one.

    Args:
        vocabulary: the values of open domains that training knew.
    """

    def __init__(self, spec: ModelSpec, vocabulary: Mapping[str, tuple[str, ...]]) -> None:
        self._spec = spec
        self._vocabulary = Vocabulary(spec, vocabulary)
        self._text = render(spec.flatten())
        self._named = extract_disjunctions(spec)
        self._recipes: dict[tuple[tuple[tuple[str, str], int], ...], LoweredModel] = {}
        self._bound = BoundRequest(spec, Dataset({}))
        self._bound.connection.execute("SET threads = 1")  # a dozen rows are no work for two
        schema = f"requests.{self._bound.schema}"  # tables are made a tenth quicker in memory than in a file
        self._bound.connection.execute(
            f"ATTACH ':memory:' AS requests; CREATE SCHEMA {schema}; SET schema = '{schema}'"
        )
        self._bound.schema = schema
        self._views_recipe: LoweredModel | None = None
        """The recipe whose derived relations the views are."""
        self._statements: dict[str, duckdb.Statement] = {}
        self._is_small = False
        self._loaded_domains: dict[str, tuple[str, ...]] = {}
        """The domains whose tables are there, with the values in them."""

    def ground(self, request: Mapping[str, RequestTable]) -> Grounding:
        """Grounds a request.

        Raises:
            FastPathUnavailable: where the ordinary way must be gone: the request is not spelt plainly, or is large.
        """
        tables = code_request(self._spec, self._vocabulary, request)
        recipe = self._find_recipe(tables)
        rows = recipe.max_join_rows(self._max_row_counts(tables))
        if rows > DEFAULT_BUDGET:
            raise FastPathUnavailable("it is large")
        bound = self._bound
        bound.coded, bound.external_tables = tables, dict(tables.bags)
        bound.sizes, bound.domains, bound.vector_lengths = tables.sizes, tables.domains, tables.vector_lengths
        bound.closed_world, bound.product_relations, bound.notes = tables.closed_world, set(), []
        self._load_tables(tables, recipe)
        if recipe is not self._views_recipe:
            recipe.create_views(bound)
            self._views_recipe = recipe
        is_small = rows <= MAX_FETCHED_ROWS
        if is_small != self._is_small:
            bound.connection.execute(f"PRAGMA {'disable' if is_small else 'enable'}_optimizer")
            self._is_small = is_small
        engine = StatementEngine(bound.connection, recipe.statements) if is_small else None
        return ground(bound, engine=engine, lowered_model=recipe)

    def _max_row_counts(self, tables: CodedRequest) -> dict[str, int]:
        """The rows of each table, of a derived or random relation the most that it can have."""
        counts = {**tables.sizes, **{name: len(values) for name, values in tables.domains.items()}}
        out = {domain_table(name): len(values) for name, values in tables.domains.items()}
        made: tuple[DerivedRelation | RandomRelation, ...] = (
            *self._named.derived_relations,
            *self._named.random_relations,
        )
        for relation in made:
            out[relation_table(relation.name)] = math.prod(counts[p.type_name] for p in relation.parameters)
        out |= {name: len(next(iter(columns.values())).values) for name, columns in tables.tables.items()}
        return out | {name: len(bag["vid"]) for name, bag in tables.bags.items()}

    def _find_recipe(self, tables: CodedRequest) -> LoweredModel:
        """The model lowered for codes like these: a new value changes nothing, unless the model speaks of it."""
        facts = LoweringContext(self._named, tables.domains, tables.vector_lengths)
        known = self._vocabulary.values
        new = [v for name, values in tables.domains.items() for v in values[len(known[name]) :]]
        if any(value in self._text for value in new):
            return LoweredModel.from_context(facts)
        key = tuple(sorted(tables.vector_lengths.items()))
        if key not in self._recipes:
            if len(self._recipes) >= MAX_RECIPES:
                self._recipes.clear()
            self._recipes[key] = LoweredModel.from_context(facts)
        return self._recipes[key]

    def _load_tables(self, tables: CodedRequest, recipe: LoweredModel) -> None:
        """Puts the coded tables into the database."""
        for name, columns in tables.tables.items():
            self._create_table(name, columns)
        for name, bag in tables.bags.items():
            if name in recipe.tables:
                types = {"vid": "INTEGER", "code": "INTEGER", "count": "FLOAT"}
                self._create_table(name, {column: CodedColumn(types[column], bag[column].tolist()) for column in bag})
        for domain, values in tables.domains.items():
            if domain_table(domain) in recipe.tables and self._loaded_domains.get(domain) is not values:
                codes = CodedColumn("INTEGER", range(len(values)))
                self._create_table(domain_table(domain), {"code": codes, "value": CodedColumn("VARCHAR", values)})
                self._loaded_domains[domain] = values

    def _create_table(self, name: str, columns: Mapping[str, CodedColumn]) -> None:
        selected = ", ".join(_unnest_sql(column, coded_column.type) for column, coded_column in columns.items())
        text = f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT {selected}"
        if text not in self._statements:
            (self._statements[text],) = self._bound.connection.extract_statements(text)
        self._bound.connection.execute(self._statements[text], [list(column.values) for column in columns.values()])


def _unnest_sql(column: str, kind: str) -> str:
    """SQL of a parameter that is a list as a column; a vector comes as a list, and is cast after that."""
    vector = kind.partition("[")[0]
    if vector != kind:
        return f"unnest(?::{vector}[][])::{kind} AS {quoted(column)}"
    return f"unnest(?::{kind}[]) AS {quoted(column)}"
