"""Names of variables, such as `Page(12).category` and `Smokes(anna)`: formatting and parsing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from relcrf.columns.texts import take_texts
from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import entity_table, relation_table, type_table
from relcrf.data.store import is_utf8
from relcrf.errors import Diagnostic, UsageError, suggestion
from relcrf.grounding.variables import VariableBlock

MIN_SUGGESTED_EDITS = 2
"""Minimum number of edits up to which a key is suggested; 2 edits are a transposition of two characters."""


def read_arguments(bound: BoundModel, block: VariableBlock, variables: np.ndarray) -> list[np.ndarray]:
    """Return, for each argument of a block, its value in each of the given variables as text, shape (n,), object."""
    vids = variables - block.start
    if block.attribute is not None:
        codes = [vids]
    else:
        codes = _read_columns(
            bound, relation_table(block.owner), [f"a{k}" for k in range(len(block.argument_types))], vids
        )
    return [
        _code_texts(bound, type_name, column) for type_name, column in zip(block.argument_types, codes, strict=True)
    ]


def format_variables(bound: BoundModel, blocks: Sequence[VariableBlock], variables: np.ndarray) -> np.ndarray:
    """Return the names of some variables, shape (n,), object."""
    out = np.empty(len(variables), dtype=object)
    for block in blocks:
        positions = np.flatnonzero((variables >= block.start) & (variables < block.start + block.count))
        if not len(positions):
            continue
        distinct, inverse = np.unique(variables[positions], return_inverse=True)
        names = [
            block.format_name(arguments) for arguments in zip(*read_arguments(bound, block, distinct), strict=True)
        ]
        out[positions] = np.asarray(names, dtype=object)[inverse]
    return out


def find_variable(bound: BoundModel, blocks: Sequence[VariableBlock], text: str) -> int:
    """Return the index of the variable with the given name. Keys may be quoted; quotes make an ambiguous name unique.

    Raises:
        UsageError: if no variable or more than one variable has this name.
    """
    owner, _, rest = (part.strip() for part in text.partition("("))
    argument_text, closing, attribute = rest.rpartition(")")
    name = f"{owner}{attribute.strip()}"
    block = next((b for b in blocks if closing and b.name == name), None)
    if block is None:
        raise _unknown_variable(text, suggestion(name, [b.name for b in blocks]) or _example_hint(bound, blocks))
    splits = list(_split_arguments(argument_text, len(block.argument_types)))
    variables = (_look_up_variable(bound, block, arguments) for arguments in splits)
    matches = {variable for variable in variables if variable is not None}
    if len(matches) > 1:
        hint = "put each key in quotes"
        raise UsageError(Diagnostic("E313", f"'{text}' is ambiguous: it names {len(matches)} variables", hint=hint))
    if matches:
        return matches.pop()
    similar = similar_arguments(bound, block, splits[0]) if splits else None
    if similar is None:
        raise _unknown_variable(text, _example_hint(bound, blocks))
    raise _unknown_variable(text, f"did you mean '{block.format_name(similar)}'?")


def _unknown_variable(text: str, hint: str | None) -> UsageError:
    return UsageError(Diagnostic("E313", f"unknown variable '{text}'", hint=hint))


def _example_hint(bound: BoundModel, blocks: Sequence[VariableBlock]) -> str | None:
    first = next((block.start for block in blocks if block.count), None)
    return None if first is None else f"write a name such as {format_variables(bound, blocks, np.array([first]))[0]}"


def _split_arguments(text: str, count: int) -> Iterator[tuple[str, ...]]:
    """Yield every split of a text at commas into `count` arguments; a comma may also be part of a key."""
    pieces = text.split(",")
    for cuts in combinations(range(1, len(pieces)), count - 1):
        yield tuple(",".join(pieces[a:b]).strip() for a, b in pairwise((0, *cuts, len(pieces))))


def _look_up_variable(bound: BoundModel, block: VariableBlock, arguments: Sequence[str]) -> int | None:
    codes = [
        _look_up_code(bound, type_name, text) for type_name, text in zip(block.argument_types, arguments, strict=True)
    ]
    if None in codes:
        return None
    if block.attribute is not None:
        return block.start + int(codes[0] or 0)
    condition = " AND ".join(f"a{k} = ?" for k in range(len(codes)))
    query = f"SELECT vid FROM {quoted(relation_table(block.owner))} WHERE {condition}"
    return next((block.start + int(vid) for (vid,) in bound.connection.execute(query, codes).fetchall()), None)


def _look_up_code(bound: BoundModel, type_name: str, text: str) -> int | None:
    """Return the dense index of an entity or value, or None; an unknown text in quotes is looked up without the quotes."""
    if not is_utf8(text):  # bytes of a command line that are not valid UTF-8 cannot be a key
        return None
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    for key in (text, text[1:-1]) if is_quoted else (text,):
        if bound.spec.entity(type_name) is None:
            if key in bound.domains[type_name]:
                return bound.domains[type_name].index(key)
        else:
            query = f"SELECT vid FROM {quoted(entity_table(type_name))} WHERE CAST(key AS VARCHAR) = ?"
            for (vid,) in bound.connection.execute(query, [key]).fetchall():
                return int(vid)
    return None


def similar_arguments(bound: BoundModel, block: VariableBlock, arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return the arguments of a variable in which each unknown argument is replaced by the most similar key or value.

    Returns:
        None if an argument is similar to no key, or if the variable does not exist.
    """
    similar = []
    for type_name, text in zip(block.argument_types, arguments, strict=True):
        if _look_up_code(bound, type_name, text) is None:
            if not is_utf8(text):
                return None
            table, _, column = type_table(bound.spec, type_name)
            values_query = f"SELECT CAST({column} AS VARCHAR) AS known FROM {quoted(table)}"
            query = (
                f"SELECT known FROM ({values_query}) WHERE levenshtein(lower(known), lower(?)) <= ? "
                "ORDER BY damerau_levenshtein(known, ?), known LIMIT 1"
            )
            max_edits = max(MIN_SUGGESTED_EDITS, len(text) // 3)
            row = bound.connection.execute(query, [text, max_edits, text]).fetchone()
            if row is None:
                return None
            text = str(row[0])
        similar.append(text)
    return None if _look_up_variable(bound, block, similar) is None else tuple(similar)


def _code_texts(bound: BoundModel, type_name: str, codes: np.ndarray) -> np.ndarray:
    if bound.spec.entity(type_name) is None:
        return take_texts(bound.domains[type_name], codes)
    (keys,) = _read_columns(bound, entity_table(type_name), ["CAST(key AS VARCHAR)"], codes)
    return keys


def _read_columns(bound: BoundModel, table: str, columns: Sequence[str], vids: np.ndarray) -> list[np.ndarray]:
    """Read columns of a coded table for some vids (dense row indices), shape (n,) each; no other rows are read."""
    distinct, inverse = np.unique(vids, return_inverse=True)
    column_list = ", ".join(f"{column} AS c{k}" for k, column in enumerate(columns))
    query = f"SELECT {column_list} FROM {quoted(table)} JOIN selected USING (vid) ORDER BY vid"
    with bound.cursor(query) as cursor:
        cursor.register("selected", {"vid": distinct})
        result = cursor.execute(query).fetchnumpy()
    return [np.asarray(result[f"c{k}"])[inverse] for k in range(len(columns))]
