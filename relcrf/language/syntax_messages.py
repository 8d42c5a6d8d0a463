"""Messages of syntax errors: the unexpected token, the expected ones, and a hint."""

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
    "INTEGER": "an integer",
    "REAL": "a number",
    "STRING": "a quoted string",
    "COMPARISON": "a comparison",
    "PLUS": "'+'",
    "TIMES": "'*'",
}
_NAME, _COMPARISON = _TERMINAL_DESCRIPTIONS["NAME"], _TERMINAL_DESCRIPTIONS["COMPARISON"]
_CLAUSES = (*TEMPLATE_CLAUSES, *OPTION_KEYWORDS)
"""The clause keywords, in the order in which messages list them, after all other expected tokens."""
_CONNECTIVES = frozenset({"<=>", "=>"})
"""Connectives, which may follow any term: messages list them only if nothing else is expected."""
_MAX_EXPECTED = 5
"""Maximum number of expected tokens in a message; longer lists are omitted because they do not help."""


def describe_syntax_error(
    text: SourceText, parser: Any, accepted_tokens: Sequence[lark.Token], tokens: Sequence[Token]
) -> Diagnostic:
    """Return the diagnostic for the syntax error of a declaration.

    Args:
        parser: Lark's interactive parser, in the state before the error.
        accepted_tokens: the tokens that the parser accepted.
        tokens: all tokens of the declaration.
    """
    remaining = [token.text for token in tokens[len(accepted_tokens) :]]
    unexpected = tokens[len(accepted_tokens)] if remaining else None
    offset, found = (unexpected.start, unexpected.text) if unexpected is not None else (tokens[-1].stop, "")
    if unexpected is not None and unexpected.terminal == "UNCLOSED":
        found = '"'
    span = text.span(offset, offset)
    span = replace(span, end_column=span.column + max(1, len(found)))
    if found == '"':
        return Diagnostic("E001", "this string has no closing quote on its line", span, "end it with '\"'")
    if not found.isprintable():
        return Diagnostic("E001", f"invalid character {found!a}", span)
    if not found.isascii():
        hint = "names consist of the letters a-z and A-Z, digits and '_'; put other text in quotes"
        return Diagnostic("E001", f"unexpected '{found}'", span, hint)
    terminals = parser.accepts()
    accepted = {
        _TERMINAL_DESCRIPTIONS.get(name) or literal_terminals().get(name, name) for name in terminals - {"$END"}
    }
    next_words = {*accepted, *DECLARATION_KEYWORDS} if "$END" in terminals else accepted
    seen = [str(token) for token in accepted_tokens]
    hint = _suggest_fix(found, remaining, seen, accepted) or _suggest_keyword(found, next_words)
    problem = f"unexpected '{found}'" if found else f"unexpected end of the {seen[0]}"
    expected = _describe_expected(accepted)
    return Diagnostic("E001", f"{problem}, expected {expected}" if expected else problem, span, hint)


def _describe_expected(accepted: set[str]) -> str:
    """Return the list of expected tokens as text; empty if there are too many."""
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
    if _TERMINAL_DESCRIPTIONS["INTEGER"] in accepted:  # the description includes negative numbers
        names = [name for name in names if name != "-"]
    shown = [name if name in _TERMINAL_DESCRIPTIONS.values() else f"'{name}'" for name in names]
    if not 0 < len(shown) <= _MAX_EXPECTED:
        return ""
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " or " + shown[-1]


def _suggest_fix(found: str, rest: list[str], seen: list[str], accepted: set[str]) -> str | None:
    """Return the hint for a typical error, or None.

    Args:
        found: the text of the unexpected token, empty at the end of the declaration.
        rest: the texts of the tokens from the unexpected one on.
        seen: the texts of the accepted tokens.
        accepted: descriptions of the tokens that are allowed here.
    """
    if found in ("&", "|"):
        return f"write '{'and' if found == '&' else 'or'}'"
    if found == "!":
        return "write 'not', or '!=' for unequal"
    if found == "=" and _COMPARISON in accepted:
        return "use '==' to compare values"
    if found in ("==", "!=", "<", "<=", ">", ">=") and "and" in accepted:
        return "comparisons cannot be chained: join two of them with 'and'"
    if found == ";":
        return "remove it: clauses and declarations have no terminator"
    if found == "'":
        return "use double quotes for strings"
    if not seen:
        return None
    if accepted == {":"}:
        return _suggest_type(found, seen)
    if ")" in accepted and (not found or found in _CLAUSES or found in "{}"):
        return "close the open '('"
    if seen[0] in ("template", "candidates"):
        return _suggest_template_fix(found, rest, seen, accepted)
    if seen[0] == "derive" and "where" in accepted and found != "where":
        return "define the relation by 'where ...', or by '= nearest K by cosine(a.v, b.v)'"
    return None


def _suggest_type(found: str, seen: list[str]) -> str:
    """Return the hint for a name without a colon and a type."""
    if len(seen) > 1 and seen[-2] == "of":
        return f"for several values of a domain, use the type 'bag of {seen[-1]}'"
    if found.isidentifier():
        meant = suggestion(seen[-1], ROLE_KEYWORDS) if seen[0] == "entity" else None
        if meant:
            return meant
        return f"write '{seen[-1]}: {found}'"
    return f"add a type: '{seen[-1]}: TYPE'"


def _suggest_template_fix(found: str, rest: list[str], seen: list[str], accepted: set[str]) -> str | None:
    if found in TEMPLATE_CLAUSES and found in seen:
        return f"a template has only one '{found}' clause: join conditions with 'and', and other items with ','"
    if _suggest_keyword(found, accepted):
        return None
    is_later = "over" in rest
    if "over" not in seen and "over" in accepted and not is_later:
        return "add an 'over' clause with the random attributes of the template"
    if found in _CLAUSES and (found in TEMPLATE_CLAUSES or is_later):
        return "write the clauses in this order: where, over, per, by, options"
    return None


def _suggest_keyword(found: str, accepted: set[str]) -> str | None:
    words = sorted(word for word in accepted if word.isalnum())
    return suggestion(found, words) if len(found) > 1 and found.isidentifier() and found not in words else None
