"""Names of variables in commands: `Page/17`, `Page/17.topic`, or in full form `Page(17).topic` and `linked(a, b)`."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from relcrf.errors import Diagnostic, RelcrfError, UsageError, listing, suggestion
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variable_names import read_arguments
from relcrf.grounding.variables import VariableBlock


def resolve_variable(grounding: Grounding, text: str) -> int:
    """Return the variable with the given name.

    The text after the slash is the entity's key, verbatim, or the arguments of a tuple. If several attributes are
    predicted, a dot and the attribute must follow. If the text after the slash is `x.topic`, `.topic` is part of the
    key only if the key `x` does not exist.

    Raises:
        UsageError: No variable has this name (E313), or the name is ambiguous (E310).
    """
    owner, slash, rest = text.partition("/")
    owner = owner.strip()
    if "(" in owner:
        return grounding.find_variable(text)
    blocks = [block for block in grounding.blocks if block.owner == owner]
    if not slash or not blocks:
        raise _unknown_name(text, _suggest_name(grounding, owner, rest) or _example(grounding))
    matching = [block for block in blocks if block.attribute is not None and rest.endswith(f".{block.attribute}")]
    if not matching and len(blocks) > 1:
        full_names = [f"{owner}/{rest}.{block.attribute}" for block in blocks]
        hint = suggestion(text, full_names) or f"use one of {listing(full_names)}"
        raise UsageError(Diagnostic("E310", f"'{text}' is ambiguous: it does not name the attribute", hint=hint))
    (block,) = matching or blocks
    if block.attribute is None:
        return grounding.find_variable(block.format_name((rest,)))
    # The key itself may end like the attribute, unless several attributes are predicted.
    keys = [rest.removesuffix(f".{block.attribute}")] if matching else []
    keys += [rest] if not matching or len(blocks) == 1 else []
    for key in keys:
        with suppress(RelcrfError):
            return grounding.find_variable(block.format_name((key,)))
    suggested = _suggest_key(grounding, block, keys[0], with_attribute=bool(matching))
    raise _unknown_name(text, suggested or _example(grounding))


def _unknown_name(text: str, hint: str | None) -> UsageError:
    return UsageError(Diagnostic("E313", f"unknown variable '{text}'", hint=hint))


def _example(grounding: Grounding) -> str | None:
    """Return a hint with the name of the first variable."""
    block = next((block for block in grounding.blocks if block.count), None)
    if block is None:
        return None
    if block.attribute is None:
        return f"write a name such as '{grounding.variable_name(block.start)}'"
    ((key,),) = read_arguments(grounding.bound, block, np.array([block.start]))
    return f"write a name such as '{_short_name(grounding, block, key, with_attribute=False)}'"


def _short_name(grounding: Grounding, block: VariableBlock, key: str, *, with_attribute: bool) -> str:
    is_only = sum(other.owner == block.owner for other in grounding.blocks) == 1
    return f"{block.owner}/{key}" + (f".{block.attribute}" if with_attribute or not is_only else "")


def _suggest_name(grounding: Grounding, owner: str, rest: str) -> str | None:
    """Return a suggestion for an unknown entity type or relation, or for a key without an entity type."""
    owners = list(dict.fromkeys(block.owner for block in grounding.blocks))
    if not rest:
        names = [f"{name}/{owner}" for name in owners if name != owner]
    else:
        matches = [name for name in owners if suggestion(owner, [name])] or owners
        names = [f"{name}/{rest}" for name in matches]
    for name in names:
        with suppress(RelcrfError):
            resolve_variable(grounding, name)
            return f"did you mean '{name}'?"
    return (suggestion(owner, owners) or f"predicted: {listing(owners)}") if rest else None


def _suggest_key(grounding: Grounding, block: VariableBlock, key: str, *, with_attribute: bool) -> str | None:
    """Return a suggestion for an unknown key, which may be a known key with an unknown attribute."""
    entity, dot, _ = key.rpartition(".")
    if dot and not with_attribute:
        with suppress(RelcrfError):
            grounding.find_variable(block.format_name((entity,)))
            return f"did you mean '{_short_name(grounding, block, entity, with_attribute=True)}'?"
    similar = grounding.similar_arguments(block, (key,))
    if similar is None:
        return None
    return f"did you mean '{_short_name(grounding, block, similar[0], with_attribute=with_attribute)}'?"
