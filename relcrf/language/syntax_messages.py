"""What is said of a text that the grammar does not allow: what was found, what was expected, and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lark

from relcrf.errors import Diagnostic, suggestion
from relcrf.language.keywords import DECLARATION_KEYWORDS, OPTION_KEYWORDS, ROLE_KEYWORDS, TEMPLATE_CLAUSES
from relcrf.language.tokens import SourceText, Token, literal_terminals

_TERMINAL_DESCRIPTIONS = {
    "NAME": "a name",
    "INTEGER": "a whole number",
    "REAL": "a number",
    "STRING": "a text in quotes",
    "COMPARISON": "a comparison",
    "PLUS": "'+'",
    "TIMES": "'*'",
}
_NAME, _COMPARISON = _TERMINAL_DESCRIPTIONS["NAME"], _TERMINAL_DESCRIPTIONS["COMPARISON"]
_CLAUSES = (*TEMPLATE_CLAUSES, *OPTION_KEYWORDS)
"""They are named in this order, and after all else."""
_CONNECTIVES = frozenset({"<=>", "=>"})
"""What can always go on after a term: messages name it only where nothing else is possible."""
_MAX_EXPECTED = 5
"""A longer list of what could stand there helps nobody."""


def describe_syntax_error(
    text: SourceText, parser: Any, taken: Sequence[lark.Token], tokens: Sequence[Token]
) -> Diagnostic:
    """Return what is wrong with a declaration.

    Args:
        parser: Lark's, where it stopped.
        taken: the tokens that it took, of all `tokens` of the declaration.
    """
    rest = [token.text for token in tokens[len(taken) :]]
    wrong = tokens[len(taken)] if rest else None
    offset, found = (wrong.start, wrong.text) if wrong is not None else (tokens[-1].stop, "")
    if wrong is not None and wrong.terminal == "UNCLOSED":
        found = '"'
    place = text.span(offset, offset)
    place = replace(place, end_column=place.column + max(1, len(found)))
    if found == '"':
        return Diagnostic("E001", "this text has no closing quote on its line", place, "end it with '\"'")
    if not found.isprintable():
        return Diagnostic("E001", f"the character {found!a} cannot stand in a model", place)
    if not found.isascii():
        hint = "names have the letters a-z and A-Z, digits and '_'; put other text in quotes"
        return Diagnostic("E001", f"unexpected '{found}'", place, hint)
    terminals = parser.accepts()
    accepted = {
        _TERMINAL_DESCRIPTIONS.get(name) or literal_terminals().get(name, name) for name in terminals - {"$END"}
    }
    next_words = {*accepted, *DECLARATION_KEYWORDS} if "$END" in terminals else accepted
    seen = [str(token) for token in taken]
    remedy = _suggest_fix(found, rest, seen, accepted) or _suggest_keyword(found, next_words)
    what = f"unexpected '{found}'" if found else f"the {seen[0]} ends too early"
    expected = _describe_expected(accepted)
    return Diagnostic("E001", f"{what}, expected {expected}" if expected else what, place, remedy)


def _describe_expected(accepted: set[str]) -> str:
    """The few things that could stand there; nothing where there are many."""
    if "(" in accepted and _NAME in accepted:
        return "an expression"
    names = sorted(
        (accepted - _CONNECTIVES - {"("}) or accepted, key=lambda n: (_CLAUSES.index(n) if n in _CLAUSES else -1, n)
    )
    names = [
        name
        for name in names
        if name != _TERMINAL_DESCRIPTIONS["INTEGER"] or _TERMINAL_DESCRIPTIONS["REAL"] not in names
    ]
    if _TERMINAL_DESCRIPTIONS["INTEGER"] in accepted:  # whose sign is a part of it
        names = [name for name in names if name != "-"]
    shown = [name if name in _TERMINAL_DESCRIPTIONS.values() else f"'{name}'" for name in names]
    if not 0 < len(shown) <= _MAX_EXPECTED:
        return ""
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " or " + shown[-1]


def _suggest_fix(found: str, rest: list[str], seen: list[str], accepted: set[str]) -> str | None:
    """How to mend a typical slip, or None. `rest`: the tokens from what was found on."""
    if found in ("&", "|"):
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
        return _suggest_type(found, seen)
    if ")" in accepted and (not found or found in _CLAUSES or found in "{}"):
        return "a '(' is still open"
    if seen[0] in ("template", "candidates"):
        return _suggest_template_fix(found, rest, seen, accepted)
    if seen[0] == "derive" and "where" in accepted and found != "where":
        return "a derived relation has a condition, 'where ...', or is '= nearest K by cosine(a.v, b.v)'"
    return None


def _suggest_type(found: str, seen: list[str]) -> str:
    """What is missing where a name has no colon."""
    if len(seen) > 1 and seen[-2] == "of":
        return f"many values of a domain are of type 'bag of {seen[-1]}'"
    if found.isidentifier():
        meant = suggestion(seen[-1], ROLE_KEYWORDS) if seen[0] == "entity" else None
        if meant:
            return meant
        return f"write '{seen[-1]}: {found}'"
    return f"say of what type it is: '{seen[-1]}: TYPE'"


def _suggest_template_fix(found: str, rest: list[str], seen: list[str], accepted: set[str]) -> str | None:
    if found in TEMPLATE_CLAUSES and found in seen:
        return f"a template has one '{found}' clause: conditions are joined with 'and', the rest with ','"
    if _suggest_keyword(found, accepted):
        return None
    is_later = "over" in rest
    if "over" not in seen and "over" in accepted and not is_later:
        return "every template has an 'over' clause: the random attributes that it is about"
    if found in _CLAUSES and (found in TEMPLATE_CLAUSES or is_later):
        return "the clauses stand in this order: where, over, per, by, options"
    return None


def _suggest_keyword(found: str, accepted: set[str]) -> str | None:
    words = sorted(word for word in accepted if word.isalnum())
    return suggestion(found, words) if len(found) > 1 and found.isidentifier() and found not in words else None
