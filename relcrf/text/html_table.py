"""HTML tables for notebooks, with escaped cells and bars for numbers."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence

BAR = "rgba(59, 130, 246, .3)"
"""Colour of the bar of a number, for light and dark themes."""


def html_table(
    columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "", bars: Collection[object] = ()
) -> str:
    """Return an HTML table.

    Args:
        columns: The headers of the columns. If all headers are empty, the table has no header row.
        caption: The caption of the table.
        bars: The columns of numbers whose cells contain a bar; its length is relative to the largest absolute value of the
            column or, if larger, to 1.
    """
    rows = list(rows)
    scales = [
        max([1.0, *(abs(row[k]) for row in rows if isinstance(row[k], float))]) if name in bars else 0.0  # type: ignore[arg-type]
        for k, name in enumerate(columns)
    ]

    def cell(value: object, tag: str, scale: float) -> str:
        style = ""
        if scale and isinstance(value, float):
            end = f"{100 * abs(value) / scale:.0f}%"
            style = f' style="background: linear-gradient(90deg, {BAR} {end}, transparent {end})"'
        return f"<{tag}{style}>{html.escape(_text(value))}</{tag}>"

    head = f"<tr>{''.join(cell(name, 'th', 0.0) for name in columns)}</tr>" if any(columns) else ""
    body = "".join(
        f"<tr>{''.join(cell(value, 'td', scale) for value, scale in zip(row, scales, strict=True))}</tr>"
        for row in rows
    )
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{above}{head}{body}</table>"


def _text(cell: object) -> str:
    return f"{cell:,.4g}" if isinstance(cell, float) else f"{cell:,}" if type(cell) is int else str(cell)
