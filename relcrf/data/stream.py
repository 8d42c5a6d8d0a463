"""Streaming of query results as batches of NumPy arrays, which are views of Arrow buffers except for texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import duckdb
import numpy as np
from nanoarrow import c_array_stream


def stream_batches(relation: duckdb.DuckDBPyRelation, types: Mapping[str, type]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows of a query in DuckDB's batches of tens of thousands of rows, as NumPy arrays by column name.

    Args:
        relation: The query. Its connection cannot be used for another query until all rows are read.
        types: Dtype of each column, which must match the DuckDB type; object for texts. No value may be missing.
    """
    for array in c_array_stream(relation):
        if not array.length:
            continue
        batch = {}
        for k, (name, dtype) in enumerate(types.items()):
            column = array.child(k)
            assert column.null_count == 0, f"column {name} has a missing value"
            buffers = column.view()
            if dtype is object:
                ends = np.frombuffer(buffers.buffer(1), np.int32, column.length + 1, 4 * column.offset).tolist()
                text = bytes(buffers.buffer(2))
                texts = (text[a:b].decode() for a, b in pairwise(ends))
                batch[name] = np.fromiter(texts, dtype=object, count=column.length)
            else:
                offset = np.dtype(dtype).itemsize * column.offset
                batch[name] = np.frombuffer(buffers.buffer(1), dtype, column.length, offset)
        yield batch
