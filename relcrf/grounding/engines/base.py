"""The interface of engines, which run plans and return the rows as arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from relcrf.errors import DataError, Diagnostic
from relcrf.grounding.plan import Plan

Batch = dict[str, np.ndarray]
"""A batch of rows: the column of each output, by name."""

DTYPES: dict[str, type] = {"integer": np.int32, "bigint": np.int64, "double": np.float64, "text": object}
"""NumPy dtype of each output type."""


def output_dtypes(plan: Plan) -> dict[str, type]:
    """Return the dtypes of a plan's outputs by name."""
    return {name: DTYPES[kind] for name, _, kind in plan.outputs}


class AbstractEngine(ABC):
    """An engine that runs plans on coded tables (entities and values as integers). All engines return the same rows."""

    name: ClassVar[str]

    @abstractmethod
    def rows(self, plan: Plan) -> Iterator[Batch]:
        """Yield all outputs of all bindings in non-empty batches of about 100,000 rows, in any order.

        The dtypes of the outputs are in `DTYPES`. Missing evidence (outputs `e0`, `e1`, ...) is -1, and a missing feature
        (outputs `f0`, ..., for gates `fg0`, ...) is 0.0; scopes and keys are never missing. The arrays are read-only, and
        later batches do not overwrite them.

        Raises:
            UsageError: if the engine has no equivalent of a function in the plan.
        """

    def close(self) -> None:  # noqa: B027
        """Release the resources of the engine. The coded tables remain."""


def engine_error(engine: str, error: Exception, hint: str) -> DataError:
    """Return an error for a failure of an engine's database or cluster; the notes are the first lines of the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    notes = tuple(lines[:3]) or (type(error).__name__,)
    return DataError(Diagnostic("E371", f"the engine '{engine}' failed", hint=hint, notes=notes))
