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
from relcrf.printable import printable
from relcrf.watching import Watch as Watch
from relcrf.watching import on_console

console = Console()
messages = Console(stderr=True)


def print_json(value: Any) -> None:
    """Print one JSON object: what is not a number becomes null, a path its text, and what is not printable an escape of JSON."""
    text = json.dumps(_plain(value), ensure_ascii=False)
    sys.stdout.write("".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text) + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return str(value) if isinstance(value, Path) else value


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on the terminal; numbers are set to the right. Texts are shown as they are, see `say`."""
    out = Table(title=_text(title), title_justify="left")
    rows = [list(row) for row in rows]
    for k, name in enumerate(columns):
        is_number = all(isinstance(row[k], int | float) for row in rows)
        out.add_column(_text(name), justify="right" if is_number else "left")
    for row in rows:
        out.add_row(*(_cell(value, 2 if name == "seconds" else 4) for name, value in zip(columns, row, strict=True)))
    console.print(out)


def _text(text: str) -> Text:
    return Text(printable(text))


def _cell(value: object, digits: int) -> Text:
    if isinstance(value, float):
        return Text(f"{value:.{digits}f}")
    return Text(f"{value:,}") if isinstance(value, int) else _text(str(value))


def say(text: str, style: str = "") -> None:
    """A line on standard output: no character of it is markup, or a command to the terminal."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def complain(error: RelcrfError) -> None:
    """What is wrong, for people."""
    for diagnostic in error.diagnostics:
        messages.print(diagnostic.render() + "\n", style="red", markup=False, highlight=False, soft_wrap=True)


def say_error(text: str) -> None:
    """A line on standard error, in red."""
    messages.print(printable(text), style="red", markup=False, highlight=False, soft_wrap=True)


def size(n_bytes: int) -> str:
    """Bytes as people read them."""
    amount = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{n_bytes} B" if unit == "B" else f"{amount:.1f} {unit}"


def warn(diagnostics: Iterable[Diagnostic]) -> None:
    """Warnings, on standard error."""
    for diagnostic in diagnostics:
        messages.print(diagnostic.render() + "\n", style="yellow", markup=False, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """A remark, on standard error."""
    messages.print(printable(f"note: {text}"), style="dim", markup=False, highlight=False, soft_wrap=True)


def settings(pairs: Sequence[str] | None) -> dict[str, str]:
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


def choices(pairs: Sequence[str] | None) -> dict[str, list[str]]:
    """`name=value,value` texts as a mapping to the values.

    Raises:
        UsageError: where one has no `=`.
    """
    found = settings(pairs).items()
    return {name: [value.strip() for value in values.split(",") if value.strip()] for name, values in found}


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Watch]:
    """Progress on standard error while something runs; gone when it is done."""
    with on_console(messages, disable=quiet or not messages.is_terminal) as watch:
        yield watch
