"""What can go wrong, and how it is said.

Every mistake of a user (in a model, a table, a flag, a run folder) becomes one or more `Diagnostic`s,
carried by a `RelcrfError` whose `exit_code` the command line returns. A bug of ours is any other exception.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from relcrf.printable import escape_unprintable, replace_unprintable


@lru_cache(maxsize=8)
def _split_lines(text: str) -> list[str]:
    """A text is split once, however many diagnostics speak of it."""
    return text.split("\n")


@dataclass(frozen=True, slots=True)
class Source:
    """A text that a model was read from: its name for messages, and the text."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Line `number`, counted from 1, without its line break."""
        lines = _split_lines(self.text)
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source. Lines and columns are counted from 1; `end_column` is exclusive."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class DataLocation:
    """A place in a table: the file (or the table's name), the data row from 1 (the header is not counted), the column."""

    table: str
    row: int | None = None
    column: str | None = None

    def __str__(self) -> str:
        row = f", row {self.row}" if self.row is not None else ""
        column = f", column '{self.column}'" if self.column is not None else ""
        return f"{self.table}{row}{column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake (or one doubt): what, where, and what to do about it.

    Args:
        code: stable name, `E...` for errors and `W...` for warnings; `docs/errors/` has a page for each.
        message: what is wrong, in one line.
        location: where, in a model text or in a table.
        hint: what to do.
        notes: more facts, a line each.
    """

    code: str
    message: str
    location: Span | DataLocation | None = None
    hint: str | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E")

    def as_dict(self) -> dict[str, object]:
        """For machines: code, message, hint, notes, and the place as plain numbers."""
        place: dict[str, object] | None = None
        if isinstance(self.location, Span):
            span = self.location
            place = {"file": span.source.name, "line": span.line, "column": span.column}
            place |= {"end_line": span.end_line, "end_column": span.end_column}
        elif isinstance(self.location, DataLocation):
            place = {"table": self.location.table, "row": self.location.row, "column": self.location.column}
        return {
            "code": self.code,
            "severity": "error" if self.is_error else "warning",
            "message": self.message,
            "place": place,
            "hint": self.hint,
            "notes": list(self.notes),
        }

    def render(self) -> str:
        """The diagnostic as text, with the source line and the place underlined where there is one; harmless on a terminal."""
        lines = [f"{'error' if self.is_error else 'warning'}[{self.code}]: {escape_unprintable(self.message)}"]
        if isinstance(self.location, Span):
            span = self.location
            gutter = " " * len(str(span.line))
            source_line = span.source.line(span.line)
            end = span.end_column if span.end_line == span.line else len(source_line) + 1
            width = max(1, end - span.column)
            # Tabs are kept in the padding so that the underline stands below its text in any terminal.
            padding = "".join("\t" if c == "\t" else " " for c in source_line[: span.column - 1])
            lines += [
                f"{gutter}--> {escape_unprintable(span.source.name)}:{span.line}:{span.column}",
                f"{gutter} |",
                f"{span.line} | {replace_unprintable(source_line)}",
                f"{gutter} | {padding}{'^' * width}",
            ]
        elif self.location is not None:
            lines.append(f" --> {escape_unprintable(str(self.location))}")
        lines += [f"  = note: {escape_unprintable(note)}" for note in self.notes]
        if self.hint:
            lines.append(f"  = help: {escape_unprintable(self.hint)}")
        return "\n".join(lines)


class RelcrfError(Exception):
    """A mistake that a user can mend. Carries its diagnostics; `exit_code` is the command line's."""

    exit_code = 2

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n\n".join(d.render() for d in self.diagnostics))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as its diagnostics, so that it comes back whole from another process."""
        return type(self), (self.diagnostics,), self.__dict__


class ModelError(RelcrfError):
    """The model is wrong: its text does not parse, or its declarations do not fit together."""


class UsageError(RelcrfError):
    """A flag, a name or a call is wrong; or a model asks for what this backend cannot do."""


class BudgetError(UsageError):
    """A template or relation would ground into more rows than the budget admits."""


class DataError(RelcrfError):
    """A table, a manifest or a run folder is wrong or missing."""

    exit_code = 3


class ConvergenceError(RelcrfError):
    """An optimiser or an inference did not converge where the user asked that this be an error."""

    exit_code = 4


def suggestion(name: str, valid_names: Iterable[str]) -> str | None:
    """`did you mean 'category'?` for the nearest of the known names, or None if none is near."""
    candidates: Sequence[str] = [k for k in valid_names if k]
    lowered = {k.lower(): k for k in candidates}
    if name.lower() in lowered:
        return f"did you mean '{lowered[name.lower()]}'?"
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else None


def listing(names: Iterable[str], limit: int = 8) -> str:
    """`a, b, c` or, beyond the limit, `a, b, ... (12 in all)`."""
    names = list(names)
    if len(names) <= limit:
        return ", ".join(names)
    return ", ".join(names[:limit]) + f", ... ({len(names)} in all)"
