"""Texts of the types `date`, `time` and `datetime`, and the integers that represent times and datetimes in all engines."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

from relcrf.model.types import AttributeType, Date, Datetime, Time

_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def parse_date(text: str) -> datetime.date:
    """Return the date `YYYY-MM-DD`.

    Raises:
        ValueError: The text has another form, or there is no such date.
    """
    return datetime.date.fromisoformat(_require_match(_DAY, text))


def parse_time(text: str) -> int:
    """Return the microseconds from midnight to the time of day `HH:MM`, `HH:MM:SS` or `HH:MM:SS.ffffff`.

    Raises:
        ValueError: The text has another form.
    """
    time = datetime.time.fromisoformat(_require_match(_CLOCK, text))
    return (datetime.datetime.combine(_EPOCH, time, datetime.UTC) - _EPOCH) // _MICROSECOND


def parse_datetime(text: str) -> int:
    """Return the microseconds from 1970-01-01 UTC to a date, or to a date and a time with an optional zone such as +01:00.

    Raises:
        ValueError: The text has another form, or there is no such date.
    """
    moment = datetime.datetime.fromisoformat(_require_match(rf"{_DAY}([ T]{_CLOCK}(Z|[+-]\d\d:\d\d)?)?", text))
    return ((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH) // _MICROSECOND


def _require_match(pattern: str, text: str) -> str:
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError(f"'{text}' has another form")
    return text


PARSERS: dict[AttributeType, Callable[[str], datetime.date | int]] = {
    Date(): parse_date,
    Time(): parse_time,
    Datetime(): parse_datetime,
}
"""The function that converts a text to the stored value, by type."""

EXAMPLES: dict[AttributeType, str] = {Date(): "2024-01-31", Time(): "10:30:00", Datetime(): "2024-01-31 10:30:00"}
"""A text of each type, for messages."""
