"""Columns of raw tables as columns of a model: types, domains, vectors, keys; every bad value is gathered with its row."""

from __future__ import annotations

import re

from relcrf.data.bound import Bound
from relcrf.data.coding import bad_rows, bad_value, scalar, text_list, text_of, whole_number
from relcrf.data.dataset import RawTable, quoted
from relcrf.data.names import domain_table, entity_table
from relcrf.errors import DataPlace, Diagnostic, listing, suggestion
from relcrf.model.spec import AttributeDeclaration, OpenDomain, RangeDomain, folded
from relcrf.model.types import Bool, DomainType, Vector

WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")


class Columns:
    """The SQL of single columns of one binding. What is wrong goes to `problems`."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.spec = bound.spec
        self.dataset = bound.dataset
        self.connection = bound.connection
        self.problems: list[Diagnostic] = []
        self.key_types: dict[str, str] = {}
        """DuckDB's type of each entity's key, once its table is there."""
        self.spellings: dict[tuple[str, str, str], str] = {}
        """For an open domain and a column of it (the table's place, the column): a table of its raw cells and their codes."""

    def _sql(self, text: str) -> list[tuple[object, ...]]:
        return self.connection.execute(text).fetchall()

    def _read_from(self, name: str, table: RawTable) -> None:
        self.bound.sources.setdefault(name, set()).add(table.place)

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
            message = f"the vector {owner}.{attribute.name} is not {size or 'a list of'} finite numbers"
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

    def _domain_value_join(self, what: str, domain: str, table: RawTable, column: str) -> tuple[str, str] | None:
        """SQL of a value's code, and the join that it needs."""
        if isinstance(self.spec.domain(domain), OpenDomain):
            name = quoted(f"d_{column}")
            spelling = quoted(self.spellings[domain, table.place, column])
            return f"{name}.code", f"LEFT JOIN {spelling} AS {name} ON {name}.cell = raw.{quoted(column)}"
        code = self._domain_column(what, domain, table, column)
        return None if code is None else (code, "")

    def _key(self, entity: str, table: RawTable, column: str) -> str:
        kind = self.key_types.get(entity, "VARCHAR")
        text = text_of(table, column)
        return whole_number(text) if kind == "BIGINT" else text

    def _thing_join(self, entity: str, table: RawTable, column: str, alias: str, *, careful: bool) -> str:
        """The join of a column of keys with the table of their things.

        Args:
            careful: also where cells are spelt otherwise than the keys, with blanks around them, say. Without it cells are
                compared as they are, which is several times faster; one that matches then is the same key.
        """
        kind, raw = table.type_of(column), f"raw.{quoted(column)}"
        key = f"{alias}.key"
        if not careful and kind == "VARCHAR":
            same = f"{key if self.key_types.get(entity) == 'VARCHAR' else f'CAST({key} AS VARCHAR)'} = {raw}"
        elif not careful and kind in WHOLE_TYPES and self.key_types.get(entity) == "BIGINT":
            same = f"{key} = {raw}"
        else:
            same = f"{key} = {self._key(entity, table, column)}"
        return f"LEFT JOIN {quoted(entity_table(entity))} AS {alias} ON {same}"

    def _dangling(self, entity: str, table: RawTable, column: str) -> None:
        """Reports the rows of a column that name no thing."""
        same = f"e.key = {self._key(entity, table, column)}"
        condition = f"NOT EXISTS (SELECT 1 FROM {quoted(entity_table(entity))} AS e WHERE {same})"
        count, rows = bad_rows(self.connection, table, column, condition)
        message = f"there is no {entity} '{rows[0][1]}'"
        hint = f"every value of this column must be a key in the table of {entity}"
        self.problems.append(bad_value("E219", message, table, column, count, rows, hint))

    def _missing_table(self, what: str, *names: str) -> None:
        known = [t.name for t in self.dataset.tables.values()]
        hint = suggestion(names[0], known) or f"the tables are {listing(known)}"
        wanted = " or ".join(f"'{folded(n)}'" for n in dict.fromkeys(names))
        message = f"there is no table for {what}: looked for {wanted}"
        self.problems.append(Diagnostic("E210", message, DataPlace(self.dataset.place), hint))
