"""Tables passed as Python values: data frames, mappings of columns, and NetworkX graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np

from relcrf.data.extras import import_extra
from relcrf.data.readers.header import repeated_name_notes
from relcrf.data.store import TableStore, first_line, out_of_memory_error, quoted
from relcrf.errors import DataError, DataLocation, Diagnostic


class _ArrowStream:
    """A data frame or DuckDB relation that is read as an Arrow stream; Polars frames thus do not need pyarrow."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


def add_frame(name: str, frame: Any, store: TableStore) -> str:
    """Return a DuckDB table expression for a pandas or Polars data frame, an Arrow table or a structured NumPy array.

    Raises:
        DataError: `frame` is not such a table, or a column has an unsupported type (E203).
    """
    if isinstance(frame, np.ndarray):
        if frame.dtype.names is None:
            message = f"table '{name}' is an array of shape {frame.shape}, which has no column names"
            hint = "pass a mapping from column names to arrays, such as {'id': a[:, 0], 'label': a[:, 1]}"
            raise DataError(Diagnostic("E203", message, hint=hint))
        return add_columns(name, {column: frame[column] for column in frame.dtype.names}, store)
    try:
        return _scan_frame(frame, store)
    except (duckdb.Error, TypeError, RuntimeError) as error:  # RuntimeError: an object of another type, or Ctrl-C
        if isinstance(error, duckdb.InterruptException) or "Query interrupted" in str(error):
            raise
        raise _unreadable_frame(name, frame, store, first_line(error)) from None


def header_note(frame: Any) -> str:
    """Return a note on the names that the columns of a pandas or Polars data frame repeat; an empty text if there are none."""
    is_eager = _package(frame) in ("pandas", "polars") and not hasattr(frame, "collect")
    return "".join(repeated_name_notes(map(str, getattr(frame, "columns", ()) if is_eager else ())))


def _package(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]


def _scan_frame(frame: Any, store: TableStore) -> str:
    """Return a DuckDB table expression for a data frame.

    Raises:
        duckdb.Error, TypeError, RuntimeError: DuckDB cannot read the value or one of its columns.
    """
    package = _package(frame)
    if package == "polars":
        return store.add_frame(_ArrowStream(_readable_polars(frame)))
    if package in ("duckdb", "_duckdb"):  # a relation, which belongs to another connection
        return store.copy_frame(_ArrowStream(frame))
    if hasattr(frame, "read_next_batch"):
        return store.copy_frame(frame)  # a stream, which can be read only once
    if package == "pandas" and hasattr(frame, "dtypes"):
        return _scan_pandas(frame, store)
    return store.add_frame(frame)


def _readable_polars(frame: Any) -> Any:
    """Return a Polars data frame with columns of texts in place of columns without type, which DuckDB does not read.

    A value of another type is returned unchanged.

    Raises:
        TypeError: A column contains Python objects, of which DuckDB would read the addresses.
    """
    polars = import_extra("polars", "frames", "a polars.DataFrame")
    frame = frame.collect() if hasattr(frame, "collect") else frame
    if not isinstance(frame, polars.DataFrame):
        return frame
    if polars.Object in frame.dtypes:
        raise TypeError("a column contains Python objects")
    return frame.cast({polars.Null: polars.String})


def _scan_pandas(frame: Any, store: TableStore) -> str:
    """Return a DuckDB table expression for a pandas data frame.

    DuckDB reads neither reversed columns, as of `frame[::-1]`, nor numbers in foreign byte order; a copy has none of these.
    """
    try:
        return store.add_frame(frame)
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        foreign = {
            name: kind.newbyteorder("=")
            for name, kind in frame.dtypes.items()
            if isinstance(kind, np.dtype) and not kind.isnative
        }
        return store.add_frame(frame.astype(foreign).copy())


