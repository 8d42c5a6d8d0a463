"""Output of all commands (tables, notes, diagnostics, progress, JSON), and parsing of `name=value` options."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from relcrf.cli.dropped_signals import raise_dropped_signals
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, RelcrfError, UsageError
from relcrf.printable import escape_unprintable
from relcrf.progress_reporting import ProgressMonitor as ProgressMonitor
from relcrf.progress_reporting import console_progress

_BORDER_WIDTH = 3
"""Width of the border of a column and of the spaces on both sides of its cells."""

MIN_TEXT_WIDTH = 5
"""Minimum width of a column of texts beside unbroken numbers."""

_NUMBER = re.compile(r"[-+0-9.,e%]*")

console = Console()
messages = Console(stderr=True)


def print_json(value: Any) -> None:
    """Print one JSON object. NaN and infinity become null, paths become strings, and unprintable characters are escaped."""
    text = json.dumps(_to_json_value(value), ensure_ascii=False)
    sys.stdout.write("".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text) + "\n")
    sys.stdout.flush()


def _to_json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _to_json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(v) for v in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return str(value) if isinstance(value, Path) else value


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a title and a table with right-aligned numbers. Strings are escaped as in `print_line`; `Text` objects are not.

    In a table that is wider than the console, texts are wrapped at spaces and, if words are too long, after punctuation.
    The header is omitted if all names of columns are empty.
    """
    rows = [list(row) for row in rows]
    cells = [
        [_format_cell(value, 2 if name == "seconds" else 4) for name, value in zip(columns, row, strict=True)]
        for row in rows
    ]
    lines = [[_escaped_text(name), *(row[k] for row in cells)] for k, name in enumerate(columns)]
    natural = [max(cell_len(line) for text in texts for line in text.plain.split("\n")) for texts in lines]
    words = [max((cell_len(word) for text in texts for word in text.plain.split()), default=0) for texts in lines]
    fixed = [all(_NUMBER.fullmatch(row[k].plain) for row in cells) for k in range(len(columns))]
    widths = _fit_widths(natural, words, fixed, console.width - _BORDER_WIDTH * len(columns) - 1)
    out = Table(show_header=any(columns))
    for k, name in enumerate(columns):
        is_number = all(isinstance(row[k], int | float) for row in rows)
        justify: JustifyMethod = "right" if is_number else "left"
        out.add_column(_escaped_text(name), justify=justify, width=widths[k], overflow="fold")
    for row in cells:
        out.add_row(*(_break_words(text, width) for text, width in zip(row, widths, strict=True)))
    console.print(_escaped_text(title), style="italic", soft_wrap=True)
    console.print(out)


