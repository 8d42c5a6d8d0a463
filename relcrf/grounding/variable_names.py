"""The names of variables, `Page(12).category` and `Smokes(anna)`: from variables to names, and from a name to its variable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import entity_table, relation_table, sort_table
from relcrf.data.store import is_utf8
from relcrf.errors import Diagnostic, UsageError, suggestion
from relcrf.grounding.variables import VariableBlock


def read_arguments(bound: BoundModel, block: VariableBlock, variables: np.ndarray) -> list[np.ndarray]:
    """For each argument of a block, its key or value as text for some of the variables, shape (n,), object."""
    vids = variables - block.start
    if block.attribute is not None:
        codes = [vids]
    else:
        codes = _read_columns(
            bound, relation_table(block.owner), [f"a{k}" for k in range(len(block.argument_types))], vids
        )
    return [_code_texts(bound, sort, column) for sort, column in zip(block.argument_types, codes, strict=True)]


def format_variables(bound: BoundModel, blocks: Sequence[VariableBlock], variables: np.ndarray) -> np.ndarray:
    """Some variables as people name them, shape (n,), object."""
    out = np.empty(len(variables), dtype=object)
    for block in blocks:
        mine = np.flatnonzero((variables >= block.start) & (variables < block.start + block.count))
        distinct, place = np.unique(variables[mine], return_inverse=True)
        names = [
            block.format_name(arguments) for arguments in zip(*read_arguments(bound, block, distinct), strict=True)
        ]
        out[mine] = np.asarray(names, dtype=object)[place]
    return out


def find_variable(bound: BoundModel, blocks: Sequence[VariableBlock], text: str) -> int:
    """The variable that a text names. A key may stand in quotes; it must where it could be read in another way.

    Raises:
        UsageError: where there is none, or where there are several.
    """
    owner, _, rest = (part.strip() for part in text.partition("("))
    inside, closing, attribute = rest.rpartition(")")
    name = f"{owner}{attribute.strip()}"
    block = next((b for b in blocks if closing and b.name == name), None)
    if block is None:
        raise _unknown_variable(text, suggestion(name, [b.name for b in blocks]) or _example_hint(bound, blocks))
    if not is_utf8(text):  # bytes of a command line, which are no key
        raise _unknown_variable(text, _example_hint(bound, blocks))
    readings = list(_split_arguments(inside, len(block.argument_types)))
    variables = (_look_up_variable(bound, block, arguments) for arguments in readings)
    found = {variable for variable in variables if variable is not None}
    if len(found) > 1:
        hint = "put each key in quotes"
        raise UsageError(Diagnostic("E313", f"'{text}' names {len(found)} variables", hint=hint))
    if found:
        return found.pop()
    near = [_nearest_arguments(bound, block, arguments) for arguments in readings[:1]]
    known = [
        block.format_name(arguments) for arguments in near if _look_up_variable(bound, block, arguments) is not None
    ]
    raise _unknown_variable(text, suggestion(text, known) or _example_hint(bound, blocks))


def _unknown_variable(text: str, hint: str | None) -> UsageError:
    return UsageError(Diagnostic("E313", f"there is no variable '{text}'", hint=hint))


def _example_hint(bound: BoundModel, blocks: Sequence[VariableBlock]) -> str | None:
    first = next((block.start for block in blocks if block.count), None)
    return None if first is None else f"name one like {format_variables(bound, blocks, np.array([first]))[0]}"


def _split_arguments(text: str, count: int) -> Iterator[tuple[str, ...]]:
    """The ways to cut a text at commas into so many arguments; a key may have commas of its own."""
    pieces = text.split(",")
    for cuts in combinations(range(1, len(pieces)), count - 1):
        yield tuple(",".join(pieces[a:b]).strip() for a, b in pairwise((0, *cuts, len(pieces))))


def _look_up_variable(bound: BoundModel, block: VariableBlock, arguments: Sequence[str]) -> int | None:
    codes = [_look_up_code(bound, sort, text) for sort, text in zip(block.argument_types, arguments, strict=True)]
    if None in codes:
        return None
    if block.attribute is not None:
        return block.start + int(codes[0] or 0)
    same = " AND ".join(f"a{k} = ?" for k in range(len(codes)))
    query = f"SELECT vid FROM {quoted(relation_table(block.owner))} WHERE {same}"
    return next((block.start + int(vid) for (vid,) in bound.connection.execute(query, codes).fetchall()), None)


def _look_up_code(bound: BoundModel, type_name: str, text: str) -> int | None:
    """The vid or code of a key or value, as it is written or else without the quotes around it."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    for spelt in (text, text[1:-1]) if is_quoted else (text,):
        if bound.spec.entity(type_name) is None:
            if spelt in bound.domains[type_name]:
                return bound.domains[type_name].index(spelt)
        else:
            query = f"SELECT vid FROM {quoted(entity_table(type_name))} WHERE CAST(key AS VARCHAR) = ?"
            for (vid,) in bound.connection.execute(query, [spelt]).fetchall():
                return int(vid)
    return None


def _nearest_arguments(bound: BoundModel, block: VariableBlock, arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments, the nearest key or value in place of each that does not exist."""
    nearest = []
    for sort, text in zip(block.argument_types, arguments, strict=True):
        if _look_up_code(bound, sort, text) is None:
            table, _, column = sort_table(bound.spec, sort)
            known = f"SELECT CAST({column} AS VARCHAR) AS known FROM {quoted(table)}"
            query = f"SELECT known FROM ({known}) ORDER BY damerau_levenshtein(known, ?), known LIMIT 1"
            text = next((str(key) for (key,) in bound.connection.execute(query, [text]).fetchall()), text)
        nearest.append(text)
    return tuple(nearest)


def _code_texts(bound: BoundModel, type_name: str, codes: np.ndarray) -> np.ndarray:
    if bound.spec.entity(type_name) is None:
        return np.asarray(bound.texts(type_name)[codes])
    (keys,) = _read_columns(bound, entity_table(type_name), ["CAST(key AS VARCHAR)"], codes)
    return keys


def _read_columns(bound: BoundModel, table: str, columns: Sequence[str], vids: np.ndarray) -> list[np.ndarray]:
    """Columns of a coded table in the rows of some vids, shape (n,) each; no more of it is read than that."""
    distinct, place = np.unique(vids, return_inverse=True)
    selected = ", ".join(f"{column} AS c{k}" for k, column in enumerate(columns))
    with bound.cursor() as cursor:
        cursor.register("chosen", {"place": distinct})
        query = f"SELECT {selected} FROM {quoted(table)} JOIN chosen ON vid = chosen.place ORDER BY vid"
        found = cursor.execute(query).fetchnumpy()
    return [np.asarray(found[f"c{k}"])[place] for k in range(len(columns))]
