"""The DuckDB database of a dataset, with its memory limit, temporary folder, tables and functions."""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import Parameter, Signature
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import duckdb
from duckdb.func import FunctionNullHandling
from duckdb.sqltypes import DuckDBPyType

from relcrf.errors import DataError, DataLocation, Diagnostic, UsageError
from relcrf.execution.guarded import GuardedProcess
from relcrf.execution.interruption import register_connection
from relcrf.execution.memory import AUTOMATIC_MEMORY, DEFAULT_MEMORY, return_freed_memory
from relcrf.execution.temporary import new_temporary_folder

DUCKDB_FRACTION = 0.5
COLUMN_FRACTION = 0.03
"""Fractions of the memory limit for DuckDB's buffers and for the columns of ground graphs. Data beyond these limits is
moved to files; the rest of the memory is left for computations."""

WORKING_FRACTION = 0.9
"""Fraction of the memory limit for learning and inference, which begin with `Store.release_buffers`."""

_RELEASED_LIMIT = "16MB"
"""DuckDB's memory limit for a moment, so that it writes its buffers to files."""

GUARDED_OVERHEAD = 512 * 1024**2
GUARDED_THREAD_OVERHEAD = 16 * 1024**2
"""Memory of a guarded process beyond the memory limit, and for each processor: code, libraries, and stacks of threads."""

_TYPES = {
    "number": "DOUBLE",
    "vector": "DOUBLE[]",
    "text": "VARCHAR",
    "index": "INTEGER",
    "real": "DOUBLE",
    "integer": "BIGINT",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
}
"""DuckDB's types for the arguments and results of plugin functions."""

_MAX_BYTES = 2.0**63
"""Upper bound of a memory size; no system can address more."""

_GLOB_CHARACTERS = re.compile(r"[*?\[\]{}\\\0-\x1f]")
"""Characters that DuckDB interprets, or might interpret, as parts of a pattern in a file name."""

BATCH_ROWS = 50_000
"""Maximum number of rows that a reader stores in Python objects at a time; it bounds the memory of a reader."""


def quoted(name: str) -> str:
    """Quote a SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def trimmed_sql(text: str) -> str:
    """Return a SQL expression of a text without surrounding blanks, NULL if it is empty."""
    # Trimming is slow; hardly any cell begins or ends with a blank or a control character, which precede '!'.
    is_padded = f"{text} < '!' OR {text}[-1] <= ' '"
    return f"(CASE WHEN {is_padded} THEN nullif(trim({text}, E' \\t\\r\\n'), '') ELSE {text} END)"


def is_utf8(name: str) -> bool:
    """Return True if a name is valid UTF-8; Python represents other bytes as surrogates, which DuckDB rejects."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def first_line(error: Exception | str) -> str:
    """Return the first line of an error or its message; the error's type if it has no message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def out_of_memory_error(error: Exception | str) -> UsageError:
    """Return the error for data that DuckDB could not move to files (E315).

    Args:
        error: The error, or its message.
    """
    hint = "raise --memory, or add conditions to the 'where' of the template that was being grounded"
    message = "the memory limit is too low for these tables"
    return UsageError(Diagnostic("E315", message, hint=hint, notes=(first_line(error),)))


def require_inside_folder(path: Path, folder: Path) -> None:
    """Raise an error for a symbolic link that leads out of its folder, because the folder may be untrusted.

    Raises:
        DataError: The link leads out of the folder (E233).
    """
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        message = f"'{path.name}' is a link that leads out of its folder"
        raise DataError(
            Diagnostic("E233", message, DataLocation(str(path)), "copy the file into the folder, or remove the link")
        )


def unreadable_error(location: str, hint: str | None = None, notes: tuple[str, ...] = ()) -> DataError:
    """Return the error for a file or table that cannot be read (E204).

    Args:
        location: The table's location, as shown in messages.
    """
    return DataError(Diagnostic("E204", f"{location} cannot be read", DataLocation(location), hint, notes))


def file_access_error(error: Exception | str) -> UsageError:
    """Return the error for a file, mostly a temporary one, that cannot be read or written (E314).

    Args:
        error: The error, or its message.
    """
    reason = io_error_reason(error)
    message = f"a file cannot be read or written: {reason[:1].lower()}{reason[1:]}"
    hint = "free disk space, or set TMPDIR to a folder on a larger disk; it holds copies of data, and data that exceed --memory"
    return UsageError(Diagnostic("E314", message, hint=hint, notes=(first_line(error),)))


def limit_error(error: Exception) -> UsageError | None:
    """Return the error for an exception of DuckDB that a limit of the machine causes; None for other exceptions.

    It is E315 if the memory limit is too low, and E314 if a temporary file cannot be read or written.
    """
    if isinstance(error, duckdb.OutOfMemoryException):
        return out_of_memory_error(error)
    if isinstance(error, duckdb.IOException) or (isinstance(error, duckdb.Error) and DISK_FULL in str(error)):
        return file_access_error(error)
    return None


def database_error(location: str, error: duckdb.Error, hint: str | None = None) -> DataError | UsageError:
    """Return the error for a table that DuckDB cannot read.

    It is E315 if the memory limit is too low, E314 if the disk of the temporary files is full, and else E204 with `hint`.
    """
    if isinstance(error, duckdb.OutOfMemoryException):
        return out_of_memory_error(error)
    if DISK_FULL in str(error):
        return file_access_error(error)
    return unreadable_error(location, hint, (first_line(error),))


def same_name_error(name: str, one: str, other: str) -> DataError:
    """Return the error for two tables with the same name, at two locations (E205)."""
    message = f"two tables have the name '{name}': {one} and {other}"
    return DataError(
        Diagnostic("E205", message, hint="names are compared without case and underscores; rename a table")
    )


_OUT_OF_MEMORY = "Out of Memory Error"
"""Beginning of DuckDB's message if the system denies memory, which a reader of files may raise as another exception."""

