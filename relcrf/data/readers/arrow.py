"""A reader of Arrow IPC files, also known as Feather, and of Arrow IPC streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from relcrf.data.extras import import_extra
from relcrf.data.python_tables import add_frame
from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import Store, first_line, unreadable_error

_FILE_MAGIC = b"ARROW1"
"""Magic bytes of the file format; a stream starts with other bytes."""


class ArrowReader(AbstractReader):
    """A reader that keeps the column types. It scans files in place. It copies streams, which can be read only once."""

    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        pyarrow = import_extra("pyarrow", "frames", f"'{path.name}'")
        with path.open("rb") as file:
            is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        try:
            if is_file:
                with pyarrow.ipc.open_file(pyarrow.memory_map(str(path.absolute()))) as file:
                    for number in range(file.num_record_batches):
                        _validate_batch(file.get_batch(number))
                dataset = import_extra("pyarrow.dataset", "frames", f"'{path.name}'").dataset(
                    str(path.absolute()), format="ipc"
                )
                add_frame(name, dataset.schema.empty_table(), store)  # reports a column of an unsupported type
                scan = store.add_frame(dataset)
            else:
                with pyarrow.ipc.open_stream(pyarrow.memory_map(str(path.absolute()))) as stream:
                    add_frame(name, stream.schema.empty_table(), store)
                    batches = (_validate_batch(batch) for batch in stream)
                    scan = store.copy_frame(pyarrow.RecordBatchReader.from_batches(stream.schema, batches))
        except (pyarrow.ArrowException, OSError) as error:
            raise unreadable_error(str(path), notes=(first_line(error),)) from None
        yield SourceTable(name, str(path), scan)


def _validate_batch(batch: Any) -> Any:
    """Return a batch after validating its offsets; an offset out of bounds would crash the process.

    Raises:
        pyarrow.ArrowInvalid: The batch is damaged.
    """
    batch.validate(full=True)
    return batch
