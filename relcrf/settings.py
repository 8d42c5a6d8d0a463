"""Settings of systems and methods: fields of data classes, given by name, as values or as texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_type_hints

from relcrf.errors import Diagnostic, UsageError, listing, suggestion


def setting_names(kind: type) -> list[str]:
    """The settings of a class: its fields, if it is a data class."""
    return [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


field_types = cache(get_type_hints)
"""Return the types of a class's fields. Cached, since a call takes a tenth of a millisecond and each request makes three."""


def convert_settings(kind: type, owner: str, settings: Mapping[str, Any], valid_names: Sequence[str]) -> dict[str, Any]:
    """Settings as the fields of the class have them. Texts are converted to the field's type.

    Args:
        owner: whose settings they are, for messages: `backend 'ess'`.
        valid_names: the fields that may be set.

    Raises:
        UsageError: for an unknown setting, or a value of the wrong type.
    """
    types = field_types(kind)
    values = {}
    for name, value in settings.items():
        if name not in valid_names:
            hint = suggestion(name, valid_names) or (
                f"its settings: {listing(valid_names)}" if valid_names else "it has no settings"
            )
            raise UsageError(Diagnostic("E304", f"{owner} has no setting '{name}'", hint=hint))
        values[name] = _convert(owner, name, value, types[name])
    return values


def _convert(owner: str, name: str, value: Any, kind: Any) -> Any:
    try:
        result = {"true": True, "false": False}[str(value).lower()] if kind is bool else kind(value)
        if kind in (int, float) and not 0 <= result < float("inf"):
            raise ValueError
    except (ValueError, TypeError, KeyError, OverflowError):
        wanted = {int: "a whole number from 0", float: "a number from 0", bool: "true or false"}.get(kind, str(kind))
        message = f"setting '{name}' of {owner} cannot be '{value}'"
        raise UsageError(Diagnostic("E305", message, hint=f"it takes {wanted}")) from None
    return result
