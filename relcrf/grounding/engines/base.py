"""What an engine is: it runs a plan and gives its rows as arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from relcrf.errors import DataError, Diagnostic
from relcrf.grounding.plan import Plan

Batch = dict[str, np.ndarray]
"""Some rows: each output's column, by its name."""

DTYPES: dict[str, type] = {"integer": np.int32, "bigint": np.int64, "double": np.float64, "text": object}
"""How the outputs of a plan come, by their type."""


def output_dtypes(plan: Plan) -> dict[str, type]:
    """The dtypes of a plan's outputs, by name."""
    return {name: DTYPES[kind] for name, _, kind in plan.outputs}


class AbstractEngine(ABC):
    """Runs relational plans on the coded tables of a model. Every engine gives the same rows."""

    name: ClassVar[str]

    @abstractmethod
    def rows(self, plan: Plan) -> Iterator[Batch]:
        """All outputs of all bindings in batches of some 100,000 rows, in any order; no batch is empty.

        Outputs of type `integer` come as int32, `bigint` as int64, `double` as float64, `text` as object. Where a value is
        missing, evidence (`e0`, `e1`, ...) has -1 and features (`f0`, ..., of gates `fg0`, ...) 0.0; scopes and keys are never
        missing. The arrays are read-only, and no later batch overwrites them.

        Raises:
            UsageError: where the engine has no equal of a function of the plan.
        """

    def close(self) -> None:  # noqa: B027
        """Free what the engine holds. The tables stay."""


def engine_error(engine: str, error: Exception, hint: str) -> DataError:
    """What is raised where the system behind an engine refuses, with the first lines of its reasons."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    notes = tuple(lines[:3]) or (type(error).__name__,)
    return DataError(Diagnostic("E371", f"the engine '{engine}' failed", hint=hint, notes=notes))
