"""Tables that are given as Python values: data frames, columns by name, and graphs of NetworkX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np

from relcrf.data.store import Store, first_line, out_of_memory_error, quoted
from relcrf.errors import DataError, DataLocation, Diagnostic


class _ArrowStream:
    """A data frame as a stream of Arrow: read so, Polars needs no pyarrow."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


def add_frame(name: str, frame: Any, store: Store) -> str:
    """A table expression for a data frame of pandas, Polars or Arrow.

    Raises:
        DataError: where it is none.
    """
    package = type(frame).__module__.partition(".")[0]
    try:
        if package == "polars":
            return store.add_frame(_ArrowStream(frame.collect() if hasattr(frame, "collect") else frame))
        if hasattr(frame, "read_next_batch"):
            return store.copy_frame(frame)  # a stream, which can be read once
        return store.add_frame(frame)
    except (duckdb.Error, TypeError) as error:
        message = f"table '{name}' is a {type(frame).__name__}, not a data frame"
        hint = "give a pandas, Polars or Arrow table, columns by name, a NetworkX graph, or the path of a table file"
        raise DataError(Diagnostic("E203", message, hint=hint, notes=(first_line(error),))) from None


def add_columns(name: str, columns: Mapping[str, Any], store: Store) -> str:
    """A table expression for columns of equal length: NumPy arrays, which are scanned where they are, or sequences.

    Raises:
        DataError: for columns of different lengths, or values that no column can hold.
    """
    place = DataLocation(f"table '{name}'")
    if not columns:
        raise DataError(Diagnostic("E203", f"table '{name}' has no columns", place, "give columns by name"))
    lengths = {}
    for column, values in columns.items():
        if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
            message = f"column '{column}' of table '{name}' is a {type(values).__name__}"
            raise DataError(Diagnostic("E203", message, place, "give a list or a NumPy array"))
        lengths[column] = len(values)
    if len(set(lengths.values())) > 1:
        notes = (", ".join(f"'{column}' has {n:,}" for column, n in lengths.items()),)
        message = f"the columns of table '{name}' have different lengths"
        raise DataError(Diagnostic("E203", message, place, "each row needs a value in every column", notes))
    try:
        if all(isinstance(values, np.ndarray) and values.ndim == 1 for values in columns.values()):
            return store.add_frame({str(column): values for column, values in columns.items()})
        lists = [v.tolist() if isinstance(v, np.ndarray) else list(v) for v in columns.values()]
        selected = ", ".join(f"unnest(?) AS {quoted(str(column))}" for column in columns)
        return store.add_query(f"SELECT {selected}", lists)
    except duckdb.OutOfMemoryException as error:
        raise out_of_memory_error(error) from None
    except (duckdb.Error, TypeError, ValueError) as error:
        message = f"table '{name}' has a value that no column can hold"
        hint = "numbers, texts, truth values, dates and lists of them"
        raise DataError(Diagnostic("E203", message, place, hint, (first_line(error),))) from None


def is_graph(value: Any) -> bool:
    """Whether this is a graph of NetworkX, or of what looks the same."""
    return all(hasattr(value, name) for name in ("nodes", "edges", "is_directed", "is_multigraph"))


def graph_columns(graph: Any, nodes: str, edges: str) -> dict[str, dict[str, list[Any]]]:
    """The two tables of a graph.

    Args:
        nodes: name of the table of nodes: `id`, and a column for each attribute of a node.
        edges: name of the table of edges: `source`, `target`, and a column for each attribute of an edge; of a multigraph
            `key` beside these. An edge without direction stands once.

    Raises:
        DataError: where an attribute has the name of one of these columns.
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
    """Texts and numbers name themselves; other nodes, such as the (0, 1) of a grid, are named by their text."""
    return node if isinstance(node, str | int) and not isinstance(node, bool) else str(node)


def _columns_with_attributes(
    table: str, fixed_columns: Sequence[str], rows: Iterable[tuple[tuple[Any, ...], Mapping[Any, Any]]]
) -> dict[str, list[Any]]:
    """Columns of rows; an attribute that a row lacks is missing there."""
    rows = list(rows)
    names = list(dict.fromkeys(str(name) for _, data in rows for name in data))
    for name in names:
        if name in fixed_columns:
            message = f"the graph has an attribute '{name}', which is a column of '{table}' already"
            raise DataError(Diagnostic("E203", message, DataLocation(f"table '{table}'"), "rename the attribute"))
    columns = {name: [ends[k] for ends, _ in rows] for k, name in enumerate(fixed_columns)}
    return {**columns, **{name: [data.get(name) for _, data in rows] for name in names}}
