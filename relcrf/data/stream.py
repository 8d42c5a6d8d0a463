"""The result of a query as batches of NumPy arrays, never held whole."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
from nanoarrow.c_array_stream import c_array_stream

_TYPES = {"int32": np.int32, "int64": np.int64, "float": np.float32, "double": np.float64}


def batches(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[dict[str, np.ndarray]]:
    """The rows of a query, some ten thousand at a time, in the order in which they come.

    The columns are numbers of 32 or 64 bits and have no missing values. The arrays are views of the batch: whoever keeps
    one copies it. The connection can do nothing else until the last batch was read or the iterator is closed.

    Raises:
        ValueError: where a column is of another type, or a value is missing.
    """
    stream = c_array_stream(connection.sql(sql))
    schema = stream.get_schema()
    names = [schema.child(k).name for k in range(schema.n_children)]
    for array in stream:
        view = array.view()
        out = {}
        for k, name in enumerate(names):
            column = view.child(k)
            if column.storage_type not in _TYPES or column.null_count:
                raise ValueError(f"the column '{name}' is of type {column.storage_type}, {column.null_count} missing")
            values = np.frombuffer(column.buffer(1), dtype=_TYPES[column.storage_type])
            out[name] = values[column.offset : column.offset + column.length]
        yield out
