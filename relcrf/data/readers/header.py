"""The header of a table: its location if titles, comments or empty rows precede it, and names that it repeats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import mode
from typing import Any

from relcrf.errors import listing

MAX_ROWS_ABOVE = 20
"""Maximum number of rows above the header."""


NUMBER = re.compile(r"[+-]?[0-9.,]*[0-9]")
"""Regular expression of numbers, which are not names of columns."""


def count_rows_above_header(rows: Sequence[Sequence[Any]]) -> int:
    """Return the number of rows above the header: comments that begin with `#`, titles in the first cell, and empty rows.

    The header is the first other row. If its cells are not different names, or later rows have more or fewer cells, the number is
    0: the first row is then the header, although it has only one name. So it is if there are two columns, unless an empty row or
    a comment separates the title from them: the second column may have no name.

    Args:
        rows: The first rows of the table. Cells that are not texts contain no names.
    """
    width = mode(map(len, rows)) if rows else 0
    is_separated = False
    for n, row in enumerate(rows[: MAX_ROWS_ABOVE + 1]):
        filled = _filled(row)
        if not filled or (len(row) != width and str(row[0]).lstrip("\ufeff ").startswith("#")):
            is_separated = True
        elif len(filled) > 1 or not _filled(row[:1]):
            is_table = _is_header(row) and all(len(other) in (0, len(row)) for other in rows[n:])
            return n if is_table and (len(row) > 2 or is_separated) else 0
    return 0


def _filled(row: Sequence[Any]) -> list[Any]:
    return [cell for cell in row if not isinstance(cell, str) or cell.strip()]


def _is_header(row: Sequence[Any]) -> bool:
    """Return True if the cells of a row are different texts that are not numbers, nor parts of a sentence, after a blank."""
    filled = _filled(row)
    names = {cell.strip() for cell in filled if isinstance(cell, str)}
    is_prose = any(str(cell).startswith(" ") for cell in filled)
    is_number = any(NUMBER.fullmatch(name) for name in names)
    return len(names) == len(filled) and not is_prose and not is_number


def repeated_name_notes(header: Iterable[str]) -> list[str]:
    """Return a note on the names that a header repeats, also in another case, and that DuckDB therefore changes; [] if none."""
    names: dict[str, list[str]] = {}
    for name in filter(None, header):
        names.setdefault(name.casefold(), []).append(name)
    repeated = [repr(name) for same in names.values() for name in same[1:]]
    shown = listing(dict.fromkeys(repeated))
    return [f"the header repeats {shown}; the first column has this name, the others with a number"] if repeated else []
