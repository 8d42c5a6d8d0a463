"""Scores of the tuples of a relation by latent factors, as a table that can be evidence of a model."""

from __future__ import annotations

import numpy as np

from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import read_argument_codes
from relcrf.kernels.distinct import number_rows
from relcrf.learning.latent_factors import LatentFactors
from relcrf.model.types import BOOL_VALUES

MAX_ENTRIES = 1 << 25
"""Maximum number of entries of the tensor of a relation; with this number, learning needs about 1 GiB."""


def latent_scores(
    grounding: Grounding, relation: str, hidden: np.ndarray | None = None, *, factors: LatentFactors | None = None
) -> Frame:
    """Return a score for each tuple of a predicted Boolean relation: its log-odds under latent factors.

    The score of a labelled tuple is learned without its label (see `LatentFactors.out_of_fold_scores`). If the table is
    evidence of a model of the same relation, a template learns how much to rely on the scores.

    The factors belong to the first two arguments of entity types or, if there are fewer, to the first two arguments. Each
    combination of the other arguments is a slot.

    Args:
        hidden: Mask of the variables whose labels are ignored, shape (n_variables,), bool.
        factors: Settings of the factors.

    Returns:
        The arguments of each tuple, by name, and the column `score`.

    Raises:
        UsageError: The relation is unknown or not Boolean or has one argument (E310), or it is too large (E395).
    """
    usable = [
        b for b in grounding.blocks if b.attribute is None and b.values == BOOL_VALUES and len(b.argument_names) > 1
    ]
    block = next((b for b in usable if b.name == relation), None)
    if block is None:
        message = f"'{relation}' is not a predicted Boolean relation with several arguments"
        hint = (
            f"the relations are {listing(b.name for b in usable)}" if usable else "declare one with 'predict relation'"
        )
        raise UsageError(Diagnostic("E310", message, hint=hint))
    bound, types = grounding.bound, block.argument_types
    entities = [k for k, name in enumerate(types) if bound.spec.entity(name) is not None]
    first, second = entities[:2] if len(entities) > 1 else (0, 1)
    codes = read_argument_codes(bound, block)
    rest = [column for k, column in enumerate(codes) if k not in (first, second)]
    slot = number_rows(np.zeros(block.count, dtype=np.int32), *rest)
    shape = (int(slot.max(initial=0)) + 1, bound.size(types[first]), bound.size(types[second]))
    if np.prod(shape, dtype=float) > MAX_ENTRIES:
        message = f"latent factors of '{relation}' would need {' x '.join(f'{n:,}' for n in shape)} entries"
        hint = f"the maximum is {MAX_ENTRIES:,}; use fewer entities"
        raise UsageError(Diagnostic("E395", message, hint=hint))
    states = grounding.states[block.start : block.start + block.count]
    is_known = states >= 0
    if hidden is not None:
        is_known = is_known & ~hidden[block.start : block.start + block.count]
    tuples = (slot, codes[first], codes[second])
    truth, known = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    truth[tuples], known[tuples] = is_known & (states == 1), is_known
    is_shared = types[first] == types[second]
    scores = (factors or LatentFactors()).out_of_fold_scores(truth, known, is_shared=is_shared)[tuples]
    columns = dict(zip(block.argument_names, grounding.argument_texts(block), strict=True))
    return Frame({**columns, "score": scores.astype(float)})
