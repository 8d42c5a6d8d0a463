"""Settings of backends and inference methods: fields of data classes that are set by name, as values or as strings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_type_hints

from relcrf.errors import Diagnostic, UsageError, listing, suggestion


def setting_names(kind: type) -> list[str]:
    """Return the names of the settings of a class: the fields of a data class, otherwise an empty list."""
    return [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


field_types = cache(get_type_hints)
"""Return the types of a class's fields; cached, because a call takes 0.1 ms and a served request needs three calls."""


def convert_settings(kind: type, owner: str, settings: Mapping[str, Any], valid_names: Sequence[str]) -> dict[str, Any]:
    """Validate settings, and convert the values to the types of the fields of a class.

    Args:
        owner: Owner of the settings, for messages, e.g. `backend 'ess'`.
        valid_names: The fields that may be set.

    Raises:
        UsageError: If a setting is unknown or its value is invalid.
    """
    types = field_types(kind)
    values = {}
    for name, value in settings.items():
        if name not in valid_names:
            hint = suggestion(name, valid_names) or (
                f"valid settings: {listing(valid_names)}" if valid_names else f"{owner} has no settings"
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
        expected = {int: "an integer >= 0", float: "a number >= 0", bool: "true or false"}.get(kind, str(kind))
        message = f"invalid value '{value}' for setting '{name}' of {owner}"
        raise UsageError(Diagnostic("E305", message, hint=f"use {expected}")) from None
    return result
