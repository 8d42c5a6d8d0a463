"""Plans on DuckDB, their rows streamed in Arrow's layout without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import duckdb
import numpy as np
from nanoarrow import c_array_stream

from relcrf.data.dataset import quoted
from relcrf.grounding import sql
from relcrf.grounding.engines.base import DTYPES, AbstractEngine, Batch
from relcrf.grounding.plan import Plan


class DuckDbEngine(AbstractEngine):
    """Grounds where the tables are made.

    Args:
        connection: sees the coded tables in its schema. It stays free for other queries while rows are read.
    """

    name = "duckdb"
    keeps_order = True

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, plan: Plan) -> Iterator[Batch]:
        types = {name: DTYPES[kind] for name, _, kind in plan.outputs}
        with self._cursor() as cursor:
            yield from stream(cursor.sql(sql.rows(plan)), types)

    def close(self) -> None:
        """Nothing is held."""

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own with the same schema, for an unfinished result owns its connection."""
        ((schema,),) = self._connection.execute("SELECT current_schema()").fetchall()
        cursor = self._connection.cursor()
        cursor.execute(f"SET schema = {quoted(schema)}")
        return cursor


def stream(found: duckdb.DuckDBPyRelation, types: dict[str, type]) -> Iterator[Batch]:
    """The rows of a query without missing values, in DuckDB's batches; each lives as long as one of its arrays does.

    Args:
        types: the columns in their order, with the dtype of each, which is DuckDB's own; object for texts.
    """
    for array in c_array_stream(found):
        if not array.length:
            continue
        batch = {}
        for k, (name, dtype) in enumerate(types.items()):
            column = array.child(k)
            assert column.null_count == 0, f"output {name} has a missing value"
            buffers = column.view()
            if dtype is object:
                ends = np.frombuffer(buffers.buffer(1), np.int32, column.length + 1, 4 * column.offset).tolist()
                text = bytes(buffers.buffer(2))
                pieces = (text[a:b].decode() for a, b in pairwise(ends))
                batch[name] = np.fromiter(pieces, dtype=object, count=column.length)
            else:
                offset = np.dtype(dtype).itemsize * column.offset
                batch[name] = np.frombuffer(buffers.buffer(1), dtype, column.length, offset)
        yield batch
