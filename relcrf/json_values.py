"""Values read back from JSON by their types: data classes from their fields by name, tuples from lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from relcrf.settings import field_types


def from_json_value(kind: Any, value: Any) -> Any:
    """Return the value of a type that JSON has as lists, dictionaries, texts and numbers.

    Raises:
        TypeError: where a part is of another type. LookupError: where a data class has no field of a name.
    """
    return _converter_for(kind)(value)


@cache
def _converter_for(kind: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        readers = [_converter_for(each) for each in arguments]
        return lambda value: _convert_by_first(readers, value)
    if origin is tuple:
        item = _converter_for(arguments[0])
        return lambda value: tuple(map(item, _require_type(value, list)))
    if origin is Mapping:
        part = _converter_for(arguments[1])
        return lambda value: {name: part(each) for name, each in _require_type(value, dict).items()}
    if is_dataclass(kind):
        made: Any = kind
        fields = {name: _converter_for(each) for name, each in field_types(made).items()}
        return lambda value: made(**{name: fields[name](each) for name, each in _require_type(value, dict).items()})
    if kind is float:
        return lambda value: float(value) if type(value) is int else _require_type(value, float)
    return lambda value: _require_type(value, kind)


def _convert_by_first(readers: list[Callable[[Any], Any]], value: Any) -> Any:
    for read in readers[:-1]:
        try:
            return read(value)
        except TypeError:
            continue
    return readers[-1](value)


def _require_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:  # a truth value is no number here
        raise TypeError(f"{value!r} instead of a value of {kind.__name__}")
    return value
