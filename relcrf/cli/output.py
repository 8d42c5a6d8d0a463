"""Output of all commands (tables, notes, diagnostics, JSON), and parsing of `name=value` options."""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from relcrf.cli.table_layout import TableColumn, layout_table
from relcrf.errors import Diagnostic, RelcrfError, UsageError
from relcrf.printable import escape_unprintable

console = Console()
messages = Console(stderr=True)

_ASCII = str.maketrans({"─": "-", "±": "+/-", "…": "...", "→": "->", "≤": "<=", "·": "-"})
"""Replacements of characters in the messages of relcrf for terminals and files that cannot display them."""


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding does not contain: by ASCII characters or, in names and values, by escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error("relcrf", _replace_unencodable)


def replace_unencodable_output() -> None:
    """Replace characters that the encoding of a standard stream does not contain, instead of raising an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="relcrf")


def _printable(text: str, allowed: str = "") -> str:
    """Escape control characters except `allowed`, and characters that the encoding of standard output does not contain."""
    return escape_unprintable(text, allowed).encode(console.encoding, "relcrf").decode(console.encoding)


def print_json(value: Any) -> None:
    """Print one JSON object. NaN and infinity become null, paths become strings, and unprintable characters are escaped."""
    text = json.dumps(_to_json_value(value), ensure_ascii=not console.encoding.startswith("utf"))
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

    For tables that are wider than the console see `layout_table`.
    """
    rows = [list(row) for row in rows]
    found = []
    for k, name in enumerate(columns):
        values = [row[k] for row in rows]
        cells = [_format_cell(value, 2 if name == "seconds" else 4) for value in values]
        is_number = all(isinstance(value, int | float) for value in values)
        found.append(TableColumn(_escaped_text(name), cells, "right" if is_number else "left"))
    console.print(_escaped_text(title), style="italic", soft_wrap=True)
    console.print(layout_table(found, console.width))


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
    return Text(_printable(text))


def _format_cell(value: object, digits: int) -> Text:
    if isinstance(value, Text):
        return Text(_printable(value.plain, allowed="\n"))
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
