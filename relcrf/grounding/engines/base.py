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
    """An engine that runs relational plans on the coded tables of a model. All engines return the same rows."""

    name: ClassVar[str]

    @abstractmethod
    def rows(self, plan: Plan) -> Iterator[Batch]:
        """Yield all outputs of all bindings in non-empty batches of about 100,000 rows, in any order.

        Outputs of type `integer` are int32, `bigint` int64, `double` float64 and `text` object. For a missing value, evidence
        (`e0`, `e1`, ...) is -1 and features (`f0`, ..., of gates `fg0`, ...) are 0.0; scopes and keys are never missing. The
        arrays are read-only, and later batches do not overwrite them.

        Raises:
            UsageError: if the engine has no equivalent of a function in the plan.
        """

    def close(self) -> None:  # noqa: B027
        """Release the resources of the engine. The coded tables remain."""


def engine_error(engine: str, error: Exception, hint: str) -> DataError:
    """Return the error for a failure of the system behind an engine, with the first lines of its message as notes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    notes = tuple(lines[:3]) or (type(error).__name__,)
    return DataError(Diagnostic("E371", f"the engine '{engine}' failed", hint=hint, notes=notes))