DISK_FULL = "No space left on device"
"""The operating system's message for a full disk, which is part of DuckDB's message."""

MAX_NOTE = 200
"""Maximum number of characters of a line of DuckDB's message in a note; the message may contain a row of the file."""

_NOT_FILE_ERRORS = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.InterruptException,
    duckdb.ParserException,
    duckdb.SyntaxException,
    NotImplementedError,
    RecursionError,
)
"""Errors of DuckDB that are not caused by damaged files."""


@contextmanager
def report_file_errors(path: Path) -> Iterator[None]:
    """Convert an error of DuckDB or of the operating system to an error with the file.

    Raises:
        DataError: The file cannot be read (E204).
        UsageError: The memory limit is too low (E315), or the disk of the temporary files is full (E314).
    """
    try:
        yield
    except duckdb.Error as error:
        raise database_error(str(path), error) from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise file_access_error(error) from None
        raise unreadable_error(str(path), notes=(error.strerror or str(error),)) from None


@contextmanager
def report_read_errors(location: str) -> Iterator[None]:
    """Convert a DuckDB error that a damaged file causes to an error with the location of the table.

    Args:
        location: The table's location, as shown in messages.

    Raises:
        DataError: The file is damaged (E204).
        UsageError: The memory limit is too low (E315), or the disk of the temporary files is full (E314).
    """
    try:
        yield
    except (duckdb.Error, RuntimeError) as error:  # both a truncated stream and Ctrl-C raise RuntimeError
        if isinstance(error, duckdb.OutOfMemoryException) or _OUT_OF_MEMORY in str(error):
            raise out_of_memory_error(error) from None
        if DISK_FULL in str(error):
            raise file_access_error(error) from None
        if isinstance(error, _NOT_FILE_ERRORS) or "Query interrupted" in str(error):
            raise
        notes = tuple(line[:MAX_NOTE] for line in str(error).splitlines() if line.strip())[:3]
        raise unreadable_error(location, notes=notes) from None


def io_error_reason(error: Exception | str) -> str:
    """Return the reason why the operating system failed to read or to write."""
    text = str(error)
    return next((why for why in (DISK_FULL, "Permission denied") if why in text), first_line(error))


def parse_size(text: str) -> int:
    """Return a memory size such as `500MB` or `2GiB` in bytes.

    Raises:
        UsageError: The text is not a size (E311).
    """
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B", text.strip().upper())
    unit = 1024 if size is not None and size[3] else 1000
    n_bytes = float(size[1]) * unit ** " KMGT".index(size[2] or " ") if size is not None else math.inf
    if n_bytes > _MAX_BYTES:
        raise UsageError(Diagnostic("E311", f"'{text}' is not a memory size", hint="write a size such as 500MB or 2GB"))
    return int(n_bytes)


class SqlFunction(Protocol):
    """A Python function that SQL calls, with the types of its arguments and of its result: keys of `_TYPES`."""

    @property
    def parameters(self) -> Sequence[str]:
        """The types of the arguments."""

    @property
    def result(self) -> str:
        """The type of the result."""

    def __call__(self, *values: Any) -> Any:
        """Return the value of the function."""


