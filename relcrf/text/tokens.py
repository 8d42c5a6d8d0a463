"""The tokens of a model's text, each with its place.

The parser keeps spans of whole declarations and expressions, and nothing of a declaration that it could not read. An editor
asks about single words, also in what is half typed: this tokenizer reads any text and loses no character of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from relcrf.errors import Span
from relcrf.language.parse import starts

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*) | (?P<space>[\s\ufeff]+)
      | (?P<text>"(?:[^"\\\n]|\\[^\n])*"?)
      | (?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+) | (?P<name>[A-Za-z_]\w*)
      | (?P<operator><=>|=>|[=!<>]=|\.\.|[-+*/<>=(){},.:]) | (?P<other>.)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True)
class Token:
    """Some characters of a text from offset `start` on.

    Args:
        kind: `name`, `number`, `text` (in quotes, of which the second may be missing), `operator`, `comment`, `space`, or
            `other` for what cannot stand in a model.
    """

    kind: str
    text: str
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.text)


def _cuts(text: str) -> list[int]:
    """Where declarations begin for the parser, and the ends of the text."""
    plain = " " + text[1:] if text.startswith("\ufeff") else text
    return [0, *starts(plain), len(text)]


def _tokens(text: str, cuts: list[int]) -> Iterator[Token]:
    """All tokens, of which joined the text is. One that is unfinished, such as a text without its second quote, ends at
    the next declaration, as it does for the parser."""
    for start, stop in pairwise(cuts):
        for match in _TOKEN.finditer(text, start, stop):
            yield Token(str(match.lastgroup), match.group(), match.start())


@dataclass(frozen=True)
class Piece:
    """One declaration, or what somebody has typed of it: its tokens without space and comments, at least one."""

    tokens: tuple[Token, ...]

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def stop(self) -> int:
        return self.tokens[-1].stop

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(token.text for token in self.tokens)


class Text:
    """A text, its tokens and its pieces, and the way from the parser's spans to offsets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._cuts = _cuts(text)
        self.tokens = tuple(_tokens(text, self._cuts))
        self._starts = [token.start for token in self.tokens]
        self._code = [token for token in self.tokens if token.kind not in ("space", "comment")]
        self._code_starts = [token.start for token in self._code]
        # The parser ends lines at `\n` alone, whatever an editor does.
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", text))]

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The declarations, cut where the parser cuts them."""
        parts = (self.code(start, stop) for start, stop in pairwise(self._cuts))
        return tuple(Piece(tuple(part)) for part in parts if part)

    def code(self, start: int, stop: int) -> Sequence[Token]:
        """The tokens that begin in a range, without space and comments."""
        return self._code[bisect_left(self._code_starts, start) : bisect_left(self._code_starts, stop)]

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and a column, both counted from 1 as in spans; the end of the text where it has none."""
        if line > len(self._line_starts):
            return len(self.text)
        return min(self._line_starts[line - 1] + column - 1, len(self.text))

    def offsets(self, span: Span) -> tuple[int, int]:
        """Where a span begins and ends."""
        return self.offset(span.line, span.column), self.offset(span.end_line, span.end_column)

    def within(self, span: Span) -> Sequence[Token]:
        """The tokens of a span, without space and comments."""
        return self.code(*self.offsets(span))

    def line_range(self, line: int) -> tuple[int, int]:
        """Where the words of a line begin and end, so that an editor can point at it."""
        start = self.offset(line, 1)
        found = self.text[start : self.offset(line + 1, 1)]
        return start + len(found) - len(found.lstrip()), start + len(found.rstrip())

    def token_at(self, offset: int) -> Token | None:
        """The token that a cursor touches: of two the name, and else the one to its right."""
        right = bisect_right(self._starts, offset) - 1
        if right < 0:
            return None
        token = self.tokens[right]
        if token.start == offset and token.kind != "name" and right > 0 and self.tokens[right - 1].kind == "name":
            return self.tokens[right - 1]
        return token

    def before(self, offset: int) -> Token | None:
        """The last token that begins before an offset, without space and comments."""
        found = bisect_left(self._code_starts, offset) - 1
        return self._code[found] if found >= 0 else None

    def piece_at(self, offset: int) -> Piece | None:
        """The declaration that a cursor stands in or behind."""
        found = [piece for piece in self.pieces if piece.start <= offset]
        return found[-1] if found else None


def closing(texts: Sequence[str], bracket: int) -> int:
    """The index of the bracket that closes the one at index `bracket`; the length where none does."""
    pairs = {"(": ")", "{": "}"}
    left, right = texts[bracket], pairs[texts[bracket]]
    depth = 0
    for k in range(bracket, len(texts)):
        depth += (texts[k] == left) - (texts[k] == right)
        if depth == 0:
            return k
    return len(texts)


def opening(texts: Sequence[str], bracket: int) -> int:
    """The index of the bracket that the one at index `bracket` closes; -1 where there is none."""
    pairs = {")": "(", "}": "{"}
    right, left = texts[bracket], pairs[texts[bracket]]
    depth = 0
    for k in range(bracket, -1, -1):
        depth += (texts[k] == right) - (texts[k] == left)
        if depth == 0:
            return k
    return -1
