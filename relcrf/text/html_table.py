"""HTML tables for notebooks, with escaped cells."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def html_table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return an HTML table.

    Args:
        columns: The headers of the columns. If all headers are empty, the table has no header row.
        caption: The caption of the table.
    """

    def row(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(_text(cell))}</{tag}>" for cell in cells) + "</tr>"

    head = row(columns, "th") if any(columns) else ""
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{above}{head}{''.join(row(each, 'td') for each in rows)}</table>"


def _text(cell: object) -> str:
    return f"{cell:,.4g}" if isinstance(cell, float) else f"{cell:,}" if type(cell) is int else str(cell)
