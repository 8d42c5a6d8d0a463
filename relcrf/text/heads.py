"""The head of a declaration, whole or half typed: its keyword, its name, its parameters, the attributes that it declares.

All of it is told by tokens alone, whatever the rest of the model says.
"""

from __future__ import annotations

from functools import cached_property

from relcrf.language.words import DECLARATIONS, LANGUAGE
from relcrf.text.tokens import Piece, Token, closing

WEIGHING = frozenset({"template", "candidates", "rule", "gate"})
"""Declarations whose names are those of weights."""

_WITH_PARAMETERS = frozenset({"relation", "predict", "derive", "template", "candidates"})


class Head:
    """What a declaration declares."""

    def __init__(self, piece: Piece) -> None:
        self.tokens = piece.tokens
        self.texts = piece.texts
        self.keyword = self.texts[0] if self.texts[0] in DECLARATIONS else ""

    @cached_property
    def name_index(self) -> int | None:
        """Which token is the declaration's name."""
        k = 2 if self.texts[:2] == ("predict", "relation") else 1
        if self.keyword == "rule":
            colon = self.texts.index(":") if ":" in self.texts else len(self.texts)
            k = colon - 1
        if self.keyword in ("", "include") or not 0 < k < len(self.tokens) or self.tokens[k].kind != "name":
            return None
        return k if self.texts[k] not in LANGUAGE else None

    @property
    def name(self) -> str:
        return self.texts[self.name_index] if self.name_index is not None else ""

    @cached_property
    def body_index(self) -> int:
        """The first token behind the name and the parameters."""
        if self.keyword == "rule":
            return self.texts.index(":") + 1 if ":" in self.texts else len(self.texts)
        if self.name_index is None:
            return 1
        k = self.name_index + 1
        if self.texts[k : k + 1] == ("(",) and (self.keyword in _WITH_PARAMETERS or self.keyword == "entity"):
            return closing(self.texts, k) + 1
        return k

    @cached_property
    def parameters(self) -> dict[str, tuple[Token, str]]:
        """The declared binders or arguments: the token of the name, and the sort, '' where it is not there yet."""
        found: dict[str, tuple[Token, str]] = {}
        if self.keyword not in _WITH_PARAMETERS or self.name_index is None:
            return found
        for k in range(self.name_index + 2, min(self.body_index, len(self.tokens))):
            if self.texts[k] == ":" and self.tokens[k - 1].kind == "name":
                stop = k + 1
                while stop < len(self.texts) and self.texts[stop] not in (",", ")"):
                    stop += 1
                found.setdefault(self.texts[k - 1], (self.tokens[k - 1], "".join(self.texts[k + 1 : stop])))
        return found

    @cached_property
    def attributes(self) -> frozenset[int]:
        """Which tokens are the names of attributes that the declaration declares."""
        texts = self.texts
        if self.keyword not in ("entity", "relation") or "{" not in texts[self.body_index :]:
            return frozenset()
        first = texts.index("{", self.body_index)
        named = range(first + 1, len(texts) - 1)
        return frozenset(k for k in named if self.tokens[k].kind == "name" and texts[k + 1] == ":")
