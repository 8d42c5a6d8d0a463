"""Units of numbers in CSV files, such as `20 %` or `€ 1.234,50`, which are removed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relcrf.data.readers.csv_values import BLANK, ColumnFormat, ColumnTester, holds
from relcrf.data.store import literal, quoted

CURRENCIES = (
    "€",
    "$",
    "£",
    "¥",
    "EUR",
    "USD",
    "GBP",
    "CHF",
    "JPY",
    "CNY",
    "INR",
    "CAD",
    "AUD",
    "SEK",
    "NOK",
    "DKK",
    "PLN",
    "BRL",
)
"""Units that are detected before and after a number."""

LETTERS = ("g", "t", "m", "l", "h", "s", "W", "K")
"""Units that are detected after a number and a blank; `5m` without a blank may be a code."""

UNITS = (
    *("%", "‰", "°", "°C", "°F", "kg", "mg", "lb", "oz", "km", "cm", "mm", "mi", "ft", "m²", "m2", "ml", "min", "ms"),
    *("kW", "kWh", "MWh", "kB", "MB", "GB", "TB"),
)
"""Further units that are detected after a number."""

_FIRST = "".join(sorted({unit[0] for unit in CURRENCIES}))
_LAST = "".join(sorted({unit[-1] for unit in CURRENCIES + LETTERS + UNITS}))
_POSSIBLE_UNIT = f"^[{_FIRST}][^0-9]{{0,5}}[0-9]|^[+-]?[0-9].*[{_LAST}]$"
"""Regular expression that matches all numbers with units that are detected, and few other cells; it is compiled much faster
than that of the units."""


def unit_formats(tester: ColumnTester, stated: Sequence[str] | None) -> list[ColumnFormat]:
    """Return the conversions of columns of a CSV file all of whose cells are numbers with the same unit, or empty.

    If the units are stated, most cells of a column must be numbers with one of them; the others remain unchanged.

    Args:
        stated: The units that the manifest states; None to detect those of `UNITS`.
    """
    before, after, spaced = (CURRENCIES, CURRENCIES + UNITS, LETTERS) if stated is None else (stated, stated, ())
    units = {*after, *spaced}
    if not units:
        return []
    number = f"[+-]?[0-9](?:(?:[0-9.,']|{BLANK})*[0-9])?"
    suffix = f"(?:{BLANK}?({_any_of(after)}" + (f"|{BLANK}(?:{_any_of(spaced)})" if spaced else "") + "))?"
    pattern = literal(f"^(?:({_any_of(before)}){BLANK}?)?({number}){suffix}$")
    unit = f"trim(regexp_extract({{cell}}, {pattern}, 1) || regexp_extract({{cell}}, {pattern}, 3))"
    has_unit = f"{unit} IN ({', '.join(map(literal, units))})"
    columns: Sequence[str] = tester.columns
    if stated is None:
        columns = tester.filter(
            tester.filter(columns, f"regexp_matches({{cell}}, {literal(_POSSIBLE_UNIT)})"), has_unit
        )
    tests = [holds(has_unit, is_stated=stated is not None)]
    if stated is None:
        tests.append(f"count(DISTINCT nullif({unit}, '')) = 1")
    formats = []
    for column in (c for c, results in tester.test(columns, tests).items() if all(results)):
        cell = f"trim({quoted(column)})"
        sql = f"SELECT any_value(nullif({unit.replace('{cell}', cell)}, '')) FROM {tester.scan}"
        ((found,),) = tester.store.connection.execute(sql).fetchall()
        converted = f"regexp_replace({cell}, {pattern}, '\\2')"
        formats.append(ColumnFormat(column, converted, f"the unit {found!r}", "units", found))
    return formats


def _any_of(texts: Sequence[str]) -> str:
    """Return a regular expression that matches one of some texts."""
    return "|".join(map(re.escape, texts))
