"""A model's declarations tied to a dataset's tables, checked and coded to dense integers.

For each entity a table of `vid, key, attributes...`, vid counted from 0 in the order of the keys; for each relation one of
distinct tuples of vids and codes with their attributes; for each random relation the tuples that the data lists, with
their states; for each bag `vid, code, count`; for each domain `code, value` (`names.py` says what they are called).
All real tables with int32 columns: joins over them are what DuckDB is fastest at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np

from relcrf.data.bags import Bags
from relcrf.data.bound import Bound, find_entity, key_column
from relcrf.data.coding import bad_rows, bad_value, text_of, whole_number
from relcrf.data.dataset import Dataset, RawTable, quoted
from relcrf.data.names import attribute_column, domain_table, entity_table, listed_table, relation_table
from relcrf.errors import DataError, DataPlace, Diagnostic, listing, suggestion
from relcrf.model.spec import (
    AttributeDeclaration,
    Domain,
    Entity,
    EnumeratedDomain,
    ModelSpec,
    OpenDomain,
    RandomRelation,
    RangeDomain,
    Relation,
    folded,
)
from relcrf.model.types import Bag, Bool, DomainType


def bind(spec: ModelSpec, dataset: Dataset, vocabulary: Mapping[str, tuple[str, ...]] | None = None) -> Bound:
    """Makes the coded tables of a model.

    Args:
        vocabulary: values of open domains that keep their codes, as a trained model knew them; new values come after.

    Raises:
        DataError: with every mistake that was found in the tables.
    """
    try:
        return _Binder(Bound(spec, dataset), vocabulary or {}).run()
    except (duckdb.InvalidInputException, duckdb.IOException) as error:
        notes = tuple(line for line in str(error).splitlines() if line.strip())[:4]
        raise DataError(Diagnostic("E204", "a table cannot be read", DataPlace(dataset.place), notes=notes)) from None


class _Binder(Bags):
    """One binding at work. Mistakes are gathered; a step whose inputs are broken is skipped."""

    def __init__(self, bound: Bound, vocabulary: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(bound)
        self.vocabulary = vocabulary

    def run(self) -> Bound:
        for domain in (*self.spec.domains, *self.spec.inline_domains):
            self._domain(domain)
        for entity in self.spec.entities:
            self._entity(entity)
        for relation in self.spec.relations:
            self._relation(relation)
        for random in self.spec.random_relations:
            self._random_relation(random)
        if self.problems:
            raise DataError(self.problems)
        return self.bound

    # Domains

    def _domain(self, domain: Domain) -> None:
        name = quoted(domain_table(domain.name))
        if not isinstance(domain, OpenDomain):
            self.bound.domains[domain.name] = domain.values
            self._closed_domain(domain, name)
            return
        spellings = []
        for number, (table, column) in enumerate(self._columns_of(domain.name)):
            # Cells are made distinct as they are, and cleaned after that: there are few, and cleaning is slow.
            spelling = f"cells.{domain.name}.{number}"
            self._read_from(domain.name, self.dataset.find(table.name) or table)  # of a column of lists, its table
            cells = f"(SELECT DISTINCT raw.{quoted(column)} FROM {table.scan} AS raw) AS raw"
            self._sql(
                f"CREATE OR REPLACE TABLE {quoted(spelling)} AS "
                f"SELECT raw.{quoted(column)} AS cell, {text_of(table, column)} AS value FROM {cells}"
            )
            self.spellings[domain.name, table.place, column] = spelling
            spellings.append(spelling)
        known = tuple(self.vocabulary.get(domain.name, ()))
        scans = [f"SELECT DISTINCT value FROM {quoted(spelling)}" for spelling in spellings]
        found = " UNION ".join(scans) if scans else "SELECT NULL::VARCHAR AS value"
        self._sql(f"CREATE OR REPLACE TABLE {name} (code INTEGER, value VARCHAR)")
        if known:
            codes = np.arange(len(known), dtype=np.int32)
            self.connection.register("known_values", {"code": codes, "value": np.asarray(known, dtype=object)})
            self._sql(f"INSERT INTO {name} SELECT code, value FROM known_values")
            self.connection.unregister("known_values")
        self._sql(
            f"INSERT INTO {name} SELECT {len(known)} + row_number() OVER (ORDER BY value) - 1, value FROM ({found}) "
            f"WHERE value IS NOT NULL AND value NOT IN (SELECT value FROM {name})"
        )
        for spelling in spellings:
            coded = f"SELECT s.cell, d.code FROM {quoted(spelling)} AS s JOIN {name} AS d ON d.value = s.value"
            self._sql(f"CREATE OR REPLACE TABLE {quoted(spelling)} AS {coded}")
        values = self._sql(f"SELECT value FROM {name} ORDER BY code")
        self.bound.domains[domain.name] = tuple(str(row[0]) for row in values)

    def _closed_domain(self, domain: RangeDomain | EnumeratedDomain, name: str) -> None:
        if isinstance(domain, RangeDomain):
            size = domain.high - domain.low + 1
            columns = f"i::INTEGER AS code, (i + {domain.low})::VARCHAR AS value"
            self._sql(f"CREATE OR REPLACE TABLE {name} AS SELECT {columns} FROM range({size}) AS t(i)")
            return
        codes = np.arange(len(domain.values), dtype=np.int32)
        values = np.asarray(domain.values, dtype=object)
        self.connection.register("known_values", {"code": codes, "value": values})
        self._sql(f"CREATE OR REPLACE TABLE {name} AS SELECT code, value FROM known_values")
        self.connection.unregister("known_values")

    def _columns_of(self, domain: str) -> list[tuple[RawTable, str]]:
        """Every column that holds values of a domain."""
        found = []
        for entity in self.spec.entities:
            table = find_entity(self.dataset, entity.name)
            for attribute in entity.attributes:
                column = table.column(attribute.name) if table else None
                if attribute.type == DomainType(domain) and table and column:
                    found.append((table, column))
                if attribute.type == Bag(domain):
                    bag = self._bag_columns(entity, attribute, quiet=True)
                    if bag:
                        found.append((bag[0], bag[2]))
        for relation in self.spec.relations:
            table = self.dataset.find(relation.name)
            for attribute in relation.attributes:
                own = table.column(attribute.name) if table else None
                if attribute.type == DomainType(domain) and table and own:
                    found.append((table, own))
        for random in self.spec.random_relations:
            table = self.dataset.find(random.name)
            value = self._value_column(random, table, quiet=True) if table else None
            if table and value and random.type == DomainType(domain):
                found.append((table, value))
        relations: tuple[Relation | RandomRelation, ...] = (*self.spec.relations, *self.spec.random_relations)
        for each in relations:
            table = self.dataset.find(each.name)
            columns = self._argument_columns(each, table, quiet=True) if table else None
            for parameter, column in zip(each.parameters, columns or (), strict=False):
                if parameter.sort == domain and table:
                    found.append((table, column))
        return found

    # Entities

    def _entity(self, entity: Entity) -> None:
        table = find_entity(self.dataset, entity.name)
        if table is None:
            self._missing_table(f"entity {entity.name}", entity.name)
            return
        key = key_column(table, entity)
        if key is None:
            message = f"the table of {entity.name} has no key column '{entity.key}'"
            hint = f"its columns are {listing(table.columns)}; name the key in the model: entity {entity.name}(column)"
            self.problems.append(Diagnostic("E211", message, DataPlace(table.place), hint))
            return
        self._read_from(entity.name, table)
        if not self._check_keys(entity, table, key):
            return
        text = text_of(table, key)
        (numeric,) = self._sql(f"SELECT count(*) = count({whole_number(text)}) FROM {table.scan} AS raw")[0]
        self.key_types[entity.name] = kind = "BIGINT" if numeric else "VARCHAR"
        columns = [f"(row_number() OVER (ORDER BY CAST({text} AS {kind})) - 1)::INTEGER AS vid"]
        columns.append(f"CAST({text} AS {kind}) AS key")
        for attribute in entity.attributes:
            if isinstance(attribute.type, Bag):
                continue
            if attribute.latent:
                columns.append(f"NULL::INTEGER AS {quoted(attribute_column(attribute.name))}")
                if table.column(attribute.name):
                    self.bound.notes.append(f"{table.place}: column '{attribute.name}' is not read, for it is latent")
                continue
            column = self._attribute(entity.name, attribute, table)
            if column is not None:
                columns.append(f"{column} AS {quoted(attribute_column(attribute.name))}")
        if self.problems:
            # A broken column must not hide what is wrong elsewhere: go on with the keys alone.
            columns = columns[:2]
        self._sql(
            f"CREATE OR REPLACE TABLE {quoted(entity_table(entity.name))} AS SELECT {', '.join(columns)} FROM {table.scan} AS raw"
        )
        (size,) = self._sql(f"SELECT count(*) FROM {quoted(entity_table(entity.name))}")[0]
        self.bound.sizes[entity.name] = int(str(size))
        for attribute in entity.attributes:
            if isinstance(attribute.type, Bag):
                self._bag(entity, attribute)

    def _check_keys(self, entity: Entity, table: RawTable, key: str) -> bool:
        text = text_of(table, key)
        count, rows = bad_rows(self.connection, table, key, f"{text} IS NULL")
        if count:
            message = f"the key of a {entity.name} is missing"
            self.problems.append(bad_value("E213", message, table, key, count, rows, "every row needs its own key"))
            return False
        (repeated,) = self._sql(f"SELECT count(*) > count(DISTINCT {text}) FROM {table.scan} AS raw")[0]
        if not repeated:
            return True
        twice = self._sql(
            f"SELECT k, list_slice(list_sort(list(row)), 1, 3) FROM (SELECT {text} AS k, row_number() OVER () AS row "
            f"FROM {table.scan} AS raw) GROUP BY k HAVING count(*) > 1 ORDER BY min(row) LIMIT 1"
        )
        if twice:
            value, places = str(twice[0][0]), list(twice[0][1])  # type: ignore[call-overload]
            message = f"two rows of {entity.name} have the key '{value}'"
            place = DataPlace(table.place, int(places[1]), key)
            note = f"it stands first in row {places[0]}"
            self.problems.append(Diagnostic("E214", message, place, "keys must be distinct", (note,)))
        return not twice

    # Relations

    def _argument_columns(
        self, relation: Relation | RandomRelation, table: RawTable, *, quiet: bool = False
    ) -> list[str] | None:
        named = [table.column(p.name) for p in relation.parameters]
        if all(named):
            return [c for c in named if c is not None]
        attributes: set[str | None] = set()
        if isinstance(relation, Relation):
            attributes = {table.column(a.name) for a in relation.attributes}
        elif len(table.columns) > len(relation.parameters):
            attributes = {table.column(name) for name in _value_names(relation)}
        free = [c for c in table.columns if c not in attributes]
        if any(named) or len(free) < len(relation.parameters):
            if not quiet:
                missing = relation.parameters[named.index(None)].name
                message = f"the table of {relation.name} has no column '{missing}'"
                guess = suggestion(missing, table.columns) if any(named) else None
                hint = guess or f"its columns are {listing(table.columns)}"
                self.problems.append(Diagnostic("E212", message, DataPlace(table.place), hint))
            return None
        taken = free[: len(relation.parameters)]
        if not quiet:
            pairs = ", ".join(f"'{c}' for {p.name}" for c, p in zip(taken, relation.parameters, strict=True))
            self.bound.notes.append(f"{table.place}: took {pairs}")
        return taken

    def _relation(self, relation: Relation) -> None:
        table = self.dataset.find(relation.name)
        if table is None:
            self._missing_table(f"relation {relation.name}", relation.name)
            return
        self._read_from(relation.name, table)
        columns = self._argument_columns(relation, table)
        if columns is None:
            return
        selected = []
        for attribute in relation.attributes:
            own = self._attribute(relation.name, attribute, table)
            if own is None:
                return
            selected.append(f"{own} AS {quoted(attribute_column(attribute.name))}")
        self._tuples(relation, table, columns, selected, relation_table(relation.name))
        if relation.attributes and not self.problems:
            self._check_tuples(relation, table, relation_table(relation.name))

    def _tuples(
        self, relation: Relation | RandomRelation, table: RawTable, columns: list[str], more: Sequence[str], name: str
    ) -> None:
        """Makes a table of the distinct coded tuples, with more columns beside the arguments."""
        entities, codes = [], []
        for parameter, column in zip(relation.parameters, columns, strict=True):
            count, rows = bad_rows(self.connection, table, column, f"{text_of(table, column)} IS NULL")
            if count:
                message = f"the {parameter.name} of a {relation.name} is missing"
                hint = "a tuple needs all its arguments"
                self.problems.append(bad_value("E213", message, table, column, count, rows, hint))
                return
        for k, (parameter, column) in enumerate(zip(relation.parameters, columns, strict=True)):
            if self.spec.entity(parameter.sort):
                if parameter.sort not in self.key_types:
                    return  # its table is broken and was reported
                codes.append((f"e{k}.vid", ""))
                entities.append((k, parameter.sort, column))
            else:
                what = f"{relation.name}.{parameter.name}"
                code = self._domain_value_join(what, parameter.sort, table, column)
                if code is None:
                    return
                codes.append(code)
        selected = ", ".join([*(f"{code} AS a{k}" for k, (code, _) in enumerate(codes)), *more])
        dangling: list[int] = []
        for careful in (False, True):
            joins = [self._thing_join(sort, table, column, f"e{k}", careful=careful) for k, sort, column in entities]
            joins += [join for _, join in codes]
            self._sql(
                f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT DISTINCT {selected} "
                f"FROM {table.scan} AS raw {' '.join(joins)}"
            )
            missing = ", ".join(f"count(*) - count(a{k})" for k, _, _ in entities) or "0"
            dangling = [int(str(count)) for count in self._sql(f"SELECT {missing} FROM {quoted(name)}")[0]]
            if not any(dangling):
                return
        for count, (_, entity, column) in zip(dangling, entities, strict=True):
            if count:
                self._dangling(entity, table, column)

    def _value_column(self, relation: RandomRelation, table: RawTable, *, quiet: bool = False) -> str | None:
        """The column with the values of a random relation's variables; None where each tuple that is listed holds."""
        arguments = self._argument_columns(relation, table, quiet=True) or []
        named = (table.column(name) for name in _value_names(relation))
        found = next((c for c in named if c is not None and c not in arguments), None)
        rest = [c for c in table.columns if c not in arguments]
        if found is None and not isinstance(relation.type, Bool) and len(rest) == 1:
            found = rest[0]
            if not quiet:
                self.bound.notes.append(f"{table.place}: took '{found}' for the value of {relation.name}")
        elif found is None and rest and not quiet:
            columns = listing(f"'{c}'" for c in rest)
            self.bound.notes.append(
                f"{table.place}: {columns} not read, every tuple of {relation.name} that is listed holds; "
                "a column of truth values is called 'value'"
            )
        return found

    def _random_relation(self, relation: RandomRelation) -> None:
        """The tuples that the data lists, with a state each; one without a value is a query."""
        name = listed_table(relation.name)
        table = self.dataset.find(relation.name)
        if table is None:
            known = [t.name for t in self.dataset.tables.values()]
            guess = suggestion(relation.name, known)
            remark = f" ({guess})" if guess else ""
            self.bound.notes.append(f"there is no table '{folded(relation.name)}': every tuple is a query{remark}")
            arguments = ", ".join(f"NULL::INTEGER AS a{k}" for k in range(len(relation.parameters)))
            self._sql(
                f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT {arguments}, NULL::INTEGER AS state WHERE false"
            )
            return
        self._read_from(relation.name, table)
        columns = self._argument_columns(relation, table)
        if columns is None:
            return
        column = self._value_column(relation, table)
        if column is not None:
            declared = AttributeDeclaration(column, relation.type, predicted=True)
            state = self._attribute(relation.name, declared, table)
        elif isinstance(relation.type, Bool):
            state = "1::INTEGER"
        else:
            message = f"the table of {relation.name} has no column with its values"
            hint = f"call it 'value'; the columns are {listing(table.columns)}"
            self.problems.append(Diagnostic("E212", message, DataPlace(table.place), hint))
            return
        if state is None:
            return
        if isinstance(relation.type, Bool) and not table.is_open:
            # Of a relation that is listed, what is not listed does not hold.
            self.bound.closed.add(relation.name)
        self._tuples(relation, table, columns, [f"{state} AS state"], name)
        if not self.problems:
            self._check_tuples(relation, table, name)

    def _check_tuples(self, relation: Relation | RandomRelation, table: RawTable, name: str) -> None:
        """A tuple has one value of each attribute."""
        arguments = ", ".join(f"a{k}" for k in range(len(relation.parameters)))
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {quoted(name)} GROUP BY {arguments} HAVING count(*) > 1)"
        (count,) = self._sql(sql)[0]
        if count:
            what = "attributes" if isinstance(relation, Relation) else "values"
            message = f"{count} tuples of {relation.name} stand more than once, with different {what}"
            hint = "a tuple has one value of each attribute; add them up or choose one before"
            self.problems.append(Diagnostic("E220", message, DataPlace(table.place), hint))


def _value_names(relation: RandomRelation) -> list[str]:
    """What the column of a random relation's values may be called."""
    domain = [relation.type.domain] if isinstance(relation.type, DomainType) else []
    return ["value", relation.name, *domain]
