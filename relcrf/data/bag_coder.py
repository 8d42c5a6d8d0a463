"""Bag attributes (multisets of values): finding the columns of a bag, and building its table `vid, code, count`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.columns.bucket_sort import BucketSort, FloatField, IntegerField
from relcrf.data.cell_hints import manifest_hint
from relcrf.data.coding import find_bad_rows, row_number_column, scalar_conversion, scan_with_row_numbers, text_sql
from relcrf.data.column_coder import ColumnCoder
from relcrf.data.dataset import quoted
from relcrf.data.names import bag_table, bag_table_names, bag_value_names
from relcrf.data.raw_table import RawTable
from relcrf.data.stream import stream_batches
from relcrf.errors import DataLocation, Diagnostic
from relcrf.model.spec import AttributeDeclaration, Entity, fold_name
from relcrf.model.types import Bag, Real


class BagCoder(ColumnCoder):
    """A column coder that also builds the coded tables of bags."""

    def _find_bag_columns(
        self, entity: Entity, attribute: AttributeDeclaration, *, quiet: bool = False
    ) -> tuple[RawTable, str, str, str | None] | None:
        """Return (table, entity column, value column, count column or None) of a bag; None if it has no valid table."""
        assert isinstance(attribute.type, Bag)
        own_table = self.bound.find_table(entity.name)
        column = own_table.column(attribute.name) if own_table else None
        if own_table is not None and column is not None and own_table.column_type(column).endswith("[]"):
            return self._unnest_list_column(own_table, entity, column)
        names = bag_table_names(entity, attribute)
        table = self.bound.find_table(*names)
        if table is None:
            if not quiet:
                self._report_missing_table(f"bag {entity.name}.{attribute.name}", *names)
            return None
        columns = table.bag_columns(entity, attribute)
        if columns is None:
            if len(table.columns) < 2:
                if not quiet:
                    message = f"the table of the bag {entity.name}.{attribute.name} needs two columns"
                    hint = f"name its columns {fold_name(entity.name)} and {fold_name(bag_value_names(attribute)[1])}"
                    self.problems.append(Diagnostic("E218", message, DataLocation(table.location), hint))
                return None
            columns = table.columns[0], table.columns[1]
            if not quiet:
                self.bound.notes.append(
                    f"{table.location}: using '{columns[0]}' for the {entity.name} and '{columns[1]}' for the value"
                )
        count = table.column("count")
        return table, *columns, count if count != columns[1] else None

    @staticmethod
    def _unnest_list_column(
        table: RawTable, entity: Entity, column: str
    ) -> tuple[RawTable, str, str, str | None] | None:
        """Return a list column of an entity table as a bag table with one row per list item."""
        key = table.column(entity.key)
        keys = [] if key is None else [key]  # without a key column, only the values are checked
        cells = ", ".join([*(f"raw.{quoted(k)}" for k in keys), f"unnest(raw.{quoted(column)}) AS {quoted(column)}"])
        types = (*map(table.column_type, keys), table.column_type(column).removesuffix("[]"))
        unnested = replace(
            table,
            scan=f"(SELECT {cells} FROM {table.scan} AS raw)",
            columns=(*keys, column),
            types=types,
            numbered_scan=f"(SELECT raw.{row_number_column(table)}, {cells} FROM {scan_with_row_numbers(table)})",
        )
        return unnested, key or column, column, None

    def _bind_bag(self, entity: Entity, attribute: AttributeDeclaration) -> None:
        bag_columns = self._find_bag_columns(entity, attribute)
        if bag_columns is None:
            return
        with self._collect_read_errors(bag_columns[0]):
            self._code_bag_rows(entity, attribute, *bag_columns)

    def _code_bag_rows(
        self,
        entity: Entity,
        attribute: AttributeDeclaration,
        table: RawTable,
        entity_column: str,
        value_column: str,
        count_column: str | None,
    ) -> None:
        assert isinstance(attribute.type, Bag)
        name = f"{entity.name}.{attribute.name}"
        self._record_source(name, table)
        if self._report_nested_values(table, value_column, f"each item of the bag {name} must be one value"):
            return
        code = self._domain_code_sql(name, attribute.type.domain, table, value_column)
        amount = "1.0"
        if count_column is not None:
            amount = scalar_conversion(table, count_column, Real()).converted
            bad = find_bad_rows(self.connection, table, count_column, f"coalesce(abs({amount}) > 1e30, true)")
            if bad:
                message, hint = "a count is missing", "each row needs a count; write 1 for a single item"
                if bad.examples[0][1] is not None:
                    message = f"'{bad.value}' is not a count such as 3"
                    hint = f"counts must be finite numbers{manifest_hint(bad.value, Real(), table, count_column)}"
                self.problems.append(bad.diagnostic("E215", message, table, count_column, hint))
        row_filter = f"{text_sql(table, value_column)} IS NOT NULL"
        if code is not None and not self.problems:
            selected = f"coalesce(e.vid, -1)::INTEGER AS vid, {code}::INTEGER AS code, {amount}::FLOAT AS count"
            for normalize in (False, True):
                join = self._entity_join(entity.name, table, entity_column, "e", normalize=normalize)
                sql = (
                    f"SELECT {selected} FROM {table.scan} AS raw {join} {self._joins_for(selected)} WHERE {row_filter}"
                )
                if self._aggregate_bag(entity.name, attribute, table, sql):
                    return
        message, hint = (
            f"a value of {name} has no {entity.name}",
            f"each row of a bag needs the key of its {entity.name}",
        )
        self._check_references(entity.name, table, entity_column, message, hint, row_filter)
        assert self.problems, f"no bad row found in the table of {name}, although a row refers to an unknown entity"

    def _aggregate_bag(self, entity: str, attribute: AttributeDeclaration, table: RawTable, sql: str) -> bool:
        """Build the coded table of a bag: one row per pair (entity, value), in sorted order, with the sum of counts.

        If a row refers to an unknown entity, return False and build no table.
        """
        assert isinstance(attribute.type, Bag)
        n_entities, n_values = self.bound.sizes[entity], len(self.bound.domains[attribute.type.domain])
        fields = (IntegerField("vid", 0, n_entities), IntegerField("code", 0, n_values), FloatField("count"))
        ((rows,),) = self.connection.execute(f"SELECT count(*) FROM {table.scan} AS raw").fetchall()
        sorted_rows = BucketSort(fields, int(rows), self.dataset.storage)
        types = {"vid": np.int32, "code": np.int32, "count": np.float32}
        for batch in stream_batches(self.connection.sql(sql), types):
            if len(batch["vid"]) and batch["vid"].min() < 0:
                return False
            sorted_rows.add(batch)
        builders = {column: self.dataset.storage.column(dtype) for column, dtype in types.items()}
        for bucket in sorted_rows.buckets():
            is_new = np.ones(len(bucket["vid"]), dtype=bool)
            is_new[1:] = (bucket["vid"][1:] != bucket["vid"][:-1]) | (bucket["code"][1:] != bucket["code"][:-1])
            starts = np.flatnonzero(is_new)
            builders["vid"].append(bucket["vid"][starts])
            builders["code"].append(bucket["code"][starts])
            builders["count"].append(np.add.reduceat(bucket["count"].astype(np.float64), starts))
        self.bound.register_columns(
            bag_table(entity, attribute.name), {n: column.finish() for n, column in builders.items()}
        )
        return True
