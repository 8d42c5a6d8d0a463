"""What all commands share: flags, tables, progress, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from relcrf.errors import Diagnostic, RelcrfError, UsageError
from relcrf.printable import escape_unprintable
from relcrf.progress_reporting import ProgressMonitor as ProgressMonitor
from relcrf.progress_reporting import console_progress

console = Console()
messages = Console(stderr=True)


def print_json(value: Any) -> None:
    """Print one JSON object: what is not a number becomes null, a path its text, and what is not printable an escape of JSON."""
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
    """A table on the terminal; numbers are set to the right. Texts are shown as they are, see `say`."""
    out = Table(title=_escaped_text(title), title_justify="left")
    rows = [list(row) for row in rows]
    for k, name in enumerate(columns):
        is_number = all(isinstance(row[k], int | float) for row in rows)
        out.add_column(_escaped_text(name), justify="right" if is_number else "left")
    for row in rows:
        out.add_row(
            *(_format_cell(value, 2 if name == "seconds" else 4) for name, value in zip(columns, row, strict=True))
        )
    console.print(out)


def _escaped_text(text: str) -> Text:
    return Text(escape_unprintable(text))


def _format_cell(value: object, digits: int) -> Text:
    if isinstance(value, float):
        return Text(f"{value:.{digits}f}")
    return Text(f"{value:,}") if isinstance(value, int) else _escaped_text(str(value))


def print_line(text: str, style: str = "") -> None:
    """A line on standard output: no character of it is markup, or a command to the terminal."""
    console.print(escape_unprintable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def print_diagnostics(error: RelcrfError) -> None:
    """What is wrong, for people."""
    for diagnostic in error.diagnostics:
        messages.print(diagnostic.render() + "\n", style="red", markup=False, highlight=False, soft_wrap=True)


def print_error_line(text: str) -> None:
    """A line on standard error, in red."""
    messages.print(escape_unprintable(text), style="red", markup=False, highlight=False, soft_wrap=True)


def format_size(n_bytes: int) -> str:
    """Bytes as people read them."""
    amount = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{n_bytes} B" if unit == "B" else f"{amount:.1f} {unit}"


def print_warnings(diagnostics: Iterable[Diagnostic]) -> None:
    """Warnings, on standard error."""
    for diagnostic in diagnostics:
        messages.print(diagnostic.render() + "\n", style="yellow", markup=False, highlight=False, soft_wrap=True)


def print_note(text: str) -> None:
    """A remark, on standard error."""
    messages.print(escape_unprintable(f"note: {text}"), style="dim", markup=False, highlight=False, soft_wrap=True)


def parse_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """`name=value` texts as a mapping.

    Raises:
        UsageError: where one has no `=`.
    """
    out = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(Diagnostic("E306", f"'{pair}' is no setting", hint="write --set name=value"))
        out[name.strip()] = value.strip()
    return out


def parse_choices(pairs: Sequence[str] | None) -> dict[str, list[str]]:
    """`name=value,value` texts as a mapping to the values.

    Raises:
        UsageError: where one has no `=`.
    """
    found = parse_settings(pairs).items()
    return {name: [value.strip() for value in values.split(",") if value.strip()] for name, values in found}


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[ProgressMonitor]:
    """Progress on standard error while something runs; gone when it is done."""
    with console_progress(messages, disable=quiet or not messages.is_terminal) as watch:
        yield watch
