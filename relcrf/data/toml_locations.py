"""Locations of the keys in a TOML text; the parser of the standard library does not return them."""

from __future__ import annotations

import re

from relcrf.errors import Source, Span

_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_PATH = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"\s*\[\s*({_PATH})\s*\]")
_KEY = re.compile(rf"\s*({_PATH})\s*=")


class TomlLocations:
    """The spans of the keys in a TOML text, by path, e.g. `("tables", "page", "file")`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._spans: dict[tuple[str, ...], Span] = {}
        table: tuple[str, ...] = ()
        open_quote: str | None = None
        for number, line in enumerate(source.text.split("\n"), start=1):
            if open_quote is None:
                header, key = _HEADER.match(line), _KEY.match(line)
                if header:
                    table = _split_key_path(header[1])
                    self._add(table, number, header)
                elif key:
                    self._add((*table, *_split_key_path(key[1])), number, key)
            # A line of a multi-line string may look like a key.
            for quote in re.findall(r'"""|\'\'\'', line):
                if open_quote is None:
                    open_quote = quote
                elif open_quote == quote:
                    open_quote = None

    def _add(self, path: tuple[str, ...], line: int, match: re.Match[str]) -> None:
        start, end = match.span(1)
        for length in range(1, len(path) + 1):
            self._spans.setdefault(path[:length], Span(self.source, line, start + 1, line, end + 1))

    def find(self, *path: str) -> Span:
        """Return the span of a key. For a key in an inline table `page = { file = ... }`, return the span of `page`."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._spans:
                return self._spans[path[:length]]
        return Span(self.source, 1, 1, 1, 2)


def _split_key_path(path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_NAME, path))
