"""A reader of Alchemy's evidence files for Markov logic: one ground atom per line.

    Friends(Anna, Bob)          is true
    !Smokes(Bob)                is false
    ?Smokes(Anna)               is a query variable
    Category(p1) = "course"     has the value "course"
    // a comment

Source: Kok et al., The Alchemy system for statistical relational AI: user manual, 2007, section on .db files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import BATCH_ROWS, Store
from relcrf.errors import DataError, Diagnostic, Source, Span

_CONSTANT = r'(?:"(?:[^"\\]|\\.)*"|[^\s,()"=!?][^\s,()"=]*)'
_COMMENT = r"\s*(?://.*)?"
_ATOM = re.compile(
    rf"\s*(?P<sign>[!?]?)\s*(?P<predicate>[A-Za-z_]\w*)\s*\(\s*(?P<arguments>{_CONSTANT}(?:\s*,\s*{_CONSTANT})*)\s*\)"
    rf"\s*(?:=\s*(?P<value>{_CONSTANT}))?{_COMMENT}"
)
_TRUTH = {"": "true", "!": "false", "?": None}


@dataclass
class _Predicate:
    """The ground atoms of one predicate: `table` is the name of their table; `rows` buffers atoms not yet stored."""

    arity: int
    has_values: bool
    table: str
    is_signed: bool = False
    rows: list[tuple[str | int | None, ...]] = field(default_factory=list)


class AlchemyReader(AbstractReader):
    """A reader that returns a table per predicate: columns `a0`, `a1`, ..., and `value` if not all atoms are true."""

    suffixes: ClassVar[tuple[str, ...]] = (".db",)

    def accepts(self, path: Path) -> bool:
        with path.open("rb") as file:
            return b"\x00" not in file.read(4096)

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        predicates: dict[str, _Predicate] = {}
        for number, line in _read_lines(path):
            match = _ATOM.fullmatch(line)
            if match is None:
                if re.fullmatch(_COMMENT, line):
                    continue
                hint = 'write an atom as Friends(Anna, Bob), !Smokes(Bob) or Category(p1) = "course"'
                raise _line_error(path, number, line, "the line is not a ground atom", hint)
            constants = [_unquote(c) for c in re.findall(_CONSTANT, match["arguments"])]
            has_value = match["value"] is not None
            predicate = predicates.get(match["predicate"])
            if predicate is None:
                columns = {"line": "BIGINT", **dict.fromkeys([*_argument_columns(len(constants)), "value"], "VARCHAR")}
                predicate = _Predicate(len(constants), has_value, store.add_rows(columns, ()))
                predicates[match["predicate"]] = predicate
            if len(constants) != predicate.arity:
                message = (
                    f"{match['predicate']} has {len(constants)} arguments, but {predicate.arity} in an earlier line"
                )
                raise _line_error(
                    path, number, line, message, "all atoms of a predicate need the same number of arguments"
                )
            if has_value != predicate.has_values or (has_value and match["sign"]):
                message = f"{match['predicate']} has both values and truth values"
                raise _line_error(path, number, line, message, "give values to all atoms of a predicate, or to none")
            predicate.is_signed |= bool(match["sign"])
            value = _unquote(match["value"]) if has_value else _TRUTH[match["sign"]]
            predicate.rows.append((number, *constants, value))
            if len(predicate.rows) == BATCH_ROWS:
                _flush(predicate, store)
        for name, predicate in predicates.items():
            _flush(predicate, store)
            names = _argument_columns(predicate.arity)
            if predicate.has_values or predicate.is_signed:
                names.append("value")
            scan, numbered = (f"(SELECT {', '.join(c)} FROM {predicate.table})" for c in (names, ["line", *names]))
            yield SourceTable(name, f"{path}, predicate {name}", scan, numbered)


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file, numbered from 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield number, line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                text = line.decode("utf-8", errors="replace").rstrip("\r\n")
                raise _line_error(path, number, text, "the line is not UTF-8 text", "save the file as UTF-8") from None


def _line_error(path: Path, line_number: int, line: str, message: str, hint: str) -> DataError:
    # `source` contains only the line of the error, because the file may be large.
    source = Source(str(path), "\n" * (line_number - 1) + line)
    start = len(line) - len(line.lstrip()) + 1
    return DataError(
        Diagnostic("E237", message, Span(source, line_number, start, line_number, len(line.rstrip()) + 1), hint)
    )


def _argument_columns(arity: int) -> list[str]:
    return [f"a{k}" for k in range(arity)]


def _unquote(constant: str) -> str:
    """Return a constant without its quotes."""
    return re.sub(r"\\(.)", r"\1", constant[1:-1]) if constant.startswith('"') else constant


def _flush(predicate: _Predicate, store: Store) -> None:
    columns = [list(column) for column in zip(*predicate.rows, strict=True)]
    if columns:
        store.append(predicate.table, ["BIGINT"] + ["VARCHAR"] * (len(columns) - 1), columns)
    predicate.rows = []
