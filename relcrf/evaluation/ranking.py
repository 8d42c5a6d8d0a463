"""Groups of tuples that are ranked together for link prediction: tuples that differ in one argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.predictions import predicted_blocks
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock, read_argument_codes
from relcrf.kernels.distinct import number_rows
from relcrf.model.types import BOOL_VALUES


def group_tuples(grounding: Grounding, replaced: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the groups of tuples that are ranked together, for each predicted Boolean relation with such arguments.

    Args:
        replaced: Names of arguments. Tuples that differ in only one of these arguments are ranked together.

    Returns:
        For each relation, the group of each tuple, with one row per replaced argument, shape (n_replaced, n_tuples).

    Raises:
        UsageError: A name is not an argument of a predicted Boolean relation (E342).
    """
    blocks = [b for b in predicted_blocks(grounding) if b.attribute is None and b.values == BOOL_VALUES]
    known = list(dict.fromkeys(name for block in blocks for name in block.argument_names))
    for name in replaced:
        if name not in known:
            message = f"'{name}' is not an argument of a predicted Boolean relation"
            hint = f"the arguments are {listing(known)}" if known else "ranks are defined for Boolean relations only"
            raise UsageError(Diagnostic("E342", message, hint=hint))
    return {b.name: _group_block(grounding, b, replaced) for b in blocks if {*replaced} & {*b.argument_names}}


def _group_block(grounding: Grounding, block: VariableBlock, replaced: Sequence[str]) -> np.ndarray:
    codes = read_argument_codes(grounding.bound, block)
    one_group = np.zeros(block.count, dtype=np.int32)
    return np.stack(
        [
            number_rows(one_group, *codes[:k], *codes[k + 1 :])
            for k, name in enumerate(block.argument_names)
            if name in replaced
        ]
    )
