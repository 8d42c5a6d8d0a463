"""Diagnostics and exceptions.

A user error (in a model, a table, an option, a run folder) is reported as one or more `Diagnostic`s in a `RelcrfError`. The
command line returns the `exit_code` of the error. Any other exception is a bug in relcrf.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from relcrf.printable import escape_unprintable, mask_passwords, replace_unprintable


@lru_cache(maxsize=8)
def _split_lines(text: str) -> list[str]:
    """Split a text into lines; cached, because many diagnostics can refer to the same text."""
    return text.split("\n")


@dataclass(frozen=True, slots=True)
class Source:
    """A source text of a model, with its name for messages."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Return line `number`, counted from 1, without its line break."""
        lines = _split_lines(self.text)
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters in a source. Lines and columns are counted from 1; `end_column` is exclusive."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class DataLocation:
    """A location in a table: the file (or the table's name), the data row (from 1, without the header), and the column."""

    table: str
    row: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        row = f", row {self.row}" if self.row is not None else ""
        column = f", column '{self.column}'" if self.column is not None else ""
        return f"{self.table}{row}{column}"


@dataclass(frozen=True, slots=True)
class NameReplacement:
    """The replacement of a misspelt name or value in a model by a valid one."""

    name: str
    replacement: str


@dataclass(frozen=True, slots=True)
class MissingDeclaration:
    """A declaration to add to a model, such as `domain Word = open`."""

    text: str


class Hint(str):
    """A hint that proposes changes of the model; an editor can apply them.

    Args:
        text: The hint.
        fixes: Alternative changes, the best one first.
    """

    fixes: tuple[NameReplacement | MissingDeclaration, ...]

    def __new__(cls, text: str, *fixes: NameReplacement | MissingDeclaration) -> Hint:
        hint = super().__new__(cls, text)
        hint.fixes = fixes
        return hint


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error or a warning, with its location and a hint. Passwords of URLs in its texts are masked.

    Args:
        code: Stable code, `E...` for errors and `W...` for warnings; `docs/errors/` has a page for each.
        message: The problem, in one line.
        location: The location of the problem, in a model text or in a table.
        hint: The way to fix the problem; a `Hint` if an editor can apply it.
        notes: Additional facts, one line each.
    """

    code: str
    message: str
    location: Span | DataLocation | None = None
    hint: str | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", mask_passwords(self.message))
        if self.hint and (masked := mask_passwords(self.hint)) != self.hint:
            object.__setattr__(self, "hint", masked)
        object.__setattr__(self, "notes", tuple(map(mask_passwords, self.notes)))

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E")

    @property
    def fixes(self) -> tuple[NameReplacement | MissingDeclaration, ...]:
        """The changes of the model that the hint proposes."""
        return self.hint.fixes if isinstance(self.hint, Hint) else ()

    def as_dict(self) -> dict[str, object]:
        """Return the diagnostic as JSON values, with the location as a dictionary."""
        location: dict[str, object] | None = None
        if isinstance(self.location, Span):
            span = self.location
            location = {"file": span.source.name, "line": span.line, "column": span.column}
            location |= {"end_line": span.end_line, "end_column": span.end_column}
        elif isinstance(self.location, DataLocation):
            location = {"table": self.location.table, "row": self.location.row, "column": self.location.column}
        return {
            "code": self.code,
            "severity": "error" if self.is_error else "warning",
            "message": self.message,
            "location": location,
            "hint": self.hint,
            "notes": list(self.notes),
        }

    def render(self) -> str:
        """Return the diagnostic as text, with the source line and an underlined range. Control characters are escaped."""
        lines = [f"{'error' if self.is_error else 'warning'}[{self.code}]: {escape_unprintable(self.message)}"]
        if isinstance(self.location, Span):
            span = self.location
            gutter = " " * len(str(span.line))
            source_line = span.source.line(span.line)
            end = span.end_column if span.end_line == span.line else len(source_line) + 1
            width = max(1, end - span.column)
            # The padding keeps tabs, so that the underline is aligned with the text in any terminal.
            padding = "".join("\t" if c == "\t" else " " for c in source_line[: span.column - 1])
            lines += [
                f"{gutter}--> {escape_unprintable(span.source.name)}:{span.line}:{span.column}",
                f"{gutter} |",
                f"{span.line} | {replace_unprintable(mask_passwords(source_line))}",
                f"{gutter} | {padding}{'^' * width}",
            ]
        elif self.location is not None:
            lines.append(f" --> {escape_unprintable(str(self.location))}")
        lines += [f"  = note: {escape_unprintable(note)}" for note in self.notes]
        if self.hint:
            lines.append(f"  = help: {escape_unprintable(self.hint)}")
        return "\n".join(lines)


class RelcrfError(Exception):
    """A user error. It contains diagnostics; `exit_code` is the exit code of the command line."""

    exit_code = 2

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n\n".join(d.render() for d in self.diagnostics))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the diagnostics and attributes, so that the exception can cross process boundaries."""
        return type(self), (self.diagnostics,), self.__dict__


class ModelError(RelcrfError):
    """An error in a model: the text cannot be parsed, or the declarations are inconsistent."""


class UsageError(RelcrfError):
    """An invalid option, name or call, or a model with a feature that the backend does not support."""


class BudgetError(UsageError):
    """A template or relation with more bindings than the budget allows."""


class DataError(RelcrfError):
    """An invalid or missing table, manifest or run folder."""

    exit_code = 3


class ConvergenceError(RelcrfError):
    """A reached time limit, or, with `--strict`, learning or inference that did not converge."""

    exit_code = 4


def similar_name(name: str, valid_names: Iterable[str]) -> str | None:
    """Return the most similar valid name, or None if no name is similar."""
    candidates: Sequence[str] = [k for k in valid_names if k]
    lowered = {k.lower(): k for k in candidates}
    if name.lower() in lowered:
        return lowered[name.lower()]
    return next(iter(difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)), None)


def suggestion(name: str, valid_names: Iterable[str]) -> Hint | None:
    """Return `did you mean 'category'?` for the most similar valid name, or None if no name is similar."""
    similar = similar_name(name, valid_names)
    return Hint(f"did you mean '{similar}'?", NameReplacement(name, similar)) if similar is not None else None


def path_suggestion(path: Path, is_valid: Callable[[Path], bool]) -> str | None:
    """Return `did you mean 'runs/web'?` for the most similar valid path in the same folder, except hidden ones.

    If the path is a folder, it returns the valid paths in it instead. It returns None if there are none.
    """
    try:
        folder = path if path.is_dir() else path.parent
        others = [other for other in sorted(folder.iterdir()) if not other.name.startswith(".") and is_valid(other)]
    except OSError:
        return None
    if folder is path:
        found = [str(other) for other in others]
        return f"use {'' if len(found) == 1 else 'one of '}{listing(found)}" if found else None
    paths = {other.name: other for other in others}
    nearest = similar_name(path.name, paths)
    return None if nearest is None else f"did you mean '{paths[nearest]}'?"


def listing(names: Iterable[str], limit: int = 8) -> str:
    """Return `a, b, c` or, beyond the limit, `a, b, ... (12 in all)`."""
    names = list(names)
    if len(names) <= limit:
        return ", ".join(names)
    return ", ".join(names[:limit]) + f", ... ({len(names)} in all)"