class TableStore:
    """A DuckDB database in a file, in which readers store tables.

    Args:
        folder: The folder of temporary files.
        memory_limit: Limit of DuckDB's buffers, as a value of its setting `memory_limit`.
        file: The file of the database.
        schema: Name of the schema in table expressions: `main`, or with the database's name for use in another database.

    Raises:
        duckdb.Error: DuckDB rejects the memory limit, or the file.
    """

    def __init__(self, folder: Path, memory_limit: str, file: Path, schema: str) -> None:
        self._root = folder
        self.memory_limit = memory_limit
        self._schema = schema
        self._numbers = count(1)
        self._frames: dict[str, Any] = {}
        self.connection = self.new_database(file)
        # In a notebook without ipywidgets the progress bar is off, and DuckDB rejects any change of the setting.
        if self.connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
            self.connection.execute("SET enable_progress_bar = false")
        self.connection.execute("SET GLOBAL fsync_mode = 'NONE'")

    def new_name(self, kind: str) -> str:
        """Return a name that starts with `kind` and is unique in the store."""
        return f"{kind}{next(self._numbers)}"

    def new_folder(self) -> Path:
        """Create an empty folder, which is removed with the store."""
        folder = self._root / self.new_name("folder")
        folder.mkdir()
        return folder

    def new_database(self, path: Path) -> duckdb.DuckDBPyConnection:
        """Open a database with the store's memory limit, an empty temporary folder, and no extensions."""
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": self.memory_limit,
            "temp_directory": str(self.new_folder()),  # must contain nothing else: DuckDB can always read it
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        connection = register_connection(duckdb.connect(str(path), config=config))
        connection.execute("SET GLOBAL TimeZone = 'UTC'")  # by default, texts of times depend on the variable TZ
        # The tables are read a few times only, and compressing texts takes twice the time of reading them from a CSV file.
        connection.execute("SET GLOBAL force_compression = 'uncompressed'")
        return connection

    def add_frame(self, frame: Any) -> str:
        """Return a table expression for a data frame, which DuckDB scans without a copy.

        Raises:
            duckdb.Error, TypeError: `frame` is not a data frame.
        """
        view = self.new_name("frame")
        self.connection.register(view, frame)
        self._frames[view] = frame
        return view

    def copy_frame(self, frame: Any) -> str:
        """Copy the rows of a frame that can be read only once, and return a table expression for them."""
        view = self.new_name("frame")
        self.connection.register(view, frame)
        try:
            return self.add_query(f"SELECT * FROM {view}")
        finally:
            self.connection.unregister(view)

    def add_query(self, query: str, values: Sequence[Any] = ()) -> str:
        """Store the rows of a query, and return a table expression for them."""
        table = f"{self._schema}.{self.new_name('rows')}"
        self.connection.execute(f"CREATE TABLE {table} AS {query}", list(values))
        return table

    def add_rows(self, columns: Mapping[str, str], batches: Iterable[Sequence[list[Any]]]) -> str:
        """Store rows that arrive in batches, and return a table expression for them.

        Args:
            columns: DuckDB's type of each column, by column name.
            batches: Batches of rows; each has a list of values for every column.
        """
        table = f"{self._schema}.{self.new_name('rows')}"
        declared = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
        self.connection.execute(f"CREATE TABLE {table} ({declared})")
        for batch in batches:
            self.append(table, tuple(columns.values()), batch)
        return table

    def append(self, table: str, types: Sequence[str], columns: Sequence[list[Any]]) -> None:
        """Append rows, given as a list of values for every column, to a table that `add_rows` created."""
        values = ", ".join(f"unnest(?::{kind}[])" for kind in types)
        self.connection.execute(f"INSERT INTO {table} SELECT {values}", list(columns))


