"""Warnings on tables: rows that occur several times, and columns in which a few cells are not numbers or dates."""

from __future__ import annotations

from relcrf.data.coding import datetime_sql
from relcrf.data.dataset import quoted
from relcrf.errors import listing
from relcrf.proposal.profile import TableProfile

MIN_TYPED = 0.95
"""Fraction of numbers, or of dates, from which the other cells of a column are suspected to be errors."""

LIST_KINDS = ("list", "numbers", "nested")
"""Kinds of columns of which the distinct values are not counted."""

N_EXAMPLES = 3
"""Number of cells that a warning shows."""


def find_warnings(table: TableProfile) -> list[str]:
    """Return warnings on duplicate rows and on columns of mixed types."""
    warnings = []
    if not any(column.is_unique and column.kind not in LIST_KINDS for column in table.columns.values()):
        ((distinct,),) = table.connection.execute(
            f"SELECT count(DISTINCT hash(t)) FROM {table.raw.scan} AS t"
        ).fetchall()
        if distinct < table.rows:
            n_repeated = table.rows - distinct
            verb = "row repeats an earlier row" if n_repeated == 1 else "rows repeat earlier rows"
            warnings.append(f"{table.name}: {n_repeated:,} of {table.rows:,} {verb}")
    return warnings + _find_mixed_columns(table)


def _find_mixed_columns(table: TableProfile) -> list[str]:
    """Return a warning for each column of texts in which almost all cells are numbers, or almost all are dates."""
    columns = [column for column in table.columns.values() if column.kind == "text" and column.distinct > 1]
    if not columns:
        return []
    conditions = {
        column.name: {
            "numbers": f"TRY_CAST({quoted(column.name)} AS DOUBLE)",
            "dates": datetime_sql(quoted(column.name)),
        }
        for column in columns
    }
    counts = ", ".join(f"count({sql})" for kinds in conditions.values() for sql in kinds.values())
    (found,) = table.connection.execute(f"SELECT {counts} FROM {table.scan}").fetchall()
    warnings = []
    for k, column in enumerate(columns):
        for (kind, sql), typed in zip(conditions[column.name].items(), found[2 * k : 2 * k + 2], strict=True):
            if MIN_TYPED * column.present <= typed < column.present:
                cell = quoted(column.name)
                rows = table.connection.execute(
                    f"SELECT {cell} FROM {table.scan} WHERE {cell} IS NOT NULL AND {sql} IS NULL "
                    f"GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {N_EXAMPLES}"
                ).fetchall()
                examples = listing(repr(value) for (value,) in rows)
                warnings.append(
                    f"{table.name}.{column.name}: {typed / column.present:.1%} of the values are {kind}, but not "
                    f"{column.present - typed:,} of them, such as {examples}"
                )
    return warnings
