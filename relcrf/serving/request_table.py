"""Tables of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relcrf.data.names import NamedColumns


@dataclass(frozen=True)
class RequestTable(NamedColumns):
    """A table of a request.

    Args:
        columns: Columns of equal length, by name.
    """

    name: str
    columns: Mapping[str, list[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))
