"""Conversion of JSON values to typed values: objects become data classes, by field name, and lists become tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from relcrf.settings import field_types


def from_json_value(kind: Any, value: Any) -> Any:
    """Convert a JSON value (lists, dictionaries, strings, numbers) to a value of the given type.

    Raises:
        TypeError: The value, or a part of it, has another type.
        LookupError: An object has a name that is not a field of the data class.
    """
    return _converter_for(kind)(value)


@cache
def _converter_for(kind: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        converters = [_converter_for(each) for each in arguments]
        return lambda value: _convert_by_first(converters, value)
    if origin in (tuple, Sequence):
        item = _converter_for(arguments[0])
        # A check of all types at once takes a tenth of the time of a call for each of the many texts of a vocabulary.
        is_plain = arguments[0] in (str, int, bool)
        return lambda value: (
            tuple(value)
            if is_plain and type(value) is list and {*map(type, value)} <= {arguments[0]}
            else tuple(map(item, _require_type(value, list)))
        )
    if origin is Mapping:
        part = _converter_for(arguments[1])
        return lambda value: {name: part(each) for name, each in _require_type(value, dict).items()}
    if is_dataclass(kind):
        data_class: Any = kind
        fields = {name: _converter_for(each) for name, each in field_types(data_class).items()}
        return lambda value: data_class(
            **{name: fields[name](each) for name, each in _require_type(value, dict).items()}
        )
    if kind is Any:
        return lambda value: value
    if kind is float:
        return lambda value: float(value) if type(value) is int else _require_type(value, float)
    return lambda value: _require_type(value, kind)


def _convert_by_first(converters: list[Callable[[Any], Any]], value: Any) -> Any:
    for convert in converters[:-1]:
        try:
            return convert(value)
        except TypeError:
            continue
    return converters[-1](value)


def _require_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:  # bool is a subclass of int but is not accepted as a number
        raise TypeError(f"expected a value of type {kind.__name__}, found {value!r}")
    return value
