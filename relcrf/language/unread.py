"""Declarations that could not be read, and what may be missing only because of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from relcrf.errors import Diagnostic, suggestion
from relcrf.language.tokens import Token
from relcrf.language.words import DECLARATIONS


@dataclass(frozen=True, slots=True)
class Unread(Diagnostic):
    """A syntax error, with the keyword and the name of the declaration that it spoils; '' where they are not known."""

    keyword: str = ""
    declared: str = ""


_DECLARES_NOTHING = frozenset({"template", "rule", "gate", "candidates"})


def unread(diagnostic: Diagnostic, tokens: Sequence[Token], rest: Sequence[Token] = ()) -> Unread:
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
        hint = suggestion(keyword, DECLARATIONS)
        keyword = next((word for word in DECLARATIONS if hint and f"'{word}'" in hint), "")
    elif _has_another([token.text for token in rest]):
        keyword = ""
    keyword = "relation" if keyword == "predict" else keyword
    fields = (diagnostic.code, diagnostic.message, diagnostic.place, diagnostic.hint, diagnostic.notes)
    return Unread(*fields, keyword=keyword, declared=name)


def _has_another(texts: Sequence[str]) -> bool:
    """Return whether some tokens belong to another declaration, which has lost its keyword."""
    fours = zip(texts, texts[1:], texts[2:], texts[3:], strict=False)
    heads = (a.isidentifier() and (b, d) == ("(", ":") and c.isidentifier() for a, b, c, d in fours)
    return "{" in texts or ".." in texts or ("=", "open") in pairwise(texts) or any(heads)


def may_follow(found: Diagnostic, problems: Iterable[Diagnostic]) -> bool:
    """Return whether a mistake may be there only because one of some declarations could not be read."""
    return any(_follows(found, problem) for problem in problems)


def _follows(found: Diagnostic, problem: Diagnostic) -> bool:
    keyword, name = (problem.keyword, problem.declared) if isinstance(problem, Unread) else ("", "")
    if keyword in _DECLARES_NOTHING:
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
