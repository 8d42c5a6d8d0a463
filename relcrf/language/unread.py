"""Declarations that could not be read, and what may be missing only because of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from relcrf.errors import Diagnostic, suggestion
from relcrf.language.words import DECLARATIONS


@dataclass(frozen=True, slots=True)
class Unread(Diagnostic):
    """A syntax error, with the keyword and the name of the declaration that it spoils; '' where they are not known."""

    keyword: str = ""
    declared: str = ""


_HEADER = re.compile(r"(?P<keyword>predict\s+relation|\w+)(?:\s+(?P<name>[A-Za-z_]\w*)(?=\s*[({=]))?", re.ASCII)
_ANOTHER = re.compile(r"\{|\.\.|=\s*open\b|\w\s*\(\s*\w+\s*:", re.ASCII)
"""What belongs to another declaration, where it stands behind a mistake: that one has lost its keyword."""

_DECLARES_NOTHING = frozenset({"template", "rule", "gate", "candidates"})


def unread(diagnostic: Diagnostic, text: str, rest: str) -> Unread:
    """A syntax error with what is known of its declaration.

    Args:
        text: the declaration, from its first word on.
        rest: what is left of it from the mistake on.
    """
    found = _HEADER.match(text[:200])
    keyword, name = (found["keyword"], found["name"] or "") if found else ("", "")
    if diagnostic.code == "E002":
        hint = suggestion(keyword, DECLARATIONS)
        keyword = next((word for word in DECLARATIONS if hint and f"'{word}'" in hint), "")
    elif _ANOTHER.search(rest):
        keyword = ""
    keyword = "relation" if keyword.startswith("predict") else keyword
    fields = (diagnostic.code, diagnostic.message, diagnostic.place, diagnostic.hint, diagnostic.notes)
    return Unread(*fields, keyword=keyword, declared=name)


def may_follow(found: Diagnostic, problems: Iterable[Diagnostic]) -> bool:
    """Whether a mistake may be there only because one of some declarations could not be read."""
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
