"""What is said of a text that the grammar does not allow: what was found, what was expected, and how to mend it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import lark

from relcrf.errors import suggestion
from relcrf.language.words import DECLARATIONS

_HUMAN = {
    "NAME": "a name",
    "INTEGER": "a whole number",
    "SIGNED_INTEGER": "a whole number",
    "REAL": "a number",
    "SIGNED_REAL": "a number",
    "STRING": "a text in quotes",
    "COMPARISON": "a comparison",
    "PLUS": "'+'",
    "TIMES": "'*'",
}
_NAME, _COMPARISON = _HUMAN["NAME"], _HUMAN["COMPARISON"]
_CLAUSES = ("where", "over", "per", "by", "init", "fixed", "l1", "l2", "weights")
_ROLES = ("predict", "latent")
"""What stands before an attribute that is random."""
_JOINING = frozenset({"COMPARISON", "PLUS", "TIMES", "MINUS", "AND", "OR", "IN", "DOT", "<=>", "=>"})
"""What can always go on after a term: messages name it only where nothing else is possible."""
_MAX_EXPECTED = 5
"""A longer list of what could stand there helps nobody."""


@dataclass(frozen=True)
class Problem:
    """One mistake at `width` characters from `offset` on."""

    code: str
    message: str
    offset: int
    width: int
    hint: str | None = None


def syntax_problem(
    error: lark.UnexpectedInput, interactive: Any, spelling: dict[str, str], seen: list[lark.Token], text: str
) -> Problem:
    """The problem behind an error of the parser.

    Args:
        interactive: the parser, where it stopped.
        spelling: how the fixed terminals are written, by name.
        seen: the tokens that it took.
        text: what it parsed.
    """
    offset, found = _found(error, seen, text)
    width = max(1, len(found))
    if found == '"':
        return Problem("E001", "this text has no closing quote on its line", offset, width, "end it with '\"'")
    if found and not found.isprintable():
        return Problem("E001", f"the character {found!a} cannot stand in a model", offset, width)
    if found and not found.isascii():
        hint = "names have the letters a-z and A-Z, digits and '_'; put other text in quotes"
        return Problem("E001", f"unexpected '{found}'", offset, width, hint)
    terminals = interactive.accepts()
    accepted = {_HUMAN.get(name) or spelling.get(name, name) for name in terminals - {"$END"}}
    next_words = {*accepted, *DECLARATIONS} if "$END" in terminals else accepted
    remedy = _remedy(found, text[offset:], [str(token) for token in seen], accepted)
    remedy = remedy or _misspelt(found, next_words)
    what = f"unexpected '{found}'" if found else f"the {seen[0]} ends too early"
    expected = _expected(accepted)
    return Problem("E001", f"{what}, expected {expected}" if expected else what, offset, width, remedy)


def _found(error: lark.UnexpectedInput, seen: list[lark.Token], text: str) -> tuple[int, str]:
    """Where the parser stopped, and at what; nothing at the end of the declaration."""
    if isinstance(error, lark.UnexpectedToken) and error.token.type != "$END":
        return error.token.start_pos or 0, str(error.token)
    if isinstance(error, lark.UnexpectedCharacters):
        offset = error.pos_in_stream or 0
        return offset, text[offset]
    return (seen[-1].end_pos or 0) if seen else 0, ""


def _expected(accepted: set[str]) -> str:
    """The few things that could stand there; nothing where there are many."""
    if "(" in accepted and _NAME in accepted:
        return "an expression"
    names = sorted((accepted - _JOINING - {"("}) or accepted, key=lambda n: (_order(n), n))
    names = [name for name in names if name != _HUMAN["INTEGER"] or _HUMAN["REAL"] not in names]
    shown = [name if name in _HUMAN.values() else f"'{name}'" for name in names]
    if not 0 < len(shown) <= _MAX_EXPECTED:
        return ""
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " or " + shown[-1]


def _order(name: str) -> int:
    """Clauses in the order of a template, all else before them."""
    return _CLAUSES.index(name) if name in _CLAUSES else -1


def _remedy(found: str, rest: str, seen: list[str], accepted: set[str]) -> str | None:
    """How to mend a typical slip, or None. `rest`: the text from what was found on."""
    if rest[:2] in ("&&", "||") or found in ("&", "|"):
        return f"write '{'and' if found == '&' else 'or'}'"
    if found == "!":
        return "write 'not', or '!=' for unequal"
    if found == "=" and _COMPARISON in accepted:
        return "two values are compared with '=='"
    if found in ("==", "!=", "<", "<=", ">", ">=") and "and" in accepted:
        return "comparisons do not chain: join two of them with 'and'"
    if found == ";":
        return "nothing is needed at the end of a clause or declaration"
    if found == "'":
        return "texts stand in double quotes"
    if not seen:
        return None
    if accepted == {":"}:
        return _type_remedy(found, seen)
    if ")" in accepted and (not found or found in _CLAUSES or found in "{}"):
        return "a '(' is still open"
    if seen[0] in ("template", "candidates"):
        return _template_remedy(found, rest, seen, accepted)
    if seen[0] == "derive" and "where" in accepted and found != "where":
        return "a derived relation has a condition, 'where ...', or is '= nearest K by cosine(a.v, b.v)'"
    return None


def _type_remedy(found: str, seen: list[str]) -> str:
    """What is missing where a name has no colon."""
    if len(seen) > 1 and seen[-2] == "of":
        return f"many values of a domain are of type 'bag of {seen[-1]}'"
    if found.isidentifier():
        meant = suggestion(seen[-1], _ROLES) if seen[0] == "entity" else None
        if meant:
            return meant
        return f"write '{seen[-1]}: {found}'"
    return f"say of what type it is: '{seen[-1]}: TYPE'"


def _template_remedy(found: str, rest: str, seen: list[str], accepted: set[str]) -> str | None:
    if found in ("where", "over", "per", "by") and found in seen:
        return f"a template has one '{found}' clause: conditions are joined with 'and', the rest with ','"
    if _misspelt(found, accepted):
        return None
    is_later = re.search(r"^[^#\n]*\bover\b", rest, re.MULTILINE) is not None
    if "over" not in seen and "over" in accepted and not is_later:
        return "every template has an 'over' clause: the random attributes that it is about"
    if found in _CLAUSES and (found in ("where", "over", "per", "by") or is_later):
        return "the clauses stand in this order: where, over, per, by, options"
    return None


def _misspelt(found: str, accepted: set[str]) -> str | None:
    words = sorted(word for word in accepted if word.isalnum())
    return suggestion(found, words) if len(found) > 1 and found.isidentifier() and found not in words else None
