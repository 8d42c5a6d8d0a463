"""A model's declarations tied to a dataset's tables, checked and coded to dense integers.

For each entity a table of `vid, key, attributes...`, vid counted from 0 in the order of the keys; for each relation one of
distinct tuples of vids and codes with their attributes; for each bag `vid, code, count`; for each open domain `code, value`
(`names.py` says what they are called). All real tables with int32 columns: joins over them are what DuckDB is fastest at.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import numpy as np

from relcrf.data.coding import bad_rows, bad_value, scalar, text_list, text_of, whole_number
from relcrf.data.dataset import Dataset, RawTable, quoted
from relcrf.data.names import attribute_column, bag_table, domain_table, entity_table, relation_table
from relcrf.errors import DataError, DataPlace, Diagnostic, listing, suggestion
from relcrf.model.spec import AttributeDeclaration, Domain, Entity, ModelSpec, OpenDomain, RangeDomain, Relation, folded
from relcrf.model.types import Bag, Bool, DomainType, Real, Vector


@dataclass
class Bound:
    """A model's tables in DuckDB, and what was learnt while they were made.

    Args:
        sizes: number of things of each entity.
        domains: the values of every domain, in the order of their codes; open domains as found in the data.
        vector_lengths: of each vector attribute, by (entity, attribute).
        notes: what was assumed, for the user to see.
        missing_labels: predicted attributes without a column, (entity, attribute).
    """

    spec: ModelSpec
    dataset: Dataset
    sizes: dict[str, int] = field(default_factory=dict)
    domains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    vector_lengths: dict[tuple[str, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missing_labels: set[tuple[str, str]] = field(default_factory=set)
    connection: duckdb.DuckDBPyConnection = field(init=False)
    """A cursor on the dataset's database with a schema of its own: bindings of several models do not meet."""

    def __post_init__(self) -> None:
        self.connection, schema = self.dataset.new_schema()
        weakref.finalize(self, _drop, self.connection, schema).atexit = False

    def keys(self, entity: str) -> np.ndarray:
        """The keys of an entity's things as text, shape (n,), in the order of their vids."""
        rows = self.connection.execute(
            f"SELECT CAST(key AS VARCHAR) AS key FROM {quoted(entity_table(entity))} ORDER BY vid"
        )
        return np.asarray(rows.fetchnumpy()["key"], dtype=object)

    def codes(self, entity: str, attribute: str) -> np.ndarray:
        """The states of a predicted attribute, shape (n,), int32; -1 where missing."""
        column, table = quoted(attribute_column(attribute)), quoted(entity_table(entity))
        sql = f"SELECT coalesce({column}, -1)::INTEGER AS c FROM {table} ORDER BY vid"
        return np.asarray(self.connection.execute(sql).fetchnumpy()["c"], dtype=np.int32)

    def vectors(self, entity: str, attribute: str) -> np.ndarray:
        """A vector attribute of all things, shape (n, length)."""
        length = self.vector_lengths[entity, attribute]
        columns = ", ".join(f"{quoted(attribute_column(attribute))}[{d + 1}] AS c{d}" for d in range(length))
        found = self.connection.execute(
            f"SELECT {columns} FROM {quoted(entity_table(entity))} ORDER BY vid"
        ).fetchnumpy()
        return np.column_stack([found[f"c{d}"] for d in range(length)])

    def raw_column(self, entity: str, column: str) -> np.ndarray:
        """A column of an entity's own table as text, by vid, whether the model declares it or not; '' where missing.

        Raises:
            DataError: where the table has no such column.
        """
        table = find_entity(self.dataset, entity)
        found = table.column(column) if table else None
        declared = self.spec.entity(entity)
        if table is None or found is None or declared is None:
            known = table.columns if table else ()
            message = f"the table of {entity} has no column '{column}'"
            place = DataPlace(table.place if table else self.dataset.place)
            raise DataError(Diagnostic("E212", message, place, suggestion(column, known) or f"it has {listing(known)}"))
        key = _key_column(table, declared)
        sql = (
            f"SELECT coalesce({text_of(table, found)}, '') AS c FROM {table.scan} AS raw "
            f"JOIN {quoted(entity_table(entity))} AS e "
            f"ON CAST(e.key AS VARCHAR) = {text_of(table, key or '')} ORDER BY e.vid"
        )
        return np.asarray(self.connection.execute(sql).fetchnumpy()["c"], dtype=object)


