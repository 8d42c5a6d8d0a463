"""Which variables are held out: by the values of a column of their things' tables, or by a hash of their keys."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from relcrf.data.splits import HIDDEN, ColumnSplit, FoldSplit, HideSplit, SplitPlan, read_split
from relcrf.errors import DataError, Diagnostic, UsageError, listing, suggestion
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock, argument_codes


@dataclass(frozen=True)
class Split:
    """The variables of a ground graph, divided into folds.

    Args:
        name: of what divides them: a column, or `fold`, or `part`.
        fold: of each variable, an index into `values`, shape (n_variables,).
        values: the names of the folds: of a column its distinct values, sorted; else `1`, `2`, ... as far as something
            is in them, or `hidden`, `rest`.
    """

    name: str
    fold: np.ndarray
    values: tuple[str, ...]

    def held_out(self, values: list[str]) -> np.ndarray:
        """Which variables are in the folds of these values, shape (n_variables,), bool.

        Raises:
            UsageError: for a value that the split does not have.
        """
        for value in values:
            if value not in self.values:
                hint = suggestion(value, self.values) or f"it has {listing(self.values)}"
                raise UsageError(Diagnostic("E340", f"the split by '{self.name}' has no value '{value}'", hint=hint))
        return np.isin(self.fold, [self.values.index(v) for v in values])


def split_by(grounding: Grounding, plan: SplitPlan | str) -> Split:
    """The split of a ground graph.

    Args:
        plan: or its text, as `--split` takes it.

    Raises:
        DataError: where the table of an entity with something random about it does not have the column.
        UsageError: where the text is no plan.
    """
    plan = read_split(plan) if isinstance(plan, str) else plan
    match plan:
        case ColumnSplit(column):
            parts = [_column(grounding, block, column) for block in grounding.blocks]
            values, fold = np.unique(np.concatenate(parts).astype(str), return_inverse=True)
            return Split(str(plan), fold, tuple(values.tolist()))
        case FoldSplit(folds, seed):
            # What is predicted about one thing stays together: the owner's name is hashed, and no attribute.
            hashes = [_hashes(grounding, block, f"{seed}\0{block.owner}") for block in grounding.blocks]
            numbers, fold = np.unique(np.concatenate(hashes) % np.uint64(folds), return_inverse=True)
            return Split(str(plan), fold, tuple(str(number + 1) for number in numbers.tolist()))
        case HideSplit(share, seed):
            hashes = [_hashes(grounding, block, f"{seed}\0{block.name}") for block in grounding.blocks]
            rest = np.concatenate(hashes) >= np.uint64(share * 2**64)
            return Split(str(plan), rest.astype(np.int64), (HIDDEN, "rest"))


def _hashes(grounding: Grounding, block: VariableBlock, salt: str) -> np.ndarray:
    """A number for each variable of a block that depends on its keys and the salt alone, shape (n,), uint64."""
    start = blake2b(salt.encode(), digest_size=8)
    found = np.empty(block.count, dtype=np.uint64)
    for k, keys in enumerate(zip(*grounding.arguments(block), strict=True)):
        own = start.copy()
        own.update("".join(f"\0{len(key)}:{key}" for key in keys).encode())
        found[k] = int.from_bytes(own.digest(), "big")
    return found


def _column(grounding: Grounding, block: VariableBlock, column: str) -> np.ndarray:
    """The column's value for each variable of a block: the thing's; for a tuple, that of its first argument that has it."""
    bound = grounding.bound
    entities = [k for k, sort in enumerate(block.sorts) if grounding.spec.entity(sort)]
    if not entities:
        message = f"'{block.name}' is about no things, and cannot be split by a column of theirs"
        raise DataError(Diagnostic("E342", message, hint="give it an argument that is an entity, or split by folds=10"))
    having = [k for k in entities if bound.has_column(block.sorts[k], column)]
    chosen = (having or entities)[0]
    return np.asarray(bound.raw_column(block.sorts[chosen], column)[argument_codes(bound, block)[chosen]])
