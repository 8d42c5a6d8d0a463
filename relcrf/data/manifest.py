"""`dataset.toml`: which tables a dataset has, where each comes from, and how its labels are held out.

[tables.page]
file = "pages.csv"
columns = { category = "label" }

[split]
folds = 10
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relcrf.data.split_plan import SplitPlan, split_problem
from relcrf.data.toml_locations import TomlLocations
from relcrf.errors import DataError, DataLocation, Diagnostic, Source, Span, listing, suggestion
from relcrf.model.spec import fold_name

FILE_NAME = "dataset.toml"

_SOURCES = ("file", "sqlite", "postgres", "sql")
_TABLE_KEYS = {
    "file": str,
    "sqlite": str,
    "postgres": str,
    "sql": str,
    "table": str,
    "schema": str,
    "columns": dict,
    "open": bool,
}
_SPLIT_KEYS = {"column": str, "folds": int, "hide": float, "seed": int, "hold": list}
_TYPE_NAMES = {
    str: "a text",
    dict: "a table of texts",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list of texts",
}


@dataclass(frozen=True)
class FileEntry:
    """A file in the manifest's folder, and which of its tables where it may hold several."""

    path: Path
    table: str | None


@dataclass(frozen=True)
class SqliteEntry:
    """A table of a SQLite database in the manifest's folder."""

    path: Path
    table: str


@dataclass(frozen=True)
class PostgresEntry:
    """A table of a PostgreSQL server, or the rows of a query there."""

    url: str
    schema: str
    table: str
    sql: str | None


@dataclass(frozen=True)
class QueryEntry:
    """A table that is a query over the other tables of the manifest.

    Args:
        location: where the manifest states the query. file: the manifest, for messages.
    """

    name: str
    sql: str
    location: Span
    file: str


@dataclass(frozen=True)
class TableEntry:
    """A table of a manifest.

    Args:
        columns: the table's own names of columns by those of the model.
        is_open: the table of a random relation, in which what is not listed is a query.
        source_location: where the manifest states what the table is. columns_place: where it names columns.
    """

    name: str
    source: FileEntry | SqliteEntry | PostgresEntry | QueryEntry
    columns: Mapping[str, str]
    is_open: bool
    source_location: Span
    columns_location: Span


@dataclass(frozen=True)
class Manifest:
    """A manifest as it was read; without tables, the dataset has those of the folder."""

    tables: tuple[TableEntry, ...]
    split: SplitPlan | None


