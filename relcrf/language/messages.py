"""What is said of a text that the grammar does not allow: what was found, what was expected, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lark

from relcrf.errors import suggestion
from relcrf.language.words import LATER

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
_CLAUSES = ("where", "over", "per", "by", "init", "fixed", "l1", "l2")
_JOINING = frozenset({"COMPARISON", "PLUS", "TIMES", "MINUS", "AND", "OR", "IN", "DOT"})
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


def not_yet(word: str, offset: int, width: int) -> Problem:
    """That a word is one of a later version."""
    message = f"this version of relcrf does not have '{word}' yet"
    return Problem("E003", message, offset, width, "docs/language.md says what it has")


def syntax_problem(error: lark.UnexpectedInput, interactive: Any, seen: list[lark.Token], text: str) -> Problem:
    """The problem behind an error of the parser.

    Args:
        interactive: the parser, where it stopped.
        seen: the tokens that it took.
        text: what it parsed.
    """
    offset, found = _found(error, seen, text)
    previous = str(seen[-1]) if seen else ""
    later = _later(previous, found, offset, seen, text)
    if later is not None:
        return later
    width = max(1, len(found))
    if found == '"':
        return Problem("E001", "this text has no closing quote on its line", offset, width, "end it with '\"'")
    if found and not found.isprintable():
        return Problem("E001", f"the character {ascii(found)} cannot stand in a model", offset, width)
    if found and not found.isascii():
        hint = "names have the letters a-z and A-Z, digits and '_'; put other text in quotes"
        return Problem("E001", f"unexpected '{found}'", offset, width, hint)
    accepted = interactive.accepts() - {"$END"}
    hint = _remedy(found, text[offset : offset + 2], seen, accepted)
    what = f"unexpected '{found}'" if found else f"the {seen[0]} ends too early"
    expected = _expected(accepted, interactive)
    return Problem("E001", f"{what}, expected {expected}" if expected else what, offset, width, hint)


def _found(error: lark.UnexpectedInput, seen: list[lark.Token], text: str) -> tuple[int, str]:
    """Where the parser stopped, and at what; nothing at the end of the declaration."""
    if isinstance(error, lark.UnexpectedToken) and error.token.type != "$END":
        return error.token.start_pos or 0, str(error.token)
    if isinstance(error, lark.UnexpectedCharacters):
        offset = error.pos_in_stream or 0
        return offset, text[offset]
    return (seen[-1].end_pos or 0) if seen else 0, ""


def _later(previous: str, found: str, offset: int, seen: list[lark.Token], text: str) -> Problem | None:
    if previous == "predict" and found == "relation":
        return not_yet("predict relation", seen[-1].start_pos or 0, len("predict"))
    if found in LATER and not (previous and text[offset - 1] == "."):
        return not_yet(found, offset, len(found))
    is_begun = found == "{" or (found and (found[0].isalpha() or found[0] in "_-" or found[0].isdigit()))
    if previous in LATER and is_begun:
        return not_yet(previous, seen[-1].start_pos or 0, len(previous))
    return None


def _expected(accepted: set[str], interactive: Any) -> str:
    """The few things that could stand there; nothing where there are many."""
    if {"NAME", "LPAR", "STRING"} <= accepted:
        return "an expression"
    patterns = {t.name: t.pattern.value for t in interactive.lexer_thread.lexer.lexers_terminals} if False else {}
    joining = {name for name in accepted if name in _JOINING or name.startswith("__ANON")}
    names = []
    for terminal in sorted((accepted - joining) or accepted):
        names.append(_HUMAN.get(terminal) or f"'{patterns.get(terminal, terminal)}'")
    names = sorted(dict.fromkeys(names), key=_clause_order)
    if not 0 < len(names) <= _MAX_EXPECTED:
        return ""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