def _fit_widths(natural: Sequence[int], words: Sequence[int], fixed: Sequence[bool], available: int) -> list[int]:
    """Return widths of columns with at most `available` characters in total, if possible.

    Args:
        natural: Width of each column without line breaks.
        words: Width of the longest word of each column. Columns become narrower only if the words do not fit otherwise.
        fixed: Whether a column contains only numbers, which are broken only if other columns would have almost no width.
    """
    if sum(natural) <= available:
        return [*natural]
    limit = max(words)
    least = [word if is_fixed else MIN_TEXT_WIDTH for word, is_fixed in zip(words, fixed, strict=True)]
    if sum(map(min, words, least)) > available:
        least = [0] * len(words)
    while limit > 1 and sum(min(word, max(limit, low)) for word, low in zip(words, least, strict=True)) > available:
        limit -= 1
    widths = [min(word, max(limit, low)) for word, low in zip(words, least, strict=True)]
    spare = [wide - width for wide, width in zip(natural, widths, strict=True)]
    rest, total = max(available - sum(widths), 0), max(sum(spare), 1)
    return [width + rest * extra // total for width, extra in zip(widths, spare, strict=True)]


def _break_words(text: Text, width: int) -> Text:
    """Insert line breaks after punctuation into words without spaces that are wider than a column."""
    if text.spans or all(cell_len(word) <= width for word in text.plain.split()):
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


def print_wide_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; if it is wider than the console, print several tables, all of which have the first column."""
    rows = [list(row) for row in rows]
    widths = [_column_width(name, [row[k] for row in rows]) for k, name in enumerate(columns)]
    start = 1
    while start < len(columns):
        stop, width = start + 1, 1 + widths[0] + widths[start]
        while stop < len(columns) and width + widths[stop] <= console.width:
            width += widths[stop]
            stop += 1
        group = (0, *range(start, stop))
        shown = [[row[k] for k in group] for row in rows]
        print_table(title if start == 1 else f"{title} (continued)", [columns[k] for k in group], shown)
        start = stop


def _column_width(name: str, cells: Iterable[object]) -> int:
    """Return the width of a column in characters, including padding and border."""
    return 3 + max(cell_len(line) for text in (name, *cells) for line in str(text).split("\n"))


def _escaped_text(text: str) -> Text:
    return Text(escape_unprintable(text))


def _format_cell(value: object, digits: int) -> Text:
    if isinstance(value, Text):
        return value
    if isinstance(value, float):
        return Text(f"{value:.{digits}f}")
    return Text(f"{value:,}") if isinstance(value, int) else _escaped_text(str(value))


def print_line(text: str, style: str = "") -> None:
    """Print a line to standard output. Markup is not interpreted, and control characters are escaped."""
    console.print(escape_unprintable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def print_diagnostics(error: RelcrfError) -> None:
    """Print the diagnostics of an error to standard error."""
    for diagnostic in error.diagnostics:
        messages.print(diagnostic.render() + "\n", style="red", markup=False, highlight=False, soft_wrap=True)


def print_error_line(text: str) -> None:
    """Print a line to standard error, in red."""
    messages.print(escape_unprintable(text), style="red", markup=False, highlight=False, soft_wrap=True)


def format_size(n_bytes: int) -> str:
    """Format a number of bytes with a binary unit: `1.5 MiB`."""
    amount = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{n_bytes} B" if unit == "B" else f"{amount:.1f} {unit}"


def print_warnings(diagnostics: Iterable[Diagnostic]) -> None:
    """Print warnings to standard error."""
    for diagnostic in diagnostics:
        messages.print(diagnostic.render() + "\n", style="yellow", markup=False, highlight=False, soft_wrap=True)


def print_note(text: str) -> None:
    """Print a note to standard error."""
    messages.print(escape_unprintable(f"note: {text}"), style="dim", markup=False, highlight=False, soft_wrap=True)


def print_notes(texts: Iterable[str]) -> None:
    """Print each text as a note to standard error."""
    for text in texts:
        print_note(text)


def write_frame(frame: Frame, out: Path, *, safe_csv: bool, sync: bool) -> list[str]:
    """Write a table to a file atomically, and return notes on texts that spreadsheets would execute.

    Args:
        safe_csv: Whether such texts are escaped in text files.
        sync: See `Frame.write`.
    """
    is_csv = out.suffix in (".csv", ".tsv")
    (frame.without_formulas() if safe_csv and is_csv else frame).write(out, sync=sync)
    cells = frame.formula_cells() if is_csv and not safe_csv else []
    if not cells:
        return []
    texts = f"{len(cells):,} text{'s' * (len(cells) > 1)}, such as {cells[0][:40]!r}"
    return [f"spreadsheets execute {texts}, in '{out}' as formulas; see --safe-csv"]


def parse_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """Parse `name=value` strings into a dictionary.

    Raises:
        UsageError: A string has no `=`.
    """
    out = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(Diagnostic("E306", f"'{pair}' is not of the form NAME=VALUE", hint="use --set NAME=VALUE"))
        out[name.strip()] = value.strip()
    return out


def parse_choices(pairs: Sequence[str] | None) -> dict[str, list[str]]:
    """Parse `name=value,value` strings into a dictionary of lists.

    Raises:
        UsageError: A string has no `=`.
    """
    lists = parse_settings(pairs).items()
    return {name: [value.strip() for value in values.split(",") if value.strip()] for name, values in lists}


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[ProgressMonitor]:
    """Display progress on standard error, and erase it at the end; a report raises the exceptions of dropped signals."""
    disable = quiet or not messages.is_terminal
    with console_progress(messages, disable=disable, check=raise_dropped_signals) as monitor:
        yield monitor