def read_manifest(path: Path) -> Manifest:
    """Reads a manifest and checks all that can be known without opening a table.

    Raises:
        DataError: with every mistake and its line.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe, say, which would be waited for
            raise OSError("it is no file")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"the manifest '{path}' is no UTF-8 text: byte {error.start} is wrong"
        raise DataError(Diagnostic("E230", message, DataLocation(str(path)), "save it as UTF-8")) from None
    except OSError as error:
        message = f"the manifest '{path}' cannot be read: {(error.strerror or str(error)).lower()}"
        raise DataError(Diagnostic("E230", message, DataLocation(str(path)), "name a dataset.toml")) from None
    source = Source(str(path), text)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(_syntax_error(source, str(error))) from None
    return _ManifestReader(path, content, TomlLocations(source)).read()


def _syntax_error(source: Source, message: str) -> Diagnostic:
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, flags=re.DOTALL)
    lines = source.text.split("\n")
    said, line, column = (
        (found[1], int(found[2]), int(found[3])) if found else (message, len(lines), len(lines[-1]) + 1)
    )
    if found is None:
        said = message.removesuffix(" (at end of document)")
    place = Span(source, line, column, line, column + 1)
    hint = "texts stand in quotes, and a table begins with [tables.NAME]"
    return Diagnostic("E230", f"this is no TOML: {said[:1].lower()}{said[1:]}", place, hint)


@dataclass
class _ManifestReader:
    """One manifest at work. Mistakes are gathered."""

    path: Path
    content: Mapping[str, Any]
    locations: TomlLocations
    problems: list[Diagnostic] = field(default_factory=list)

    def read(self) -> Manifest:
        self._check_keys(self.content, {"tables": dict, "split": dict}, ())
        tables = self.content.get("tables")
        entries = []
        for name, entry in tables.items() if isinstance(tables, dict) else ():
            if not isinstance(entry, dict):
                message = f"a table is a TOML table: [tables.{name}]"
                self._add_problem(message, f'write [tables.{name}] and file = "..."', "tables", name)
            elif (found := self._read_table(name, entry)) is not None:
                entries.append(found)
        split = self.content.get("split")
        plan = self._read_split(split) if isinstance(split, dict) else None
        if self.problems:
            raise DataError(self.problems)
        return Manifest(tuple(entries), plan)

    def _add_problem(self, message: str, hint: str | None, *path: str, code: str = "E232") -> None:
        self.problems.append(Diagnostic(code, message, self.locations.find(*path), hint))

    def _check_keys(self, table: Mapping[str, Any], keys: Mapping[str, type], path: tuple[str, ...]) -> bool:
        """Whether a table has no keys but these, each with a value of its type."""
        before = len(self.problems)
        where = ".".join(path) or "a manifest"
        for key, value in table.items():
            if key not in keys:
                hint = suggestion(key, keys) or f"it may have {listing(keys)}"
                self._add_problem(f"{where} has no key '{key}'", hint, *path, key, code="E231")
            elif not _has_type(value, keys[key]):
                kind = "a table" if not path else _TYPE_NAMES[keys[key]]
                self._add_problem(f"'{key}' is {kind}, not {_format_value(value)}", None, *path, key)
        return len(self.problems) == before

    # Tables

    def _read_table(self, name: str, entry: Mapping[str, Any]) -> TableEntry | None:
        path = ("tables", name)
        if not self._check_keys(entry, _TABLE_KEYS, path):
            return None
        source = self._read_source(name, entry)
        columns = entry.get("columns", {})
        for column, own in columns.items():
            if not isinstance(own, str):
                message = f"'{column}' is a text, not {_format_value(own)}"
                self._add_problem(message, 'write { model_name = "file_name" }', *path, "columns", column)
                return None
        twice = [c for c in columns if sum(fold_name(c) == fold_name(other) for other in columns) > 1]
        if twice:
            hint = "names are compared without case and underscores"
            self._add_problem(f"two columns are called '{twice[0]}'", hint, *path, "columns")
        if source is None or twice:
            return None
        key = next(k for k in _SOURCES if k in entry)
        source_place, columns_place = self.locations.find(*path, key), self.locations.find(*path, "columns")
        return TableEntry(name, source, columns, entry.get("open", False), source_place, columns_place)

    def _read_source(
        self, name: str, entry: Mapping[str, Any]
    ) -> FileEntry | SqliteEntry | PostgresEntry | QueryEntry | None:
        path = ("tables", name)
        given = [key for key in _SOURCES if key in entry and not (key == "sql" and "postgres" in entry)]
        if len(given) != 1:
            said = f"has {listing(given)}" if given else "says not where it comes from"
            self._add_problem(f"the table '{name}' {said}", f"give it one of {listing(_SOURCES)}", *path)
            return None
        (kind,) = given
        fitting = {"file": ("table",), "sql": (), "sqlite": ("table",), "postgres": ("table", "schema", "sql")}[kind]
        for key in ("table", "schema"):
            if key in entry and key not in fitting:
                self._add_problem(f"'{key}' does not go with '{kind}'", "leave it out", *path, key)
                return None
        if kind == "sql":
            return QueryEntry(name, entry["sql"], self.locations.find(*path, kind), str(self.path))
        if kind == "postgres":
            if "sql" in entry and ("table" in entry or "schema" in entry):
                self._add_problem(f"the table '{name}' has both 'sql' and a table", "give one of them", *path, "sql")
                return None
            return PostgresEntry(
                entry["postgres"], entry.get("schema", "public"), entry.get("table", name), entry.get("sql")
            )
        file = self._resolve_file(entry[kind], *path, kind)
        if file is None:
            return None
        return FileEntry(file, entry.get("table")) if kind == "file" else SqliteEntry(file, entry.get("table", name))

    def _resolve_file(self, text: str, *path: str) -> Path | None:
        """A file of the manifest's folder, links followed."""
        if "\0" in text:
            self._add_problem(f"{text!a} is no name of a file", None, *path, code="E203")
            return None
        file = self.path.parent / text
        if Path(text).is_absolute() or not _resolve_links(file).is_relative_to(_resolve_links(self.path.parent)):
            hint = "a manifest names files of its own folder and of those below; copy the file there"
            self._add_problem(f"'{text}' is outside the folder of the manifest", hint, *path, code="E233")
            return None
        if not os.path.isfile(file):  # unlike `file.is_file()`, of names that are too long as well
            there = sorted(os.listdir(file.parent)) if os.path.isdir(file.parent) else []
            what = "is a folder" if os.path.isdir(file) else "is no file" if os.path.exists(file) else "does not exist"
            self._add_problem(f"the file '{text}' {what}", suggestion(file.name, there), *path, code="E203")
            return None
        return file

    # Split

    def _read_split(self, split: Mapping[str, Any]) -> SplitPlan | None:
        if not self._check_keys(split, _SPLIT_KEYS, ("split",)):
            return None
        given = [key for key in ("column", "folds", "hide") if key in split]
        if len(given) != 1:
            said = f"{listing(given)} do not go together" if given else "a split needs a way to divide"
            self._add_problem(said, "give one of column, folds, hide", "split")
            return None
        (kind,) = given
        misfit = "seed" if kind == "column" else "hold" if kind == "hide" else None
        if misfit is not None and misfit in split:
            self._add_problem(f"'{misfit}' does not go with '{kind}'", "leave it out", "split", misfit)
            return None
        hold = split.get("hold", [])
        if not all(isinstance(value, str) for value in hold):
            self._add_problem(
                f"'hold' is a list of texts, not {_format_value(hold)}", 'write hold = ["test"]', "split", "hold"
            )
            return None
        problem = None if kind == "column" else split_problem(kind, split[kind])
        if problem:
            self._add_problem(problem, None, "split", kind)
            return None
        return SplitPlan(
            kind,
            column=split.get("column", ""),
            folds=split.get("folds"),
            fraction=float(split.get("hide", 0.0)),
            seed=split.get("seed", 0),
            holdout=tuple(hold),
        )


def _resolve_links(path: Path) -> Path:
    """A path with its links followed; unlike `path.resolve()` of links to themselves as well."""
    return Path(os.path.realpath(path))


def _has_type(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _format_value(value: Any) -> str:
    """A TOML value in a message."""
    if isinstance(value, bool):
        return str(value).lower()
    return "a table" if isinstance(value, dict) else repr(value)
