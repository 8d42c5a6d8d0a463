"""Bags: where a model's many-valued attributes stand in the raw tables, and their coded tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.columns.sorted_rows import Single, SortedRows, Whole
from relcrf.data.coding import bad_rows, numbered, row_number, scalar, text_of
from relcrf.data.columns import ColumnCoding
from relcrf.data.dataset import RawTable, quoted
from relcrf.data.names import bag_table, raw_bag_tables, raw_bag_values
from relcrf.data.stream import stream
from relcrf.errors import DataPlace, Diagnostic
from relcrf.model.spec import AttributeDeclaration, Entity, folded
from relcrf.model.types import Bag, Real


class BagCoding(ColumnCoding):
    """Coding of bags."""

    def _bag_columns(
        self, entity: Entity, attribute: AttributeDeclaration, *, quiet: bool = False
    ) -> tuple[RawTable, str, str, str | None] | None:
        """Table of a bag, its columns of things and of values, and that of counts if it has one."""
        assert isinstance(attribute.type, Bag)
        own = self.dataset.find(entity.name)
        column = own.column(attribute.name) if own else None
        if own is not None and column is not None and own.type_of(column).endswith("[]"):
            return self._list_column(own, entity, column)
        names = raw_bag_tables(entity, attribute)
        table = self.dataset.find(*names)
        if table is None:
            if not quiet:
                self._missing_table(f"bag {entity.name}.{attribute.name}", *names)
            return None
        columns = table.bag_columns(entity, attribute)
        if columns is None:
            if len(table.columns) < 2:
                if not quiet:
                    message = f"the table of the bag {entity.name}.{attribute.name} needs two columns"
                    hint = f"give it the columns {folded(entity.name)} and {folded(raw_bag_values(attribute)[1])}"
                    self.problems.append(Diagnostic("E218", message, DataPlace(table.place), hint))
                return None
            columns = table.columns[0], table.columns[1]
            if not quiet:
                self.bound.notes.append(
                    f"{table.place}: took '{columns[0]}' for the {entity.name} and '{columns[1]}' for the value"
                )
        count = table.column("count")
        return table, *columns, count if count != columns[1] else None

    @staticmethod
    def _list_column(table: RawTable, entity: Entity, column: str) -> tuple[RawTable, str, str, str | None] | None:
        """A bag that is a column of lists, as a table of its own: a row for each value."""
        key = table.column(entity.key)
        keys = [] if key is None else [key]  # without keys the values are looked at alone
        cells = ", ".join([*(f"raw.{quoted(k)}" for k in keys), f"unnest(raw.{quoted(column)}) AS {quoted(column)}"])
        types = (*map(table.type_of, keys), table.type_of(column).removesuffix("[]"))
        unnested = replace(
            table,
            scan=f"(SELECT {cells} FROM {table.scan} AS raw)",
            columns=(*keys, column),
            types=types,
            numbered=f"(SELECT raw.{row_number(table)}, {cells} FROM {numbered(table)})",
        )
        return unnested, key or column, column, None

    def _bag(self, entity: Entity, attribute: AttributeDeclaration) -> None:
        found = self._bag_columns(entity, attribute)
        if found is None:
            return
        with self._reading(found[0]):
            self._rows_of_bag(entity, attribute, *found)

    def _rows_of_bag(
        self,
        entity: Entity,
        attribute: AttributeDeclaration,
        table: RawTable,
        thing: str,
        value: str,
        count: str | None,
    ) -> None:
        assert isinstance(attribute.type, Bag)
        name = f"{entity.name}.{attribute.name}"
        self._read_from(name, table)
        code = self._domain_value_join(name, attribute.type.domain, table, value)
        amount = "1.0"
        if count is not None:
            amount = scalar(table, count, Real()).converted
            bad = bad_rows(self.connection, table, count, f"coalesce(abs({amount}) > 1e30, true)")
            if bad:
                message = f"'{bad.value}' is no count"
                self.problems.append(bad.diagnostic("E215", message, table, count, "counts are finite numbers"))
        if code is not None and not self.problems:
            selected = f"coalesce(e.vid, -1)::INTEGER AS vid, {code[0]}::INTEGER AS code, {amount}::FLOAT AS count"
            given = f"{code[0]} IS NOT NULL" if code[1] else f"{text_of(table, value)} IS NOT NULL"
            for careful in (False, True):
                join = self._thing_join(entity.name, table, thing, "e", careful=careful)
                sql = f"SELECT {selected} FROM {table.scan} AS raw {join} {code[1]} WHERE {given}"
                if self._add_up(entity.name, attribute, table, sql):
                    return
        given = f"{text_of(table, value)} IS NOT NULL"
        message = f"the {entity.name} of a value of {name} is missing"
        self._check_named(entity.name, table, thing, message, "a value of a bag is that of a thing", given)
        assert self.problems, f"the rows of {name} are wrong, and none is found"

    def _add_up(self, entity: str, attribute: AttributeDeclaration, table: RawTable, sql: str) -> bool:
        """Makes the columns of a bag: a row for each thing and value, sorted, its counts added up.

        False where a row names no thing.
        """
        assert isinstance(attribute.type, Bag)
        things, values = self.bound.sizes[entity], len(self.bound.domains[attribute.type.domain])
        fields = (Whole("vid", 0, things), Whole("code", 0, values), Single("count"))
        ((rows,),) = self.connection.execute(f"SELECT count(*) FROM {table.scan} AS raw").fetchall()
        sorted_rows = SortedRows(fields, int(rows), self.dataset.storage)
        types = {"vid": np.int32, "code": np.int32, "count": np.float32}
        for batch in stream(self.connection.sql(sql), types):
            if len(batch["vid"]) and batch["vid"].min() < 0:
                return False
            sorted_rows.add(batch)
        growing = {column: self.dataset.storage.column(dtype) for column, dtype in types.items()}
        for bucket in sorted_rows.buckets():
            is_new = np.ones(len(bucket["vid"]), dtype=bool)
            is_new[1:] = (bucket["vid"][1:] != bucket["vid"][:-1]) | (bucket["code"][1:] != bucket["code"][:-1])
            first = np.flatnonzero(is_new)
            growing["vid"].append(bucket["vid"][first])
            growing["code"].append(bucket["code"][first])
            growing["count"].append(np.add.reduceat(bucket["count"].astype(np.float64), first))
        self.bound.give(bag_table(entity, attribute.name), {n: column.finish() for n, column in growing.items()})
        return True
