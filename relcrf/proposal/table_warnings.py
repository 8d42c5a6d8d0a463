"""Warnings on tables: rows that occur several times, and columns in which a few cells are not numbers or dates."""

from __future__ import annotations

from relcrf.data.coding import datetime_sql
from relcrf.data.dataset import quoted
from relcrf.errors import listing
from relcrf.proposal.profile import LIST_KINDS, TableProfile

MIN_TYPED = 0.95
"""Fraction of numbers, or of dates, from which the other cells of a column are suspected to be errors."""

N_EXAMPLES = 3
"""Number of cells that a warning shows."""


N_SAMPLED = 1000
"""Number of cells of each column that are tested before all cells are, which is slow."""


def find_warnings(table: TableProfile) -> list[str]:
    """Return warnings on duplicate rows, which are counted by their 64-bit hashes, and on columns of mixed types."""
    warnings = []
    if not any(column.is_unique and column.kind not in LIST_KINDS for column in table.columns.values()):
        rows = table.connection.execute(f"SELECT count(DISTINCT hash(t)) FROM {table.raw.scan} AS t").fetchall()
        n_repeated = table.rows - int(rows[0][0])
        if n_repeated:
            verb = "repeats an earlier row" if n_repeated == 1 else "repeat earlier rows"
            warnings.append(f"{table.name}: {n_repeated:,} of {table.rows:,} rows {verb}")
    return warnings + _find_mixed_columns(table)


def _find_mixed_columns(table: TableProfile) -> list[str]:
    """Return a warning for each column of texts in which almost all cells are numbers, or almost all are dates."""
    tests = [
        (column.name, kind, sql)
        for column in table.columns.values()
        if column.kind == "text" and column.distinct > 1
        for kind, sql in (
            ("numbers", f"TRY_CAST({quoted(column.name)} AS DOUBLE)"),
            ("dates", datetime_sql(quoted(column.name))),
        )
    ]
    tests = _find_mixed(
        table, tests, f"{table.scan} USING SAMPLE reservoir({N_SAMPLED} ROWS) REPEATABLE (0)", slack=0.1
    )
    warnings = []
    for name, kind, sql in _find_mixed(table, tests, table.scan):
        cell, column = quoted(name), table.columns[name]
        rows = table.connection.execute(
            f"SELECT {cell}, count(*), sum(count(*)) OVER () FROM {table.scan} WHERE {cell} IS NOT NULL AND {sql} IS NULL "
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {N_EXAMPLES}"
        ).fetchall()
        if rows:
            others, examples = int(rows[0][2]), listing(repr(value) for value, _, _ in rows)
            warnings.append(
                f"{table.name}.{name} contains {kind}, except in {others:,} of {column.present:,} cells "
                f"({100 * others / column.present:.2g}%), such as {examples}"
            )
    return warnings


def _find_mixed(
    table: TableProfile, tests: list[tuple[str, str, str]], rows: str, slack: float = 0.0
) -> list[tuple[str, str, str]]:
    """Return the tests (column, kind, converted value) that almost all cells of some rows pass.

    Args:
        slack: How much less than MIN_TYPED the fraction may be.
    """
    if not tests:
        return []
    counts = ", ".join(f"count({quoted(name)}), count({sql})" for name, _, sql in tests)
    ((*found,),) = table.connection.execute(f"SELECT {counts} FROM {rows}").fetchall()
    pairs = zip(tests, found[::2], found[1::2], strict=True)
    return [test for test, present, typed in pairs if typed >= (MIN_TYPED - slack) * present]
