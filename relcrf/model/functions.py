"""The functions of the language: their types, for the checker, and what other packages compute. The SQL of those that are
built in is in `grounding/dialects/`.

`levenshtein` and `jaro_winkler` are missing where two texts have more than 127 different letters, unless all are ASCII."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from math import isnan
from typing import Any

import numpy as np

from relcrf import plugins
from relcrf.errors import Diagnostic, UsageError

ENTRY_POINT_GROUP = "relcrf.functions"
"""The entry points of functions of other packages."""

VECTOR_MEASURES = ("cosine", "dot", "distance")
"""The functions that `nearest K by` takes."""

AGGREGATES = ("exists", "count", "sum", "min", "max", "mean")
"""What may stand before `{ ... where ... }`."""


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """`parameters` are `number`, `vector` or `text`; `result` is `real`, `integer`, `bool` or `string`."""

    name: str
    parameters: tuple[str, ...]
    summary: str
    result: str = "real"


BUILT_IN: dict[str, FunctionSignature] = {
    s.name: s
    for s in (
        FunctionSignature("log", ("number",), "natural logarithm; missing where the argument is not positive"),
        FunctionSignature("log1p", ("number",), "log(1 + x); missing where x is not above -1"),
        FunctionSignature("exp", ("number",), "e to the power x"),
        FunctionSignature("sqrt", ("number",), "square root; missing where the argument is negative"),
        FunctionSignature("abs", ("number",), "absolute value"),
        FunctionSignature("least", ("number", "number"), "the smaller of two numbers"),
        FunctionSignature("greatest", ("number", "number"), "the larger of two numbers"),
        FunctionSignature("cosine", ("vector", "vector"), "cosine of the angle; 0 where a vector is all zeros"),
        FunctionSignature("dot", ("vector", "vector"), "inner product"),
        FunctionSignature("distance", ("vector", "vector"), "Euclidean distance"),
        FunctionSignature("lower", ("text",), "the text in lower case", "string"),
        FunctionSignature("prefix", ("text", "number"), "the first so many characters of a text", "string"),
        FunctionSignature("length", ("text",), "number of characters", "integer"),
        FunctionSignature("contains", ("text", "text"), "the second text stands in the first", "bool"),
        FunctionSignature("starts_with", ("text", "text"), "the first text begins with the second", "bool"),
        FunctionSignature("levenshtein", ("text", "text"), "edits that turn one text into the other", "integer"),
        FunctionSignature("jaro_winkler", ("text", "text"), "similarity of two short texts such as names, from 0 to 1"),
        FunctionSignature("jaccard", ("text", "text"), "shared letters over all letters of two texts, from 0 to 1"),
    )
}

PARAMETER_TYPES = ("number", "vector", "text")
RESULT_TYPES: dict[str, type | tuple[type, ...]] = {"real": (int, float), "integer": int, "bool": bool, "string": str}
"""What a function may give, by the name of its type."""


@dataclass(frozen=True)
class PluginFunction:
    """What another package brings as a function of the language; its entry point gives it a name.

    Args:
        parameters: of each argument `number`, `vector` or `text`.
        result: `real`, `integer`, `bool` or `string`.
        summary: what it gives, in a line.
        compute: from floats, lists of floats and texts to the result, or to None where there is none. It is not asked where an
            argument is missing. The same arguments give the same result: it may be asked once for many rows, or more than once.
    """

    parameters: tuple[str, ...]
    result: str
    summary: str
    compute: Callable[..., Any]


@dataclass(frozen=True)
class ExternalFunction(FunctionSignature):
    """A function that another package computes.

    Args:
        package: its name.
    """

    compute: Callable[..., Any] = lambda *_: None
    package: str = ""

    def __call__(self, *values: Any) -> Any:
        """The result for some values; None is missing.

        Raises:
            UsageError: where the function fails, or gives what is not of its type.
        """
        if any(value is None for value in values):
            return None
        given = [_convert_argument(value, kind) for value, kind in zip(values, self.parameters, strict=True)]
        try:
            result = self.compute(*given)
        except Exception as error:  # whatever a stranger's function raises is that function's mistake
            raise self._call_error(given, f"{type(error).__name__}: {error}") from error
        result = result.item() if isinstance(result, np.generic) else result
        if result is None:
            return None
        if not isinstance(result, RESULT_TYPES[self.result]) or (isinstance(result, bool) and self.result != "bool"):
            raise self._call_error(given, f"it gives {result!r}, which is no {self.result}")
        return None if isinstance(result, float) and isnan(result) else result

    def _call_error(self, given: list[Any], problem: str) -> UsageError:
        spelt = ", ".join(repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}..." for value in given)
        message = f"function '{self.name}' of package '{self.package}' fails"
        hint = f"mend '{self.package}', or keep such values from it with a condition in 'where'"
        return UsageError(Diagnostic("E405", message, hint=hint, notes=(f"{self.name}({spelt})", problem)))


def _convert_argument(value: Any, kind: str) -> Any:
    return float(value) if kind == "number" else [float(x) for x in value] if kind == "vector" else str(value)


class FunctionRegistry(Mapping[str, FunctionSignature]):
    """The functions by name. Those of other packages are there by their names, and loaded when they are looked up."""

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN or any(entry.name == name for entry in _plugin_entry_points())

    def __getitem__(self, name: str) -> FunctionSignature:
        """Raises: UsageError: where another package brings the function and is broken, or has the name of one that is there."""
        entries = [entry for entry in _plugin_entry_points() if entry.name == name]
        if not entries:
            return BUILT_IN[name]
        if name in BUILT_IN or len(entries) > 1:
            packages = " and ".join(sorted(f"'{plugins.package_name(entry)}'" for entry in entries))
            other = " and relcrf itself" if name in BUILT_IN else ""
            message = f"function '{name}' is brought by {packages}{other}"
            hint = f"uninstall one of the packages, or give the function another name in its 'project.entry-points.\"{ENTRY_POINT_GROUP}\"'"
            raise UsageError(Diagnostic("E404", message, hint=hint))
        return _load_external(entries[0])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*BUILT_IN, *(entry.name for entry in _plugin_entry_points())]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _plugin_entry_points() -> tuple[EntryPoint, ...]:
    return plugins.list_entries(entry_points, ENTRY_POINT_GROUP)


@lru_cache(maxsize=128)
def _load_external(entry: EntryPoint) -> ExternalFunction:
    loaded: PluginFunction = plugins.load_entry(entry, "E403", "function", _plugin_error)
    package = plugins.package_name(entry)
    return ExternalFunction(entry.name, loaded.parameters, loaded.summary, loaded.result, loaded.compute, package)


def _plugin_error(loaded: object) -> str | None:
    """What is wrong with what a package brings as a function."""
    if not isinstance(loaded, PluginFunction):
        return "it is no relcrf.model.functions.PluginFunction"
    parameters: object = loaded.parameters
    if not (isinstance(parameters, tuple) and parameters and all(kind in PARAMETER_TYPES for kind in parameters)):
        return f"its parameters are no tuple of 'number', 'vector' and 'text': {parameters!r}"
    if loaded.result not in RESULT_TYPES:
        return f"its result is none of {', '.join(RESULT_TYPES)}: {loaded.result!r}"
    return None if callable(loaded.compute) else f"its 'compute' cannot be called: {loaded.compute!r}"


FUNCTIONS = FunctionRegistry()


def external_function(name: str) -> ExternalFunction | None:
    """A function of another package; None where that is a built-in one's name."""
    found = FUNCTIONS[name]
    return found if isinstance(found, ExternalFunction) else None
