"""Validation of values in a manifest: their types, and the keys that change cells and rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from relcrf.data.readers.cell_formats import format_problem
from relcrf.errors import listing, suggestion

MAX_DIGITS = 100
"""Maximum number of digits of a code."""

POLICIES = {"duplicates": ("error", "first", "last", "merge"), "orphans": ("error", "drop", "add")}
TYPE_NAMES: dict[type | UnionType, str] = {
    str: "a string",
    dict: "a table",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list of strings",
    list | dict: "a list of strings, or a table of such lists by column",
}


@dataclass(frozen=True)
class ValueProblem:
    """An invalid value in the entry of a table.

    Args:
        keys: The path of the value in the entry.
    """

    message: str
    hint: str
    keys: tuple[str, ...]


def has_type(value: Any, kind: type | UnionType) -> bool:
    """Return True if a TOML value has a type. Truth values are not integers, and integers are numbers."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def format_value(value: Any) -> str:
    """Format a TOML value for a message."""
    if isinstance(value, bool):
        return str(value).lower()
    return "a table" if isinstance(value, dict) else repr(value)


def row_problems(entry: Mapping[str, Any]) -> list[ValueProblem]:
    """Return the invalid values of `missing`, `digits`, `formats`, `words` and the policies in the entry of a table."""
    problems = []
    missing = entry.get("missing", [])
    for column, texts in missing.items() if isinstance(missing, dict) else [("", missing)]:
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            message = f"'{column or 'missing'}' must be a list of strings, not {format_value(texts)}"
            hint = 'write missing = { column = ["NA", "-"] }' if column else 'write missing = ["NA", "-"]'
            problems.append(ValueProblem(message, hint, ("missing", column) if column else ("missing",)))
    for column, digits in entry.get("digits", {}).items():
        if not has_type(digits, int) or not 1 <= digits <= MAX_DIGITS:
            message = f"'{column}' must be an integer from 1 to {MAX_DIGITS}, not {format_value(digits)}"
            problems.append(ValueProblem(message, "write digits = { column = 6 }", ("digits", column)))
    for column, format in entry.get("formats", {}).items():
        if expected := format_problem(format):
            message = f"the format of '{column}' must be {expected}, not {format_value(format)}"
            problems.append(ValueProblem(message, 'write formats = { column = "%d.%m.%Y" }', ("formats", column)))
    for column, text in entry.get("words", {}).items():
        if not isinstance(text, str):
            message = f"'{column}' must be the name of a column of texts, not {format_value(text)}"
            problems.append(ValueProblem(message, 'write words = { title_words = "title" }', ("words", column)))
    for policy, values in POLICIES.items():
        if entry.get(policy, "error") not in values:
            hint = suggestion(entry[policy], values) or f"write one of {listing(values)}"
            problems.append(ValueProblem(f"'{entry[policy]}' is not a policy for {policy}", hint, (policy,)))
    if "key" in entry and "sql" in entry:
        hint = "remove it; the result of a query has no first row"
        problems.append(ValueProblem("'key' cannot be combined with 'sql'", hint, ("key",)))
    elif "key" in entry and entry.get("duplicates", "error") == "error":
        hint = 'write duplicates = "first", "last" or "merge", or remove the key'
        problems.append(ValueProblem("'key' has no effect without a policy for duplicates", hint, ("key",)))
    return problems
