"""The binding of a model to a dataset: the tables are checked against the model and coded as dense integers.

A *vid* is the index of an entity within its type, in the order of the keys; a *code* is the index of a value within its
domain. Binding builds a table `vid, key, attributes...` for each entity type; for each relation, a table of distinct
tuples of vids and codes, with their attributes; for each random relation, a table of the tuples in the data with their
states; a table `vid, code, count` for each bag; and a table `code, value` for each domain. All tables are materialized
with int32 columns, which DuckDB joins fastest. `names.py` defines the names of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from relcrf.data.ambiguous_names import find_ambiguous_names
from relcrf.data.bag_coder import BagCoder
from relcrf.data.bound_model import BoundModel
from relcrf.data.coding import find_duplicate_rows, integer_sql, required_sql, text_sql
from relcrf.data.column_coder import ENUM_FRACTION, ENUM_VALUE_BYTES, MAX_ENUM_VALUES
from relcrf.data.dataset import Dataset, quoted
from relcrf.data.names import (
    attribute_column,
    bag_table_names,
    domain_table,
    domain_type,
    entity_table,
    listed_table,
    relation_table,
    state_column_names,
)
from relcrf.data.raw_table import RawTable
from relcrf.data.row_policies import RowRepairer, policy_hint
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion
from relcrf.model import spec as s
from relcrf.model.types import Bag, Bool, DomainType


def bind(
    spec: s.ModelSpec,
    dataset: Dataset,
    vocabulary: Mapping[str, tuple[str, ...]] | None = None,
    statistics: Mapping[str, np.ndarray] | None = None,
) -> BoundModel:
    """Build the coded tables of a model.

    Args:
        vocabulary: Values of the open domains of a trained model, and tokens (see `BoundModel`). These values keep their
            codes; values that occur only in the data get the next codes.
        statistics: Statistics of the training data of a trained model, see `BoundModel`.

    Raises:
        DataError: The tables do not fit the model; the error lists every problem.
    """
    with dataset.store.reraise_plugin_errors():
        statistics = statistics or {}
        bound = BoundModel(
            spec, dataset, notes=[*dataset.notes], statistics=dict(statistics), given_statistics=statistics
        )
        bound.tokens |= {name: values for name, values in (vocabulary or {}).items() if name in statistics}
        return _Binder(bound, vocabulary or {}).run()


def entity_columns(spec: s.ModelSpec, dataset: Dataset) -> dict[str, list[tuple[str, s.Entity]]]:
    """Return, for each table that the model reads, the columns that contain keys of entities, with their entity types."""
    binder = _Binder(BoundModel(spec, dataset), {})
    found: dict[str, dict[tuple[str, s.Entity], None]] = {}
    for entity in spec.entities:
        table = dataset.find_table(entity.name)
        if table is not None and (key := table.column(entity.key)) is not None:
            found.setdefault(table.name, {})[key, entity] = None
    for _, table_name, columns in binder.find_references():
        found.setdefault(table_name, {}).update(dict.fromkeys(columns.items()))
    return {name: [*columns] for name, columns in found.items()}


KEY_SAMPLE = 1000
"""Number of rows from which the type of a key is guessed; if later keys are not whole numbers, the table is built again."""


@dataclass(frozen=True)
class _ValueColumn:
    """A column of values of tuples: its name in the coded table, its name in the raw table, and SQL of the code."""

    name: str
    raw_column: str
    code_sql: str


class _Binder(BagCoder):
    """The state of one binding.

    Problems are collected. After the first problem, tables are checked, but only what further checks need is built.
    """

    def __init__(self, bound: BoundModel, vocabulary: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(bound)
        self.vocabulary = vocabulary

    def run(self) -> BoundModel:
        declared: tuple[s.Entity | s.AnyRelation, ...]
        declared = (*self.spec.entities, *self.spec.relations, *self.spec.random_relations)
        bags = [(e, a) for e in self.spec.entities for a in e.attributes if isinstance(a.type, Bag)]
        self.dataset.read_tables([*(d.name for d in declared), *(n for bag in bags for n in bag_table_names(*bag))])
        tables = self.dataset.tables
        self.problems += find_ambiguous_names(
            self.spec, tables, lambda table: table.location, lambda table, name: table.column_type(name).endswith("[]")
        )
        self._repair_rows()
        for domain in (*self.spec.domains, *self.spec.inline_domains):
            self._bind_domain(domain)
        self._drop_copied_cells()
        for entity in self.spec.entities:
            self._bind_entity(entity)
        for relation in self.spec.relations:
            self._bind_relation(relation)
        for random in self.spec.random_relations:
            self._bind_random_relation(random)
        if self.problems:
            # Several declarations may read the same table; report its problems only once.
            raise DataError({(d.code, d.message, d.location): d for d in self.problems}.values())
        self._note_missing_times()
        return self.bound

    def _note_missing_times(self) -> None:
        """Add a note for each entity type or relation with rows that lack the time that `as of` compares."""
        owners: tuple[s.Entity | s.Relation, ...] = (*self.spec.entities, *self.spec.relations)
        for owner in owners:
            declared = self.spec.time_attribute(owner.name)
            if declared is None:
                continue
            name = entity_table(owner.name) if isinstance(owner, s.Entity) else relation_table(owner.name)
            column = quoted(attribute_column(declared.name))
            ((rows, known),) = self._execute(f"SELECT count(*), count({column}) FROM {quoted(name)}")
            if known != rows:
                missing = (
                    f"{int(str(rows)) - int(str(known)):,} of {int(str(rows)):,} rows of {owner.name} have no time"
                )
                self.bound.notes.append(f"{missing} '{declared.name}': declarations with 'as of' do not use them")

    def _repair_rows(self) -> None:
        """Apply the policies of the manifest for duplicate rows and orphans, and record all repairs."""
        repairer = RowRepairer(self.bound)
        for repair in self.dataset.missing_text_repairs:
            repairer.record(repair)
        for entity in self.spec.entities:
            table = self.bound.find_table(entity.name)
            if table is not None and (key := table.column(entity.key)) is not None:
                with self._collect_read_errors(table):
                    repairer.merge_duplicates(table, [key], "key")
        relations: tuple[s.Relation | s.RandomRelation, ...] = (*self.spec.relations, *self.spec.random_relations)
        for relation in relations:
            table = self.bound.find_table(relation.name)
            found = [] if table is None else self._find_argument_columns(relation, table, quiet=True)
            columns = [column for column in found if column is not None]
            if table is not None and len(columns) == len(relation.parameters):
                with self._collect_read_errors(table):
                    repairer.merge_duplicates(table, columns, "arguments")
        references = self.find_references()
        referring = [
            (name, table, referred)
            for name, table_name, referred in references
            if (table := self.bound.find_table(table_name)) is not None
        ]
        for entity in self.spec.entities:
            added = [
                (table, column)
                for _, table, referred in referring
                for column, other in referred.items()
                if table.policies.orphans == "add" and other is entity
            ]
            if added:
                with self._collect_read_errors(added[0][0]):
                    repairer.add_entities(entity, added)
        for name, table, referred in referring:
            if table.policies.orphans == "drop" and referred:
                with self._collect_read_errors(table):
                    repairer.drop_orphans(name, table, referred)

    def find_references(self) -> list[tuple[str, str, dict[str, s.Entity]]]:
        """Return, for each relation and each bag with a table: its name, its table, and the entity types by column."""
        references: list[tuple[str, str, dict[str, s.Entity]]] = []
        for entity in self.spec.entities:
            table = self.bound.find_table(entity.name)
            for attribute in (a for a in entity.attributes if isinstance(a.type, Bag)):
                bag = self._find_bag_columns(entity, attribute, quiet=True)
                if bag is not None and (table is None or bag[0].name != table.name):
                    references.append((f"{entity.name}.{attribute.name}", bag[0].name, {bag[1]: entity}))
        relations: tuple[s.Relation | s.RandomRelation, ...] = (*self.spec.relations, *self.spec.random_relations)
        for relation in relations:
            table = self.bound.find_table(relation.name)
            columns = [] if table is None else self._find_argument_columns(relation, table, quiet=True)
            if table is not None and all(columns):
                types = [self.spec.entity(parameter.type_name) for parameter in relation.parameters]
                pairs = zip(columns, types, strict=True)
                referred = {column: kind for column, kind in pairs if column is not None and kind is not None}
                references.append((relation.name, table.name, referred))
        return references

    # Domains

    def _bind_domain(self, domain: s.Domain) -> None:
        name = quoted(domain_table(domain.name))
        if isinstance(domain, s.RangeDomain):
            self.bound.domains[domain.name] = domain.values
            size = domain.high - domain.low + 1
            columns = f"i::INTEGER AS code, (i + {domain.low})::VARCHAR AS value"
            self._execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {columns} FROM range({size}) AS t(i)")
            return
        values: Sequence[str] = domain.values if not isinstance(domain, s.OpenDomain) else ()
        if isinstance(domain, s.OpenDomain):
            values = tuple(self.vocabulary.get(domain.name, ()))
        self._execute(f"CREATE OR REPLACE TABLE {name} (code INTEGER, value VARCHAR)")
        if values:
            codes = np.arange(len(values), dtype=np.int32)
            self.connection.register("known_values", {"code": codes, "value": np.asarray(values, dtype=object)})
            self._execute(f"INSERT INTO {name} SELECT code, value FROM known_values")
            self.connection.unregister("known_values")
        if isinstance(domain, s.OpenDomain):
            self._add_data_values(domain, name, len(values))
            in_order = f"SELECT value FROM {name} ORDER BY code"
            values = self.bound.read_texts(in_order)
            if self._has_type(domain.name, name, len(values)):
                self._execute(f"CREATE TYPE {quoted(domain_type(domain.name))} AS ENUM ({in_order})")
                self.typed_domains.add(domain.name)
        self.bound.domains[domain.name] = values

    def _has_type(self, domain: str, table: str, n_values: int) -> bool:
        """Return True if a DuckDB type of the values of an open domain is small; see `MAX_ENUM_VALUES`."""
        if not 0 < n_values <= MAX_ENUM_VALUES:
            return False
        ((n_characters,),) = self._execute(f"SELECT sum(strlen(value)) FROM {table}")
        n_bytes = int(str(n_characters)) + ENUM_VALUE_BYTES * n_values
        return n_bytes <= ENUM_FRACTION * self.dataset.store.n_bytes

    def _add_data_values(self, domain: s.OpenDomain, name: str, n_known: int) -> None:
        """Append the values in the data that the table `name` of an open domain lacks, in lexicographic order."""
        scans = []
        for table, column in self._domain_columns(domain.name):
            # Deduplicate the raw cells before they are trimmed: trimming is slow, and many cells are equal.
            source = self.bound.find_table(table.name) or table  # for a list column, `table` unnests the raw table
            self._record_source(domain.name, source)
            with self._collect_read_errors(table):
                scan = self._scan_of_cells(table, self._columns_of_open_domains)
                cells = f"(SELECT DISTINCT raw.{quoted(column)} FROM {scan} AS raw) AS raw"
                values = self.dataset.store.new_name("values")
                self._execute(
                    f"CREATE TEMP TABLE {values} AS SELECT DISTINCT {text_sql(table, column)} AS value FROM {cells}"
                )
                scans.append(values)
        found = " UNION ".join(f"SELECT value FROM {scan}" for scan in scans) or "SELECT NULL::VARCHAR AS value"
        self._execute(
            f"INSERT INTO {name} SELECT {n_known} + row_number() OVER (ORDER BY value) - 1, value FROM ({found}) "
            f"WHERE value IS NOT NULL AND value NOT IN (SELECT value FROM {name})"
        )
        for values in scans:
            self._execute(f"DROP TABLE {values}")

    def _columns_of_open_domains(self, table: RawTable) -> set[str]:
        domains = [d.name for d in (*self.spec.domains, *self.spec.inline_domains) if isinstance(d, s.OpenDomain)]
        return {c for name in domains for each, c in self._domain_columns(name) if each.scan == table.scan}

    def _domain_columns(self, domain: str) -> list[tuple[RawTable, str]]:
        """Return every column that holds values of a domain."""
        columns_found: list[tuple[RawTable, str | None]] = []
        for entity in self.spec.entities:
            table = self.bound.find_table(entity.name)
            for attribute in entity.attributes:
                if attribute.type == DomainType(domain) and table is not None:
                    columns_found.append((table, table.column(attribute.name)))
                elif attribute.type == Bag(domain) and (bag := self._find_bag_columns(entity, attribute, quiet=True)):
                    columns_found.append((bag[0], bag[2]))
        relations: tuple[s.Relation | s.RandomRelation, ...] = (*self.spec.relations, *self.spec.random_relations)
        for relation in relations:
            table = self.bound.find_table(relation.name)
            if table is None:
                continue
            if isinstance(relation, s.Relation):
                columns_found += [
                    (table, table.column(a.name)) for a in relation.attributes if a.type == DomainType(domain)
                ]
            elif relation.type == DomainType(domain):
                columns_found.append((table, self._find_value_column(relation, table, quiet=True)))
            columns = self._find_argument_columns(relation, table, quiet=True)
            type_names = [parameter.type_name for parameter in relation.parameters]
            columns_found += [
                (table, column) for type_name, column in zip(type_names, columns, strict=True) if type_name == domain
            ]
        return [(table, column) for table, column in columns_found if column is not None]

    # Entities

    def _bind_entity(self, entity: s.Entity) -> None:
        table = self.bound.find_table(entity.name)
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
        """Create the coded table of an entity type; after a problem, only its key column, to check references."""
        key = table.column(entity.key)
        if key is None:
            message = f"the table of {entity.name} has no key column '{entity.key}'"
            hint = f"its columns are {listing(table.columns)}; name the key in the model: entity {entity.name}(column)"
            self.problems.append(Diagnostic("E211", message, DataLocation(table.location), hint))
        elif self._attempt(lambda: self._create_entity_table(entity, table, key)):
            return
        else:
            key_type = self._check_keys(entity, table, key)
        columns = self._attribute_columns(entity, table)
        if key is None:
            return
        if not self.problems:
            self._store_entities(entity, table, key, key_type, columns)
            return
        name, text = quoted(entity_table(entity.name)), text_sql(table, key)
        keys = f"SELECT DISTINCT CAST({text} AS {key_type}) AS key FROM {table.scan} AS raw WHERE {text} IS NOT NULL"
        self._execute(f"CREATE OR REPLACE TABLE {name} AS {keys}")
        self.key_types[entity.name] = key_type

    def _attribute_columns(self, entity: s.Entity, table: RawTable) -> list[str]:
        """Return SQL of the coded columns of an entity type, without those that cannot be coded."""
        columns = []
        for attribute in entity.attributes:
            if isinstance(attribute.type, Bag):
                continue
            if attribute.latent:
                columns.append(f"NULL::INTEGER AS {quoted(attribute_column(attribute.name))}")
                if table.column(attribute.name):
                    self.bound.notes.append(
                        f"{table.location}: column '{attribute.name}' is ignored because its attribute is latent"
                    )
                continue
            column = self._attribute_sql(entity.name, attribute, table)
            if column is not None:
                columns.append(f"{column} AS {quoted(attribute_column(attribute.name))}")
        return columns

    def _create_entity_table(self, entity: s.Entity, table: RawTable, key: str) -> bool:
        """Create the coded table of an entity type in one pass; return False if there is a problem."""
        columns = self._attribute_columns(entity, table)
        if not self.problems:
            self._store_entities(entity, table, key, self._guess_key_type(table, key), columns)
        return not self.problems

    def _store_entities(
        self, entity: s.Entity, table: RawTable, key: str, key_type: str, columns: Sequence[str]
    ) -> None:
        """Create the coded table of an entity type; the query stops at a missing or duplicate key."""
        text = text_sql(table, key)
        typed = required_sql(integer_sql(text) if key_type == "BIGINT" else text)
        # Sorting before numbering is faster than a window that is sorted by the key.
        name = quoted(entity_table(entity.name))
        joins = self._joins_for(*columns)
        coded = f"SELECT {', '.join([f'{typed} AS key', *columns])} FROM {table.scan} AS raw {joins}"
        if joins:  # the join with a large table of values and the sort do not fit together
            self._execute(f"CREATE OR REPLACE TABLE {name} AS {coded}")
            coded = f"FROM {name}"
        rows = f"{coded} ORDER BY key"
        number = "CASE WHEN key IS DISTINCT FROM lag(key) OVER () THEN (row_number() OVER () - 1)::INTEGER END"
        ((size,),) = self._execute(
            f"CREATE OR REPLACE TABLE {name} AS SELECT {required_sql(number)} AS vid, * FROM ({rows})"
        )
        self.key_types[entity.name] = key_type
        self.bound.sizes[entity.name] = self.bound.row_counts[table.location] = int(str(size))

    def _guess_key_type(self, table: RawTable, key: str) -> str:
        """Return DuckDB's type of the key column according to the first rows."""
        keys = f"SELECT {text_sql(table, key)} AS key FROM {table.scan} AS raw LIMIT {KEY_SAMPLE}"
        ((whole,),) = self._execute(f"SELECT bool_and({integer_sql('key')} IS NOT NULL) FROM ({keys})")
        return "VARCHAR" if whole is False else "BIGINT"

    def _check_keys(self, entity: s.Entity, table: RawTable, key: str) -> str:
        """Report missing and duplicate keys; return DuckDB's type of the key column."""
        text = text_sql(table, key)
        rows, present, distinct, integers = self._execute(
            f"SELECT count(*), count(key), count(DISTINCT key), count({integer_sql('key')}) "
            f"FROM (SELECT {text} AS key FROM {table.scan} AS raw)"
        )[0]
        if present != rows:
            self._report_missing_values(
                table, key, f"the key of a {entity.name} is missing", "every row needs a distinct key"
            )
        if distinct != present:
            duplicates = find_duplicate_rows(self.connection, table, key, [text])
            assert duplicates
            message = f"two rows of {entity.name} have the key '{duplicates.value}'"
            hint = f"keys must be distinct; {policy_hint(table, 'duplicates')}"
            self.problems.append(duplicates.diagnostic("E214", message, table, key, hint))
        return "BIGINT" if integers == present else "VARCHAR"

    # Relations

    def _find_argument_columns(
        self, relation: s.Relation | s.RandomRelation, table: RawTable, *, quiet: bool = False
    ) -> list[str | None]:
        """Find the column of each argument of a relation by name, or else by position; None for a missing column."""
        by_name = [table.column(p.name) for p in relation.parameters]
        if all(by_name):
            return by_name
        attributes: set[str | None] = set()
        if isinstance(relation, s.Relation):
            attributes = {table.column(a.name) for a in relation.attributes}
        elif len(table.columns) > len(relation.parameters):
            attributes = {table.column(name) for name in state_column_names(relation)}
        free = [c for c in table.columns if c not in attributes]
        if not any(by_name) and len(free) >= len(relation.parameters):
            by_position = free[: len(relation.parameters)]
            if not quiet:
                pairs = ", ".join(f"'{c}' for {p.name}" for c, p in zip(by_position, relation.parameters, strict=True))
                self.bound.notes.append(f"{table.location}: using {pairs}")
            return [*by_position]
        for parameter, column in zip(relation.parameters, by_name, strict=True) if not quiet else ():
            if column is None:
                self._report_missing_column(relation.name, parameter.name, table, guess=any(by_name))
        return by_name

    def _bind_relation(self, relation: s.Relation) -> None:
        table = self.bound.find_table(relation.name)
        if table is None:
            self._report_missing_table(f"relation {relation.name}", relation.name)
            return
        self._record_source(relation.name, table)
        with self._collect_read_errors(table):
            self._bind_observed_tuples(relation, table)

    def _bind_observed_tuples(self, relation: s.Relation, table: RawTable) -> None:
        def find_values() -> list[_ValueColumn]:
            values = []
            for attribute in relation.attributes:
                column, code = table.column(attribute.name), self._attribute_sql(relation.name, attribute, table)
                if column is not None and code is not None:
                    values.append(_ValueColumn(attribute_column(attribute.name), column, code))
            return values

        columns = self._find_argument_columns(relation, table)
        self._create_tuple_table(relation, table, columns, find_values, relation_table(relation.name))

    def _create_tuple_table(
        self,
        relation: s.Relation | s.RandomRelation,
        table: RawTable,
        columns: Sequence[str | None],
        find_values: Callable[[], list[_ValueColumn]],
        name: str,
    ) -> None:
        """Create the table of the distinct coded tuples with their values, or report the tuples that are invalid."""
        for normalize in (False, True):
            build = partial(self._create_distinct_tuples, relation, table, columns, find_values, name, normalize)
            if self._attempt(build):
                return
        self._report_bad_tuples(relation, table, columns, find_values())
        assert self.problems, f"no bad row found in the table of {relation.name}, although its tuples are invalid"

    def _create_distinct_tuples(
        self,
        relation: s.Relation | s.RandomRelation,
        table: RawTable,
        columns: Sequence[str | None],
        find_values: Callable[[], list[_ValueColumn]],
        name: str,
        normalize: bool,
    ) -> bool:
        """Create the table of the distinct coded tuples; return False if a tuple has several values.

        The query stops at a tuple without an argument, with an unknown entity, or with an invalid value.
        """
        values = find_values()
        if self.problems:
            return False
        codes, joins = [], []
        for k, (parameter, column) in enumerate(zip(relation.parameters, columns, strict=True)):
            assert column is not None
            if self.spec.entity(parameter.type_name):
                joins.append(self._entity_join(parameter.type_name, table, column, f"e{k}", normalize=normalize))
                codes.append(f"e{k}.vid")
            else:
                code = self._domain_code_sql(f"{relation.name}.{parameter.name}", parameter.type_name, table, column)
                codes.append(code or "NULL")
        arguments = [f"a{k}" for k in range(len(codes))]
        selected = [f"{required_sql(code)} AS {a}" for a, code in zip(arguments, codes, strict=True)]
        selected += [f"{value.code_sql} AS {quoted(value.name)}" for value in values]
        source = f"{table.scan} AS raw {' '.join(joins)} {self._joins_for(*selected)}"
        ((rows,),) = self._execute(
            f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT {', '.join(selected)} FROM {source}"
        )
        self.bound.row_counts[table.location] = int(str(rows))
        repeated = f"SELECT 1 FROM {quoted(name)} GROUP BY {', '.join(arguments)} HAVING count(*) > 1 LIMIT 1"
        if self._execute(repeated):
            distinct = quoted(f"distinct.{name}")
            self._execute(f"CREATE OR REPLACE TABLE {distinct} AS SELECT DISTINCT * FROM {quoted(name)}")
            self._execute(f"DROP TABLE {quoted(name)}; ALTER TABLE {distinct} RENAME TO {quoted(name)}")
            return not values or not self._execute(repeated)
        return True

    def _report_bad_tuples(
        self,
        relation: s.Relation | s.RandomRelation,
        table: RawTable,
        columns: Sequence[str | None],
        values: Sequence[_ValueColumn],
    ) -> None:
        """Report rows that lack an argument, refer to an unknown entity, or repeat a tuple with a different value.

        Args:
            columns: Columns of the arguments; None for a missing column.
        """
        identity = []
        for parameter, column in zip(relation.parameters, columns, strict=True):
            if column is not None:
                message = f"the {parameter.name} of a {relation.name} is missing"
                self._check_references(
                    parameter.type_name, table, column, message, "every tuple needs all its arguments"
                )
                identity.append(text_sql(table, column))
        for value in values if len(identity) == len(columns) else ():
            # The text of a value of an open domain identifies the value.
            same = text_sql(table, value.raw_column) if self._joins_for(value.code_sql) else value.code_sql
            duplicates = find_duplicate_rows(self.connection, table, value.raw_column, identity, same)
            if duplicates:
                message = (
                    f"a tuple of {relation.name} occurs more than once, with different values of '{value.raw_column}'"
                )
                hint = f"a tuple has one value per attribute; {policy_hint(table, 'duplicates')}"
                self.problems.append(duplicates.diagnostic("E220", message, table, value.raw_column, hint))

    def _find_value_column(self, relation: s.RandomRelation, table: RawTable, *, quiet: bool = False) -> str | None:
        """Return the column with the values of a random relation; None if there is none.

        Without such a column, the listed tuples of a boolean relation are true.
        """
        arguments = self._find_argument_columns(relation, table, quiet=True)
        column = table.state_column(relation, arguments)
        other_columns = [c for c in table.columns if c not in arguments] if all(arguments) else []
        if column is None and not isinstance(relation.type, Bool) and len(other_columns) == 1:
            column = other_columns[0]
            if not quiet:
                self.bound.notes.append(f"{table.location}: using '{column}' as the value of {relation.name}")
        elif column is None and other_columns and not quiet:
            columns = listing(f"'{c}'" for c in other_columns)
            self.bound.notes.append(
                f"{table.location}: ignoring {columns}: every listed tuple of {relation.name} is true; "
                "a column of truth values must be named 'value'"
            )
        return column

    def _bind_random_relation(self, relation: s.RandomRelation) -> None:
        """Create the table of a random relation's listed tuples and states; a tuple without a value is unobserved."""
        name = listed_table(relation.name)
        table = self.bound.find_table(relation.name)
        if table is None:
            guess = suggestion(relation.name, self.dataset.table_names)
            remark = f" ({guess})" if guess else ""
            self.bound.notes.append(
                f"the table '{s.fold_name(relation.name)}' is missing: every tuple is a query variable{remark}"
            )
            arguments = ", ".join(f"NULL::INTEGER AS a{k}" for k in range(len(relation.parameters)))
            self._execute(
                f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT {arguments}, NULL::INTEGER AS state WHERE false"
            )
            return
        self._record_source(relation.name, table)
        if isinstance(relation.type, Bool) and not table.is_open:
            # Closed world: a tuple that the table does not list is false.
            self.bound.closed_world.add(relation.name)
        with self._collect_read_errors(table):
            self._bind_listed_tuples(relation, table)

    def _bind_listed_tuples(self, relation: s.RandomRelation, table: RawTable) -> None:
        def find_values() -> list[_ValueColumn]:
            if column is not None:
                attribute = s.AttributeDeclaration(column, relation.type, predicted=True)
                code = self._attribute_sql(relation.name, attribute, table)
                return [] if code is None else [_ValueColumn("state", column, code)]
            return [_ValueColumn("state", table.columns[0], "1::INTEGER")] if isinstance(relation.type, Bool) else []

        columns = self._find_argument_columns(relation, table)
        column = self._find_value_column(relation, table)
        if column is None and not isinstance(relation.type, Bool):
            message = f"the table of {relation.name} has no column with its values"
            hint = f"name it 'value'; the columns are {listing(table.columns)}"
            self.problems.append(Diagnostic("E212", message, DataLocation(table.location), hint))
        self._create_tuple_table(relation, table, columns, find_values, listed_table(relation.name))
