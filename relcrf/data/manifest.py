"""The manifest `dataset.toml`: the tables of a dataset with their sources, and the split of its labels.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from types import UnionType
from typing import Any
from urllib.parse import unquote

from relcrf.data.manifest_values import POLICIES, TYPE_NAMES, format_value, has_type, row_problems
from relcrf.data.readers.csv_format import DECIMAL_SEPARATORS, THOUSANDS_SEPARATORS, CsvFormat, is_text_encoding
from relcrf.data.readers.csv_values import DATE_FORMAT
from relcrf.data.split_plan import PART_NAMES, SplitPlan, part_problem, split_problem
from relcrf.data.toml_locations import TomlLocations
from relcrf.data.toml_text import render_tables
from relcrf.errors import DataError, DataLocation, Diagnostic, Source, Span, listing, suggestion
from relcrf.model.spec import fold_name

FILE_NAME = "dataset.toml"

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The name of the folder of rows without a value."""

DATABASE_KINDS = ("sqlite", "duckdb")
"""The keys of a table that name a database file, after the format of the file."""

_SOURCES = ("file", *DATABASE_KINDS, "postgres", "sql")
_TABLE_KEYS: dict[str, type | UnionType] = {
    "file": str,
    **dict.fromkeys(DATABASE_KINDS, str),
    "postgres": str,
    "sql": str,
    "table": str,
    "schema": str,
    "columns": dict,
    "open": bool,
    "csv": dict,
    "missing": list | dict,
    "digits": dict,
    "formats": dict,
    "words": dict,
    "key": str,
    "duplicates": str,
    "orphans": str,
}
_COMPANION_KEYS = {
    "file": ("table", "csv"),
    "sqlite": ("table",),
    "duckdb": ("table", "schema"),
    "postgres": ("table", "schema", "sql"),
}
"""The keys of a table that may be combined with a source."""

_SUFFIX = re.compile(r"\.(?!toml)[a-z]+(\.(gz|zst))?$", re.IGNORECASE)
"""Regular expression of the suffix of a table file."""

_CSV_KEYS = {
    **dict.fromkeys(("delimiter", "encoding", "decimal", "thousands", "dates"), str),
    "skip": int,
    "units": list,
}
_SPLIT_KEYS = {"column": str, "folds": int, "hide": float, "seed": int, **dict.fromkeys(("holdout", *PART_NAMES), list)}


@dataclass(frozen=True)
class FileEntry:
    """Files in the folder of the tables, and the name of one of their tables; None if each file has only one table.

    Args:
        paths: One file, or the files that match a pattern.
        pattern: Path of the pattern; None if the entry names one file.
        partitions: The values in names of folders such as `year=2024`, for each file of a pattern.
        csv: The stated properties of a CSV file; None if the manifest states none.
    """

    paths: tuple[Path, ...]
    table: str | None
    csv: CsvFormat | None = None
    pattern: Path | None = None
    partitions: tuple[Mapping[str, str | None], ...] = ()


@dataclass(frozen=True)
class DatabaseEntry:
    """A table of a database file in the folder of the tables.

    Args:
        kind: One of `DATABASE_KINDS`.
        schema: The schema of the table, in a DuckDB database.
    """

    kind: str
    path: Path
    table: str
    schema: str = "main"


@dataclass(frozen=True)
class GivenEntry:
    """A table of the data to which the manifest is applied: of a database, data frames, or files with several tables."""

    table: str


@dataclass(frozen=True)
class PostgresEntry:
    """A table of a PostgreSQL server, or the result of a query that the server runs."""

    url: str
    schema: str
    table: str
    sql: str | None


@dataclass(frozen=True)
class QueryEntry:
    """A table defined by a query over the other tables of the manifest.

    Args:
        location: Span of the query in the manifest.
        file: Path of the manifest, for messages.
    """

    name: str
    sql: str
    location: Span
    file: str


