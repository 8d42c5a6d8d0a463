"""A model's declarations tied to a dataset's tables, checked and coded to dense integers.

For each entity a table of `vid, key, attributes...`, vid counted from 0 in the order of the keys; for each relation one of
distinct tuples of vids and codes with their attributes; for each random relation the tuples that the data lists, with
their states; for each bag `vid, code, count`; for each domain `code, value` (`names.py` says what they are called).
All real tables with int32 columns: joins over them are what DuckDB is fastest at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.data.bag_coder import BagCoder
from relcrf.data.bound_model import BoundModel
from relcrf.data.coding import find_duplicate_rows, integer_sql, text_sql
from relcrf.data.dataset import Dataset, RawTable, quoted
from relcrf.data.names import (
    attribute_column,
    domain_table,
    entity_table,
    listed_table,
    relation_table,
    state_column_names,
)
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion
from relcrf.model import spec as s
from relcrf.model.types import Bag, Bool, DomainType


def bind(spec: s.ModelSpec, dataset: Dataset, vocabulary: Mapping[str, tuple[str, ...]] | None = None) -> BoundModel:
    """Makes the coded tables of a model.

    Args:
        vocabulary: values of open domains that keep their codes, as a trained model knew them; new values come after.

    Raises:
        DataError: with every mistake that was found in the tables.
    """
    with dataset.store.reraise_plugin_errors():
        return _Binder(BoundModel(spec, dataset), vocabulary or {}).run()


@dataclass(frozen=True)
class _ValueColumn:
    """A value that tuples have: its name in the coded table, its raw column for messages, and SQL of the coded value."""

    name: str
    raw_column: str
    code_sql: str


class _Binder(BagCoder):
    """One binding at work. Mistakes are gathered: from the first one on tables are checked, and no more made than that needs."""

    def __init__(self, bound: BoundModel, vocabulary: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(bound)
        self.vocabulary = vocabulary

    def run(self) -> BoundModel:
        for domain in (*self.spec.domains, *self.spec.inline_domains):
            self._bind_domain(domain)
        for entity in self.spec.entities:
            self._bind_entity(entity)
        for relation in self.spec.relations:
            self._bind_relation(relation)
        for random in self.spec.random_relations:
            self._bind_random_relation(random)
        if self.problems:
            # What several declarations read from one table is told once.
            raise DataError({(d.code, d.message, d.location): d for d in self.problems}.values())
        return self.bound

    # Domains

    def _bind_domain(self, domain: s.Domain) -> None:
        name = quoted(domain_table(domain.name))
        if isinstance(domain, s.RangeDomain):
            self.bound.domains[domain.name] = domain.values
            size = domain.high - domain.low + 1
            columns = f"i::INTEGER AS code, (i + {domain.low})::VARCHAR AS value"
            self._execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {columns} FROM range({size}) AS t(i)")
            return
        known = tuple(self.vocabulary.get(domain.name, ())) if isinstance(domain, s.OpenDomain) else domain.values
        self._execute(f"CREATE OR REPLACE TABLE {name} (code INTEGER, value VARCHAR)")
        if known:
            codes = np.arange(len(known), dtype=np.int32)
            self.connection.register("known_values", {"code": codes, "value": np.asarray(known, dtype=object)})
            self._execute(f"INSERT INTO {name} SELECT code, value FROM known_values")
            self.connection.unregister("known_values")
        if isinstance(domain, s.OpenDomain):
            self._add_data_values(domain, name, len(known))
            known = tuple(str(value) for (value,) in self._execute(f"SELECT value FROM {name} ORDER BY code"))
        self.bound.domains[domain.name] = known

    def _add_data_values(self, domain: s.OpenDomain, name: str, n_known: int) -> None:
        """Add the values of an open domain that the data has to its table, in the order of their texts."""
        spellings = []
        for number, (table, column) in enumerate(self._domain_columns(domain.name)):
            # Cells are made distinct as they are, and cleaned after that: there are few, and cleaning is slow.
            spelling = f"cells.{domain.name}.{number}"
            self._record_source(
                domain.name, self.dataset.find_table(table.name) or table
            )  # of a column of lists, its table
            cells = f"(SELECT DISTINCT raw.{quoted(column)} FROM {table.scan} AS raw) AS raw"
            with self._collect_read_errors(table):
                self._execute(
                    f"CREATE OR REPLACE TABLE {quoted(spelling)} AS "
                    f"SELECT raw.{quoted(column)} AS cell, {text_sql(table, column)} AS value FROM {cells}"
                )
                self.cell_code_tables[domain.name, table.location, column] = spelling
                spellings.append(spelling)
        scans = [f"SELECT DISTINCT value FROM {quoted(spelling)}" for spelling in spellings]
        found = " UNION ".join(scans) if scans else "SELECT NULL::VARCHAR AS value"
        self._execute(
            f"INSERT INTO {name} SELECT {n_known} + row_number() OVER (ORDER BY value) - 1, value FROM ({found}) "
            f"WHERE value IS NOT NULL AND value NOT IN (SELECT value FROM {name})"
        )
        for spelling in spellings:
            coded = f"SELECT s.cell, d.code FROM {quoted(spelling)} AS s JOIN {name} AS d ON d.value = s.value"
            self._execute(f"CREATE OR REPLACE TABLE {quoted(spelling)} AS {coded}")

    def _domain_columns(self, domain: str) -> list[tuple[RawTable, str]]:
        """Return every column that holds values of a domain."""
        found: list[tuple[RawTable, str | None]] = []
        for entity in self.spec.entities:
            table = self.dataset.find_table(entity.name)
            for attribute in entity.attributes:
                if attribute.type == DomainType(domain) and table is not None:
                    found.append((table, table.column(attribute.name)))
                elif attribute.type == Bag(domain) and (bag := self._find_bag_columns(entity, attribute, quiet=True)):
                    found.append((bag[0], bag[2]))
        relations: tuple[s.Relation | s.RandomRelation, ...] = (*self.spec.relations, *self.spec.random_relations)
        for relation in relations:
            table = self.dataset.find_table(relation.name)
            if table is None:
                continue
            if isinstance(relation, s.Relation):
                found += [(table, table.column(a.name)) for a in relation.attributes if a.type == DomainType(domain)]
            elif relation.type == DomainType(domain):
                found.append((table, self._find_value_column(relation, table, quiet=True)))
            columns = self._find_argument_columns(relation, table, quiet=True)
            sorts = [parameter.type_name for parameter in relation.parameters]
            found += [(table, column) for sort, column in zip(sorts, columns, strict=True) if sort == domain]
        return [(table, column) for table, column in found if column is not None]

    # Entities

    def _bind_entity(self, entity: s.Entity) -> None:
        table = self.dataset.find_table(entity.name)
        if table is None:
            self._report_missing_table(f"entity {entity.name}", entity.name)
        else:
            self._record_source(entity.name, table)
            with self._collect_read_errors(table):
                self._bind_entity_table(entity, table)
        for attribute in entity.attributes:
            if isinstance(attribute.type, Bag):
                self._bind_bag(entity, attribute)

    def _bind_entity_table(self, entity: s.Entity, table: RawTable) -> None:
        """The coded table of an entity; of its keys alone where anything is wrong, to tell what relations may name."""
        key = table.column(entity.key)
        if key is None:
            message = f"the table of {entity.name} has no key column '{entity.key}'"
            hint = f"its columns are {listing(table.columns)}; name the key in the model: entity {entity.name}(column)"
            self.problems.append(Diagnostic("E211", message, DataLocation(table.location), hint))
        else:
            kind = self._check_keys(entity, table, key)
        columns = []
        for attribute in entity.attributes:
            if isinstance(attribute.type, Bag):
                continue
            if attribute.latent:
                columns.append(f"NULL::INTEGER AS {quoted(attribute_column(attribute.name))}")
                if table.column(attribute.name):
                    self.bound.notes.append(
                        f"{table.location}: column '{attribute.name}' is not read, for it is latent"
                    )
                continue
            column = self._attribute_sql(entity.name, attribute, table)
            if column is not None:
                columns.append(f"{column} AS {quoted(attribute_column(attribute.name))}")
        if key is None:
            return
        name, text = quoted(entity_table(entity.name)), text_sql(table, key)
        typed = f"CAST({text} AS {kind})"
        if self.problems:
            keys = f"SELECT DISTINCT {typed} AS key FROM {table.scan} AS raw WHERE {text} IS NOT NULL"
            self._execute(f"CREATE OR REPLACE TABLE {name} AS {keys}")
            self.key_types[entity.name] = kind
            return
        numbers = f"(row_number() OVER (ORDER BY {typed}) - 1)::INTEGER AS vid, {typed} AS key"
        self._execute(
            f"CREATE OR REPLACE TABLE {name} AS SELECT {', '.join([numbers, *columns])} FROM {table.scan} AS raw"
        )
        self.key_types[entity.name] = kind
        (size,) = self._execute(f"SELECT count(*) FROM {name}")[0]
        self.bound.sizes[entity.name] = int(str(size))

    def _check_keys(self, entity: s.Entity, table: RawTable, key: str) -> str:
        """Tells of keys that are missing or stand twice; DuckDB's type of the others."""
        text = text_sql(table, key)
        rows, present, distinct, whole = self._execute(
            f"SELECT count(*), count(key), count(DISTINCT key), count({integer_sql('key')}) "
            f"FROM (SELECT {text} AS key FROM {table.scan} AS raw)"
        )[0]
        if present != rows:
            self._report_missing_values(
                table, key, f"the key of a {entity.name} is missing", "every row needs its own key"
            )
        if distinct != present:
            twice = find_duplicate_rows(self.connection, table, key, [text])
            assert twice
            message = f"two rows of {entity.name} have the key '{twice.value}'"
            self.problems.append(twice.diagnostic("E214", message, table, key, "keys must be distinct"))
        return "BIGINT" if whole == present else "VARCHAR"

    # Relations

    def _find_argument_columns(
        self, relation: s.Relation | s.RandomRelation, table: RawTable, *, quiet: bool = False
    ) -> list[str | None]:
        """The columns of a relation's arguments, by name or else the first ones; None for one that is not there."""
        named = [table.column(p.name) for p in relation.parameters]
        if all(named):
            return named
        attributes: set[str | None] = set()
        if isinstance(relation, s.Relation):
            attributes = {table.column(a.name) for a in relation.attributes}
        elif len(table.columns) > len(relation.parameters):
            attributes = {table.column(name) for name in state_column_names(relation)}
        free = [c for c in table.columns if c not in attributes]
        if not any(named) and len(free) >= len(relation.parameters):
            taken = free[: len(relation.parameters)]
            if not quiet:
                pairs = ", ".join(f"'{c}' for {p.name}" for c, p in zip(taken, relation.parameters, strict=True))
                self.bound.notes.append(f"{table.location}: took {pairs}")
            return [*taken]
        for parameter, column in zip(relation.parameters, named, strict=True) if not quiet else ():
            if column is None:
                self._report_missing_column(relation.name, parameter.name, table, guess=any(named))
        return named

    def _bind_relation(self, relation: s.Relation) -> None:
        table = self.dataset.find_table(relation.name)
        if table is None:
            self._report_missing_table(f"relation {relation.name}", relation.name)
            return
        self._record_source(relation.name, table)
        with self._collect_read_errors(table):
            self._bind_observed_tuples(relation, table)

    def _bind_observed_tuples(self, relation: s.Relation, table: RawTable) -> None:
        columns = self._find_argument_columns(relation, table)
        values = []
        for attribute in relation.attributes:
            column, code = table.column(attribute.name), self._attribute_sql(relation.name, attribute, table)
            if column is not None and code is not None:
                values.append(_ValueColumn(attribute_column(attribute.name), column, code))
        self._create_tuple_table(relation, table, columns, values, relation_table(relation.name))

    def _create_tuple_table(
        self,
        relation: s.Relation | s.RandomRelation,
        table: RawTable,
        columns: Sequence[str | None],
        values: Sequence[_ValueColumn],
        name: str,
    ) -> None:
        """Makes a table of the distinct coded tuples with their values, or tells what is wrong with them."""
        codes, joined = [], []
        for k, (parameter, column) in enumerate(zip(relation.parameters, columns, strict=True)):
            if column is None:
                codes.append(("NULL", ""))
            elif self.spec.entity(parameter.type_name):
                joined.append((k, parameter.type_name, column))
                codes.append((f"e{k}.vid", ""))
            else:
                code = self._domain_value_join(f"{relation.name}.{parameter.name}", parameter.type_name, table, column)
                codes.append(code or ("NULL", ""))
        if self.problems:
            self._report_bad_tuples(relation, table, columns, values)
            return
        arguments = [f"a{k}" for k in range(len(codes))]
        selected = [f"{code} AS {a}" for a, (code, _) in zip(arguments, codes, strict=True)]
        selected += [f"{value.code_sql} AS {quoted(value.name)}" for value in values]
        missing = " + ".join(f"count(*) - count({a})" for a in arguments)
        for careful in (False, True):
            joins = [self._entity_join(sort, table, column, f"e{k}", normalize=careful) for k, sort, column in joined]
            joins += [join for _, join in codes]
            self._execute(
                f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT DISTINCT {', '.join(selected)} "
                f"FROM {table.scan} AS raw {' '.join(joins)}"
            )
            (incomplete,) = self._execute(f"SELECT {missing} FROM {quoted(name)}")[0]
            if not incomplete:
                break
        repeated = f"SELECT 1 FROM {quoted(name)} GROUP BY {', '.join(arguments)} HAVING count(*) > 1 LIMIT 1"
        if incomplete or (values and self._execute(repeated)):
            self._report_bad_tuples(relation, table, columns, values)
            assert self.problems, f"the tuples of {relation.name} are wrong, and none is found"

    def _report_bad_tuples(
        self,
        relation: s.Relation | s.RandomRelation,
        table: RawTable,
        columns: Sequence[str | None],
        values: Sequence[_ValueColumn],
    ) -> None:
        """Reports rows that lack an argument, name what is not there, or give a tuple a second value of an attribute.

        Args:
            columns: of the arguments; None where the table has none.
        """
        identity = []
        for parameter, column in zip(relation.parameters, columns, strict=True):
            if column is not None:
                message = f"the {parameter.name} of a {relation.name} is missing"
                self._check_references(parameter.type_name, table, column, message, "a tuple needs all its arguments")
                identity.append(text_sql(table, column))
        for value in values if len(identity) == len(columns) else ():
            again = find_duplicate_rows(self.connection, table, value.raw_column, identity, value.code_sql)
            if again:
                message = (
                    f"a tuple of {relation.name} stands more than once, with different values of '{value.raw_column}'"
                )
                hint = "a tuple has one value of each attribute; add them up or choose one before"
                self.problems.append(again.diagnostic("E220", message, table, value.raw_column, hint))

    def _find_value_column(self, relation: s.RandomRelation, table: RawTable, *, quiet: bool = False) -> str | None:
        """The column with the values of a random relation's variables; None where each tuple that is listed holds."""
        arguments = self._find_argument_columns(relation, table, quiet=True)
        found = table.state_column(relation, arguments)
        rest = [c for c in table.columns if c not in arguments] if all(arguments) else []
        if found is None and not isinstance(relation.type, Bool) and len(rest) == 1:
            found = rest[0]
            if not quiet:
                self.bound.notes.append(f"{table.location}: took '{found}' for the value of {relation.name}")
        elif found is None and rest and not quiet:
            columns = listing(f"'{c}'" for c in rest)
            self.bound.notes.append(
                f"{table.location}: {columns} not read, every tuple of {relation.name} that is listed holds; "
                "a column of truth values is called 'value'"
            )
        return found

    def _bind_random_relation(self, relation: s.RandomRelation) -> None:
        """The tuples that the data lists, with a state each; one without a value is a query."""
        name = listed_table(relation.name)
        table = self.dataset.find_table(relation.name)
        if table is None:
            known = [t.name for t in self.dataset.tables.values()]
            guess = suggestion(relation.name, known)
            remark = f" ({guess})" if guess else ""
            self.bound.notes.append(f"there is no table '{s.fold_name(relation.name)}': every tuple is a query{remark}")
            arguments = ", ".join(f"NULL::INTEGER AS a{k}" for k in range(len(relation.parameters)))
            self._execute(
                f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT {arguments}, NULL::INTEGER AS state WHERE false"
            )
            return
        self._record_source(relation.name, table)
        if isinstance(relation.type, Bool) and not table.is_open:
            # Of a relation that is listed, what is not listed does not hold.
            self.bound.closed_world.add(relation.name)
        with self._collect_read_errors(table):
            self._bind_listed_tuples(relation, table)

    def _bind_listed_tuples(self, relation: s.RandomRelation, table: RawTable) -> None:
        columns = self._find_argument_columns(relation, table)
        column = self._find_value_column(relation, table)
        values = []
        if column is not None:
            code = self._attribute_sql(
                relation.name, s.AttributeDeclaration(column, relation.type, predicted=True), table
            )
            if code is not None:
                values.append(_ValueColumn("state", column, code))
        elif isinstance(relation.type, Bool):
            values.append(_ValueColumn("state", table.columns[0], "1::INTEGER"))
        else:
            message = f"the table of {relation.name} has no column with its values"
            hint = f"call it 'value'; the columns are {listing(table.columns)}"
            self.problems.append(Diagnostic("E212", message, DataLocation(table.location), hint))
        self._create_tuple_table(relation, table, columns, values, listed_table(relation.name))