class Store(TableStore):
    """An embedded DuckDB database, deleted together with the object.

    Args:
        memory: Memory limit, e.g. `500MB`, or `auto` for a limit that does not restrict computations.

    Raises:
        UsageError: `memory` is not a size (E311).
    """

    def __init__(self, memory: str = DEFAULT_MEMORY) -> None:
        n_bytes = parse_size(AUTOMATIC_MEMORY if memory == DEFAULT_MEMORY else memory)
        self.n_bytes = n_bytes
        self.column_bytes = int(n_bytes * COLUMN_FRACTION)
        self.working_bytes = None if memory == DEFAULT_MEMORY else int(n_bytes * WORKING_FRACTION)
        """Maximum memory for learning or inference; None for all available memory."""
        root = new_temporary_folder(self)
        try:
            super().__init__(root, f"{int(n_bytes * DUCKDB_FRACTION)}B", root / "tables.duckdb", "main")
        except duckdb.Error as error:
            message = f"DuckDB rejects the memory limit '{memory}'"
            raise UsageError(
                Diagnostic("E311", message, hint="write a size such as 500MB", notes=(first_line(error),))
            ) from None
        self._guarded_process: GuardedProcess | None = None
        self._files: list[str] = []
        self._functions: dict[str, tuple[duckdb.DuckDBPyConnection, Callable[..., Any]]] = {}
        self._plugin_errors: list[UsageError] = []
        weakref.finalize(self, _remove_functions, self._functions)
        # The file is deleted with the object, so skip the checkpoint, which takes two thirds of a small binding's time.
        self.connection.execute("PRAGMA disable_checkpoint_on_shutdown")

    def release_buffers(self) -> None:
        """Write DuckDB's buffers to files and return freed memory to the system, so that it is free for computations."""
        with suppress(duckdb.OutOfMemoryException):  # a running query needs its buffers
            self.connection.execute(f"SET memory_limit = '{_RELEASED_LIMIT}'")
        self.connection.execute(f"SET memory_limit = '{self.memory_limit}'")
        return_freed_memory()

    def file_literal(self, path: Path) -> str:
        """Return a SQL literal that DuckDB resolves to exactly this file.

        If a path is passed unchanged, DuckDB opens `http://...` on the network, and expands `~` and wildcards.
        """
        name = os.path.abspath(path)
        if _GLOB_CHARACTERS.search(name):
            link = self.new_folder() / f"file{re.sub('[^a-z.]', '', path.name.lower())[-12:]}"
            real = os.path.realpath(path)
            try:
                os.link(real, link)
            except OSError:  # the file is on another disk, or another user owns it
                shutil.copyfile(real, link)
            return literal(str(link))
        self._files += [name, os.path.realpath(path)]  # DuckDB also checks the target of a link
        return literal(name)

    @property
    def guarded_process(self) -> GuardedProcess:
        """The process that reads untrusted data for this store; it starts when it is needed, or needed again."""
        if self._guarded_process is None or not self._guarded_process.is_alive():
            limit = self.n_bytes + GUARDED_OVERHEAD + (os.cpu_count() or 1) * GUARDED_THREAD_OVERHEAD
            self._guarded_process = GuardedProcess("relcrf.data.reader_process", limit, self.new_folder())
            weakref.finalize(self, self._guarded_process.kill)
        return self._guarded_process

    def end_guarded_process(self) -> None:
        """End the guarded process if it was started."""
        if self._guarded_process is not None:
            self._guarded_process.kill()

    def restrict_access(self) -> None:
        """Irreversibly restrict the database to its own folders and the files passed to `file_literal`.

        No SQL can then access other files, the network or extensions.
        """
        self.connection.execute(f"SET allowed_paths = [{', '.join(map(literal, self._files))}]")
        self.connection.execute(f"SET allowed_directories = [{literal(f'{self._root}/')}]")
        self.connection.execute("SET enable_external_access = false")

    def is_alive(self) -> bool:
        """Return True if the database still responds; an internal error, e.g. for a damaged file, invalidates it."""
        try:
            self.connection.execute("SELECT 1")
        except duckdb.FatalException:
            return False
        return True

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a new connection to all tables and functions of the store."""
        cursor = register_connection(self.connection.cursor())
        for view, frame in self._frames.items():
            cursor.register(view, frame)
        return cursor

    def add_function(
        self, name: str, function: SqlFunction, connection: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        """Register a Python function in the database, under its name in SQL; all connections can call it.

        Args:
            connection: Connection that registers the function and removes it; by default that of the store.
        """
        if name in self._functions:
            return

        def call(*values: Any) -> Any:
            try:
                return function(*values)
            except UsageError as error:
                self._plugin_errors.append(error)
                raise

        parameters = [Parameter(f"a{k}", Parameter.POSITIONAL_ONLY) for k, _ in enumerate(function.parameters)]
        vars(call)["__signature__"] = Signature(parameters)  # DuckDB requires as many parameters as types
        types: list[Any] = [DuckDBPyType(_TYPES[kind]) for kind in function.parameters]
        result = DuckDBPyType(_TYPES[function.result])
        connection = connection or self.connection
        connection.create_function(name, call, types, result, null_handling=FunctionNullHandling.SPECIAL)
        self._functions[name] = (connection, call)  # a cursor may call the function after DuckDB has released it

    def remove_function(self, name: str) -> None:
        """Remove a function that `add_function` registered."""
        connection, _ = self._functions.pop(name)
        with suppress(duckdb.FatalException):  # a damaged file may have terminated the database
            connection.remove_function(name)

    @contextmanager
    def reraise_plugin_errors(self) -> Iterator[None]:
        """If a plugin function fails in a query, raise the original error of the function instead of DuckDB's error.

        Raises:
            UsageError: A plugin function failed, or the memory limit is too low (E315).
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


def _remove_functions(functions: Mapping[str, tuple[duckdb.DuckDBPyConnection, Callable[..., Any]]]) -> None:
    """Remove Python functions from the database; DuckDB reports functions left at interpreter exit as leaks."""
    for name, (connection, _) in functions.items():
        connection.remove_function(name)
