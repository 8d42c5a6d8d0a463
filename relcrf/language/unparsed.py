"""Declarations that could not be read, and what may be missing only because of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from relcrf.errors import Diagnostic, suggestion
from relcrf.language.keywords import DECLARATION_KEYWORDS
from relcrf.language.tokens import Token


@dataclass(frozen=True, slots=True)
class UnparsedDeclaration(Diagnostic):
    """A syntax error, with the keyword and the name of the declaration that it spoils; '' where they are not known."""

    keyword: str = ""
    declared_name: str = ""


_UNREFERENCED_KEYWORDS = frozenset({"template", "rule", "gate", "candidates"})


def unparsed_declaration(
    diagnostic: Diagnostic, tokens: Sequence[Token], rest: Sequence[Token] = ()
) -> UnparsedDeclaration:
    """Return a syntax error with what is known of its declaration.

    Args:
        rest: the tokens from the mistake on.
    """
    words = [token.text for token in tokens[:4]]
    if words[:2] == ["predict", "relation"]:
        words = words[1:]
    keyword = words[0]
    name = words[1] if words[2:3] and words[2] in ("(", "{", "=") and words[1].isidentifier() else ""
    if diagnostic.code == "E002":
        hint = suggestion(keyword, DECLARATION_KEYWORDS)
        keyword = next((word for word in DECLARATION_KEYWORDS if hint and f"'{word}'" in hint), "")
    elif _contains_declaration([token.text for token in rest]):
        keyword = ""
    keyword = "relation" if keyword == "predict" else keyword
    fields = (diagnostic.code, diagnostic.message, diagnostic.location, diagnostic.hint, diagnostic.notes)
    return UnparsedDeclaration(*fields, keyword=keyword, declared_name=name)


def _contains_declaration(texts: Sequence[str]) -> bool:
    """Return whether some tokens belong to another declaration, which has lost its keyword."""
    fours = zip(texts, texts[1:], texts[2:], texts[3:], strict=False)
    heads = (a.isidentifier() and (b, d) == ("(", ":") and c.isidentifier() for a, b, c, d in fours)
    return "{" in texts or ".." in texts or ("=", "open") in pairwise(texts) or any(heads)


def may_be_consequence(found: Diagnostic, problems: Iterable[Diagnostic]) -> bool:
    """Return whether a mistake may be there only because one of some declarations could not be read."""
    return any(_is_consequence(found, problem) for problem in problems)


def _is_consequence(found: Diagnostic, problem: Diagnostic) -> bool:
    keyword, name = (problem.keyword, problem.declared_name) if isinstance(problem, UnparsedDeclaration) else ("", "")
    if keyword in _UNREFERENCED_KEYWORDS:
        return found.code == "E138"
    is_missing = any(suggestion(word, [name]) for word in re.findall(r"'(\w+)'", found.message))
    match keyword:
        case "domain" if name:
            return found.code in ("E104", "E105", "E106") or (found.code == "E120" and is_missing)
        case "entity" if name:
            return found.code == "E137" or (found.code == "E120" and is_missing)
        case "relation" | "derive" if name:
            return found.code in ("E102", "E137") and (is_missing or found.code == "E137")
    return found.code in ("E102", "E104", "E105", "E106", "E120", "E137", "E138")
