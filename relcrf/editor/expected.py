"""Which words may stand at a place: the grammar's own answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import lark

from relcrf.model.functions import AGGREGATES
from relcrf.resources import shipped


@dataclass(frozen=True)
class Expected:
    """What may follow a text that is the beginning of a declaration.

    Args:
        words: of the language.
        takes_name: a name may follow. takes_term: an expression may begin.
        is_whole: nothing need follow.
    """

    words: frozenset[str]
    takes_name: bool
    takes_term: bool
    is_whole: bool


@cache
def _parser() -> lark.Lark:
    grammar = shipped("grammar", "rcrf.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", lexer="contextual")


@cache
def _spelling() -> dict[str, str]:
    words = {t.name: t.pattern.value for t in _parser().terminals if t.pattern.type == "str"}
    return {name: word for name, word in words.items() if word.isidentifier()}


def expected(text: str) -> Expected | None:
    """What may follow the beginning of a declaration; None where it has a mistake already."""
    interactive: Any = _parser().parse_interactive(text)
    try:
        for token in interactive.lexer_thread.lex(interactive.parser_state):
            interactive.feed_token(token)
    except lark.UnexpectedInput:
        return None
    names: set[str] = interactive.accepts()
    words = {_spelling()[name] for name in names if name in _spelling()}
    if "FIGURE" in names:
        words |= set(AGGREGATES)
    return Expected(frozenset(words), "NAME" in names, {"NAME", "LPAR"} <= names, "$END" in names)
