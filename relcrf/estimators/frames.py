"""Frames out of the kind that went in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relcrf.data.frame import Frame


def like(given: Any) -> Callable[[Frame], Any]:
    """What makes a frame the kind of the first data frame among some tables; a `Frame` where there is none."""
    tables = given.values() if isinstance(given, Mapping) else ()
    makers = (_maker(type(table).__module__.partition(".")[0]) for table in tables)
    return next(filter(None, makers), lambda frame: frame)


def _maker(package: str) -> Callable[[Frame], Any] | None:
    return {
        "pandas": Frame.to_pandas,
        "polars": Frame.to_polars,
        "pyarrow": Frame.to_arrow,
        "duckdb": Frame.to_arrow,
    }.get(package)
