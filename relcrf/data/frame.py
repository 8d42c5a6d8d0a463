"""A small table of results, which can be converted to pandas, Polars or Arrow, and written to files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from relcrf.data.extras import import_extra
from relcrf.data.store import io_error_reason, is_utf8, literal
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.execution.interruption import register_connection
from relcrf.files import atomic_path, require_suffix, require_writable_folder
from relcrf.text.html_table import html_table

_COPY_OPTIONS = {
    ".csv": "FORMAT csv, HEADER",
    ".tsv": "FORMAT csv, HEADER, DELIMITER '\t'",
    ".jsonl": "FORMAT json",
    ".parquet": "FORMAT parquet",
}
"""DuckDB's COPY options, by suffix, for the formats that DuckDB writes."""

_ARROW_SUFFIXES = (".arrow", ".feather")

_FORMULA = re.compile(r"[=+\-@\t\r](?![\d.,]*$)")
"""The start of a text that spreadsheets execute; a signed number is not executed."""


def require_writable(path: Path) -> None:
    """Create the folder of a file that `Frame.write` will write; call this before long work, to raise errors early.

    Raises:
        OSError: The folder is not writable.
        UsageError: The suffix is unknown, the path is a folder or not UTF-8, or pyarrow is needed but not installed.
    """
    if not is_utf8(str(path)):
        raise UsageError(Diagnostic("E312", f"'{path}' is not UTF-8 text", hint="choose another name"))
    require_suffix(path, (*_COPY_OPTIONS, *_ARROW_SUFFIXES), "rows.csv")
    if path.suffix in _ARROW_SUFFIXES:
        import_extra("pyarrow", "frames", f"'{path.name}'")
    require_writable_folder(path.parent)


NOTEBOOK_ROWS = 20
"""Maximum number of rows that a notebook shows."""


@dataclass(frozen=True, repr=False)
class Frame:
    """A table of named columns of equal length."""

    columns: Mapping[str, np.ndarray]

    @classmethod
    def from_rows(cls, dtypes: Mapping[str, type], rows: Sequence[Sequence[Any]]) -> Frame:
        """Return a frame with the given rows.

        Args:
            dtypes: Type of the values of each column, by column name.
        """
        columns = zip(*rows, strict=True) if rows else ((),) * len(dtypes)
        return cls({name: np.array(c, dtype=kind) for (name, kind), c in zip(dtypes.items(), columns, strict=True)})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def rows(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return the first `limit` rows (all if None) as tuples of plain values."""
        return list(zip(*(column[:limit].tolist() for column in self.columns.values()), strict=True))

    def take_rows(self, rows: np.ndarray) -> Frame:
        """Return a frame of the rows with the given indices, in the order of the indices."""
        return Frame({name: column[rows] for name, column in self.columns.items()})

    def to_dicts(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the first `limit` rows (all if None), each as a mapping from column names to plain values."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows(limit)]

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame; needs the extra `frames`."""
        return import_extra("pandas", "frames", "a pandas.DataFrame").DataFrame(dict(self.columns))

    def to_polars(self) -> Any:
        """Return a polars.DataFrame; needs the extra `frames`. Columns of objects without any value become columns of texts."""
        polars = import_extra("polars", "frames", "a polars.DataFrame")
        frame = polars.DataFrame({n: c.tolist() if c.dtype == object else c for n, c in self.columns.items()})
        return frame.cast({polars.Null: polars.String})

    def to_arrow(self) -> Any:
        """Return a pyarrow.Table; needs the extra `frames`. Columns of objects without any value become columns of texts."""
        pyarrow = import_extra("pyarrow", "frames", "a pyarrow.Table")
        arrays = {name: pyarrow.array(column) for name, column in self.columns.items()}
        is_null = pyarrow.types.is_null
        return pyarrow.table({n: a.cast(pyarrow.string()) if is_null(a.type) else a for n, a in arrays.items()})

    def formula_cells(self) -> list[str]:
        """Return the texts, and the column names, that a spreadsheet would execute as a formula."""
        texts = (text for column in self.columns.values() if column.dtype == object for text in column.tolist())
        return [text for text in (*self.columns, *texts) if isinstance(text, str) and _FORMULA.match(text)]

    def without_formulas(self) -> Frame:
        """Return a frame in which an apostrophe precedes each of the `formula_cells`, so that spreadsheets show it as text."""

        def escape(value: Any) -> Any:
            return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value

        def escape_all(column: np.ndarray) -> np.ndarray:
            return (
                np.fromiter(map(escape, column), dtype=object, count=len(column)) if column.dtype == object else column
            )

        return Frame({escape(name): escape_all(column) for name, column in self.columns.items()})

    def write(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        """Write a `.csv`, `.tsv`, `.jsonl`, `.parquet`, `.arrow` or `.feather` file atomically.

        Args:
            sync: Flush the file to disk, so that a power cut cannot damage it.

        Raises:
            UsageError: The suffix is unknown, or the file cannot be written.
        """
        path = Path(path)
        require_writable(path)
        with atomic_path(path, sync=sync) as partial:
            if path.suffix in _ARROW_SUFFIXES:
                import_extra("pyarrow.feather", "frames", f"'{path.name}'").write_feather(self.to_arrow(), str(partial))
                return
            copy = f"COPY (SELECT * FROM frame) TO {literal(str(partial))} ({_COPY_OPTIONS[path.suffix]}, USE_TMP_FILE false)"
            with register_connection(duckdb.connect()) as connection:
                connection.register("frame", dict(self.columns))
                try:
                    connection.execute(copy)
                except duckdb.IOException as error:
                    raise OSError(errno.EIO, io_error_reason(error), str(path)) from None

    def __repr__(self) -> str:
        return f"Frame({len(self):,} rows: {listing(self.columns)})"

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self, bars: Collection[str] = ()) -> str:
        """Return the first rows as an HTML table; for `bars` see `text.html_table.html_table`."""
        return html_table([*self.columns], self.rows(NOTEBOOK_ROWS), bars=bars) + f"<p>{len(self):,} rows</p>"


def frame_of(columns: Iterable[tuple[str, np.ndarray]]) -> Frame:
    """Return a table in which underscores are appended to names that equal earlier ones, or differ from them only in case.

    A key or attribute may have the name of another column, and values such as `Yes` and `yes` of one attribute may be the names
    of two columns; files do not distinguish case.
    """
    out: dict[str, np.ndarray] = {}
    taken: set[str] = set()
    for name, column in columns:
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        out[name] = column
    return Frame(out)
