"""Cells of a request as the values that coded tables hold, where they are spelt plainly.

What is not, is for the ordinary reader of tables to judge: it knows every spelling, and tells what is wrong with a value.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from relcrf.model.spec import RangeDomain
from relcrf.model.types import AttributeType, Bool, Date, Integer, Real, String

WHITESPACE = " \t\r\n"
INTEGER_PATTERN = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""A whole number as it is printed, which surely fits 64 bits."""
DATE_PATTERN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

MAX_EXACT_INTEGER = 2**53
"""Whole numbers below it are floating-point numbers, too."""


class FastPathUnavailable(Exception):
    """A request that only the ordinary reader can judge; the text says why."""


def parse_texts(column: str, cells: Sequence[Any]) -> list[str | None]:
    """Texts, whole numbers and truth values as text; None where missing.

    Raises:
        FastPathUnavailable: for other values, blanks around a text, or a mixture of types.
    """
    kinds = {type(cell) for cell in cells} - {type(None)}
    if not kinds:
        return [None] * len(cells)
    if kinds == {str}:
        found = [cell or None for cell in cells]
        if any(cell is not None and cell != cell.strip(WHITESPACE) for cell in found):
            raise FastPathUnavailable(f"blanks around a text in '{column}'")
        return found
    if kinds == {int}:
        return [None if cell is None else str(cell) for cell in cells]
    if kinds == {bool}:
        return [None if cell is None else ("true" if cell else "false") for cell in cells]
    raise FastPathUnavailable(f"values of '{column}' are {' and '.join(sorted(k.__name__ for k in kinds))}")


def parse_keys(column: str, cells: Sequence[Any]) -> dict[str, int]:
    """The vid of each key, in the order of the keys: as numbers where all are whole, else as texts."""
    found = parse_texts(column, cells)
    if None in found or len(set(found)) < len(found):
        raise FastPathUnavailable(f"a key in '{column}' is missing or stands twice")
    present = [text for text in found if text is not None]
    if all(map(INTEGER_PATTERN.fullmatch, present)):
        present.sort(key=int)
    else:
        if any(len(text) > 18 and text.lstrip("-").isdigit() for text in present):
            raise FastPathUnavailable(f"a long number in '{column}'")
        present.sort(key=lambda text: text.encode())
    return {key: vid for vid, key in enumerate(present)}


def parse_codes(column: str, cells: Sequence[Any], known: Mapping[str, int]) -> list[int | None]:
    """The codes of values of an enumerated domain, or the vids of keys."""
    found = [None if text is None else known.get(text, -1) for text in parse_texts(column, cells)]
    if -1 in found:
        raise FastPathUnavailable(f"an unknown value in '{column}'")
    return found


def parse_range_codes(column: str, cells: Sequence[Any], domain: RangeDomain) -> list[int | None]:
    """The codes of values of a range: their distances from the lowest."""
    found: list[int | None] = []
    for text in parse_texts(column, cells):
        if text is not None and not (INTEGER_PATTERN.fullmatch(text) and domain.low <= int(text) <= domain.high):
            raise FastPathUnavailable(f"an unknown value in '{column}'")
        found.append(None if text is None else int(text) - domain.low)
    return found


def parse_numbers(column: str, cells: Sequence[Any]) -> list[float | None]:
    """Finite numbers."""
    kinds = {type(cell) for cell in cells} - {type(None)}
    if not kinds <= {int, float}:
        raise FastPathUnavailable(f"no plain numbers in '{column}'")
    if any(
        cell is not None and not (abs(cell) < MAX_EXACT_INTEGER if type(cell) is int else math.isfinite(cell))
        for cell in cells
    ):
        raise FastPathUnavailable(f"a number that is not finite in '{column}'")
    return [None if cell is None else float(cell) for cell in cells]


def parse_vectors(column: str, cells: Sequence[Any]) -> list[list[float]]:
    """Vectors of one length."""
    found = []
    for cell in cells:
        values = parse_numbers(column, cell) if isinstance(cell, list) and cell else [None]
        if None in values:
            raise FastPathUnavailable(f"no plain vectors in '{column}'")
        found.append([value for value in values if value is not None])
    if len({len(vector) for vector in found}) != 1:
        raise FastPathUnavailable(f"no vectors of one length in '{column}'")
    return found


def parse_scalars(column: str, cells: Sequence[Any], kind: AttributeType) -> list[Any]:
    """Values of `real`, `integer`, `bool`, `string` or `date`."""
    kinds = {type(cell) for cell in cells} - {type(None)}
    match kind:
        case Real():
            return list(parse_numbers(column, cells))
        case Integer() if kinds <= {int} and all(cell is None or abs(cell) < MAX_EXACT_INTEGER for cell in cells):
            return list(cells)
        case Bool() if kinds <= {bool}:
            return list(cells)
        case String():
            return list(parse_texts(column, cells))
        case Date():
            return [None if text is None else _parse_date(column, text) for text in _date_texts(column, cells)]
    raise FastPathUnavailable(f"no plain {kind} values in '{column}'")


def _date_texts(column: str, cells: Sequence[Any]) -> list[str | None]:
    return parse_texts(column, [cell.isoformat() if type(cell) is datetime.date else cell for cell in cells])


def _parse_date(column: str, text: str) -> datetime.date:
    try:
        if DATE_PATTERN.fullmatch(text):
            return datetime.date.fromisoformat(text)
    except ValueError:
        pass  # such as the 30th of February
    raise FastPathUnavailable(f"no plain dates in '{column}'")
