"""The layout of tables in the terminal: lines are broken only between words; rows that are too wide are stacked.

A stacked row consists of several lines. The columns with the longest words have lines of their own, above or below the other
columns, and the header has the same lines:

    ┃ template                           ┃
    ┃   value    weight                  ┃
    │ customers_devices_operating_system │
    │   Android   -0.29                  │
    │   Linux      0.27                  │
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_BORDER_WIDTH = 3
"""Width of the border of a column and of the spaces on both sides of its cells."""

_GAP = 2
"""Number of spaces between the columns, and before the lines, of a stacked row."""

_QUANTITY = re.compile(r"(<= )?[-+±0-9.,e%]*( ([KMGT]i)?B)?")
"""Pattern of numbers, with a unit of memory; the spaces in them are not broken."""


@dataclass(frozen=True, eq=False)
class TableColumn:
    """A column of a table: the texts of its header and of its cells."""

    name: Text
    cells: Sequence[Text]
    justify: JustifyMethod = "left"

    @cached_property
    def is_fixed(self) -> bool:
        """True if the column contains only numbers, with or without units."""
        return all(_QUANTITY.fullmatch(cell.plain) for cell in self.cells)

    @cached_property
    def natural_width(self) -> int:
        """The width without line breaks, except those of the texts."""
        return max(cell_len(line) for text in (self.name, *self.cells) for line in text.plain.split("\n"))

    @cached_property
    def word_width(self) -> int:
        """The minimum width in which no word is broken; an indentation is part of the first word."""
        words = [word for text in (self.name, *([] if self.is_fixed else self.cells)) for word in _words(text.plain)]
        numbers = [cell.plain for cell in self.cells] if self.is_fixed else []
        return max(map(cell_len, [*words, *numbers]), default=0)


def _words(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        first, *others = line.lstrip(" ").split() or [""]
        yield " " * (len(line) - len(line.lstrip(" "))) + first
        yield from others


def layout_table(columns: Sequence[TableColumn], width: int) -> Table:
    """Return a table with at most `width` characters per line; its rows are stacked if its words do not fit otherwise.

    The header is omitted if all names of columns are empty.
    """
    show_header = any(column.name.plain for column in columns)
    widths = _fit_widths(columns, width - _BORDER_WIDTH * len(columns) - 1)
    if widths is None:
        return _stack_rows(columns, width - _BORDER_WIDTH - 1, show_header=show_header)
    out = Table(show_header=show_header)
    for column, column_width in zip(columns, widths, strict=True):
        out.add_column(column.name, justify=column.justify, width=column_width, overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        out.add_row(*row)
    return out


def _fit_widths(columns: Sequence[TableColumn], available: int) -> list[int] | None:
    """Return widths with at most `available` characters in total in which no word is broken; None if there are none."""
    natural, least = [c.natural_width for c in columns], [c.word_width for c in columns]
    if sum(natural) <= available:
        return natural
    rest = available - sum(least)
    if rest < 0:
        return None
    spare = [wide - narrow for wide, narrow in zip(natural, least, strict=True)]
    return [narrow + rest * extra // sum(spare) for narrow, extra in zip(least, spare, strict=True)]


def _stack_rows(columns: Sequence[TableColumn], width: int, *, show_header: bool) -> Table:
    """Return a table with one column, whose rows have several lines.

    The columns with the longest words, texts before numbers, get separate lines until the other columns fit in one line.
    """
    kept = [*columns]
    widths = None
    while widths is None and len(kept) > 1:
        kept.remove(max(kept, key=lambda column: (not column.is_fixed, column.word_width)))
        widths = _fit_widths(kept, width - _GAP * len(kept))
    first = columns.index(kept[0])
    above, below = columns[:first], [column for column in columns[first:] if column not in kept]
    indent = _GAP if above else 0
    widths = widths or [width - indent]

    def stack(texts: dict[TableColumn, Text], heading: Text) -> RenderableType:
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        for column, column_width in zip(kept, widths, strict=True):
            grid.add_column(justify=column.justify, width=column_width, overflow="fold")
        grid.add_row(*(_break_words(texts[column], w) for column, w in zip(kept, widths, strict=True)))
        lines = [Padding(grid, (0, 0, 0, indent))]
        details = _join([texts[column] for column in below])
        if details.plain:
            lines.append(Padding(_break_words(details, width - indent - _GAP), (0, 0, 0, indent + _GAP)))
        return Group(*([_break_words(heading, width)] if heading.plain else []), *lines)

    names = {column: column.name for column in columns}
    out = Table(show_header=show_header)
    out.add_column(stack(names, _join([column.name for column in above])))
    previous = ""
    for row in zip(*(column.cells for column in columns), strict=True):
        texts = dict(zip(columns, row, strict=True))
        heading = _join([texts[column] for column in above])
        if previous and not heading.plain:
            heading = Text("-")  # otherwise the row would seem to belong to the heading before
        out.add_row(stack(texts, Text() if heading.plain == previous else heading))
        previous = heading.plain
    return out


def _join(texts: Sequence[Text]) -> Text:
    """Join the texts that are not empty, in one line."""
    return Text(" " * _GAP).join(Text(text.plain.replace("\n", " ")) for text in texts if text.plain)


def _break_words(text: Text, width: int) -> Text:
    """Insert line breaks, after punctuation if possible, into words that are longer than a line."""
    if all(cell_len(word) <= width for word in text.plain.split()):
        return text
    return Text(" ".join(_break_word(word, width) for word in text.plain.split(" ")), style=text.style)


def _break_word(word: str, width: int) -> str:
    """Insert as few line breaks as possible into a word, after punctuation if there is any in a line."""
    lines = []
    while cell_len(word) > width and "\n" not in word:
        end = re.match(rf"\S{{0,{width - 1}}}[_./:,-](?=\S)", word)
        size = end.end() if end else width
        lines.append(word[:size])
        word = word[size:]
    return "\n".join([*lines, word])
