"""Arrow IPC files and streams; Feather is another name of the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from relcrf.data.extras import require
from relcrf.data.readers.base import AbstractReader, Found
from relcrf.data.store import Store, first_line
from relcrf.errors import DataError, DataPlace, Diagnostic

_FILE = b"ARROW1"
"""How the file form begins; a stream begins otherwise."""


class ArrowReader(AbstractReader):
    """Columns keep the types of the file. A file is scanned where it is; a stream, which can be read once, is kept."""

    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")

    def tables(self, path: Path, name: str, store: Store) -> Iterator[Found]:
        pyarrow = require("pyarrow", "frames", f"'{path.name}'")
        with path.open("rb") as file:
            is_file = file.read(len(_FILE)) == _FILE
        try:
            if is_file:
                dataset = require("pyarrow.dataset", "frames", f"'{path.name}'").dataset(
                    str(path.absolute()), format="ipc"
                )
                scan = store.add_frame(dataset)
            else:
                with pyarrow.ipc.open_stream(pyarrow.memory_map(str(path.absolute()))) as stream:
                    scan = store.keep_frame(stream)
        except (pyarrow.ArrowException, OSError) as error:
            place = DataPlace(str(path))
            raise DataError(Diagnostic("E204", f"{path} cannot be read", place, notes=(first_line(error),))) from None
        yield Found(name, str(path), scan)
