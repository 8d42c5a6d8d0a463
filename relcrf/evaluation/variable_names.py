"""Variables as people ask for them: `Page/17`, `Page/17.topic`, and as they are named, `Page(17).topic` and `linked(a, b)`."""

from __future__ import annotations

from contextlib import suppress

from relcrf.errors import Diagnostic, RelcrfError, UsageError, listing, suggestion
from relcrf.grounding.grounding import Grounding


def resolve_variable(grounding: Grounding, text: str) -> int:
    """The variable that a text names.

    After a slash comes the thing's key as it is, whatever is in it, or the tuple's arguments; an attribute behind a dot is
    needed where several are predicted. A key that ends like the attribute is taken for one where there is no shorter one.

    Raises:
        UsageError: where there is none, or where several could be meant.
    """
    owner, slash, rest = text.partition("/")
    owner = owner.strip()
    if not slash or "(" in owner:
        return grounding.find_variable(text)
    mine = [block for block in grounding.blocks if block.owner == owner]
    if not mine:
        names = list(dict.fromkeys(block.owner for block in grounding.blocks))
        hint = suggestion(owner, names) or f"there is {listing(names)}"
        raise UsageError(Diagnostic("E313", f"nothing of '{owner}' is predicted", hint=hint))
    named = [block for block in mine if block.attribute is not None and rest.endswith(f".{block.attribute}")]
    if not named and len(mine) > 1:
        asked = [f"{owner}/{rest}.{block.attribute}" for block in mine]
        hint = suggestion(text, asked) or f"ask for one of {listing(asked)}"
        raise UsageError(Diagnostic("E310", f"'{text}' does not say which attribute", hint=hint))
    (block,) = named or mine
    key = rest.removesuffix(f".{block.attribute}") if named else rest
    try:
        return grounding.find_variable(block.format_name((key,)))
    except RelcrfError:
        if not named or len(mine) > 1:
            raise
        with suppress(RelcrfError):  # a key that itself ends like the attribute
            return grounding.find_variable(block.format_name((rest,)))
        raise
