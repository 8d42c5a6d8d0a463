"""Tables of a report: the largest weights, with gains and standard errors, and the templates, with counts."""

from __future__ import annotations

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.weight_names import largest_of_blocks, weight_table
from relcrf.data.frame import Frame
from relcrf.evaluation.standard_errors import StandardErrors

MAX_WEIGHTS = 40
"""Maximum number of rows of a table of weights."""


def template_table(learned: LearnedModel) -> Frame:
    """Return one row per weight block: name, kind, and the numbers of bindings, weights and nonzero weights."""
    candidates = _candidate_names(learned)
    rows = []
    for block, (info, shape) in enumerate(zip(learned.templates, learned.layout.blocks, strict=True)):
        kind = "chosen candidates" if info.name in candidates else "fixed" if shape.fixed else ""
        nonzero = np.count_nonzero(learned.layout.matrix(learned.vectors["weights"], block))
        rows.append((info.name, kind, info.bindings, shape.size, nonzero))
    return Frame.from_rows({"name": object, "kind": object, "bindings": int, "weights": int, "nonzero": int}, rows)


def weight_tables(learned: LearnedModel, errors: StandardErrors | None = None) -> dict[str, Frame]:
    """Return the nonempty tables of the largest candidate weights and of the largest other learned weights, by title.

    The first columns are those of `weight_table`. The columns `error` (the standard error; nan if a weight has none),
    `gain` and `support` follow if they are available.
    """
    tables = {}
    for title, offsets in _largest_weights(learned).items():
        columns = dict(weight_table(learned, offsets).columns)
        if errors is not None and np.isfinite(errors.values[offsets]).any():
            columns["error"] = np.where(np.isfinite(errors.values), errors.values, np.nan)[offsets]
        if title == _CANDIDATES_TITLE and {"gain", "support"} <= set(learned.vectors):
            columns |= {name: learned.vectors[name][offsets] for name in ("gain", "support")}
        if len(offsets):
            tables[title] = Frame(columns)
    return tables


def shown_weights(learned: LearnedModel) -> np.ndarray:
    """Return a mask of the weights in `weight_tables`, shape (layout.size,)."""
    mask = np.zeros(learned.layout.size, dtype=bool)
    for offsets in _largest_weights(learned).values():
        mask[offsets] = True
    return mask


_CANDIDATES_TITLE = "Largest candidate weights"


def _largest_weights(learned: LearnedModel) -> dict[str, np.ndarray]:
    candidates = _candidate_names(learned)
    learned_blocks = [k for k, block in enumerate(learned.layout.blocks) if not block.fixed]
    chosen = [k for k in learned_blocks if learned.templates[k].name in candidates]
    others = [k for k in learned_blocks if k not in chosen]
    return {
        title: largest_of_blocks(learned, blocks, MAX_WEIGHTS)
        for title, blocks in ((_CANDIDATES_TITLE, chosen), ("Largest weights", others))
    }


def _candidate_names(learned: LearnedModel) -> set[str]:
    """Return the names of the candidate declarations."""
    return {template.name for template in learned.spec.flatten().templates if template.is_candidate}