@dataclass(frozen=True)
class RowPolicies:
    """The policies of a table for invalid rows, see `row_policies.py`.

    Args:
        duplicates: For rows with the key or the arguments of another row: `error`, `first`, `last` or `merge`.
        orphans: For rows that refer to unknown entities: `error`, `drop` or `add`.
        key: The column of the source by which `duplicates` compares rows when the table is read, before queries read it;
            empty if `duplicates` applies to the keys or arguments of the model.
    """

    duplicates: str = "error"
    orphans: str = "error"
    key: str = ""


@dataclass(frozen=True)
class TableEntry:
    """A table of a manifest.

    Args:
        columns: Mapping from the model's column names to the column names of the source.
        is_open: For a table of a random relation: unlisted tuples are query variables if True, and false if False.
        source_location: Span of the source in the manifest.
        columns_location: Span of the key `columns` in the manifest.
        missing: Texts of cells without a value, of all columns or by column of the source; those of all columns of a CSV file
            are in its `CsvFormat` instead. `missing_location` is the span of the key.
        digits: The number of digits of codes with leading zeros, by column of the source; `digits_location` is its span.
        formats: The formats of numbers and dates, by column of the source; `formats_location` is its span.
        words: The columns of texts of the source, by name of the column of their words; `words_location` is its span.
    """

    name: str
    source: FileEntry | DatabaseEntry | GivenEntry | PostgresEntry | QueryEntry
    columns: Mapping[str, str]
    is_open: bool
    source_location: Span
    columns_location: Span
    missing: tuple[str, ...] | Mapping[str, Sequence[str]] = ()
    missing_location: Span | None = None
    policies: RowPolicies = field(default_factory=RowPolicies)
    digits: Mapping[str, int] = field(default_factory=dict)
    digits_location: Span | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    formats_location: Span | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    words_location: Span | None = None


