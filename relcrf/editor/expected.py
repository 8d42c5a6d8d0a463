"""Which words may stand at a place: the grammar's own answer."""

from __future__ import annotations

from dataclasses import dataclass

from relcrf.language.parse import feed
from relcrf.language.tokens import SourceText, spellings
from relcrf.model.functions import AGGREGATES


@dataclass(frozen=True)
class ExpectedWords:
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


def expected(text: str) -> ExpectedWords | None:
    """Return what may follow the beginning of a declaration; None where it has a mistake already."""
    parser, _, wrong = feed(SourceText(text).code(0, len(text)))
    if wrong is not None:
        return None
    names: set[str] = parser.accepts()
    words = {word for name in names if (word := spellings().get(name, "")).isidentifier()}
    if "FIGURE" in names:
        words |= set(AGGREGATES)
    return ExpectedWords(frozenset(words), "NAME" in names, {"NAME", "LPAR"} <= names, "$END" in names)
