"""Conversion of the cells of a request to values of coded tables, for cells in plain formatting.

The *vid* of a key is its index in the sorted keys; the *code* of a value is its index in the domain. Other cells need
the slow path: the binding of `data/binding.py`, which accepts every formatting and reports bad values.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from relcrf.model.spec import RangeDomain
from relcrf.model.times import PARSERS
from relcrf.model.types import AttributeType, Bool, Date, Datetime, Integer, Real, String, Time

WHITESPACE = " \t\r\n"
INTEGER_PATTERN = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""Pattern of integers in canonical formatting that fit into 64 bits."""

MAX_EXACT_INTEGER = 2**53
"""Bound below which a double represents every integer exactly."""


class FastPathUnavailable(Exception):
    """The exception raised if a request needs the slow path; its message is the reason."""


def parse_texts(column: str, cells: Sequence[Any]) -> list[str | None]:
    """Convert cells that are strings, integers or booleans to text; missing cells become None.

    Raises:
        FastPathUnavailable: A value has another type, a text has blanks around it, or types are mixed.
    """
    types = {type(cell) for cell in cells} - {type(None)}
    if not types:
        return [None] * len(cells)
    if types == {str}:
        texts = [cell or None for cell in cells]
        if any(cell is not None and cell != cell.strip(WHITESPACE) for cell in texts):
            raise FastPathUnavailable(f"blanks around a text in '{column}'")
        return texts
    if types == {int}:
        return [None if cell is None else str(cell) for cell in cells]
    if types == {bool}:
        return [None if cell is None else ("true" if cell else "false") for cell in cells]
    raise FastPathUnavailable(f"values of '{column}' have the types {' and '.join(sorted(k.__name__ for k in types))}")


def parse_keys(column: str, cells: Sequence[Any]) -> dict[str, int]:
    """Return the vid of each key; keys are numbered in numeric order if all are integers, otherwise in UTF-8 order."""
    texts = parse_texts(column, cells)
    if None in texts or len(set(texts)) < len(texts):
        raise FastPathUnavailable(f"a key in '{column}' is missing or occurs twice")
    present = [text for text in texts if text is not None]
    if all(map(INTEGER_PATTERN.fullmatch, present)):
        present.sort(key=int)
    else:
        if any(len(text) > 18 and text.lstrip("-").isdigit() for text in present):
            raise FastPathUnavailable(f"a long number in '{column}'")
        present.sort(key=lambda text: text.encode())
    return {key: vid for vid, key in enumerate(present)}


def parse_codes(column: str, cells: Sequence[Any], known: Mapping[str, int]) -> list[int | None]:
    """Return the code of each value of an enumerated domain, or the vid of each key."""
    codes = [None if text is None else known.get(text, -1) for text in parse_texts(column, cells)]
    if -1 in codes:
        raise FastPathUnavailable(f"an unknown value in '{column}'")
    return codes


def parse_range_codes(column: str, cells: Sequence[Any], domain: RangeDomain) -> list[int | None]:
    """Return the codes of values of a range, i.e. their differences from the lowest value."""
    codes: list[int | None] = []
    for text in parse_texts(column, cells):
        if text is not None and not (INTEGER_PATTERN.fullmatch(text) and domain.low <= int(text) <= domain.high):
            raise FastPathUnavailable(f"an unknown value in '{column}'")
        codes.append(None if text is None else int(text) - domain.low)
    return codes


def parse_numbers(column: str, cells: Sequence[Any]) -> list[float | None]:
    """Return cells as finite floats; missing cells become None."""
    types = {type(cell) for cell in cells} - {type(None)}
    if not types <= {int, float}:
        raise FastPathUnavailable(f"'{column}' has values that are not plain numbers")
    if any(
        cell is not None and not (abs(cell) < MAX_EXACT_INTEGER if type(cell) is int else math.isfinite(cell))
        for cell in cells
    ):
        raise FastPathUnavailable(f"'{column}' has a number that is infinite, NaN or too large")
    return [None if cell is None else float(cell) for cell in cells]


def parse_vectors(column: str, cells: Sequence[Any]) -> list[list[float]]:
    """Return cells as vectors of equal length."""
    vectors = []
    for cell in cells:
        values = parse_numbers(column, cell) if isinstance(cell, list) and cell else [None]
        if None in values:
            raise FastPathUnavailable(f"'{column}' has values that are not plain vectors")
        vectors.append([value for value in values if value is not None])
    if len({len(vector) for vector in vectors}) != 1:
        raise FastPathUnavailable(f"vectors in '{column}' have different lengths")
    return vectors


def parse_scalars(column: str, cells: Sequence[Any], kind: AttributeType) -> list[Any]:
    """Return cells as values of `real`, `integer`, `bool`, `string`, `date`, `time` or `datetime`."""
    types = {type(cell) for cell in cells} - {type(None)}
    match kind:
        case Real():
            return list(parse_numbers(column, cells))
        case Integer() if types <= {int} and all(cell is None or abs(cell) < MAX_EXACT_INTEGER for cell in cells):
            return list(cells)
        case Bool() if types <= {bool}:
            return list(cells)
        case String():
            return list(parse_texts(column, cells))
        case Date() | Time() | Datetime():
            texts = parse_texts(column, [cell.isoformat() if type(cell) is datetime.date else cell for cell in cells])
            try:
                return [None if text is None else PARSERS[kind](text) for text in texts]
            except ValueError:
                pass  # another form, or a date that does not exist, e.g. the 30th of February
    raise FastPathUnavailable(f"'{column}' has values that are not plain {kind}")