def is_applicable(mapping: str, data: Path) -> bool:
    """Return True if data may have the tables of a valid mapping; see `Manifest`.

    A folder needs one of the files. Other data, such as a database, fit a mapping that names no file.
    """
    tables = tomllib.loads(mapping)["tables"]
    files = [entry[kind] for entry in tables.values() for kind in ("file", *DATABASE_KINDS) if kind in entry]
    if not data.is_dir():
        return not files
    files += [f"{escape(name)}.*" for name, entry in tables.items() if not {*_SOURCES, "table"} & {*entry}]
    return any((data / file).exists() or any(data.glob(file)) for file in files if not Path(file).is_absolute())


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest; if it lists no tables, the dataset consists of the table files in its folder.

    Args:
        is_selection: Whether the dataset consists of the listed tables only, because one of them states its source.
        mapping: The section `tables` as TOML, to apply it to other folders; None if it lists no tables, or a table of a
            server, which does not belong to a folder.
    """

    tables: tuple[TableEntry, ...]
    split: SplitPlan | None
    mapping: str | None = None
    is_selection: bool = True


def read_manifest(manifest: Path | Source, folder: Path | None = None, *, for_given: bool = False) -> Manifest:
    """Read a manifest and validate everything that does not require opening a table.

    Args:
        manifest: The path of the manifest, or its text with its name for messages.
        folder: The folder of the tables; None for the folder of the manifest.
        for_given: Whether the manifest is applied to a database or to data frames, whose tables it names.

    Raises:
        DataError: The manifest is invalid; the error lists every problem with its line.
    """
    source = manifest if isinstance(manifest, Source) else _read_source(manifest)
    try:
        content = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(_syntax_error(source, str(error))) from None
    own_folder = Path() if isinstance(manifest, Source) else manifest.parent
    is_own = folder is None or (isinstance(manifest, Path) and folder == own_folder)
    return _ManifestReader(folder or own_folder, is_own, for_given, content, TomlLocations(source)).read()


def _read_source(path: Path) -> Source:
    try:
        if path.exists() and not path.is_file():  # e.g. a pipe; reading it would block
            raise OSError("it is not a regular file")
        return Source(str(path), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        message = f"the manifest '{path}' is not UTF-8 text: invalid byte at offset {error.start}"
        raise DataError(Diagnostic("E230", message, DataLocation(str(path)), "save it as UTF-8")) from None
    except OSError as error:
        message = f"the manifest '{path}' cannot be read: {(error.strerror or str(error)).lower()}"
        raise DataError(
            Diagnostic("E230", message, DataLocation(str(path)), "pass the path of a dataset.toml")
        ) from None


def _syntax_error(source: Source, message: str) -> Diagnostic:
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, flags=re.DOTALL)
    lines = source.text.split("\n")
    detail, line, column = (
        (match[1], int(match[2]), int(match[3])) if match else (message, len(lines), len(lines[-1]) + 1)
    )
    if match is None:
        detail = message.removesuffix(" (at end of document)")
    location = Span(source, line, column, line, column + 1)
    hint = "quote strings, and start a table with [tables.NAME]"
    return Diagnostic("E230", f"invalid TOML: {detail[:1].lower()}{detail[1:]}", location, hint)


@dataclass
class _ManifestReader:
    """A reader of one manifest; it collects all problems."""

    folder: Path
    is_own_folder: bool
    for_given: bool
    content: Mapping[str, Any]
    locations: TomlLocations
    problems: list[Diagnostic] = field(default_factory=list)

    def read(self) -> Manifest:
        self._check_keys(self.content, {"tables": dict, "split": dict}, ())
        tables = self.content.get("tables")
        entries = []
        for name, entry in tables.items() if isinstance(tables, dict) else ():
            if not isinstance(entry, dict):
                message = f"'tables.{name}' must be a TOML table"
                self._add_problem(message, f'write [tables.{name}] and file = "..."', "tables", name)
            elif (table := self._read_table(name, entry)) is not None:
                entries.append(table)
        split = self.content.get("split")
        plan = self._read_split(split) if isinstance(split, dict) else None
        if self.problems:
            raise DataError(self.problems)
        has_server = any(isinstance(entry.source, PostgresEntry) for entry in entries)
        mapping = render_tables(self.content["tables"]) if entries and not has_server else None
        return Manifest(tuple(entries), plan, mapping, self._is_selection)

    @property
    def _is_selection(self) -> bool:
        """True if a table of the manifest states its source."""
        keys = {*_SOURCES, "table"} if self.for_given else {*_SOURCES}
        return any(keys & {*entry} for entry in self.content.get("tables", {}).values() if isinstance(entry, dict))

    def _add_problem(self, message: str, hint: str | None, *path: str, code: str = "E232") -> None:
        self.problems.append(Diagnostic(code, message, self.locations.find(*path), hint))

    def _check_keys(
        self, table: Mapping[str, Any], keys: Mapping[str, type | UnionType], path: tuple[str, ...]
    ) -> bool:
        """Report unknown keys and values of the wrong type in a TOML table; return True if there are none."""
        before = len(self.problems)
        section = ".".join(path) or "the manifest"
        for key, value in table.items():
            if key not in keys:
                hint = suggestion(key, keys) or f"its keys are {listing(keys)}"
                self._add_problem(f"{section} has no key '{key}'", hint, *path, key, code="E231")
            elif not has_type(value, keys[key]):
                expected = "a table" if not path else TYPE_NAMES[keys[key]]
                self._add_problem(f"'{key}' must be {expected}, not {format_value(value)}", None, *path, key)
        return len(self.problems) == before

    # Tables

    def _read_table(self, name: str, entry: Mapping[str, Any]) -> TableEntry | None:
        path = ("tables", name)
        if not self._check_keys(entry, _TABLE_KEYS, path):
            return None
        problems = row_problems(entry)
        for problem in problems:
            self._add_problem(problem.message, problem.hint, *path, *problem.keys)
        if problems:
            return None
        source = self._read_source(name, entry)
        columns = entry.get("columns", {})
        for column, source_column in columns.items():
            if not isinstance(source_column, str):
                message = f"'{column}' must be a string, not {format_value(source_column)}"
                self._add_problem(message, 'write { model_name = "file_name" }', *path, "columns", column)
                return None
        duplicates = [c for c in columns if sum(fold_name(c) == fold_name(other) for other in columns) > 1]
        if duplicates:
            hint = "names are compared without case and underscores"
            self._add_problem(f"two columns are named '{duplicates[0]}'", hint, *path, "columns")
        if source is None or duplicates:
            return None
        key = next((k for k in (*_SOURCES, "table") if k in entry), "")
        source_span, columns_span = self.locations.find(*path, key), self.locations.find(*path, "columns")
        is_csv = isinstance(source, FileEntry) and source.csv is not None
        missing = entry.get("missing", ())
        if not isinstance(missing, dict):
            missing = () if is_csv else tuple(missing)
        policies = RowPolicies(**{policy: entry[policy] for policy in (*POLICIES, "key") if policy in entry})
        digits, digits_span = entry.get("digits", {}), self.locations.find(*path, "digits")
        return TableEntry(
            name,
            source,
            columns,
            entry.get("open", False),
            source_span,
            columns_span,
            missing,
            self.locations.find(*path, "missing"),
            policies,
            digits,
            digits_span,
            entry.get("formats", {}),
            self.locations.find(*path, "formats"),
            entry.get("words", {}),
            self.locations.find(*path, "words"),
        )

    def _read_source(
        self, name: str, entry: Mapping[str, Any]
    ) -> FileEntry | DatabaseEntry | GivenEntry | PostgresEntry | QueryEntry | None:
        path = ("tables", name)
        sources = [key for key in _SOURCES if key in entry and not (key == "sql" and "postgres" in entry)]
        if self.for_given and not {"file", *DATABASE_KINDS}.isdisjoint(sources):
            message = "a manifest that names files is applied to a folder, and the data are not one"
            self._add_problem(message, "name a table of the data: table = ...", *path, sources[0], code="E201")
            return None
        if not sources and self.for_given:
            return GivenEntry(entry.get("table", name))
        if len(sources) > 1:
            message = f"the table '{name}' has several sources: {listing(sources)}"
            self._add_problem(message, f"set one of {listing(_SOURCES)}", *path)
            return None
        if not sources:
            found = self._find_table_files(name)
            if not found and not self._is_selection:
                return GivenEntry(name)  # the table may be in a file that contains several
            if len(found) != 1:
                problem = f", and the files {listing(found)} have its name" if found else ", and no file has its name"
                hint = f"set one of {listing(_SOURCES)}"
                self._add_problem(f"the table '{name}' has no source{problem}", hint, *path)
                return None
            sources, entry = ["file"], {**entry, "file": found[0]}
        (kind,) = sources
        allowed = _COMPANION_KEYS.get(kind, ())
        for key in ("table", "schema", "csv"):
            if key in entry and key not in allowed:
                self._add_problem(f"'{key}' cannot be combined with '{kind}'", "remove it", *path, key)
                return None
        if kind == "sql":
            return QueryEntry(name, entry["sql"], self.locations.find(*path, kind), self.locations.source.name)
        if kind == "postgres":
            if "sql" in entry and ("table" in entry or "schema" in entry):
                self._add_problem(f"the table '{name}' has both 'sql' and a table", "set one of them", *path, "sql")
                return None
            return PostgresEntry(
                entry["postgres"], entry.get("schema", "public"), entry.get("table", name), entry.get("sql")
            )
        is_pattern = kind == "file" and is_pattern_name(self.folder, entry[kind])
        files = (
            self._match_files(entry[kind], *path, kind)
            if is_pattern
            else [self._resolve_file(entry[kind], *path, kind)]
        )
        paths = tuple(file for file in files if file is not None)
        if not paths:
            return None
        if kind in DATABASE_KINDS:
            return DatabaseEntry(kind, paths[0], entry.get("table", name), entry.get("schema", "main"))
        is_csv = re.search(r"\.[ct]sv(\.gz|\.zst)?$", paths[0].name.lower()) is not None
        csv = None
        if "csv" in entry or (is_csv and "missing" in entry):
            csv = self._read_csv_format(paths[0], entry.get("csv", {}), *path, "csv", is_csv=is_csv)
            if csv is None:
                return None
            if isinstance(missing := entry.get("missing", []), list):
                csv = replace(csv, missing=tuple(missing))
        if not is_pattern:
            return FileEntry(paths, entry.get("table"), csv)
        partitions = tuple(_partition_values(file.relative_to(self.folder)) for file in paths)
        return FileEntry(paths, entry.get("table"), csv, self.folder / entry[kind], partitions)

    def _read_csv_format(self, file: Path, entry: Mapping[str, Any], *path: str, is_csv: bool) -> CsvFormat | None:
        """Return the stated format of a CSV file. If the statement is invalid, report this and return None."""
        if not self._check_keys(entry, _CSV_KEYS, path):
            return None
        if not is_csv:
            hint = "remove it; the other formats of files need no description"
            self._add_problem(f"'{file.name}' is not a CSV file", hint, *path)
            return None
        delimiter, encoding, decimal = (entry.get(key) for key in ("delimiter", "encoding", "decimal"))
        thousands, dates, skip, units = (entry.get(key) for key in ("thousands", "dates", "skip", "units"))
        if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\r\n\0'):
            hint = 'write one ASCII character that is not a quote, such as delimiter = ";"'
            self._add_problem(f"{delimiter!r} is not a delimiter", hint, *path, "delimiter")
        elif encoding is not None and not is_text_encoding(encoding):
            hint = 'write the name of an encoding in Python, such as encoding = "cp1252"'
            self._add_problem(f"'{encoding}' is not a text encoding", hint, *path, "encoding")
        elif decimal is not None and decimal not in DECIMAL_SEPARATORS:
            self._add_problem(f"{decimal!r} is not a decimal separator", 'write "." or ","', *path, "decimal")
        elif thousands is not None and thousands not in THOUSANDS_SEPARATORS:
            hint = f"write one of {listing(map(repr, THOUSANDS_SEPARATORS))}"
            self._add_problem(f"{thousands!r} is not a separator of thousands", hint, *path, "thousands")
        elif thousands is not None and thousands == (decimal or "."):
            hint = f'write decimal = "{"," if thousands == "." else "."}"'
            self._add_problem(f"{thousands!r} cannot separate thousands and decimals", hint, *path, "thousands")
        elif dates is not None and not DATE_FORMAT.fullmatch(dates):
            hint = 'write the day as %d, the month as %m, and the year as %Y or %y, such as dates = "%d.%m.%Y"'
            self._add_problem(f"{dates!r} is not a format of dates", hint, *path, "dates")
        elif skip is not None and skip < 0:
            hint = "write the number of lines above the header, such as skip = 2"
            self._add_problem(f"'skip' is {skip}, below 0", hint, *path, "skip")
        elif units is not None and not all(isinstance(unit, str) and unit.strip() == unit != "" for unit in units):
            hint = 'write texts without blanks around them, such as units = ["%", "EUR"]'
            self._add_problem(f"'units' must be a list of units, not {format_value(units)}", hint, *path, "units")
        else:
            units = None if units is None else tuple(units)
            return CsvFormat(delimiter, encoding, decimal, thousands, dates, skip=skip, units=units)
        return None

    def _find_table_files(self, name: str) -> list[str]:
        """Return the files in the folder that are named after a table."""
        files = [path.name for path in sorted(self.folder.iterdir()) if path.is_file() and _SUFFIX.search(path.name)]
        return [file for file in files if fold_name(_SUFFIX.sub("", file)) == fold_name(name)]

    def _match_files(self, pattern: str, *path: str) -> list[Path]:
        """Return the files that match a pattern, sorted. If there are none, or one is outside the folder, report this."""
        if any("**" in part and part != "**" for part in Path(pattern).parts):
            self._add_problem(f"'{pattern}' is not a pattern", "write ** only between slashes, as in **/*.csv", *path)
            return []
        files = sorted(file for file in self.folder.glob(pattern) if file.is_file())
        root = _resolve_links(self.folder)
        outside = [file for file in files if not _resolve_links(file).is_relative_to(root)]
        if outside:
            hint = "use a pattern for files in this folder and the folders below"
            self._add_problem(f"'{outside[0]}' is outside the folder of the manifest", hint, *path, code="E233")
        elif not files:
            hint = "* matches any characters of a name, and ** any folders"
            self._add_problem(f"no file matches '{pattern}'", hint, *path, code="E203")
        return [] if outside else files

    def _resolve_file(self, text: str, *path: str) -> Path | None:
        """Return the path of a file. If it is missing or outside the folder of the tables, report it and return None."""
        if "\0" in text:
            self._add_problem(f"{text!a} is not a file name", None, *path, code="E203")
            return None
        file = self.folder / text
        if Path(text).is_absolute() or not _resolve_links(file).is_relative_to(_resolve_links(self.folder)):
            is_own, folder = self.is_own_folder, f"the folder '{self.folder}'"
            place, owner = ("the folder of the manifest", "its") if is_own else (folder, "this")
            hint = f"a manifest refers to files in {owner} folder and the folders below; copy the file there"
            self._add_problem(f"'{text}' is outside {place}", hint, *path, code="E233")
            return None
        if not os.path.isfile(file):  # unlike `file.is_file()`, returns False for a name that is too long
            siblings = sorted(os.listdir(file.parent)) if os.path.isdir(file.parent) else []
            problem = "is not a regular file" if os.path.exists(file) else "does not exist"
            problem = "is a folder" if os.path.isdir(file) else problem
            self._add_problem(f"the file '{text}' {problem}", suggestion(file.name, siblings), *path, code="E203")
            return None
        return file

    # Split

    def _read_split(self, split: Mapping[str, Any]) -> SplitPlan | None:
        if not self._check_keys(split, _SPLIT_KEYS, ("split",)):
            return None
        kinds = [key for key in ("column", "folds", "hide") if key in split]
        if len(kinds) != 1:
            message = f"{listing(kinds)} cannot be combined" if kinds else "the split has no kind"
            self._add_problem(message, "set one of column, folds, hide", "split")
            return None
        (kind,) = kinds
        unsupported = "seed" if kind == "column" else "holdout" if kind == "hide" else None
        if unsupported is not None and unsupported in split:
            self._add_problem(f"'{unsupported}' cannot be combined with '{kind}'", "remove it", "split", unsupported)
            return None
        for name in ("holdout", *PART_NAMES):
            if not all(isinstance(value, str) for value in split.get(name, [])):
                message = f"'{name}' must be a list of strings, not {format_value(split[name])}"
                self._add_problem(message, f'write {name} = ["test"]', "split", name)
                return None
        parts: dict[str, list[str]] = {name: split[name] for name in PART_NAMES if name in split}
        holdout = split.get("holdout", [])
        if contradiction := part_problem(kind, holdout, parts):
            self._add_problem(*contradiction, "split", next(reversed(parts)))
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
            holdout=tuple(holdout),
        ).with_parts(**parts)


def is_pattern_name(folder: Path, name: str) -> bool:
    """Return True if a name is a pattern for files of a folder, and not the name of a file."""
    is_pattern = any(c in name for c in "*?[") and "\0" not in name and not Path(name).is_absolute()
    return is_pattern and not os.path.isfile(folder / name)


def _partition_values(path: Path) -> dict[str, str | None]:
    """Return the values in the names of folders such as `year=2024`, as Hive and Spark write them."""
    pairs = (part.partition("=") for part in path.parts[:-1] if "=" in part)
    return {unquote(key): None if value == _HIVE_NULL else unquote(value) for key, _, value in pairs}


def _resolve_links(path: Path) -> Path:
    """Return a path with its links resolved; unlike `path.resolve()`, do not raise an error if links form a cycle."""
    return Path(os.path.realpath(path))
