"""Summaries of the tables of a dataset: the file, its format and size, and the declarations that read the table."""

from __future__ import annotations

from dataclasses import dataclass

from relcrf.data.bound_model import BoundModel
from relcrf.errors import listing
from relcrf.model.spec import fold_name


@dataclass(frozen=True)
class TableSummary:
    """The summary of a table.

    Args:
        format: The format of the file; empty for tables of databases and Python objects.
        used_by: The entity types, relations, domains and bags whose data the table contains, and `queries` if queries of
            the manifest read it.
    """

    name: str
    location: str
    format: str
    rows: int
    columns: int
    used_by: tuple[str, ...]

    def __str__(self) -> str:
        source = f"{self.location} ({self.format})" if self.format else self.location
        users = ["the queries of the manifest" if user == "queries" else user for user in self.used_by]
        use = f"used by {listing(users)}" if users else "not used"
        return f"{self.name}: {source}; {self.rows:,} rows, {self.columns:,} columns; {use}"


def describe_tables(bound: BoundModel) -> list[TableSummary]:
    """Return a summary of each table of the dataset to which a model is bound."""
    summaries = []
    for table in bound.dataset.tables.values():
        is_repaired = fold_name(table.name) in bound.repaired_tables
        rows = None if is_repaired else bound.row_counts.get(table.location)
        if rows is None:
            ((rows,),) = bound.connection.execute(f"SELECT count(*) FROM {table.scan}").fetchall()
        used_by = tuple(name for name, locations in bound.sources.items() if table.location in locations)
        if table.name.lower() in bound.dataset.queried_tables:
            used_by += ("queries",)
        summaries.append(TableSummary(table.name, table.location, table.format, rows, len(table.columns), used_by))
    return summaries