def _single_columns(frame: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each column of a data frame: its name, its type, and a frame with only this column."""
    package = _package(frame)
    if package == "pandas" and hasattr(frame, "dtypes"):
        for number, column in enumerate(frame.columns):
            yield column, frame.dtypes.iloc[number], frame.iloc[:, [number]]
    elif package in ("polars", "pyarrow") and hasattr(frame, "select"):
        frame = frame.collect() if hasattr(frame, "collect") else frame
        for number, column in enumerate(frame.columns if package == "polars" else frame.schema.names):
            kind = frame.dtypes[number] if package == "polars" else frame.schema.field(number).type
            yield column, kind, frame.select([column])


def _unreadable_frame(name: str, frame: Any, store: TableStore, reason: str) -> DataError:
    """Return the error for a value that DuckDB cannot read; for a data frame, it names the column."""
    for column, kind, single in _single_columns(frame):
        try:
            _scan_frame(single, store)
        except (duckdb.Error, TypeError):
            message = f"column '{column}' of table '{name}' has the unsupported type {kind}"
            hint = "convert it to numbers, strings, booleans, dates, or lists of them"
            return DataError(Diagnostic("E203", message, DataLocation(f"table '{name}'"), hint))
    message = f"table '{name}' has type {type(frame).__name__} and is not a data frame"
    hint = "pass a pandas, Polars or Arrow table, columns by name, a NetworkX graph, or the path of a table file"
    return DataError(Diagnostic("E203", message, hint=hint, notes=(reason,)))


def add_columns(name: str, columns: Mapping[str, Any], store: TableStore) -> str:
    """Return a DuckDB table expression for columns of equal length: NumPy arrays (not copied), other sequences, or series.

    Raises:
        DataError: The columns have different lengths, or a value has an unsupported type (E203).
    """
    location = DataLocation(f"table '{name}'")
    if not columns:
        raise DataError(
            Diagnostic("E203", f"table '{name}' has no columns", location, "pass a mapping from column names to values")
        )
    lengths = {}
    columns = {column: _series_values(values) for column, values in columns.items()}
    for column, values in columns.items():
        if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
            message = f"column '{column}' of table '{name}' has type {type(values).__name__}"
            raise DataError(Diagnostic("E203", message, location, "pass a list or a NumPy array"))
        lengths[column] = len(values)
    if len(set(lengths.values())) > 1:
        notes = (", ".join(f"'{column}' has {n:,}" for column, n in lengths.items()),)
        message = f"the columns of table '{name}' have different lengths"
        raise DataError(Diagnostic("E203", message, location, "every row needs a value in each column", notes))
    try:
        if all(isinstance(values, np.ndarray) and values.ndim == 1 for values in columns.values()):
            return store.add_frame({str(column): _readable_array(values) for column, values in columns.items()})
        lists = [_to_list(values) for values in columns.values()]
        selected = ", ".join(f"unnest(?) AS {quoted(str(column))}" for column in columns)
        return store.add_query(f"SELECT {selected}", lists)
    except duckdb.OutOfMemoryException as error:
        raise out_of_memory_error(error) from None
    except (duckdb.Error, TypeError, ValueError) as error:
        if len(columns) > 1:
            for column, values in columns.items():
                add_columns(name, {column: values}, store)  # raises the error that names the column
        message = f"column '{next(iter(columns))}' of table '{name}' has a value of an unsupported type"
        hint = "use numbers, strings, booleans, dates, or lists of them"
        raise DataError(Diagnostic("E203", message, location, hint, (first_line(error),))) from None


_DUCKDB_UNITS = ("s", "ms", "us", "ns")
"""Units of NumPy's datetimes that DuckDB reads."""


def _readable_array(values: np.ndarray) -> np.ndarray:
    """Return an array that DuckDB can read: not reversed, in native byte order, and days as Python's dates."""
    if values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] not in _DUCKDB_UNITS:
        return values.astype(object)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    return values.copy() if values.strides[0] < 0 else values


def _series_values(column: Any) -> Any:
    """Return the values of a series of pandas or Polars or an Arrow array as a list, and other values unchanged.

    The index of a pandas series is ignored, as that of a data frame.
    """
    if _package(column) == "pandas" and hasattr(column, "notna"):
        return column.astype(object).where(column.notna(), None).tolist()
    convert = {"polars": "to_list", "pyarrow": "to_pylist"}.get(_package(column), "")
    return getattr(column, convert)() if hasattr(column, convert) else column


def _to_list(values: Sequence[Any] | np.ndarray) -> list[Any]:
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "M":  # `tolist` would return integers for nanoseconds
            return [None if np.isnat(value) else str(value) for value in values]
        values = values.tolist()
    return [_plain_cell(value) for value in values]


def _plain_cell(value: Any) -> Any:
    """Return a cell as a Python value; None for NaN, which pandas uses for missing texts and DuckDB reads as the text `nan`."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def is_graph(value: Any) -> bool:
    """Return True if a value has the interface of a NetworkX graph."""
    return all(hasattr(value, name) for name in ("nodes", "edges", "is_directed", "is_multigraph"))


def graph_columns(graph: Any, nodes: str, edges: str) -> dict[str, dict[str, list[Any]]]:
    """Return the node table and the edge table of a graph.

    Args:
        nodes: Name of the node table. Its columns are `id` and one for each node attribute.
        edges: Name of the edge table. Its columns are `source`, `target`, `key` for a multigraph, and one for each edge
            attribute. An undirected edge has one row.

    Raises:
        DataError: An attribute is named `id`, `source`, `target` or `key`, like a column of its table (E203).
    """
    ends = ("source", "target", "key") if graph.is_multigraph() else ("source", "target")
    edge_rows = graph.edges(data=True, keys=True) if graph.is_multigraph() else graph.edges(data=True)
    return {
        nodes: _columns_with_attributes(
            nodes, ("id",), [((_node_key(node),), data) for node, data in graph.nodes(data=True)]
        ),
        edges: _columns_with_attributes(edges, ends, [(tuple(map(_node_key, end)), data) for *end, data in edge_rows]),
    }


def _node_key(node: Any) -> str | int:
    """Return the key of a node: a string or integer unchanged, any other node, such as (0, 1), as text."""
    return node if isinstance(node, str | int) and not isinstance(node, bool) else str(node)


def _columns_with_attributes(
    table: str, fixed_columns: Sequence[str], rows: Iterable[tuple[tuple[Any, ...], Mapping[Any, Any]]]
) -> dict[str, list[Any]]:
    """Return a table by columns: the fixed columns, then one per attribute; an attribute that a row lacks is None."""
    rows = list(rows)
    names = list(dict.fromkeys(str(name) for _, data in rows for name in data))
    for name in names:
        if name in fixed_columns:
            message = f"the graph attribute '{name}' has the name of a column of '{table}'"
            raise DataError(Diagnostic("E203", message, DataLocation(f"table '{table}'"), "rename the attribute"))
    columns = {name: [ends[k] for ends, _ in rows] for k, name in enumerate(fixed_columns)}
    return {**columns, **{name: [data.get(name) for _, data in rows] for name in names}}
