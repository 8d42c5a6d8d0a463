"""Names of variables in commands: `Page/17`, `Page/17.topic`, or in full form `Page(17).topic` and `linked(a, b)`."""

from __future__ import annotations

from contextlib import suppress

from relcrf.errors import Diagnostic, RelcrfError, UsageError, listing, suggestion
from relcrf.grounding.grounding import Grounding


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
    if not slash or "(" in owner:
        return grounding.find_variable(text)
    blocks = [block for block in grounding.blocks if block.owner == owner]
    if not blocks:
        names = list(dict.fromkeys(block.owner for block in grounding.blocks))
        hint = suggestion(owner, names) or f"predicted: {listing(names)}"
        raise UsageError(
            Diagnostic("E313", f"'{owner}' is not a predicted relation and has no predicted attributes", hint=hint)
        )
    matching = [block for block in blocks if block.attribute is not None and rest.endswith(f".{block.attribute}")]
    if not matching and len(blocks) > 1:
        full_names = [f"{owner}/{rest}.{block.attribute}" for block in blocks]
        hint = suggestion(text, full_names) or f"use one of {listing(full_names)}"
        raise UsageError(Diagnostic("E310", f"'{text}' is ambiguous: it does not name the attribute", hint=hint))
    (block,) = matching or blocks
    key = rest.removesuffix(f".{block.attribute}") if matching else rest
    try:
        return grounding.find_variable(block.format_name((key,)))
    except RelcrfError:
        if not matching or len(blocks) > 1:
            raise
        with suppress(RelcrfError):  # the key itself may end like the attribute
            return grounding.find_variable(block.format_name((rest,)))
        raise
