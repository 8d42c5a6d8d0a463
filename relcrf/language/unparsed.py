"""Declarations with syntax errors, and the suppression of errors that may only be consequences of syntax errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from relcrf.errors import Diagnostic, similar_name
from relcrf.language.keywords import DECLARATION_KEYWORDS
from relcrf.language.tokens import Token


@dataclass(frozen=True, slots=True)
class UnparsedDeclaration(Diagnostic):
    """A syntax error with the keyword and the name of its declaration; an unknown keyword or name is ''."""

    keyword: str = ""
    declared_name: str = ""


_UNREFERENCED_KEYWORDS = frozenset({"template", "rule", "gate", "candidates"})


def unparsed_declaration(
    diagnostic: Diagnostic, tokens: Sequence[Token], rest: Sequence[Token] = ()
) -> UnparsedDeclaration:
    """Return a syntax error with the keyword and the name of its declaration.

    Args:
        rest: the token at the error and all following tokens.
    """
    words = [token.text for token in tokens[:4]]
    if words[:2] == ["predict", "relation"]:
        words = words[1:]
    keyword = words[0]
    name = words[1] if words[2:3] and words[2] in ("(", "{", "=") and words[1].isidentifier() else ""
    if diagnostic.code == "E002":
        keyword = similar_name(keyword, DECLARATION_KEYWORDS) or ""
    elif _contains_declaration([token.text for token in rest]):
        keyword = ""
    keyword = "relation" if keyword == "predict" else keyword
    fields = (diagnostic.code, diagnostic.message, diagnostic.location, diagnostic.hint, diagnostic.notes)
    return UnparsedDeclaration(*fields, keyword=keyword, declared_name=name)


def _contains_declaration(texts: Sequence[str]) -> bool:
    """Return True if the tokens seem to contain a further declaration whose keyword is missing or misspelt."""
    windows = zip(texts, texts[1:], texts[2:], texts[3:], strict=False)
    heads = (a.isidentifier() and (b, d) == ("(", ":") and c.isidentifier() for a, b, c, d in windows)
    return "{" in texts or ".." in texts or ("=", "open") in pairwise(texts) or any(heads)


def may_be_consequence(diagnostic: Diagnostic, syntax_errors: Iterable[Diagnostic]) -> bool:
    """Return True if an error may be only a consequence of a syntax error."""
    return any(_is_consequence(diagnostic, syntax_error) for syntax_error in syntax_errors)


def _is_consequence(diagnostic: Diagnostic, syntax_error: Diagnostic) -> bool:
    keyword, name = (
        (syntax_error.keyword, syntax_error.declared_name)
        if isinstance(syntax_error, UnparsedDeclaration)
        else ("", "")
    )
    if keyword in _UNREFERENCED_KEYWORDS:
        return diagnostic.code == "E138"
    is_missing = any(similar_name(word, [name]) for word in re.findall(r"'(\w+)'", diagnostic.message))
    match keyword:
        case "domain" if name:
            return diagnostic.code in ("E104", "E105", "E106") or (diagnostic.code == "E120" and is_missing)
        case "entity" if name:
            return diagnostic.code == "E137" or (diagnostic.code == "E120" and is_missing)
        case "relation" | "derive" if name:
            return diagnostic.code in ("E102", "E137") and (is_missing or diagnostic.code == "E137")
    return diagnostic.code in ("E102", "E104", "E105", "E106", "E120", "E137", "E138")
