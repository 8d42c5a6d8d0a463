"""Values read back from JSON by their types: data classes from their fields by name, tuples from lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from relcrf.settings import types_of


def from_plain(kind: Any, value: Any) -> Any:
    """Return the value of a type that JSON has as lists, dictionaries, texts and numbers.

    Raises:
        TypeError: where a part is of another type. LookupError: where a data class has no field of a name.
    """
    return _reader(kind)(value)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        readers = [_reader(each) for each in arguments]
        return lambda value: _first_fitting(readers, value)
    if origin is tuple:
        item = _reader(arguments[0])
        return lambda value: tuple(map(item, _checked(value, list)))
    if origin is Mapping:
        part = _reader(arguments[1])
        return lambda value: {name: part(each) for name, each in _checked(value, dict).items()}
    if is_dataclass(kind):
        made: Any = kind
        fields = {name: _reader(each) for name, each in types_of(made).items()}
        return lambda value: made(**{name: fields[name](each) for name, each in _checked(value, dict).items()})
    if kind is float:
        return lambda value: float(value) if type(value) is int else _checked(value, float)
    return lambda value: _checked(value, kind)


def _first_fitting(readers: list[Callable[[Any], Any]], value: Any) -> Any:
    for read in readers[:-1]:
        try:
            return read(value)
        except TypeError:
            continue
    return readers[-1](value)


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:  # a truth value is no number here
        raise TypeError(f"{value!r} instead of a value of {kind.__name__}")
    return value
