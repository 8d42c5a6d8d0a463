"""A reader of Arrow IPC files, also known as Feather, and of Arrow IPC streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from relcrf.data import isolation
from relcrf.data.extras import import_extra, require_extra
from relcrf.data.python_tables import add_frame
from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import Store, TableStore, first_line, unreadable_error

_FILE_MAGIC = b"ARROW1"
"""Magic bytes of the file format; a stream starts with other bytes."""


class ArrowReader(AbstractReader):
    """A reader that copies the rows in a guarded process, and keeps the column types.

    Files are not scanned in place: a file that changes after its validation could crash the process that scans it.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        require_extra("pyarrow", "frames", f"'{path.name}'")
        yield from isolation.copy_tables("arrow", path, name, store)


def copy_tables(path: Path, name: str, store: TableStore, report_step: Callable[[str], None]) -> list[SourceTable]:
    """Return the table of a file or stream.

    Raises:
        DataError: The file is damaged (E204), or a column has an unsupported type (E203).
        UsageError: A package is not installed (E351).
    """
    pyarrow = import_extra("pyarrow", "frames", f"'{path.name}'")
    # Without a memory map, a file that is truncated meanwhile causes an error instead of a signal.
    try:
        with pyarrow.OSFile(str(path.absolute())) as file:
            is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            file.seek(0)
            with (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(file) as reader:
                add_frame(name, reader.schema.empty_table(), store)  # reports a column of an unsupported type
                batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
                checked = pyarrow.RecordBatchReader.from_batches(reader.schema, map(_validate_batch, batches))
                scan = store.copy_frame(checked)
    except MemoryError:  # a damaged header can request any size
        raise unreadable_error(str(path), isolation.MEMORY_HINT, ("it requests more memory than allowed",)) from None
    except (pyarrow.ArrowException, OSError) as error:
        raise unreadable_error(str(path), notes=(first_line(error),)) from None
    return [SourceTable(name, str(path), scan)]


def _validate_batch(batch: Any) -> Any:
    """Return a batch after validating its offsets; an offset out of bounds would crash the process.

    Raises:
        pyarrow.ArrowInvalid: The batch is damaged.
    """
    batch.validate(full=True)
    return batch
