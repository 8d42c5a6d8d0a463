"""Conversion between offsets in Python strings and positions of the language server protocol."""

from __future__ import annotations

import re
from bisect import bisect_right

_LINE_BREAK = re.compile(r"\r\n|\n|\r")


def _encoded_length(text: str, encoding: str) -> int:
    """Return the length of a text in code units of an encoding. An unpaired surrogate (valid in JSON) counts as one unit."""
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    if encoding == "utf-32":
        return len(text)
    return len(text) + sum(character > "\uffff" for character in text)


class PositionMap:
    """The positions of a text in the protocol: lines from 0, and columns from 0, in code units of the encoding.

    After concurrent edits, a position can be beyond the end of a line or of the text; `offset` clips such a position.
    """

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self.encoding = encoding
        breaks = list(_LINE_BREAK.finditer(text))
        self._starts = [0, *(m.end() for m in breaks)]
        self._stops = [*(m.start() for m in breaks), len(text)]

    def offset(self, line: int, character: int) -> int:
        """Return the offset of a line and column."""
        if line >= len(self._starts):
            return len(self.text)
        start, stop = self._starts[line], self._stops[line]
        if self.text[start:stop].isascii():
            return min(start + character, stop)
        index = start
        while index < stop and character > 0:
            character -= _encoded_length(self.text[index], self.encoding)
            index += 1
        return index

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset."""
        line = bisect_right(self._starts, offset) - 1
        return line, _encoded_length(self.text[self._starts[line] : offset], self.encoding)
