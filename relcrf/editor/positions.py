"""Places as the protocol counts them, and as Python does."""

from __future__ import annotations

import re
from bisect import bisect_right

_LINE_BREAK = re.compile(r"\r\n|\n|\r")


def _encoded_length(text: str, encoding: str) -> int:
    """The length of a text in the units of an encoding. Unpaired surrogates, which JSON can carry, count as one each."""
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    if encoding == "utf-32":
        return len(text)
    return len(text) + sum(character > "\uffff" for character in text)


class PositionMap:
    """The lines of a text as the protocol sees them: counted from 0, and columns in units of UTF-16 or what was agreed.

    Offsets beyond a line or the text, which come of edits that crossed on their way, are taken for its end.
    """

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self.encoding = encoding
        breaks = list(_LINE_BREAK.finditer(text))
        self._starts = [0, *(m.end() for m in breaks)]
        self._stops = [*(m.start() for m in breaks), len(text)]

    def offset(self, line: int, character: int) -> int:
        """The offset of a place in the text."""
        if line >= len(self._starts):
            return len(self.text)
        start, stop = self._starts[line], self._stops[line]
        if self.text[start:stop].isascii():
            return min(start + character, stop)
        at = start
        while at < stop and character > 0:
            character -= _encoded_length(self.text[at], self.encoding)
            at += 1
        return at

    def position(self, offset: int) -> tuple[int, int]:
        """Line and character of an offset."""
        line = bisect_right(self._starts, offset) - 1
        return line, _encoded_length(self.text[self._starts[line] : offset], self.encoding)
