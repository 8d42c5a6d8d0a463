"""Conversion of small requests (about a dozen rows) to the coded tables of `data/binding.py`, without SQL.

Only cells in plain formatting are supported (see `cells.py`). Tests compare the tables with those of `data/binding.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

import numpy as np

from relcrf.data.names import (
    attribute_column,
    bag_table,
    bag_table_names,
    entity_table,
    listed_table,
    relation_table,
)
from relcrf.model import spec as s
from relcrf.model.types import AttributeType, Bag, Bool, Date, Datetime, DomainType, Integer, Real, String, Time, Vector
from relcrf.serving import cells
from relcrf.serving.cells import FastPathUnavailable
from relcrf.serving.request_table import RequestTable

DUCKDB_TYPES: dict[AttributeType, str] = {
    Real(): "DOUBLE",
    Integer(): "BIGINT",
    Bool(): "BOOLEAN",
    String(): "VARCHAR",
    Date(): "DATE",
    Time(): "BIGINT",
    Datetime(): "BIGINT",
}


@dataclass(frozen=True)
class CodedColumn:
    """A column with its DuckDB type."""

    type: str
    values: Sequence[Any]


@dataclass
class CodedRequest:
    """The coded tables of a request; for the other fields see `data.bound_model.BoundModel`.

    Args:
        tables: The coded tables, except for the bags.
    """

    domains: dict[str, tuple[str, ...]]
    tables: dict[str, dict[str, CodedColumn]] = field(default_factory=dict)
    bags: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    vector_lengths: dict[tuple[str, str], int] = field(default_factory=dict)
    closed_world: set[str] = field(default_factory=set)

    @property
    def column_types(self) -> tuple[str, ...]:
        """The types of the columns of all tables; `join_requests` requires that they are equal."""
        return tuple(column.type for columns in self.tables.values() for column in columns.values())


class Vocabulary:
    """The values of all domains of a model, with their codes."""

    def __init__(self, spec: s.ModelSpec, vocabulary: Mapping[str, tuple[str, ...]]) -> None:
        self.values: dict[str, tuple[str, ...]] = {}
        for domain in (*spec.domains, *spec.inline_domains):
            known = vocabulary.get(domain.name, ()) if isinstance(domain, s.OpenDomain) else domain.values
            self.values[domain.name] = tuple(known)
        self.codes = {name: {v: k for k, v in enumerate(values)} for name, values in self.values.items()}

    def extended_with(self, new: Mapping[str, Iterable[str]]) -> Vocabulary:
        """Return a copy in which the new values, sorted as texts, follow the existing ones."""
        vocabulary = object.__new__(Vocabulary)
        vocabulary.values, vocabulary.codes = dict(self.values), dict(self.codes)
        for name, texts in new.items():
            added = sorted(texts, key=lambda text: text.encode())
            first = len(self.values[name])
            vocabulary.values[name] = (*self.values[name], *added)
            vocabulary.codes[name] = {**self.codes[name], **{text: first + k for k, text in enumerate(added)}}
        return vocabulary


def code_request(spec: s.ModelSpec, vocabulary: Vocabulary, request: Mapping[str, RequestTable]) -> CodedRequest:
    """Return the coded tables of a request, and the values of all domains, including the new values in the request.

    Raises:
        FastPathUnavailable: The request needs the slow path, possibly because it is invalid.
    """
    (coded,) = code_requests(spec, vocabulary, [request])
    if isinstance(coded, FastPathUnavailable):
        raise coded
    return coded


def code_requests(
    spec: s.ModelSpec, vocabulary: Vocabulary, requests: Sequence[Mapping[str, RequestTable]]
) -> list[CodedRequest | FastPathUnavailable]:
    """Return the coded tables of several requests with a common vocabulary, or the reason why a request needs the slow path."""
    coders = [_RequestCoder(spec, vocabulary, request) for request in requests]
    results = [coder.try_run() for coder in coders]
    new_values: dict[str, set[str]] = {}
    for coder, result in zip(coders, results, strict=True):
        if isinstance(result, CodedRequest):
            for name, values in coder.new_values.items():
                new_values.setdefault(name, set()).update(values)
    if not new_values:
        return results
    # The codes of new values follow their sorted order, which is known only now; requests with new values are coded twice.
    extended = vocabulary.extended_with(new_values)
    for k, (coder, result) in enumerate(zip(coders, results, strict=True)):
        if isinstance(result, CodedRequest):
            if coder.new_values:
                results[k] = _RequestCoder(spec, extended, coder.request).run()
            else:
                result.domains = extended.values
    return results


def join_requests(spec: s.ModelSpec, parts: Sequence[CodedRequest]) -> CodedRequest:
    """Concatenate the coded tables of requests with a common vocabulary; the vids of a request follow those before it.

    The tables of all parts must have the same types of columns, and the model no random relations.
    """
    joined = CodedRequest(parts[0].domains, vector_lengths=parts[0].vector_lengths)
    starts: dict[str, list[int]] = {}
    for entity in spec.entities:
        starts[entity.name] = [0, *accumulate(part.sizes[entity.name] for part in parts)]
        joined.sizes[entity.name] = starts[entity.name][-1]
        name = entity_table(entity.name)
        columns = _concatenate_columns([part.tables[name] for part in parts])
        joined.tables[name] = {**columns, "vid": CodedColumn("INTEGER", range(joined.sizes[entity.name]))}
        for attribute in entity.attributes:
            if isinstance(attribute.type, Bag):
                bag_name = bag_table(entity.name, attribute.name)
                bags = [part.bags[bag_name] for part in parts]
                joined.bags[bag_name] = {column: np.concatenate([bag[column] for bag in bags]) for column in bags[0]}
                shifts = np.repeat(starts[entity.name][:-1], [len(bag["vid"]) for bag in bags])
                joined.bags[bag_name]["vid"] += shifts.astype(np.int32)
    for relation in spec.relations:
        name = relation_table(relation.name)
        tables = [dict(part.tables[name]) for part in parts]
        for k, parameter in enumerate(relation.parameters):
            for table, start in zip(tables, starts.get(parameter.type_name, ()), strict=False):
                table[f"a{k}"] = CodedColumn("INTEGER", [vid + start for vid in table[f"a{k}"].values])
        joined.tables[name] = _concatenate_columns(tables)
    return joined


def _concatenate_columns(tables: Sequence[Mapping[str, CodedColumn]]) -> dict[str, CodedColumn]:
    return {
        column: CodedColumn(first.type, list(chain.from_iterable(table[column].values for table in tables)))
        for column, first in tables[0].items()
    }


class _RequestCoder:
    """The state of coding one request."""

    def __init__(self, spec: s.ModelSpec, vocabulary: Vocabulary, request: Mapping[str, RequestTable]) -> None:
        self.spec, self.vocabulary, self.request = spec, vocabulary, request
        self.keys: dict[str, dict[str, int]] = {}
        self.new_values: dict[str, dict[str, int]] = {}
        """New values of open domains, with temporary codes."""
        self.result = CodedRequest(vocabulary.values)

    def try_run(self) -> CodedRequest | FastPathUnavailable:
        """Return the coded tables, or the exception that `run` raises."""
        try:
            return self.run()
        except FastPathUnavailable as error:
            return error

    def run(self) -> CodedRequest:
        for entity in self.spec.entities:
            self._code_entity(entity)
        for relation in self.spec.relations:
            self._code_relation(relation)
        for random in self.spec.random_relations:
            self._code_random_relation(random)
        return self.result

    def _find_table(self, name: str) -> RequestTable:
        table = self.request.get(s.fold_name(name))
        if table is None:
            raise FastPathUnavailable(f"no table '{name}'")
        return table

    def _code_domain(self, name: str, column: str, values: Sequence[Any]) -> list[int | None]:
        domain = self.spec.domain(name)
        if isinstance(domain, s.RangeDomain):
            return cells.parse_range_codes(column, values, domain)
        known = self.vocabulary.codes[name]
        if not isinstance(domain, s.OpenDomain):
            return cells.parse_codes(column, values, known)
        texts = cells.parse_texts(column, values)
        for text in texts:
            if text is not None and text not in known:
                new_values = self.new_values.setdefault(name, {})
                new_values.setdefault(text, len(known) + len(new_values))
        codes = {**known, **self.new_values[name]} if name in self.new_values else known
        return [None if text is None else codes[text] for text in texts]

    def _code_attribute(self, table: RequestTable, declared: s.AttributeDeclaration) -> CodedColumn:
        """Return the coded column of an attribute that is not a bag."""
        column = table.column(declared.name)
        if declared.latent:
            return CodedColumn("INTEGER", [None] * len(table))
        if column is None:
            if declared.predicted:
                return CodedColumn("DOUBLE" if declared.is_number else "INTEGER", [None] * len(table))
            raise FastPathUnavailable(f"no column '{declared.name}' of '{table.name}'")
        values = table.columns[column]
        if isinstance(declared.type, DomainType):
            return CodedColumn("INTEGER", self._code_domain(declared.type.domain, column, values))
        if isinstance(declared.type, Vector):
            vectors = cells.parse_vectors(column, values)
            return CodedColumn(f"DOUBLE[{len(vectors[0])}]", vectors)
        scalars = cells.parse_scalars(column, values, declared.type)
        if declared.predicted and not declared.is_number:
            return CodedColumn("INTEGER", [None if value is None else int(value) for value in scalars])
        return CodedColumn(DUCKDB_TYPES[declared.type], scalars)

    # Entities

    def _code_entity(self, entity: s.Entity) -> None:
        table = self._find_table(entity.name)
        key = table.column(entity.key)
        if key is None:
            raise FastPathUnavailable(f"no key column '{entity.key}' of '{table.name}'")
        texts = cells.parse_texts(key, table.columns[key])
        vids = self.keys[entity.name] = cells.parse_keys(key, table.columns[key])
        order = sorted(range(len(texts)), key=lambda row: vids[texts[row] or ""])
        key_type = "BIGINT" if all(map(cells.INTEGER_PATTERN.fullmatch, vids)) else "VARCHAR"
        columns = {"vid": CodedColumn("INTEGER", range(len(vids)))}
        columns["key"] = CodedColumn(key_type, [int(k) for k in vids] if key_type == "BIGINT" else list(vids))
        self.result.sizes[entity.name] = len(vids)
        for declared in entity.attributes:
            if isinstance(declared.type, Bag):
                self._code_bag(entity, table, declared, declared.type)
                continue
            coded = self._code_attribute(table, declared)
            if isinstance(declared.type, Vector):
                self.result.vector_lengths[entity.name, declared.name] = len(coded.values[0])
            columns[attribute_column(declared.name)] = CodedColumn(coded.type, [coded.values[row] for row in order])
        self.result.tables[entity_table(entity.name)] = columns

    # Bags

    def _code_bag(self, entity: s.Entity, table: RequestTable, declared: s.AttributeDeclaration, kind: Bag) -> None:
        vids, values, counts = self._code_bag_rows(entity, table, declared, kind)
        totals: dict[tuple[int, int], float] = {}
        for vid, code, count in zip(vids, values, counts, strict=True):
            if code is not None:
                totals[vid, code] = totals.get((vid, code), 0.0) + float(np.float32(count))
        rows = sorted(totals)
        columns = np.array(rows, dtype=np.int32).reshape(-1, 2).T.copy()
        amounts = np.array([totals[row] for row in rows], dtype=np.float32)
        self.result.bags[bag_table(entity.name, declared.name)] = {
            "vid": columns[0],
            "code": columns[1],
            "count": amounts,
        }

    def _code_bag_rows(
        self, entity: s.Entity, own_table: RequestTable, declared: s.AttributeDeclaration, kind: Bag
    ) -> tuple[list[int], list[int | None], list[float]]:
        """Return the vid, the value code and the count of each row of a bag."""
        column = own_table.column(declared.name)
        if column is not None:
            return self._code_lists(entity, own_table, column, kind)
        names = map(s.fold_name, bag_table_names(entity, declared))
        table = next((self.request[name] for name in names if name in self.request), None)
        if table is None:
            raise FastPathUnavailable(f"no table of '{declared.name}'")
        columns = table.bag_columns(entity, declared)
        if columns is None:
            raise FastPathUnavailable(f"columns of '{table.name}' have unknown names")
        entity_column, value_column = columns
        vids = cells.parse_codes(entity_column, table.columns[entity_column], self.keys[entity.name])
        codes = self._code_domain(kind.domain, value_column, table.columns[value_column])
        count_column = table.column("count")
        amounts: list[float | None] = [1.0] * len(table)
        if count_column is not None and count_column != value_column:
            amounts = cells.parse_numbers(count_column, table.columns[count_column])
        if None in vids or any(amount is None or abs(amount) > 1e30 for amount in amounts):
            raise FastPathUnavailable(f"a row of '{table.name}' has no entity or no count")
        return [v for v in vids if v is not None], codes, [amount for amount in amounts if amount is not None]

    def _code_lists(
        self, entity: s.Entity, table: RequestTable, column: str, kind: Bag
    ) -> tuple[list[int], list[int | None], list[float]]:
        key = table.column(entity.key) or ""
        vids: list[int] = []
        flat: list[Any] = []
        for text, values in zip(cells.parse_texts(key, table.columns[key]), table.columns[column], strict=True):
            if not isinstance(values, list | type(None)):
                raise FastPathUnavailable(f"'{column}' has values that are not lists")
            flat += values or ()
            vids += [self.keys[entity.name][text or ""]] * len(values or ())
        return vids, self._code_domain(kind.domain, column, flat), [1.0] * len(flat)

    # Relations

    def _code_arguments(self, relation: s.Relation | s.RandomRelation, table: RequestTable) -> list[list[int | None]]:
        arguments = []
        for parameter in relation.parameters:
            column = table.column(parameter.name)
            if column is None:
                raise FastPathUnavailable(f"no column '{parameter.name}' of '{table.name}'")
            if parameter.type_name in self.keys:
                values = cells.parse_codes(column, table.columns[column], self.keys[parameter.type_name])
            else:
                values = self._code_domain(parameter.type_name, column, table.columns[column])
            if None in values:
                raise FastPathUnavailable(f"a tuple of '{table.name}' has a missing argument")
            arguments.append(values)
        return arguments

    def _add_tuples(
        self, name: str, table: RequestTable, arguments: Sequence[Sequence[Any]], values: Mapping[str, CodedColumn]
    ) -> None:
        """Add a table of distinct tuples with their values."""
        rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for k, row in enumerate(zip(*arguments, strict=True)):
            value = tuple(column.values[k] for column in values.values())
            if rows.setdefault(row, value) != value:
                raise FastPathUnavailable(f"a tuple of '{table.name}' occurs twice, with different values")
        columns = {f"a{k}": CodedColumn("INTEGER", [row[k] for row in rows]) for k in range(len(arguments))}
        for k, (column, coded_column) in enumerate(values.items()):
            columns[column] = CodedColumn(coded_column.type, [value[k] for value in rows.values()])
        self.result.tables[name] = columns

    def _code_relation(self, relation: s.Relation) -> None:
        table = self._find_table(relation.name)
        values = {attribute_column(a.name): self._code_attribute(table, a) for a in relation.attributes}
        self._add_tuples(relation_table(relation.name), table, self._code_arguments(relation, table), values)

    def _code_random_relation(self, relation: s.RandomRelation) -> None:
        name, table = listed_table(relation.name), self.request.get(s.fold_name(relation.name))
        if table is None:
            empty = {f"a{k}": CodedColumn("INTEGER", []) for k in range(len(relation.parameters))}
            self.result.tables[name] = {**empty, "state": CodedColumn("INTEGER", [])}
            return
        if isinstance(relation.type, Bool):
            self.result.closed_world.add(relation.name)
        arguments = self._code_arguments(relation, table)
        argument_columns = [table.column(p.name) for p in relation.parameters]
        column = table.state_column(relation, argument_columns)
        if column is not None:
            state = self._code_attribute(table, s.AttributeDeclaration(column, relation.type, predicted=True))
        elif isinstance(relation.type, Bool):
            state = CodedColumn("INTEGER", [1] * len(table))
        else:
            raise FastPathUnavailable(f"no column with the values of '{table.name}'")
        self._add_tuples(name, table, arguments, {"state": state})
