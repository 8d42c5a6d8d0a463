"""Datasets: the raw tables of a source. A *raw table* is readable by DuckDB, and is not yet coded for a model."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from scipy.sparse import csr_array

from relcrf import plugins
from relcrf.columns.storage import Storage
from relcrf.data.file_union import union_files
from relcrf.data.isolation import copy_tables
from relcrf.data.manifest import (
    FILE_NAME,
    DatabaseEntry,
    FileEntry,
    GivenEntry,
    Manifest,
    PostgresEntry,
    QueryEntry,
    TableEntry,
    read_manifest,
)
from relcrf.data.python_tables import add_columns, add_frame, graph_columns, header_note, is_graph
from relcrf.data.raw_table import RawTable, rename_columns
from relcrf.data.readers.base import AbstractReader, SourceTable, StoredFormat, reader_problem
from relcrf.data.readers.cell_formats import convert_formats
from relcrf.data.readers.csv import CsvReader
from relcrf.data.readers.duckdb import read_table
from relcrf.data.readers.leading_zeros import pad_with_zeros
from relcrf.data.readers.missing_texts import count_missing_texts, replace_missing_texts
from relcrf.data.readers.postgres import SCHEMES, list_tables, mask_url, read_query, read_tables, url_problem
from relcrf.data.readers.structures import spread_structures
from relcrf.data.readers.words import add_words
from relcrf.data.row_repairs import RowRepair
from relcrf.data.sandbox import run_queries
from relcrf.data.source_repairs import repair_duplicates
from relcrf.data.split_plan import SplitPlan
from relcrf.data.store import (
    Store,
    database_error,
    is_utf8,
    report_file_errors,
    report_read_errors,
    require_inside_folder,
    same_name_error,
    unreadable_error,
)
from relcrf.data.store import quoted as quoted
from relcrf.errors import DataError, Diagnostic, Source, listing, suggestion
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.model.spec import fold_name
from relcrf.text.html_table import html_table


class Dataset:
    """A set of raw tables, to which models can be bound.

    Args:
        source: A folder of table files; a manifest `dataset.toml` or its folder; one file with tables, such as a SQLite
            or DuckDB database; the URL of a PostgreSQL database; or a mapping from table names to data frames (pandas, Polars,
            Arrow), structured NumPy arrays, mappings of columns (NumPy arrays, lists), paths of table files or NetworkX
            graphs.
        manifest: The path, or the text with its name for messages, of a manifest that is applied to the source, such as
            `tables.toml` of a run folder; its paths are relative to the folder `source`. For other sources, its entries name
            tables of the source. None to use the manifest `dataset.toml` of a folder, if there is one.
        memory: Memory limit for tables and ground graphs, e.g. `500MB`; larger data is moved to temporary files.
        formats: The formats of CSV columns of the training data, see `with_formats`.

    Raises:
        DataError: The source does not exist, has no table, or cannot be read.
        UsageError: `memory` is not a size, or a format needs a package that is not installed.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Mapping[str, Any],
        *,
        manifest: str | os.PathLike[str] | Source | None = None,
        memory: str = DEFAULT_MEMORY,
        formats: tuple[StoredFormat, ...] = (),
    ) -> None:
        self._source, self._stored_formats = source, formats
        text, path = (manifest.text, None) if isinstance(manifest, Source) else (None, manifest)
        self._arguments: tuple[Any, ...] = (_as_absolute(source), path and _as_absolute(path), memory, text)
        """The arguments of `_open_dataset` without the formats; it opens the dataset again in another process."""
        self.store = Store(memory)
        self.connection = self.store.connection
        self.storage = Storage(self.store.new_folder(), self.store.column_bytes)
        """Storage of the columns of ground graphs, in memory or in temporary files."""
        self.split: SplitPlan | None = None
        """The plan in the manifest for holding out labels; None if the manifest contains no plan."""
        self.mapping: str | None = None
        """The section `tables` of the manifest, which a run folder stores; None without a manifest of a folder."""
        self.queried_tables: frozenset[str] = frozenset()
        """The tables that queries of the manifest read, by lower-case name."""
        self.notes: list[str] = []
        """Messages to the user about the formats that the readers of the files assumed, and about the repairs."""
        self.repairs: list[RowRepair] = []
        """The repairs of rows that were made before queries read them."""
        self.computed_values: dict[tuple[str, ...], np.ndarray | csr_array | None] = {}
        """Numbers and pairs that were computed for the entities of bound models; see `grounding/entity_values.py`."""
        self._file_stamps: dict[Path, tuple[int, ...]] = {}
        self.tables: dict[str, RawTable] = {}
        """The tables by folded name; tables of a server are added when a model or `read_all_tables` needs them."""
        self._server_tables: dict[str, list[str]] = {}
        """Tables of the server that were not read yet: the names on the server, by folded name."""
        self._problems: dict[str, Diagnostic] = {}
        """The problems of tables that cannot be read, by folded name; raised if a model or a manifest names the table."""
        self.location = "the given tables" if isinstance(source, Mapping) else str(source)
        self._given: dict[str, RawTable] = {}
        """The tables to which a manifest is applied, by folded name, if the source is not a folder."""
        if manifest is None:
            self._open(source)
        else:
            self._apply_manifest(manifest if isinstance(manifest, Source) else Path(manifest), source)
        self.store.end_guarded_process()
        self.store.restrict_access()

    @classmethod
    def from_mapping(
        cls,
        source: str | os.PathLike[str] | Mapping[str, Any],
        mapping: str | None,
        *,
        memory: str = DEFAULT_MEMORY,
        formats: tuple[StoredFormat, ...] = (),
    ) -> Dataset:
        """Return a dataset whose tables are reshaped by a manifest.

        Args:
            mapping: The text of the manifest, such as `Dataset.mapping` of other data; None for no manifest.
            formats: See `with_formats`.
        """
        if mapping is None:
            return cls(source, memory=memory, formats=formats)
        manifest = Source("the manifest of the training data", mapping)
        return cls(source, manifest=manifest, memory=memory, formats=formats)

    @classmethod
    def from_networkx(
        cls, graph: Any, *, nodes: str = "node", edges: str = "edge", memory: str = DEFAULT_MEMORY
    ) -> Dataset:
        """Return a dataset with the tables of a NetworkX graph.

        Args:
            nodes: Name of the node table. Its columns are `id` and one for each node attribute.
            edges: Name of the edge table. Its columns are `source`, `target` and one for each edge attribute.
        """
        return cls(graph_columns(graph, nodes, edges), memory=memory)

    def __repr__(self) -> str:
        return f"Dataset({self.location}: {listing(self.table_names)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what opened the dataset: the path of files, which are read again, or the data frames."""
        return _open_dataset, (*self._arguments, self._stored_formats)

    def __deepcopy__(self, memo: dict[int, Any]) -> Dataset:
        """Return the dataset itself; it is immutable, so cloned estimators can share it."""
        return self

    def _repr_html_(self) -> str:
        rows = [
            (table.name, ", ".join(f"{c} {t}" for c, t in zip(table.columns, table.types, strict=True)), table.location)
            for table in self.tables.values()
        ]
        return html_table(("table", "columns", "location"), rows)

    # Sources

    @cached_property
    def _readers(self) -> list[AbstractReader]:
        return [
            plugins.load_entry(e, "E406", "reader", reader_problem)()
            for e in plugins.list_entries(entry_points, "relcrf.readers")
        ]

    def _matching_readers(self, path: Path) -> list[tuple[AbstractReader, str]]:
        """Return a pair (reader, suffix) for each reader that handles a suffix of the file's name."""
        return [(reader, s) for reader in self._readers for s in reader.suffixes if path.name.lower().endswith(s)]

    def _configure_csv(self, reader: CsvReader, name: str, entry: TableEntry | None) -> CsvReader:
        """Return a reader of CSV files with the formats of the training data, and with what a manifest states."""
        if entry is None:
            return replace(reader, table=name, stored=self._stored_formats)
        source, texts = entry.source, entry.missing
        csv = source.csv if isinstance(source, FileEntry) else None
        reader = replace(reader, format=csv or reader.format, table=name, stored=self._stored_formats)
        reader = replace(reader, converted=frozenset(entry.formats))
        return (
            replace(reader, missing=texts, missing_location=entry.missing_location)
            if isinstance(texts, Mapping)
            else reader
        )

    def _read_file(self, path: Path, name: str = "", entry: TableEntry | None = None) -> list[SourceTable] | None:
        """Return the tables of a file; None if no reader handles its suffix.

        Args:
            name: The name of the table in models, if it is not the file's name without its suffix.
            entry: The entry of the manifest that names the file.
        """
        readers = self._matching_readers(path)
        if not readers:
            return None
        if not is_utf8(str(path.absolute())):
            raise unreadable_error(str(path), "its name is not UTF-8 text; rename it")
        with report_file_errors(path):
            self._file_stamps[path.absolute()] = _file_stamp(path)
            for reader, suffix in readers:
                if reader.accepts(path):
                    if isinstance(reader, CsvReader):
                        reader = self._configure_csv(reader, name, entry)
                    tables = reader.tables(path, path.name[: -len(suffix)], self.store)
                    spread = [spread_structures(table, self.connection) for table in tables]
                    return [replace(table, format=table.format or suffix[1:]) for table in spread]
        raise unreadable_error(str(path), "the content does not match the suffix of the file name")

    def _open(self, source: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        """Add the tables of a source without a manifest, or with its own."""
        if isinstance(source, Mapping):
            for name, table in source.items():
                self._add_value(name, table)
        elif isinstance(source, str) and source.startswith(SCHEMES):
            self.location = mask_url(source)
            self._url = source
            for name in list_tables(source):
                self._server_tables.setdefault(fold_name(name), []).append(name)
            self._require_tables(f"the database '{self.location}'", "use a database whose schema 'public' has tables")
        else:
            self._add_path(Path(source))

    def _add_path(self, path: Path) -> None:
        if path.is_dir():
            manifest_path = path / FILE_NAME
            if os.path.lexists(manifest_path):
                self._add_manifest(manifest_path, path)
            else:
                self._add_folder(path)
            return
        tables = self._read_file(path) if path.is_file() and path.suffix != ".toml" else None
        if path.is_file() and path.suffix == ".toml":
            self._add_manifest(path, path.parent)
        elif tables is None:
            hint = f"pass a folder of tables, a {FILE_NAME} or a database"
            problem = "is not a table file" if path.exists() else "does not exist"
            raise DataError(Diagnostic("E201", f"the dataset '{path}' {problem}", hint=hint))
        else:
            for table in tables:
                self._add_table(table)
            self._require_tables(f"the file '{path}'", "pass a file with tables")

    def _add_folder(self, folder: Path, skipped: Collection[Path] = ()) -> None:
        for path in sorted(folder.iterdir()):
            if path.is_file() and path not in skipped and self._matching_readers(path):
                require_inside_folder(path, folder)
                for table in self._read_file(path) or ():
                    self._add_table(table)
        suffixes = listing(sorted({s for reader in self._readers for s in reader.suffixes}), limit=40)
        if not skipped:
            self._require_tables(f"the folder '{folder}'", f"table files end in {suffixes}")

    def _require_tables(self, description: str, hint: str) -> None:
        if not self.table_names:
            empty = Diagnostic("E202", f"{description} has no table", hint=hint)
            raise DataError([*self._problems.values()] or empty)

    def _add_value(self, name: str, table: Any) -> None:
        location = f"table '{name}'"
        if isinstance(table, str | os.PathLike):
            path = Path(table)
            if not path.is_file():
                message = f"the table file '{path}' does not exist"
                raise DataError(Diagnostic("E203", message, hint="check the path"))
            tables = self._read_file(path, name)
            if tables is None or len(tables) != 1:
                message = f"'{path}' is not a table file" if tables is None else f"'{path}' has {len(tables)} tables"
                hint = "pass a table file" if tables is None else "pass the path itself: Dataset(path)"
                raise DataError(Diagnostic("E203", message, hint=hint))
            self._add_table(replace(tables[0], name=name))
        elif isinstance(table, Mapping):
            self._add_table(SourceTable(name, location, add_columns(name, table, self.store)))
        elif is_graph(table):
            for table_name, columns in graph_columns(table, f"{name}_nodes", f"{name}_edges").items():
                self._add_value(table_name, columns)
        else:
            frame = SourceTable(name, location, add_frame(name, table, self.store), note=header_note(table))
            self._add_table(spread_structures(frame, self.connection))

    # Manifests

    def _apply_manifest(self, manifest: Path | Source, source: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        """Add the tables that a manifest selects from a source."""
        if not isinstance(source, Mapping) and Path(source).is_dir():
            self._add_manifest(manifest, Path(source))
            return
        content = read_manifest(manifest, for_given=True)
        self._open(source)
        self.read_tables(entry.source.table for entry in content.tables if isinstance(entry.source, GivenEntry))
        if content.tables:
            self._given, self.tables = self.tables, {}
        if content.tables and content.is_selection:
            self._server_tables.clear()
            self._problems.clear()
        self._add_entries(content, None)
        self._add_unnamed(content)

    def _add_manifest(self, manifest: Path | Source, folder: Path) -> None:
        content = read_manifest(manifest, folder)
        if content.tables and not content.is_selection:
            self._add_folder(
                folder, [p for e in content.tables if isinstance(e.source, FileEntry) for p in e.source.paths]
            )
            self._given, self.tables = self.tables, {}
        self._add_entries(content, folder)
        self._add_unnamed(content)

    def _add_unnamed(self, content: Manifest) -> None:
        """Add the tables of the data that a manifest without sources does not name."""
        if content.tables and not content.is_selection:
            named = {fold_name(e.source.table) for e in content.tables if isinstance(e.source, GivenEntry)}
            for name, table in self._given.items():
                if name not in named and name in self.tables:
                    raise same_name_error(table.name, self.tables[name].location, table.location)
                if name not in named:
                    self.tables[name] = table

    def _add_entries(self, content: Manifest, folder: Path | None) -> None:
        """Add the tables of a manifest, or all table files of the folder if it lists none."""
        self.split, self.mapping = content.split, content.mapping
        if not content.tables:
            if folder is not None:
                self._add_folder(folder)
            return
        problems: list[Diagnostic] = []
        source_tables: dict[str, SourceTable] = {}
        for entry in content.tables:
            try:
                if not isinstance(entry.source, QueryEntry):
                    source_tables[entry.name], repairs = repair_duplicates(self._read_entry(entry), entry, self.store)
                    self.repairs += repairs
            except DataError as error:
                # Report errors of database servers (E235) at the manifest entry; errors in files are located there.
                problems += [
                    replace(d, location=entry.source_location) if d.code == "E235" else d for d in error.diagnostics
                ]
        if problems:
            raise DataError(problems)
        self.notes += map(str, self.repairs)
        queries = [entry.source for entry in content.tables if isinstance(entry.source, QueryEntry)]
        if queries:
            results, self.queried_tables = run_queries(queries, list(source_tables.values()), self.store)
            source_tables |= {result.name: result for result in results}
        for entry in content.tables:
            table = source_tables[entry.name]
            self._add_table(self._convert_cells(table, entry) if isinstance(entry.source, QueryEntry) else table, entry)

    def _read_entry(self, entry: TableEntry) -> SourceTable:
        """Return the table of a manifest entry that is not a query."""
        match entry.source:
            case PostgresEntry(url, schema, server_table, sql):
                problem = url_problem(url)
                if problem is not None:
                    hint = "write postgresql://user@host/database; put a password into ~/.pgpass"
                    raise DataError(Diagnostic("E232", problem, entry.source_location, hint))
                if sql is not None:
                    return read_query(url, self.store, entry.name, sql)
                matches, problems = read_tables(url, self.store, [server_table], schema=schema)
                if problems:
                    raise DataError(problems)
            case GivenEntry(given_name):
                found = self._given.get(fold_name(given_name))
                if found is None:
                    names = [given.name for given in self._given.values()]
                    message = f"table '{given_name}' is missing in {self.location}"
                    guess = suggestion(given_name, names) or f"its tables are {listing(names)}"
                    raise DataError(Diagnostic("E232", message, entry.source_location, guess))
                given = SourceTable(given_name, found.location, found.scan, found.numbered_scan, found.format)
                given = replace(given, files=found.files, is_ordered=found.is_ordered, csv_formats=found.csv_formats)
                matches = [replace(given, missing_texts=found.missing_texts, parquet_files=found.parquet_files)]
            case DatabaseEntry("sqlite", path, database_table):
                matches = copy_tables("sqlite", path, path.stem, self.store, table=database_table)
            case DatabaseEntry(_, path, database_table, schema):
                matches = [read_table(path, self.store, database_table, schema)]
            case FileEntry(paths, pattern=pattern):
                matches = [self._read_entry_file(path, entry, entry.source) for path in paths]
                if pattern is not None:
                    partitions = entry.source.partitions
                    matches = [union_files(entry.name, pattern, partitions, matches, self.connection)]
            case _:
                raise AssertionError(f"{entry.source} is a query")
        return self._convert_cells(replace(matches[0], name=entry.name), entry)

    def _convert_cells(self, table: SourceTable, entry: TableEntry) -> SourceTable:
        """Return a table of a manifest with separate fields of structures, and the conversions of cells that its entry states."""
        table = spread_structures(table, self.connection)
        if not (isinstance(entry.source, FileEntry) and entry.source.csv):  # their reader has replaced the texts
            table = replace_missing_texts(table, entry.missing, self.connection, entry.missing_location)
        table = convert_formats(table, entry.formats, entry.formats_location, self.connection)
        table = pad_with_zeros(table, entry.digits, entry.digits_location, self.connection)
        return add_words(table, entry.words, entry.words_location, self.connection)

    def _read_entry_file(self, path: Path, entry: TableEntry, source: FileEntry) -> SourceTable:
        """Return the table of one file of a manifest entry."""
        tables, name = self._read_file(path, entry.name, entry), source.table
        if tables is None:
            hint = "write the name of a table file, such as 'page.csv'"
            raise DataError(Diagnostic("E203", f"'{path.name}' is not a table file", entry.source_location, hint))
        matches = [t for t in tables if name in (t.name, t.inner_name)] if name is not None else tables
        if len(matches) != 1:
            message = f"'{path.name}' has no table '{name}'" if name else f"'{path.name}' has {len(matches)} tables"
            hint = f"""select one with table = "..."; it has {listing(t.inner_name or t.name for t in tables)}"""
            raise DataError(Diagnostic("E232", message, entry.source_location, hint))
        if matches[0].problem is not None:
            raise DataError(matches[0].problem)
        return matches[0]

    def _add_table(self, source_table: SourceTable, entry: TableEntry | None = None) -> None:
        """Add a table, and rename its columns as the manifest entry specifies."""
        if source_table.problem is not None:
            self._problems[fold_name(source_table.name)] = source_table.problem
            return
        try:
            description_rows = self.connection.execute(f"DESCRIBE SELECT * FROM {source_table.scan}").fetchall()
        except duckdb.Error as error:
            raise database_error(source_table.location, error) from None
        if fold_name(source_table.name) in self.tables:
            raise same_name_error(
                source_table.name, self.tables[fold_name(source_table.name)].location, source_table.location
            )
        columns, types = (tuple(row[k] for row in description_rows) for k in (0, 1))
        location = source_table.location
        if any(other.location == location for other in self.tables.values()):
            location = f"{location}, table '{source_table.name}'"  # two entries of a manifest may read one file
        table = RawTable(
            source_table.name,
            location,
            source_table.scan,
            columns,
            types,
            entry is not None and entry.is_open,
            source_table.numbered_scan,
            files=source_table.files,
            format=source_table.format,
            inner_name=source_table.inner_name,
            is_ordered=source_table.is_ordered,
            missing_texts=source_table.missing_texts,
            parquet_files=source_table.parquet_files,
            csv_formats=source_table.csv_formats,
        )
        note = f"{source_table.location}: {source_table.note}"
        if source_table.note and note not in self.notes:
            self.notes.append(note)
        if entry is not None:
            csv = entry.source.csv if isinstance(entry.source, FileEntry) else None
            stated = [csv and asdict(csv), entry.missing, *filter(None, (entry.digits, entry.formats, entry.words))]
            reading = json.dumps(stated) if any(stated) else ""
            table = replace(table, policies=entry.policies, reading=reading)
        self.tables[fold_name(source_table.name)] = (
            rename_columns(table, entry) if entry is not None and entry.columns else table
        )

    # Use

    @cached_property
    def missing_text_repairs(self) -> list[RowRepair]:
        """The numbers of cells that were read as missing because the manifest declares their texts, by table."""
        repairs = []
        for table in self.tables.values():
            with report_read_errors(table.location):
                repairs.append(count_missing_texts(table.name, table.location, table.missing_texts, self.connection))
        return [repair for repair in repairs if repair is not None]

    def new_schema(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        """Create a schema; return (cursor, schema name). The cursor uses the schema and can read all raw tables."""
        schema = self.store.new_name("model")
        cursor = self.store.cursor()
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"SET schema = '{schema}'")
        return cursor, schema

    def with_scans(self, scans: Mapping[str, str]) -> Dataset:
        """Return a dataset in the same store in which some tables have other rows; repairs of rows are counted again.

        Args:
            scans: DuckDB table expression of the rows of each table, by the table's name.
        """
        other: Dataset = object.__new__(Dataset)
        other.__dict__ = {name: value for name, value in self.__dict__.items() if name != "missing_text_repairs"}
        other.notes, other.repairs, other.computed_values = [], [], {}
        other.tables = {
            key: replace(table, scan=scans[table.name], numbered_scan=None, parquet_files=())
            if table.name in scans
            else table
            for key, table in self.tables.items()
        }
        return other

    @property
    def formats(self) -> tuple[StoredFormat, ...]:
        """The formats with which the columns of CSV files were read."""
        return tuple(dict.fromkeys(each for table in self.tables.values() for each in table.csv_formats))

    def with_formats(self, formats: tuple[StoredFormat, ...]) -> Dataset:
        """Return the dataset or, if CSV files do not show the formats of the training data, open it again with these formats.

        They apply to columns without a visible format if all cells fit. Notes report these columns and other formats.
        """
        columns = {fold_name(t.source_columns.get(c, c)) for t in self.tables.values() if t.is_csv for c in t.columns}
        _, manifest, memory, mapping = self._arguments
        hidden = any(fold_name(each.column) in columns for each in {*formats} - {*self.formats})
        if hidden and formats != self._stored_formats:
            return _open_dataset(self._source, manifest, memory, mapping, formats)
        return self

    @property
    def table_names(self) -> list[str]:
        """The names of all tables, including those that were not read yet."""
        return [*(table.name for table in self.tables.values()), *chain(*self._server_tables.values())]

    def read_tables(self, names: Iterable[str]) -> None:
        """Read the tables of the server with these names in one snapshot, unless they were read before.

        Raises:
            DataError: A table cannot be read (E235 on a server, E204 in a file).
        """
        folded = [*map(fold_name, names)]
        problems = [self._problems[name] for name in folded if name in self._problems]
        if problems := problems + self._read_server_tables([n for n in folded if n in self._server_tables]):
            raise DataError(problems)

    def read_all_tables(self) -> None:
        """Read all tables of the server; a note reports each table of a server or a file that cannot be read."""
        for problem in (*self._problems.values(), *self._read_server_tables([*self._server_tables])):
            self.notes.append(f"{problem.message}, and is left out" + (f": {problem.hint}" if problem.hint else ""))
        self._server_tables.clear()

    def _read_server_tables(self, names: Iterable[str]) -> list[Diagnostic]:
        """Read tables of the server by folded name; return the problems of those that cannot be read."""
        pending = [table for name in names for table in self._server_tables[name]]
        if not pending:
            return []
        tables, problems = read_tables(self._url, self.store, pending)
        for table in tables:
            self._add_table(table)
            self._server_tables.pop(fold_name(table.name), None)
        return problems

    def find_table(self, *names: str) -> RawTable | None:
        """Return the first existing table among `names`, ignoring case and underscores; None if there is none.

        Raises:
            DataError: The table cannot be read (E235 on a server, E204 in a file).
        """
        self.read_tables(names)
        return next((self.tables[fold_name(n)] for n in names if fold_name(n) in self.tables), None)

    def changed_files(self) -> list[str]:
        """Return the files that changed after the dataset was opened; the old or the new content may have been read."""
        return [
            str(path) for path, stamp in self._file_stamps.items() if not path.exists() or _file_stamp(path) != stamp
        ]


def _open_dataset(
    source: Any, manifest: str | None, memory: str, mapping: str | None, formats: tuple[StoredFormat, ...]
) -> Dataset:
    """Return a dataset; see `Dataset` and, for `mapping`, `Dataset.from_mapping`."""
    if mapping is not None:
        return Dataset.from_mapping(source, mapping, memory=memory, formats=formats)
    return Dataset(source, manifest=manifest, memory=memory, formats=formats)


def _as_absolute(source: str | os.PathLike[str] | Mapping[str, Any]) -> str | Mapping[str, Any]:
    """Return the absolute path of a source; a mapping or URL unchanged."""
    if isinstance(source, Mapping) or (isinstance(source, str) and source.startswith(SCHEMES)):
        return source
    return os.path.abspath(source)


def _file_stamp(path: Path) -> tuple[int, ...]:
    """Return the device, inode, size and modification time of a file; new content changes at least one of them."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
