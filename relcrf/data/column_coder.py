"""Conversion of columns of raw tables to coded columns (indices of values), with reports of invalid values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb

from relcrf.data.bound_model import BoundModel
from relcrf.data.cell_hints import manifest_hint
from relcrf.data.coding import (
    INVALID_CELL,
    WHOLE_TYPES,
    any_row_matches,
    find_bad_rows,
    integer_sql,
    is_numeric,
    number_list_sql,
    required_sql,
    scalar_conversion,
    text_list_sql,
    text_sql,
)
from relcrf.data.dataset import quoted
from relcrf.data.names import domain_table, domain_type, entity_table, vector_column_pattern
from relcrf.data.raw_table import RawTable
from relcrf.data.row_policies import policy_hint
from relcrf.data.store import report_read_errors
from relcrf.data.toml_text import toml_value
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion
from relcrf.model.spec import AttributeDeclaration, OpenDomain, RangeDomain, fold_name
from relcrf.model.types import Bool, Date, DomainType, Real, Vector

MAX_ENUM_VALUES = 500_000
"""Maximum number of values of an open domain that is also stored as a DuckDB type. A cast to a type is several times faster
than a join with the table of values, but types are in memory, whatever the memory limit is."""

MIN_COPIED_COLUMNS = 4
"""Minimum number of columns of a CSV file that are copied, to find the values of each without parsing the whole file."""

ENUM_VALUE_BYTES = 110
"""Memory of a value of a DuckDB type besides its text, in bytes."""

ENUM_FRACTION = 0.1
"""Maximum memory of a DuckDB type of an open domain, as a fraction of the memory limit."""


class ColumnCoder:
    """A builder of the SQL that converts single columns of raw tables; it collects diagnostics in `problems`."""

    def __init__(self, bound: BoundModel) -> None:
        self.bound = bound
        self.spec = bound.spec
        self.dataset = bound.dataset
        self.connection = bound.connection
        self.problems: list[Diagnostic] = []
        self.key_types: dict[str, str] = {}
        """DuckDB type of the key column, by entity type; an entity type is added when its coded table is created."""
        self.typed_domains: set[str] = set()
        """The open domains whose values are also a DuckDB type."""
        self._domain_joins: dict[str, str] = {}
        """SQL of the joins with the values of open domains without a DuckDB type, by alias; see `_joins_for`."""
        self._copied_cells: dict[str, str] = {}
        """The tables with copies of cells, by the scan of the raw table; see `_scan_of_cells`."""
        self.is_optimistic = False
        """Whether SQL of codes stops at the first invalid cell (see `_attempt`), instead of being checked beforehand."""

    def _execute(self, text: str) -> list[tuple[object, ...]]:
        return self.connection.execute(text).fetchall()

    def _joins_for(self, *expressions: str) -> str:
        """Return SQL of the joins that coded columns need; DuckDB takes three times the memory for scalar subqueries."""
        return " ".join(
            join for alias, join in self._domain_joins.items() if any(alias in each for each in expressions)
        )

    def _scan_of_cells(self, table: RawTable, find_columns: Callable[[RawTable], set[str]]) -> str:
        """Return a table expression for some columns of a table: a copy, if they are several columns of a CSV file.

        Args:
            find_columns: Function that returns the columns.
        """
        if not table.is_csv:
            return table.scan
        if table.scan not in self._copied_cells:
            copy, columns = table.scan, sorted(find_columns(table))
            if len(columns) >= MIN_COPIED_COLUMNS:
                copy, selected = self.dataset.store.new_name("cells"), ", ".join(map(quoted, columns))
                self._execute(f"CREATE TEMP TABLE {copy} AS SELECT {selected} FROM {table.scan}")
            self._copied_cells[table.scan] = copy
        return self._copied_cells[table.scan]

    def _drop_copied_cells(self) -> None:
        for scan, copy in self._copied_cells.items():
            if copy != scan:
                self._execute(f"DROP TABLE {copy}")

    @contextmanager
    def _collect_read_errors(self, table: RawTable) -> Iterator[None]:
        """Collect the errors of an unreadable table instead of raising them, so that other tables are still checked."""
        try:
            with report_read_errors(table.location):
                yield
        except DataError as error:
            self.problems += error.diagnostics
            if not self.dataset.store.is_alive():
                raise DataError(self.problems) from None

    def _attempt(self, build: Callable[[], bool]) -> bool:
        """Build a table in one pass over the rows that stops at the first invalid cell; return False if there is one.

        Most tables are valid. To find and report all invalid cells of a table takes one pass for each column.

        Args:
            build: Function that builds the table; it returns False if a row is invalid for another reason.
        """
        n_notes = len(self.bound.notes)
        is_valid, self.is_optimistic = False, True
        try:
            is_valid = not self.problems and build()
        except duckdb.InvalidInputException as error:
            if INVALID_CELL not in str(error):
                raise
        finally:
            self.is_optimistic = False
        if not is_valid:
            del self.bound.notes[n_notes:]
        return is_valid

    def _record_source(self, name: str, table: RawTable) -> None:
        self.bound.sources.setdefault(name, set()).add(table.location)

    def _attribute_sql(self, owner: str, attribute: AttributeDeclaration, table: RawTable) -> str | None:
        """Return SQL of an attribute's coded column; None if the column is invalid, or missing and not predicted."""
        if isinstance(attribute.type, Vector):
            return self._vector_sql(owner, attribute, table)
        column = table.column(attribute.name)
        if column is None:
            if attribute.predicted:
                self.bound.missing_labels.add((owner, attribute.name))
                guess = suggestion(attribute.name, table.columns)
                remark = f" ({guess})" if guess else ""
                self.bound.notes.append(
                    f"{table.location} has no column '{attribute.name}': all its values are query variables{remark}"
                )
                return f"NULL::{'DOUBLE' if isinstance(attribute.type, Real) else 'INTEGER'}"
            self._report_missing_column(owner, attribute.name, table)
            return None
        if self._report_nested_values(table, column, f"{owner}.{attribute.name} is declared {attribute.type}"):
            return None
        if isinstance(attribute.type, DomainType):
            return self._domain_code_sql(f"{owner}.{attribute.name}", attribute.type.domain, table, column)
        conversion = scalar_conversion(table, column, attribute.type)
        if isinstance(attribute.type, Bool) and attribute.predicted:
            code = f"CAST({conversion.converted} AS INTEGER)"
        else:
            code = conversion.converted
        if self.is_optimistic:
            return required_sql(code, conversion.present)
        condition = f"({conversion.present}) AND {conversion.converted} IS NULL"
        bad = find_bad_rows(self.connection, table, column, condition)
        if bad:
            message = f"'{bad.value}' is not {conversion.expected}"
            hint = (
                f"{owner}.{attribute.name} is declared {attribute.type}; leave the cell empty if the value is missing"
                f"{manifest_hint(bad.value, attribute.type, table, column)}"
            )
            if isinstance(attribute.type, Date) and re.search(r"\d:\d\d", bad.value):
                hint = f"declare {owner}.{attribute.name} as datetime: a date has no time of day"
            self.problems.append(bad.diagnostic("E215", message, table, column, hint))
            return None
        return code

    def _report_nested_values(self, table: RawTable, column: str, hint: str) -> bool:
        """Report the cells of a column if they are lists or structures, of which the text is not a value."""
        if not re.search(r"\]$|^(STRUCT|MAP|UNION)\b", table.column_type(column)):
            return False
        bad = find_bad_rows(self.connection, table, column, f"raw.{quoted(column)} IS NOT NULL")
        if bad:
            self.problems.append(bad.diagnostic("E215", f"'{bad.value}' is not a single value", table, column, hint))
        return bad is not None

    def _domain_code_sql(self, description: str, domain_name: str, table: RawTable, column: str) -> str | None:
        """Return SQL of a column's codes in a domain; None if a cell is not a value of the domain."""
        domain = self.spec.domain(domain_name)
        text = text_sql(table, column)
        if isinstance(domain, OpenDomain):
            if domain_name in self.typed_domains:
                return f"enum_code(TRY_CAST({text} AS {quoted(domain_type(domain_name))}))::INTEGER"
            alias = quoted(f"values.{domain_name}.{table.name}.{column}")
            self._domain_joins[alias] = (
                f"LEFT JOIN {quoted(domain_table(domain_name))} AS {alias} ON {alias}.value = {text}"
            )
            return f"{alias}.code"
        if isinstance(domain, RangeDomain):
            number = integer_sql(text)
            code = (
                f"CASE WHEN {number} BETWEEN {domain.low} AND {domain.high} THEN ({number} - {domain.low})::INTEGER END"
            )
            allowed = f"the whole numbers from {domain.low} to {domain.high}"
        else:
            values = self.bound.domains[domain_name]
            position = f"nullif(list_position({text_list_sql(values)}, {text}), 0)"
            numbers = number_list_sql(values) if is_numeric(table, column) else None
            if numbers:
                # The number 1.0 matches the value '1.0' as well as '1'.
                number = f"TRY_CAST({text} AS DOUBLE)"
                position = f"coalesce({position}, nullif(list_position({numbers}, {number}), 0))"
            code = f"({position} - 1)::INTEGER"
            allowed = listing(values)
        if self.is_optimistic:
            return required_sql(code, f"{text} IS NOT NULL")
        bad = find_bad_rows(self.connection, table, column, f"{text} IS NOT NULL AND {code} IS NULL")
        if bad:
            message = f"'{bad.value}' is not a value of {domain_name}"
            guess = None if isinstance(domain, RangeDomain) else suggestion(bad.value, self.bound.domains[domain_name])
            hint = (guess or f"{description} takes {allowed}") + manifest_hint(bad.value, None, table, column)
            self.problems.append(bad.diagnostic("E216", message, table, column, hint))
            return None
        return code

    # Vectors

    def _vector_sql(self, owner: str, attribute: AttributeDeclaration, table: RawTable) -> str | None:
        column = table.column(attribute.name)
        numbers = {c: vector_column_pattern(attribute.name).fullmatch(c) for c in table.columns if column is None}
        columns = [column] if column else [c for _, c in sorted((int(m[1]), c) for c, m in numbers.items() if m)]
        if not columns:
            message = f"the table of {owner} has no vector '{attribute.name}'"
            hint = (
                f"add a list column '{attribute.name}', or numeric columns {attribute.name}_0, {attribute.name}_1, ..."
            )
            self.problems.append(Diagnostic("E212", message, DataLocation(table.location), hint))
            return None
        if column is not None:
            value = f"TRY_CAST(raw.{quoted(column)} AS DOUBLE[])"
        else:
            value = "[" + ", ".join(f"TRY_CAST(raw.{quoted(c)} AS DOUBLE)" for c in columns) + "]"
        # All vectors must have the most frequent length.
        ((length,),) = self._execute(f"SELECT mode(len({value})) FROM {table.scan} AS raw")
        size = int(str(length or 0))
        finite = f"list_transform({value}, lambda x: coalesce(isfinite(x), false))"
        is_bad = f"NOT coalesce(len({value}) = {size or 'NULL'} AND list_bool_and({finite}), false)"
        if size and not any_row_matches(self.connection, table, is_bad):
            self.bound.vector_lengths[owner, attribute.name] = size
            return f"CAST({value} AS DOUBLE[{size}])"
        # If the vector has several columns, show the first one without a finite number.
        shown = None if column else f"{text_list_sql(columns)}[list_position({finite}, false)]"
        bad = find_bad_rows(self.connection, table, columns[0], is_bad, shown)
        message = f"the vector {owner}.{attribute.name} is not {size or 'a list of'} finite numbers"
        hint = "every entity needs a vector of the same length, without missing numbers"
        if bad:
            self.problems.append(bad.diagnostic("E217", message, table, column or bad.value, hint))
        else:
            self.problems.append(Diagnostic("E217", message, DataLocation(table.location, column=columns[0]), hint))
        return None

    def _key_sql(self, entity: str, table: RawTable, column: str) -> str:
        key_type = self.key_types.get(entity, "VARCHAR")
        text = text_sql(table, column)
        return integer_sql(text) if key_type == "BIGINT" else text

    def _key_condition(self, entity: str, table: RawTable, column: str, alias: str, *, normalize: bool) -> str:
        """Return the join condition between a column of keys and an entity table.

        Args:
            normalize: Also match cells that differ from the key in formatting, such as surrounding blanks. Otherwise
                cells are compared unchanged; this is several times faster and cannot match a wrong key.
        """
        column_type, raw = table.column_type(column), f"raw.{quoted(column)}"
        key = f"{alias}.key"
        if not normalize and column_type == "VARCHAR":
            return f"{key if self.key_types.get(entity) == 'VARCHAR' else f'CAST({key} AS VARCHAR)'} = {raw}"
        if not normalize and column_type in WHOLE_TYPES and self.key_types.get(entity) == "BIGINT":
            return f"{key} = {raw}"
        return f"{key} = {self._key_sql(entity, table, column)}"

    def _entity_join(self, entity: str, table: RawTable, column: str, alias: str, *, normalize: bool) -> str:
        """Return the SQL join of a column of keys with the entity table; for `normalize` see `_key_condition`."""
        same = self._key_condition(entity, table, column, alias, normalize=normalize)
        return f"LEFT JOIN {quoted(entity_table(entity))} AS {alias} ON {same}"

    # Rows of tuples and bags

    def _report_missing_values(
        self, table: RawTable, column: str, message: str, hint: str, row_filter: str = "true"
    ) -> None:
        """Report the rows without a value in a required column; `row_filter` is SQL that selects the rows to check."""
        bad = find_bad_rows(self.connection, table, column, f"{text_sql(table, column)} IS NULL AND {row_filter}")
        if bad:
            self.problems.append(bad.diagnostic("E213", message, table, column, hint))

    def _check_references(
        self, type_name: str, table: RawTable, column: str, message: str, hint: str, row_filter: str = "true"
    ) -> None:
        """Report the rows whose cell in a column is empty (with `message` and `hint`) or refers to an unknown entity.

        Args:
            type_name: An entity type or a domain. Unknown entities are reported only if the keys of the type are known.
            row_filter: SQL that selects the rows to check.
        """
        entities = f"SELECT 1 FROM {quoted(entity_table(type_name))} AS e"
        matches = [
            f"EXISTS ({entities} WHERE {self._key_condition(type_name, table, column, 'e', normalize=careful)})"
            for careful in (False, True)
        ]
        if type_name in self.key_types and not any_row_matches(self.connection, table, f"NOT {matches[0]}"):
            return  # every cell equals a key, so none is empty
        entity = self.spec.entity(type_name)
        repair = "" if entity is None else f"; {policy_hint(table, 'orphans')}"
        self._report_missing_values(table, column, message, hint + repair, row_filter)
        if entity is None or type_name not in self.key_types:
            return
        condition = f"{text_sql(table, column)} IS NOT NULL AND {row_filter} AND NOT {matches[1]}"
        if bad := find_bad_rows(self.connection, table, column, condition):
            hint = f"every value of this column must be a key in the table of {type_name}{repair}"
            if table.policies.orphans == "add" and any(isinstance(a.type, Vector) for a in entity.attributes):
                hint = f"an entity with a vector cannot be added, because vectors cannot be missing{repair}"
            if digits := self._find_padded_key(type_name, bad.value or ""):
                statement = f"digits = {toml_value({table.source_columns.get(column, column): digits})}"
                hint = f"the keys have leading zeros; write {statement} below [tables.{table.name}] in dataset.toml"
            self.problems.append(bad.diagnostic("E219", f"unknown {type_name} '{bad.value}'", table, column, hint))

    def _find_padded_key(self, type_name: str, value: str) -> int:
        """Return the length of a key that is a number with leading zeros added; 0 if there is none."""
        if not value.isdigit():
            return 0
        keys = f"SELECT key::VARCHAR AS key FROM {quoted(entity_table(type_name))}"
        is_padded = "key = lpad($1, length(key)::INTEGER, '0') AND length(key) > length($1)"
        sql = f"SELECT length(key) FROM ({keys}) WHERE {is_padded} LIMIT 1"
        found = self.connection.execute(sql, [value]).fetchall()
        return int(found[0][0]) if found else 0

    def _report_missing_column(self, owner: str, column: str, table: RawTable, *, guess: bool = True) -> None:
        hint = suggestion(column, table.columns) if guess else None
        message = f"the table of {owner} has no column '{column}'"
        columns = f"its columns are {listing(table.columns)}"
        self.problems.append(Diagnostic("E212", message, DataLocation(table.location), hint or columns))

    def _report_missing_table(self, description: str, *names: str) -> None:
        tables = self.dataset.table_names
        hint = suggestion(names[0], tables) or f"the tables are {listing(tables)}"
        expected = " or ".join(f"'{n}'" for n in dict.fromkeys(map(fold_name, names)))
        message = f"the table of {description} is missing: expected {expected}"
        self.problems.append(Diagnostic("E210", message, DataLocation(self.dataset.location), hint))
