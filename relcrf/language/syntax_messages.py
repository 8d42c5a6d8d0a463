"""Messages of syntax errors: the unexpected token, the expected tokens, and a hint."""

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
"""The clause keywords, in the order in which messages list them; other expected tokens are listed before them."""
_CONNECTIVES = frozenset({"<=>", "=>"})
"""Connectives; they may follow any term, so messages list them only if nothing else is expected."""
_MAX_EXPECTED = 6
"""Maximum number of expected tokens in a message; longer lists are not useful and are omitted."""


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
    unexpected_token = tokens[len(accepted_tokens)] if remaining else None
    offset, unexpected = (
        (unexpected_token.start, unexpected_token.text) if unexpected_token is not None else (tokens[-1].stop, "")
    )
    if unexpected_token is not None and unexpected_token.terminal == "UNCLOSED":
        unexpected = '"'
    span = text.span(offset, offset)
    span = replace(span, end_column=span.column + max(1, len(unexpected)))
    if unexpected == '"':
        return Diagnostic("E001", "this string has no closing quote on its line", span, "end it with '\"'")
    if not unexpected.isprintable():
        return Diagnostic("E001", f"invalid character {unexpected!a}", span)
    if not unexpected.isascii():
        hint = "names consist of the letters a-z and A-Z, digits and '_'; put other text in quotes"
        return Diagnostic("E001", f"unexpected '{unexpected}'", span, hint)
    terminals = parser.accepts()
    accepted = {
        _TERMINAL_DESCRIPTIONS.get(name) or literal_terminals().get(name, name) for name in terminals - {"$END"}
    }
    next_words = {*accepted, *DECLARATION_KEYWORDS} if "$END" in terminals else accepted
    preceding = [str(token) for token in accepted_tokens]
    suggested = _suggest_fix(unexpected, remaining, preceding, accepted) or _suggest_keyword(unexpected, next_words)
    problem = f"unexpected '{unexpected}'" if unexpected else f"unexpected end of the {preceding[0]}"
    expected = _describe_expected(accepted)
    return Diagnostic("E001", f"{problem}, expected {expected}" if expected else problem, span, suggested)


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
    if _TERMINAL_DESCRIPTIONS["INTEGER"] in accepted:  # 'an integer' may be negative, so '-' is not listed
        names = [name for name in names if name != "-"]
    shown = [name if name in _TERMINAL_DESCRIPTIONS.values() else f"'{name}'" for name in names]
    if not 0 < len(shown) <= _MAX_EXPECTED:
        return ""
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " or " + shown[-1]


def _suggest_fix(unexpected: str, remaining: list[str], preceding: list[str], accepted: set[str]) -> str | None:
    """Return the hint for a typical error, or None.

    Args:
        unexpected: the text of the unexpected token, empty at the end of the declaration.
        remaining: the texts of the unexpected token and all following tokens.
        preceding: the texts of the accepted tokens.
        accepted: descriptions of the tokens that the grammar allows instead of the unexpected token.
    """
    if unexpected in ("&", "|"):
        return f"write '{'and' if unexpected == '&' else 'or'}'"
    if unexpected == "!":
        return "write 'not', or '!=' for unequal"
    if unexpected == "=" and _COMPARISON in accepted:
        return "use '==' to compare values"
    if unexpected in ("==", "!=", "<", "<=", ">", ">=") and "and" in accepted:
        return "comparisons cannot be chained: join two of them with 'and'"
    if unexpected == ";":
        return "remove it: clauses and declarations have no terminator"
    if unexpected == "'":
        return "use double quotes for strings"
    if not preceding:
        return None
    if accepted == {":"}:
        return _suggest_type(unexpected, preceding)
    if ")" in accepted and (not unexpected or unexpected in _CLAUSES or unexpected in "{}"):
        return "close the open '('"
    if preceding[0] in ("template", "candidates"):
        return _suggest_template_fix(unexpected, remaining, preceding, accepted)
    if preceding[0] == "derive" and "where" in accepted and unexpected != "where":
        return "define the relation by 'where ...', or by '= nearest K by cosine(a.v, b.v)'"
    return None


def _suggest_type(unexpected: str, preceding: list[str]) -> str:
    """Return the hint for a name that is not followed by a colon and a type."""
    domain = unexpected if preceding[-1] == "of" else preceding[-1]
    if "of" in preceding[-2:] and domain.isidentifier():  # `words : of Word` or `words : list of Word`
        return f"for several values of a domain, use the type 'bag of {domain}'"
    if unexpected.isidentifier():
        meant = suggestion(preceding[-1], ROLE_KEYWORDS) if preceding[0] == "entity" else None
        if meant:
            return meant
        return f"write '{preceding[-1]}: {unexpected}'"
    return f"add a type: '{preceding[-1]}: TYPE'"


def _suggest_template_fix(
    unexpected: str, remaining: list[str], preceding: list[str], accepted: set[str]
) -> str | None:
    if unexpected in TEMPLATE_CLAUSES and unexpected in preceding:
        return f"a template has only one '{unexpected}' clause: join conditions with 'and', and other items with ','"
    if _suggest_keyword(unexpected, accepted):
        return None
    is_later = "over" in remaining
    if "over" not in preceding and "over" in accepted and not is_later:
        return "add an 'over' clause with the random attributes of the template"
    if unexpected in _CLAUSES and (unexpected in TEMPLATE_CLAUSES or is_later):
        return "write the clauses in this order: where, over, per, by, as of, options"
    return None


def _suggest_keyword(unexpected: str, accepted: set[str]) -> str | None:
    words = sorted(word for word in accepted if word.isalnum())
    return (
        suggestion(unexpected, words)
        if len(unexpected) > 1 and unexpected.isidentifier() and unexpected not in words
        else None
    )
