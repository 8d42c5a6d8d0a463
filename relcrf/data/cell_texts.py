"""SQL of the texts of cells that are not texts, which are the same in every format: the number 5.0 has the text 5."""

from __future__ import annotations

REAL_TYPES = ("DOUBLE", "FLOAT")

MAX_EXACT_INTEGER = 9e15
"""A double represents every integer up to this bound exactly; the largest such bound is 2**53, about 9.007e15."""


def cell_text_sql(cell: str, column_type: str) -> str:
    """Return a SQL expression of the text of a cell; NULL for NaN.

    Args:
        column_type: DuckDB's type of the column.
    """
    text = f"CAST({cell} AS VARCHAR)"
    if column_type in REAL_TYPES:
        # A data frame stores an integer column with missing values as floats: 5 as 5.0, and a missing value as NaN.
        is_whole = f"{cell} = floor({cell}) AND abs({cell}) < {MAX_EXACT_INTEGER}"
        whole = f"CASE WHEN {is_whole} THEN CAST(TRY_CAST({cell} AS BIGINT) AS VARCHAR) "
        return f"(CASE WHEN isnan({cell}) THEN NULL ELSE ({whole} ELSE {text} END) END)"
    if column_type.startswith("DECIMAL") and not column_type.endswith(",0)"):
        return f"rtrim(rtrim({text}, '0'), '.')"  # the key 12 of a DECIMAL(38,10) is written as 12.0000000000
    return text
