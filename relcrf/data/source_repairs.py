"""The policy for duplicate rows of source tables whose manifest entries name a key, applied before queries read the rows."""

from __future__ import annotations

from dataclasses import replace

from relcrf.data.manifest import TableEntry
from relcrf.data.readers.base import SourceTable
from relcrf.data.row_repairs import RowRepair, row_location
from relcrf.data.store import Store, quoted, report_read_errors
from relcrf.errors import DataError, Diagnostic, listing, suggestion


def repair_duplicates(table: SourceTable, entry: TableEntry, store: Store) -> tuple[SourceTable, list[RowRepair]]:
    """Apply the policy of a manifest entry to the rows of its table with equal keys; return the table and the repairs.

    The remaining rows have the order of the source or, if the source has no order, of their cells. A row without a key is
    not a duplicate. The table remains unchanged if the entry names no key.

    Raises:
        DataError: The table does not have the key (E232), or cannot be read.
    """
    key, policy = entry.policies.key, entry.policies.duplicates
    if not key:
        return table, []
    with report_read_errors(table.location):
        described = store.connection.execute(f"DESCRIBE SELECT * FROM {table.scan}").fetchall()
        types = {str(name): str(kind) for name, kind, *_ in described}
        if key not in types:
            message = f"{table.location} has no column '{key}'"
            hint = suggestion(key, types) or f"its columns are {listing(types)}"
            raise DataError(Diagnostic("E232", message, entry.source_location, hint))
        row, text = "row".ljust(max(map(len, types)) + 1, "_"), _text_sql(key, types[key])
        order = "" if table.is_ordered else f"ORDER BY {', '.join(map(quoted, types))}"
        numbered = table.numbered_scan or f"(SELECT row_number() OVER ({order}), * FROM {table.scan})"
        rows = f"{numbered} AS numbered({', '.join(map(quoted, (row, *types)))})"
        repeated = (
            f"SELECT {row} AS later, min({row}) OVER (PARTITION BY {text}) AS earlier, {text} AS key_text "
            f"FROM {rows} WHERE {text} IS NOT NULL QUALIFY later > earlier"
        )
        found = store.connection.execute(
            f"SELECT count(*) OVER (), key_text, earlier, later FROM ({repeated}) ORDER BY later LIMIT 1"
        ).fetchall()
        if not found:
            return table, []
        stored = store.add_query(f"SELECT * FROM ({_distinct_rows_sql(rows, row, types, text, policy)}) ORDER BY {row}")
    ((count, example, earlier, later),) = found
    n_rows = f"{count:,} row" + "s" * (count != 1)
    action = f"dropped {n_rows} with the {key} of another row"
    if policy == "merge":
        action = f"merged {n_rows} into an earlier row with the same {key}"
    example = f"'{example}' in {_name_rows(table, earlier, later)}"
    repair = RowRepair(entry.name, table.location, f'duplicates = "{policy}"', count, action, example)
    scan = f"(SELECT {', '.join(map(quoted, types))} FROM {stored})"
    return replace(table, scan=scan, numbered_scan=stored, parquet_files=()), [repair]


def _distinct_rows_sql(rows: str, row: str, types: dict[str, str], text: str, policy: str) -> str:
    """Return SQL of the rows that a policy for duplicates keeps, each after its number.

    Args:
        rows: The FROM item of the numbered rows.
        row: The column with the row number.
        types: DuckDB's types of the other columns, by name.
        text: SQL of the text of a key.
    """
    if policy == "merge":
        cells = ", ".join(
            f"arg_min({quoted(c)}, {row}) FILTER (WHERE {_text_sql(c, kind)} IS NOT NULL) AS {quoted(c)}"
            for c, kind in types.items()
        )
        groups = f"{text}, CASE WHEN {text} IS NULL THEN {row} END"
        return f"SELECT min({row}) AS {row}, {cells} FROM {rows} GROUP BY {groups}"
    direction = "ASC" if policy == "first" else "DESC"
    number = f"row_number() OVER (PARTITION BY {text} ORDER BY {row} {direction})"
    return f"SELECT * FROM {rows} QUALIFY {text} IS NULL OR {number} = 1"


def _text_sql(column: str, column_type: str) -> str:
    """Return SQL of a cell's trimmed text; NULL if it is empty or not a number."""
    text = f"nullif(trim(CAST({quoted(column)} AS VARCHAR), E' \\t\\r\\n'), '')"
    return f"nullif({text}, 'nan')" if column_type in ("FLOAT", "DOUBLE") else text


def _name_rows(table: SourceTable, earlier: int, later: int) -> str:
    """Return the numbers of two rows for messages, with their files if the table has several."""
    if not table.is_ordered:
        return "several rows"
    (file, first), (other, second) = (row_location(number, table.location, table.files) for number in (earlier, later))
    return f"rows {first} and {second}" if file == other else f"rows {first} of {file} and {second} of {other}"
