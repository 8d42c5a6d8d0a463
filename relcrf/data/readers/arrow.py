"""A reader of Arrow IPC files, also known as Feather, and of Arrow IPC streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from relcrf.data import isolation
from relcrf.data.extras import import_extra
from relcrf.data.python_tables import add_frame
from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import DISK_FULL, Store, TableStore, file_access_error, first_line, unreadable_error

_FILE_MAGIC = b"ARROW1"
"""Magic bytes of the file format; a stream starts with other bytes."""

PART_ROWS = 50_000
PART_BYTES = 64 * 1024**2
"""Maximum number of rows of a batch in a copy, and the size from which a part of a copy is complete."""


class ArrowReader(AbstractReader):
    """A reader that scans an uncompressed copy, which a guarded process validates, and keeps the column types.

    Files are not scanned in place: a file that changes after its validation could crash the process that scans it.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        pyarrow = import_extra("pyarrow", "frames", f"'{path.name}'")
        folder = store.new_folder()
        (table,) = isolation.copy_tables("arrow", path, name, store, copy=str(folder))
        yield replace(table, scan=store.add_frame(CopiedRows(pyarrow, folder)))


class CopiedRows:
    """The rows of a copy, read as an Arrow stream from one part after the other.

    Each part is mapped into memory while its batches are used, so that only the columns that are used are read.
    """

    def __init__(self, pyarrow: Any, folder: Path) -> None:
        self._pyarrow = pyarrow
        self._paths = [folder / str(number) for number in range(len(list(folder.iterdir())))]

    def batches(self) -> Iterator[Any]:
        """Yield the record batches."""
        for path in self._paths:
            with self._pyarrow.memory_map(str(path)) as file:
                yield from self._pyarrow.ipc.open_stream(file)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        with self._pyarrow.OSFile(str(self._paths[0])) as file:
            schema = self._pyarrow.ipc.open_stream(file).schema
        return self._pyarrow.RecordBatchReader.from_batches(schema, self.batches()).__arrow_c_stream__(requested_schema)


def copy_tables(
    path: Path, name: str, store: TableStore, report_step: Callable[[str], None], copy: str
) -> list[SourceTable]:
    """Return the table of a file or stream, without a table expression, after writing an uncompressed copy.

    The copy is validated after it is written, because the file may change at any time.

    Args:
        copy: An empty folder for the parts of the copy, which are streams with names from 0.

    Raises:
        DataError: The file is damaged (E204), or a column has an unsupported type (E203).
        UsageError: A package is not installed (E351), or the disk of the copy is full (E314).
    """
    pyarrow = import_extra("pyarrow", "frames", f"'{path.name}'")
    try:
        with path.open("rb") as file:
            is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        with pyarrow.memory_map(str(path.absolute())) as file:
            reader = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(file)
            add_frame(name, reader.schema.empty_table(), store)  # reports a column of an unsupported type
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            _write_parts(pyarrow, reader.schema, map(_validate_batch, batches), Path(copy))
        parts = CopiedRows(pyarrow, Path(copy))
        for batch in parts.batches():
            _validate_batch(batch)
    except MemoryError:  # a damaged header can request any size
        raise unreadable_error(str(path), isolation.MEMORY_HINT, ("it requests more memory than allowed",)) from None
    except (pyarrow.ArrowException, OSError) as error:
        if DISK_FULL in str(error):
            raise file_access_error(error) from None
        raise unreadable_error(str(path), notes=(first_line(error),)) from None
    store.connection.execute(f"SELECT count(COLUMNS(*)) FROM {store.add_frame(parts)}")  # converts all cells
    return [SourceTable(name, str(path), "")]


def _write_parts(pyarrow: Any, schema: Any, batches: Iterator[Any], folder: Path) -> None:
    """Write batches as parts, which are uncompressed streams; without any batch, write one empty part."""
    rows = (batch.slice(start, PART_ROWS) for batch in batches for start in range(0, max(batch.num_rows, 1), PART_ROWS))
    batch, number = next(rows, None), 0
    while batch is not None or number == 0:
        path = folder / str(number)
        with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, schema) as writer:
            while batch is not None and file.tell() < PART_BYTES:
                writer.write_batch(batch)
                batch = next(rows, None)
        number += 1


def _validate_batch(batch: Any) -> Any:
    """Return a batch after validating its offsets; an offset out of bounds would crash the process.

    Raises:
        pyarrow.ArrowInvalid: The batch is damaged.
    """
    batch.validate(full=True)
    return batch
