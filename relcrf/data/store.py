"""The DuckDB database behind a dataset: its memory, its temporary folder, and what is put into it."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import Parameter, Signature
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
from duckdb.func import FunctionNullHandling
from duckdb.sqltypes import DuckDBPyType

from relcrf.data.names import plugin_function_name
from relcrf.errors import DataError, DataLocation, Diagnostic, UsageError
from relcrf.model.functions import ExternalFunction

DEFAULT_MEMORY = "1GB"

DUCKDB_FRACTION = 0.5
COLUMN_FRACTION = 0.03
"""What of the memory DuckDB's buffers and the ground columns may take; the rest is for work on them. More goes to files."""

_TYPES = {
    "number": "DOUBLE",
    "vector": "DOUBLE[]",
    "text": "VARCHAR",
    "real": "DOUBLE",
    "integer": "BIGINT",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
}
"""DuckDB's types of the arguments and results of functions."""

_MAX_BYTES = 2.0**63
"""More no system can count."""

_GLOB_CHARACTERS = re.compile(r"[*?\[\]{}\\\0-\x1f]")
"""What DuckDB takes for a pattern in the name of a file, and more that it might."""

BATCH_ROWS = 50_000
"""Rows that a reader holds in Python at a time."""


def quoted(name: str) -> str:
    """A SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def is_utf8(name: str) -> bool:
    """Return True if a name is text: of bytes that are not UTF-8 Python makes halves of characters, and DuckDB nothing."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def first_line(error: Exception) -> str:
    """What an error says, without its details."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def out_of_memory_error(error: duckdb.OutOfMemoryException) -> UsageError:
    """E315, of what DuckDB could not move to files."""
    hint = "give DuckDB more with --memory, or narrow the template that was being grounded"
    message = "the memory limit is too low for these tables"
    return UsageError(Diagnostic("E315", message, hint=hint, notes=(first_line(error),)))


def unreadable_error(location: str, hint: str | None = None, notes: tuple[str, ...] = ()) -> DataError:
    """Return the error of a file or table that cannot be read (E204).

    Args:
        location: of the table, as messages call it.
    """
    return DataError(Diagnostic("E204", f"{location} cannot be read", DataLocation(location), hint, notes))


_NOT_FILE_ERRORS = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.InterruptException,
    duckdb.ParserException,
    duckdb.SyntaxException,
    NotImplementedError,
    RecursionError,
)
"""What DuckDB raises that no damaged file is the reason of."""


@contextmanager
def report_read_errors(location: str) -> Iterator[None]:
    """What DuckDB says while it reads a damaged file is a mistake of the table.

    Args:
        location: of the table, as messages call it.

    Raises:
        DataError: E204. UsageError: where memory is too little (E315).
    """
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise out_of_memory_error(error) from None
    except (
        duckdb.Error,
        RuntimeError,
    ) as error:  # a stream that breaks off raises RuntimeError, as one that Ctrl-C meets
        if isinstance(error, _NOT_FILE_ERRORS) or "Query interrupted" in str(error):
            raise
        notes = tuple(line for line in str(error).splitlines() if line.strip())[:3]
        raise unreadable_error(location, notes=notes) from None


DISK_FULL = "No space left on device"
"""What the system says of a full disk, and DuckDB after it."""


def io_error_reason(error: duckdb.Error) -> str:
    """Why the system has refused to read or to write."""
    text = str(error)
    return next((why for why in (DISK_FULL, "Permission denied") if why in text), first_line(error))


class Store:
    """An embedded database of its own, gone with the object.

    Args:
        memory_limit: what the database and the ground columns may take, such as `500MB`.

    Raises:
        UsageError: where `memory_limit` is no size.
    """

    def __init__(self, memory: str = DEFAULT_MEMORY) -> None:
        size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B", memory.strip().upper())
        unit = 1024 if size is not None and size[3] else 1000
        n_bytes = float(size[1]) * unit ** " KMGT".index(size[2] or " ") if size is not None else math.inf
        if n_bytes > _MAX_BYTES:
            hint = "write a size such as 500MB or 2GB"
            raise UsageError(Diagnostic("E311", f"'{memory}' is no amount of memory", hint=hint))
        self.memory_limit = f"{int(n_bytes * DUCKDB_FRACTION)}B"
        """Limit of DuckDB's buffers."""
        self.n_bytes = int(n_bytes)
        self.column_bytes = int(n_bytes * COLUMN_FRACTION)
        self._root = Path(tempfile.mkdtemp(prefix="relcrf-")).resolve()
        weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        self._numbers = count(1)
        try:
            self.connection = self.new_database(self.new_folder() / "tables.duckdb")
        except duckdb.Error as error:
            message = f"'{memory}' of memory cannot be given to DuckDB"
            raise UsageError(
                Diagnostic("E311", message, hint="write a size such as 500MB", notes=(first_line(error),))
            ) from None
        self._frames: dict[str, Any] = {}
        self._files: list[str] = []
        self._functions: dict[str, Callable[..., Any]] = {}
        self._plugin_errors: list[UsageError] = []
        weakref.finalize(self, _remove_functions, self.connection, self._functions)
        # In a notebook without ipywidgets it is off, and DuckDB refuses to hear of it at all.
        if self.connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
            self.connection.execute("SET enable_progress_bar = false")
        # The file goes with the object, so none of it is written for a time after: two thirds of a small binding's time.
        self.connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        with suppress(duckdb.CatalogException):  # DuckDB 1.5 has no such setting
            self.connection.execute("SET GLOBAL fsync_mode = 'NONE'")

    def new_name(self, kind: str) -> str:
        """A name that nothing else in the store has."""
        return f"{kind}{next(self._numbers)}"

    def new_folder(self) -> Path:
        """A new, empty folder, removed with the store."""
        folder = self._root / self.new_name("folder")
        folder.mkdir()
        return folder

    def new_database(self, path: Path) -> duckdb.DuckDBPyConnection:
        """Open a database with the store's memory and an empty temporary folder; it loads no extension."""
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": self.memory_limit,
            "temp_directory": str(self.new_folder()),  # DuckDB may always read this folder: it holds nothing else
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        return duckdb.connect(str(path), config=config)

    def file_literal(self, path: Path) -> str:
        """A SQL literal that DuckDB takes for the name of this file, and of no other: it would open `http://...` on the network,
        `~` in the home, and for `a*.csv` all files that fit.
        """
        name = os.path.abspath(path)
        if _GLOB_CHARACTERS.search(name):
            link = self.new_folder() / f"file{re.sub('[^a-z.]', '', path.name.lower())[-12:]}"
            real = os.path.realpath(path)
            try:
                os.link(real, link)
            except OSError:  # of another disk, or of somebody else
                shutil.copyfile(real, link)
            return literal(str(link))
        self._files += [name, os.path.realpath(path)]  # DuckDB asks for that which a link names, too
        return literal(name)

    def restrict_access(self) -> None:
        """From here on the database reads the files that `file` has named, and those of its own folders; it reaches no other
        file, no network and no extension, whatever it is asked. Nothing opens it again.
        """
        self.connection.execute(f"SET allowed_paths = [{', '.join(map(literal, self._files))}]")
        self.connection.execute(f"SET allowed_directories = [{literal(f'{self._root}/')}]")
        self.connection.execute("SET enable_external_access = false")

    def is_alive(self) -> bool:
        """Whether the database still answers: a mistake inside DuckDB, as a damaged file may bring about, ends it."""
        try:
            self.connection.execute("SELECT 1")
        except duckdb.FatalException:
            return False
        return True

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own that sees all that is in the store."""
        cursor = self.connection.cursor()
        for view, frame in self._frames.items():
            cursor.register(view, frame)
        return cursor

    def add_function(self, function: ExternalFunction) -> None:
        """Makes a function of another package one of the database, under its name in SQL."""
        name = plugin_function_name(function.name)
        if name in self._functions:
            return

        def called(*values: Any) -> Any:
            try:
                return function(*values)
            except UsageError as failure:
                self._plugin_errors.append(failure)
                raise

        places = [Parameter(f"a{k}", Parameter.POSITIONAL_ONLY) for k, _ in enumerate(function.parameters)]
        vars(called)["__signature__"] = Signature(places)  # DuckDB wants as many as there are types
        types: list[Any] = [DuckDBPyType(_TYPES[kind]) for kind in function.parameters]
        result = DuckDBPyType(_TYPES[function.result])
        self.connection.create_function(name, called, types, result, null_handling=FunctionNullHandling.SPECIAL)
        self._functions[name] = called  # DuckDB itself does not hold it for as long as its own cursors may call it

    @contextmanager
    def reraise_plugin_errors(self) -> Iterator[None]:
        """What a function of another package raised in a query is raised as it was, and not as DuckDB says it.

        Raises:
            UsageError: where memory is too little (E315).
        """
        try:
            yield
        except Exception as error:
            if self._plugin_errors:
                failure = self._plugin_errors[0]
                self._plugin_errors.clear()
                raise failure from failure.__cause__
            if isinstance(error, duckdb.OutOfMemoryException):
                raise out_of_memory_error(error) from None
            raise

    def add_frame(self, frame: Any) -> str:
        """A table expression for a data frame, which is scanned where it is.

        Raises:
            duckdb.Error, TypeError: where it is none.
        """
        view = self.new_name("frame")
        self.connection.register(view, frame)
        self._frames[view] = frame
        return view

    def copy_frame(self, frame: Any) -> str:
        """As `add_frame`, of what can be read once: its rows are kept."""
        view = self.new_name("frame")
        self.connection.register(view, frame)
        try:
            return self.add_query(f"SELECT * FROM {view}")
        finally:
            self.connection.unregister(view)

    def add_query(self, query: str, values: Sequence[Any] = ()) -> str:
        """A table expression for the rows of a query, which are kept."""
        name = self.new_name("rows")
        self.connection.execute(f"CREATE TABLE main.{name} AS {query}", list(values))
        return f"main.{name}"

    def add_rows(self, columns: Mapping[str, str], batches: Iterable[Sequence[list[Any]]]) -> str:
        """A table expression for rows that come in batches, which are kept.

        Args:
            columns: DuckDB's type of each column by its name.
            batches: of rows; each has a list of values for every column.
        """
        name = self.new_name("rows")
        declared = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
        self.connection.execute(f"CREATE TABLE main.{name} ({declared})")
        for batch in batches:
            self.append(f"main.{name}", tuple(columns.values()), batch)
        return f"main.{name}"

    def append(self, table: str, types: Sequence[str], columns: Sequence[list[Any]]) -> None:
        """Adds rows to a table that `add_rows` made: a list of values for every column."""
        values = ", ".join(f"unnest(?::{kind}[])" for kind in types)
        self.connection.execute(f"INSERT INTO {table} SELECT {values}", list(columns))


def _remove_functions(connection: duckdb.DuckDBPyConnection, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Functions that a connection still has at the end of Python are leaks to it, which it prints."""
    for name in functions:
        connection.remove_function(name)
