"""The functions of the language: signatures of the built-in functions, and registration of functions of other packages.

`grounding/dialects/` contains the SQL of the built-in functions. The results of `levenshtein` and `jaro_winkler` are
missing if the two texts have more than 127 distinct characters and at least one of the characters is not ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from math import isnan
from typing import Any

from relcrf import plugins
from relcrf.errors import Diagnostic, UsageError

ENTRY_POINT_GROUP = "relcrf.functions"
"""The entry point group in which other packages register functions."""

VECTOR_MEASURES = ("cosine", "dot", "distance")
"""The functions of two vectors that are allowed after `nearest K by`."""

NGRAM_LENGTHS = range(2, 6)
"""The lengths of the character n-grams that `tfidf_cosine` compares."""

BASIS_SIZES = range(2, 101)
"""The numbers of bins of `quantiles` and of knots of `spline`; effects that need more are overfitted by most data."""

AGGREGATES = ("exists", "count", "sum", "min", "max", "mean")
"""The functions of aggregates; an aggregate is written `FUNCTION { ... where ... }`."""


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The signature of a function.

    Args:
        parameters: `number`, `vector`, `text`, `date`, `time` or `value` for each parameter.
        summary: one line of documentation.
        result: `real`, `integer`, `bool` or `string`.
        n_optional: number of parameters, at the end, that a call may omit.
        is_variadic: whether a call may repeat the last parameter.
    """

    name: str
    parameters: tuple[str, ...]
    summary: str
    result: str = "real"
    n_optional: int = field(default=0, kw_only=True)
    is_variadic: bool = field(default=False, kw_only=True)

    @property
    def required(self) -> tuple[str, ...]:
        """The parameters that a call cannot omit."""
        return self.parameters[: len(self.parameters) - self.n_optional]

    def accepts(self, n_arguments: int) -> bool:
        """Return True if a call may have this number of arguments."""
        return len(self.required) <= n_arguments and (self.is_variadic or n_arguments <= len(self.parameters))

    def __str__(self) -> str:
        optional = "".join(f"[, {kind}]" for kind in self.parameters[len(self.required) :])
        repeated = ", ..." if self.is_variadic else ""
        return f"{self.name}({', '.join(self.required)}{optional}{repeated}): {self.result}"


BUILT_IN: dict[str, FunctionSignature] = {
    s.name: s
    for s in (
        FunctionSignature("log", ("number",), "natural logarithm; missing if the argument is not positive"),
        FunctionSignature("log1p", ("number",), "log(1 + x); missing if x is not above -1"),
        FunctionSignature("exp", ("number",), "e to the power x"),
        FunctionSignature("sqrt", ("number",), "square root; missing if the argument is negative"),
        FunctionSignature("abs", ("number",), "absolute value"),
        FunctionSignature("least", ("number", "number"), "the smaller of two numbers"),
        FunctionSignature("greatest", ("number", "number"), "the larger of two numbers"),
        FunctionSignature("default", ("number", "number"), "the first number, or the second if the first is missing"),
        FunctionSignature(
            "bin",
            ("number", "number"),
            "number of the thresholds, the further arguments, that are less than or equal to the first",
            "integer",
            is_variadic=True,
        ),
        FunctionSignature("year", ("date",), "year of a date or datetime", "integer"),
        FunctionSignature("month", ("date",), "month of a date or datetime, from 1 to 12", "integer"),
        FunctionSignature("weekday", ("date",), "day of the week, from 1 (Monday) to 7 (Sunday)", "integer"),
        FunctionSignature("hour", ("time",), "hour of a time or datetime (UTC), from 0 to 23", "integer"),
        FunctionSignature("days", ("date", "date"), "number of days from the first date to the second", "integer"),
        FunctionSignature("missing", ("value",), "whether a value is missing", "bool"),
        FunctionSignature("cosine", ("vector", "vector"), "cosine of the angle; 0 if a vector is all zeros"),
        FunctionSignature("dot", ("vector", "vector"), "inner product"),
        FunctionSignature("distance", ("vector", "vector"), "Euclidean distance"),
        FunctionSignature("lower", ("text",), "the text in lower case", "string"),
        FunctionSignature("prefix", ("text", "number"), "the first n characters of a text", "string"),
        FunctionSignature("length", ("text",), "number of characters", "integer"),
        FunctionSignature("contains", ("text", "text"), "whether the first text contains the second", "bool"),
        FunctionSignature("starts_with", ("text", "text"), "whether the first text starts with the second", "bool"),
        FunctionSignature("levenshtein", ("text", "text"), "edit distance of two texts", "integer"),
        FunctionSignature("jaro_winkler", ("text", "text"), "similarity of two short texts such as names, from 0 to 1"),
        FunctionSignature(
            "jaccard", ("text", "text"), "shared letters divided by all letters of two texts, from 0 to 1"
        ),
    )
}

FEATURE_FUNCTIONS: dict[str, FunctionSignature] = {
    s.name: s
    for s in (
        FunctionSignature("normalise", ("bag or vector",), "the values divided by their Euclidean norm", "same type"),
        FunctionSignature("tfidf", ("bag",), "the counts multiplied by the inverse document frequencies", "bag"),
        FunctionSignature(
            "standardise", ("number or vector",), "the difference from the mean in standard deviations", "same type"
        ),
        FunctionSignature(
            "quantiles", ("number", "number"), "indicators of k bins with equal numbers of training values", "vector"
        ),
        FunctionSignature("spline", ("number", "number"), "linear spline with k knots at quantiles", "vector"),
    )
}
"""The built-in functions of the value of an entity; `grounding/entity_values.py` computes them for all entities at once."""

TABLE_STATISTICS = ("tfidf", "standardise", "quantiles", "spline")
"""The functions of `FEATURE_FUNCTIONS` whose values depend on all rows of a table."""