def _drop(connection: duckdb.DuckDBPyConnection, schema: str) -> None:
    """Frees a binding's tables when nothing refers to it any more."""
    connection.execute(f"DROP SCHEMA {schema} CASCADE")
    connection.close()


def find_entity(dataset: Dataset, entity: str) -> RawTable | None:
    """The raw table of an entity."""
    return dataset.find(entity)


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


class _Binder:
    """One binding at work. Mistakes are gathered; a step whose inputs are broken is skipped."""

    def __init__(self, bound: Bound, vocabulary: Mapping[str, tuple[str, ...]]) -> None:
        self.bound = bound
        self.spec = bound.spec
        self.dataset = bound.dataset
        self.connection = bound.connection
        self.vocabulary = vocabulary
        self.problems: list[Diagnostic] = []
        self.key_types: dict[str, str] = {}

    def run(self) -> Bound:
        for domain in self.spec.domains:
            self._domain(domain)
        for entity in self.spec.entities:
            self._entity(entity)
        for relation in self.spec.relations:
            self._relation(relation)
        if self.problems:
            raise DataError(self.problems)
        return self.bound

    def _sql(self, text: str) -> list[tuple[object, ...]]:
        return self.connection.execute(text).fetchall()

    # Domains

    def _domain(self, domain: Domain) -> None:
        if not isinstance(domain, OpenDomain):
            self.bound.domains[domain.name] = domain.values
            return
        scans = [
            f"SELECT DISTINCT {text_of(table, column)} AS value FROM {table.scan} AS raw"
            for table, column in self._columns_of(domain.name)
        ]
        known = tuple(self.vocabulary.get(domain.name, ()))
        name = quoted(domain_table(domain.name))
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
        values = self._sql(f"SELECT value FROM {name} ORDER BY code")
        self.bound.domains[domain.name] = tuple(str(row[0]) for row in values)

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
            columns = self._argument_columns(relation, table, quiet=True) if table else None
            for parameter, column in zip(relation.parameters, columns or (), strict=False):
                if parameter.sort == domain and table:
                    found.append((table, column))
            for attribute in relation.attributes:
                own = table.column(attribute.name) if table else None
                if attribute.type == DomainType(domain) and table and own:
                    found.append((table, own))
        return found

    # Entities

    def _entity(self, entity: Entity) -> None:
        table = find_entity(self.dataset, entity.name)
        if table is None:
            self._missing_table(f"entity {entity.name}", entity.name)
            return
        key = _key_column(table, entity)
        if key is None:
            message = f"the table of {entity.name} has no key column '{entity.key}'"
            hint = f"its columns are {listing(table.columns)}; name the key in the model: entity {entity.name}(column)"
            self.problems.append(Diagnostic("E211", message, DataPlace(table.place), hint))
            return
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

    def _attribute(self, owner: str, attribute: AttributeDeclaration, table: RawTable) -> str | None:
        """SQL of one attribute's column, coded; None where it is broken or absent."""
        if isinstance(attribute.type, Vector):
            return self._vector(owner, attribute, table)
        column = table.column(attribute.name)
        if column is None:
            if attribute.predicted:
                self.bound.missing_labels.add((owner, attribute.name))
                guess = suggestion(attribute.name, table.columns)
                remark = f" ({guess})" if guess else ""
                self.bound.notes.append(f"{table.place} has no column '{attribute.name}': every one is a query{remark}")
                return "NULL::INTEGER"
            message = f"the table of {owner} has no column '{attribute.name}'"
            hint = suggestion(attribute.name, table.columns) or f"its columns are {listing(table.columns)}"
            self.problems.append(Diagnostic("E212", message, DataPlace(table.place), hint))
            return None
        if isinstance(attribute.type, DomainType):
            return self._domain_column(f"{owner}.{attribute.name}", attribute.type.domain, table, column)
        conversion = scalar(table, column, attribute.type)
        if isinstance(attribute.type, Bool) and attribute.predicted:
            code = f"CAST({conversion.converted} AS INTEGER)"
        else:
            code = conversion.converted
        condition = f"({conversion.present}) AND {conversion.converted} IS NULL"
        count, rows = bad_rows(self.connection, table, column, condition)
        if count:
            message = f"'{rows[0][1]}' is not {conversion.wanted}"
            hint = f"{owner}.{attribute.name} is declared {attribute.type}; leave the cell empty where it is missing"
            self.problems.append(bad_value("E215", message, table, column, count, rows, hint))
            return None
        return f"CASE WHEN {conversion.present} THEN {code} END"

    def _domain_column(self, what: str, domain_name: str, table: RawTable, column: str) -> str | None:
        """SQL of a column's codes in a domain."""
        domain = self.spec.domain(domain_name)
        text = text_of(table, column)
        if isinstance(domain, OpenDomain):
            return f"(SELECT d.code FROM {quoted(domain_table(domain_name))} AS d WHERE d.value = {text})"
        if isinstance(domain, RangeDomain):
            number = whole_number(text)
            code = (
                f"CASE WHEN {number} BETWEEN {domain.low} AND {domain.high} THEN ({number} - {domain.low})::INTEGER END"
            )
            known = f"the whole numbers from {domain.low} to {domain.high}"
        else:
            values = self.bound.domains[domain_name]
            code = f"(nullif(coalesce(list_position({text_list(values)}, {text}), 0), 0) - 1)::INTEGER"
            known = listing(values)
        count, rows = bad_rows(self.connection, table, column, f"{text} IS NOT NULL AND {code} IS NULL")
        if count:
            message = f"'{rows[0][1]}' is no value of {domain_name}"
            guess = None if isinstance(domain, RangeDomain) else suggestion(rows[0][1], self.bound.domains[domain_name])
            hint = guess or f"{what} takes {known}"
            self.problems.append(bad_value("E216", message, table, column, count, rows, hint))
            return None
        return code

    # Vectors

    def _vector(self, owner: str, attribute: AttributeDeclaration, table: RawTable) -> str | None:
        column = table.column(attribute.name)
        if column is not None:
            value = f"TRY_CAST(raw.{quoted(column)} AS DOUBLE[])"
            column_for_rows = column
        else:
            wide = self._wide_columns(attribute.name, table.columns)
            if not wide:
                message = f"the table of {owner} has no vector '{attribute.name}'"
                hint = f"give a list column '{attribute.name}', or number columns {attribute.name}_0, {attribute.name}_1, ..."
                self.problems.append(Diagnostic("E212", message, DataPlace(table.place), hint))
                return None
            value = "[" + ", ".join(f"TRY_CAST(raw.{quoted(c)} AS DOUBLE)" for c in wide) + "]"
            column_for_rows = wide[0]
        (length,) = self._sql(f"SELECT max(len({value})) FROM {table.scan} AS raw")[0]
        size = int(str(length or 0))
        broken = (
            f"({value} IS NULL OR len({value}) <> {size} OR NOT coalesce(list_bool_and("
            f"list_transform({value}, lambda x: coalesce(isfinite(x), false))), false))"
        )
        count, rows = bad_rows(self.connection, table, column_for_rows, broken)
        if count or size == 0:
            message = f"the vector {owner}.{attribute.name} is not {size} finite numbers"
            hint = "every thing needs a vector of the same length, without missing numbers"
            rows = rows or [(1, "")]
            self.problems.append(bad_value("E217", message, table, column_for_rows, count, rows, hint))
            return None
        self.bound.vector_lengths[owner, attribute.name] = size
        return f"CAST({value} AS DOUBLE[{size}])"

    @staticmethod
    def _wide_columns(name: str, columns: tuple[str, ...]) -> list[str]:
        """`pixels_0, pixels_1, ...` in the order of their numbers."""
        numbered = [(re.fullmatch(rf"{re.escape(name)}_?(\d+)", c, flags=re.IGNORECASE), c) for c in columns]
        return [c for _, c in sorted((int(m.group(1)), c) for m, c in numbered if m)]

    # Bags

    def _bag_columns(
        self, entity: Entity, attribute: AttributeDeclaration, *, quiet: bool = False
    ) -> tuple[RawTable, str, str, str | None] | None:
        """Table of a bag, its columns of things and of values, and that of counts if it has one."""
        assert isinstance(attribute.type, Bag)
        singular = attribute.name.removesuffix("s")
        names = [f"{entity.name}_{n}" for n in (attribute.name, singular, attribute.type.domain)]
        table = self.dataset.find(*names)
        if table is None:
            if not quiet:
                self._missing_table(f"bag {entity.name}.{attribute.name}", *names)
            return None
        thing = table.column(entity.name) or table.column(entity.key)
        value = next(filter(None, map(table.column, (attribute.name, singular, attribute.type.domain))), None)
        if thing is None or value is None or thing == value:
            if len(table.columns) < 2:
                if not quiet:
                    message = f"the table of the bag {entity.name}.{attribute.name} needs two columns"
                    hint = f"give it the columns {folded(entity.name)} and {folded(singular)}"
                    self.problems.append(Diagnostic("E218", message, DataPlace(table.place), hint))
                return None
            thing, value = table.columns[:2]
            if not quiet:
                self.bound.notes.append(
                    f"{table.place}: took '{thing}' for the {entity.name} and '{value}' for the value"
                )
        count = table.column("count")
        return table, thing, value, count if count != value else None

    def _bag(self, entity: Entity, attribute: AttributeDeclaration) -> None:
        found = self._bag_columns(entity, attribute)
        if found is None or not isinstance(attribute.type, Bag):
            return
        table, thing, value, count = found
        code = self._domain_value_join(f"{entity.name}.{attribute.name}", attribute.type.domain, table, value)
        if code is None:
            return
        amount = "1.0"
        if count is not None:
            conversion = scalar(table, count, Real())
            bad, rows = bad_rows(self.connection, table, count, f"coalesce(abs({conversion.converted}) > 1e30, true)")
            if bad:
                message = f"'{rows[0][1]}' is no count"
                self.problems.append(bad_value("E215", message, table, count, bad, rows, "counts are finite numbers"))
                return
            amount = conversion.converted
        self._sql(
            f"CREATE OR REPLACE TABLE {quoted(bag_table(entity.name, attribute.name))} AS "
            f"SELECT e.vid AS vid, {code[0]} AS code, sum({amount})::FLOAT AS count FROM {table.scan} AS raw "
            f"LEFT JOIN {quoted(entity_table(entity.name))} AS e ON e.key = {self._key(entity.name, table, thing)} {code[1]} "
            f"WHERE {text_of(table, value)} IS NOT NULL GROUP BY 1, 2"
        )
        bag = quoted(bag_table(entity.name, attribute.name))
        (dangling,) = self._sql(f"SELECT count(*) FROM {bag} WHERE vid IS NULL")[0]
        if dangling:
            self._dangling(entity.name, table, thing)

    def _domain_value_join(self, what: str, domain: str, table: RawTable, column: str) -> tuple[str, str] | None:
        """SQL of a value's code, and the join that it needs."""
        if isinstance(self.spec.domain(domain), OpenDomain):
            name = f"d_{column}"
            text = text_of(table, column)
            join = f"LEFT JOIN {quoted(domain_table(domain))} AS {quoted(name)} ON {quoted(name)}.value = {text}"
            return f"{quoted(name)}.code", join
        code = self._domain_column(what, domain, table, column)
        return None if code is None else (code, "")

    def _key(self, entity: str, table: RawTable, column: str) -> str:
        kind = self.key_types.get(entity, "VARCHAR")
        text = text_of(table, column)
        return whole_number(text) if kind == "BIGINT" else text

    def _dangling(self, entity: str, table: RawTable, column: str) -> None:
        """Reports the rows of a column that name no thing."""
        same = f"e.key = {self._key(entity, table, column)}"
        condition = f"NOT EXISTS (SELECT 1 FROM {quoted(entity_table(entity))} AS e WHERE {same})"
        count, rows = bad_rows(self.connection, table, column, condition)
        message = f"there is no {entity} '{rows[0][1]}'"
        hint = f"every value of this column must be a key in the table of {entity}"
        self.problems.append(bad_value("E219", message, table, column, count, rows, hint))

    # Relations

    def _argument_columns(self, relation: Relation, table: RawTable, *, quiet: bool = False) -> list[str] | None:
        named = [table.column(p.name) for p in relation.parameters]
        if all(named):
            return [c for c in named if c is not None]
        attributes = {table.column(a.name) for a in relation.attributes}
        free = [c for c in table.columns if c not in attributes]
        if len(free) < len(relation.parameters):
            if not quiet:
                message = f"the table of {relation.name} has no column '{relation.parameters[named.index(None)].name}'"
                hint = f"its columns are {listing(table.columns)}"
                self.problems.append(Diagnostic("E212", message, DataPlace(table.place), hint))
            return None
        if any(named):
            missing = relation.parameters[named.index(None)].name
            if not quiet:
                message = f"the table of {relation.name} has no column '{missing}'"
                hint = suggestion(missing, table.columns) or f"its columns are {listing(table.columns)}"
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
        columns = self._argument_columns(relation, table)
        if columns is None:
            return
        selected, joins, entities = [], [], []
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
                key = self._key(parameter.sort, table, column)
                joins.append(f"LEFT JOIN {quoted(entity_table(parameter.sort))} AS e{k} ON e{k}.key = {key}")
                selected.append(f"e{k}.vid AS a{k}")
                entities.append((k, parameter.sort, column))
            else:
                what = f"{relation.name}.{parameter.name}"
                code = self._domain_value_join(what, parameter.sort, table, column)
                if code is None:
                    return
                selected.append(f"{code[0]} AS a{k}")
                joins.append(code[1])
        for attribute in relation.attributes:
            own = self._attribute(relation.name, attribute, table)
            if own is None:
                return
            selected.append(f"{own} AS {quoted(attribute_column(attribute.name))}")
        name = quoted(relation_table(relation.name))
        raw = f"{table.scan} AS raw"
        self._sql(
            f"CREATE OR REPLACE TABLE {name} AS SELECT DISTINCT {', '.join(selected)} FROM {raw} {' '.join(joins)}"
        )
        for k, entity, column in entities:
            (dangling,) = self._sql(f"SELECT count(*) FROM {name} WHERE a{k} IS NULL")[0]
            if dangling:
                self._dangling(entity, table, column)
        if relation.attributes and not self.problems:
            self._check_tuples(relation, table)

    def _check_tuples(self, relation: Relation, table: RawTable) -> None:
        """A tuple has one value of each attribute."""
        arguments = ", ".join(f"a{k}" for k in range(len(relation.parameters)))
        name = quoted(relation_table(relation.name))
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {name} GROUP BY {arguments} HAVING count(*) > 1)"
        (count,) = self._sql(sql)[0]
        if count:
            message = f"{count} tuples of {relation.name} stand more than once, with different attributes"
            hint = "a tuple has one value of each attribute; add them up or choose one before"
            self.problems.append(Diagnostic("E220", message, DataPlace(table.place), hint))

    def _missing_table(self, what: str, *names: str) -> None:
        known = [t.name for t in self.dataset.tables.values()]
        hint = suggestion(names[0], known) or f"the tables are {listing(known)}"
        wanted = " or ".join(f"'{folded(n)}'" for n in dict.fromkeys(names))
        message = f"there is no table for {what}: looked for {wanted}"
        self.problems.append(Diagnostic("E210", message, DataPlace(self.dataset.place), hint))


def _key_column(table: RawTable, entity: Entity) -> str | None:
    return table.column(entity.key)
