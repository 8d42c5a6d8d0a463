"""The texts and numbers of constants in expressions."""

from __future__ import annotations

import re
from decimal import Decimal

from relcrf.model import expressions as e


def number_value(node: e.Expression) -> int | float | None:
    """Return the value of a number with an optional sign; None for other expressions."""
    match node:
        case e.Number(value):
            return value
        case e.UnaryMinus(e.Number(value)):
            return -value
    return None


def literal_text(expression: e.Expression) -> str | None:
    """Return the text of a name, a string or a number; None for other expressions."""
    match expression:
        case e.Name(text) | e.Text(text):
            return text
        case e.Number(value):
            return str(value)
        case e.UnaryMinus(e.Number(value)):
            return f"-{value}".removeprefix("--")
    return None


def numerically_equal_value(text: str, literal: e.Expression, values: tuple[str, ...]) -> str | None:
    """Return the value that is numerically equal to a literal, e.g. `2.50` for `2.5`; None unless exactly one is."""
    if not isinstance(literal, e.Number | e.UnaryMinus):
        return None
    numbers = (v for v in values if re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d{1,4})?", v, re.ASCII))
    same = [v for v in numbers if Decimal(v) == Decimal(text)]
    return same[0] if len(same) == 1 else None