TEXT_SIMILARITIES: dict[str, FunctionSignature] = {
    s.name: s
    for s in (
        FunctionSignature(
            "tfidf_cosine",
            ("text", "text", "number"),
            "cosine of the TF-IDF vectors of two texts, from 0 to 1; of their words, or of their n-grams of n characters",
            n_optional=1,
        ),
        FunctionSignature(
            "token_jaccard", ("text", "text"), "shared words divided by all words of two texts, from 0 to 1"
        ),
    )
}
"""The built-in functions of string attributes of two entities; `grounding/text_rows.py` computes the tokens of all texts."""

NEAREST_MEASURES = (*VECTOR_MEASURES, *TEXT_SIMILARITIES)
"""The functions that are allowed after `nearest K by`."""

_RELCRF_FUNCTIONS = BUILT_IN | FEATURE_FUNCTIONS | TEXT_SIMILARITIES

PARAMETER_TYPES = ("number", "vector", "text")
RESULT_TYPES: dict[str, type | tuple[type, ...]] = {"real": (int, float), "integer": int, "bool": bool, "string": str}
"""The Python types of results, by the name of the result type."""


@dataclass(frozen=True)
class PluginFunction:
    """A function of the language that another package defines; the name of its entry point is the name of the function.

    Args:
        parameters: `number`, `vector` or `text` for each parameter.
        result: `real`, `integer`, `bool` or `string`.
        summary: one line of documentation.
        compute: function of floats, lists of floats and strings that returns the result, or None for a missing value.
            It is not called if an argument is missing. It must be deterministic, as the number of calls is undefined.
    """

    parameters: tuple[str, ...]
    result: str
    summary: str
    compute: Callable[..., Any]


@dataclass(frozen=True)
class ExternalFunction(FunctionSignature):
    """The signature and implementation of a function of another package.

    Args:
        compute: the implementation; see `PluginFunction`.
        package: the name of the package.
    """

    compute: Callable[..., Any] = lambda *_: None
    package: str = ""

    def __call__(self, *values: Any) -> Any:
        """Return the result of a call; None is a missing value.

        Raises:
            UsageError: if the function raises an exception, or returns a value of another type.
        """
        if any(value is None for value in values):
            return None
        arguments = [_convert_argument(value, kind) for value, kind in zip(values, self.parameters, strict=True)]
        try:
            result = self.compute(*arguments)
        except Exception as error:  # any exception of an external function is reported as its failure
            raise self._call_error(arguments, f"{type(error).__name__}: {error}") from error
        result = result.item() if getattr(result, "shape", None) == () else result  # a scalar of NumPy
        if result is None:
            return None
        if not isinstance(result, RESULT_TYPES[self.result]) or (isinstance(result, bool) and self.result != "bool"):
            raise self._call_error(arguments, f"it returned {result!r}, which is not of type {self.result}")
        return None if isinstance(result, float) and isnan(result) else result

    def _call_error(self, arguments: list[Any], problem: str) -> UsageError:
        formatted = ", ".join(
            repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}..." for value in arguments
        )
        message = f"function '{self.name}' of package '{self.package}' failed"
        hint = f"fix '{self.package}', or exclude such values with a condition in 'where'"
        return UsageError(Diagnostic("E405", message, hint=hint, notes=(f"{self.name}({formatted})", problem)))


def _convert_argument(value: Any, kind: str) -> Any:
    return float(value) if kind == "number" else [float(x) for x in value] if kind == "vector" else str(value)


class FunctionRegistry(Mapping[str, FunctionSignature]):
    """The mapping from names to functions; a function of another package is loaded when its name is first looked up."""

    def __contains__(self, name: object) -> bool:
        return name in _RELCRF_FUNCTIONS or any(entry.name == name for entry in _plugin_entry_points())

    def __getitem__(self, name: str) -> FunctionSignature:
        """Return the signature of a function.

        Raises:
            UsageError: if the package of the function cannot be loaded, or another function has the same name.
        """
        entries = [entry for entry in _plugin_entry_points() if entry.name == name]
        if not entries:
            return _RELCRF_FUNCTIONS[name]
        if name in _RELCRF_FUNCTIONS or len(entries) > 1:
            packages = " and ".join(sorted(f"'{plugins.package_name(entry)}'" for entry in entries))
            other = " and relcrf itself" if name in _RELCRF_FUNCTIONS else ""
            message = f"function '{name}' is defined by {packages}{other}"
            hint = f"uninstall one of the packages, or rename the function in its 'project.entry-points.\"{ENTRY_POINT_GROUP}\"'"
            raise UsageError(Diagnostic("E404", message, hint=hint))
        return _load_external(entries[0])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*_RELCRF_FUNCTIONS, *(entry.name for entry in _plugin_entry_points())]))

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
    """Return an error message if the object that a package registers is not a valid function, otherwise None."""
    if not isinstance(loaded, PluginFunction):
        return "it is not a relcrf.model.functions.PluginFunction"
    parameters: object = loaded.parameters
    if not (isinstance(parameters, tuple) and parameters and all(kind in PARAMETER_TYPES for kind in parameters)):
        return f"its parameters are not a tuple of 'number', 'vector' and 'text': {parameters!r}"
    if loaded.result not in RESULT_TYPES:
        return f"its result is not one of {', '.join(RESULT_TYPES)}: {loaded.result!r}"
    return None if callable(loaded.compute) else f"its 'compute' is not callable: {loaded.compute!r}"


FUNCTIONS = FunctionRegistry()


def external_function(name: str) -> ExternalFunction | None:
    """Return the function of another package with this name; None if the function with this name is built in."""
    function = FUNCTIONS[name]
    return function if isinstance(function, ExternalFunction) else None
