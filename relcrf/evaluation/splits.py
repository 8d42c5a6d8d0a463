"""Which variables are held out: by the values of a column of their things' tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.errors import DataError, Diagnostic, UsageError, listing, suggestion
from relcrf.grounding.ground import Grounding
from relcrf.grounding.variables import VariableBlock, argument_codes


@dataclass(frozen=True)
class Split:
    """A column that every entity with something random about it has; each of its values is a fold.

    Args:
        fold: of each variable, an index into `values`, shape (n_variables,).
        values: distinct values of the column, sorted.
    """

    column: str
    fold: np.ndarray
    values: tuple[str, ...]

    def held_out(self, values: list[str]) -> np.ndarray:
        """Which variables are in the folds of these values, shape (n_variables,), bool.

        Raises:
            UsageError: for a value that the column does not have.
        """
        for value in values:
            if value not in self.values:
                hint = suggestion(value, self.values) or f"it has {listing(self.values)}"
                raise UsageError(Diagnostic("E340", f"the column '{self.column}' has no value '{value}'", hint=hint))
        return np.isin(self.fold, [self.values.index(v) for v in values])


def split_by(grounding: Grounding, column: str) -> Split:
    """The split of a ground graph by a column.

    Raises:
        DataError: where the table of an entity with something random about it does not have it.
    """
    parts = [_column(grounding, block, column) for block in grounding.blocks]
    values, fold = np.unique(np.concatenate(parts).astype(str), return_inverse=True)
    return Split(column, fold, tuple(values.tolist()))


def _column(grounding: Grounding, block: VariableBlock, column: str) -> np.ndarray:
    """The column's value for each variable of a block: the thing's; for a tuple, that of its first argument that has it."""
    bound = grounding.bound
    entities = [k for k, sort in enumerate(block.sorts) if grounding.spec.entity(sort)]
    if not entities:
        message = f"'{block.name}' is about no things, and cannot be split by a column of theirs"
        raise DataError(Diagnostic("E342", message, hint="give it an argument that is an entity"))
    having = [k for k in entities if bound.has_column(block.sorts[k], column)]
    chosen = (having or entities)[0]
    return np.asarray(bound.raw_column(block.sorts[chosen], column)[argument_codes(bound, block)[chosen]])
