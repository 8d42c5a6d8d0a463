"""The weights that a report shows: the largest, with their gains and errors, and a row for each template."""

from __future__ import annotations

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.weight_names import largest_of_blocks, weight_table
from relcrf.data.frame import Frame
from relcrf.evaluation.standard_errors import StandardErrors

MAX_WEIGHTS = 40
"""In a table of the strongest."""


def template_table(learned: LearnedModel) -> Frame:
    """Return a row for each block of weights: name, kind, and the numbers of bindings, weights, and weights other than 0."""
    candidates = _candidate_names(learned)
    rows = []
    for block, (info, shape) in enumerate(zip(learned.templates, learned.layout.blocks, strict=True)):
        kind = "chosen candidates" if info.name in candidates else "fixed" if shape.fixed else ""
        nonzero = np.count_nonzero(learned.layout.matrix(learned.vectors["weights"], block))
        rows.append((info.name, kind, info.bindings, shape.size, nonzero))
    return Frame.from_rows({"name": object, "kind": object, "bindings": int, "weights": int, "nonzero": int}, rows)


def weight_tables(learned: LearnedModel, errors: StandardErrors | None = None) -> dict[str, Frame]:
    """Return the largest weights of candidates, and of the other weights that were learned, by a title; none is empty.

    The columns are those of `weight_table`, and where they are known `error` (nan of some), `gain` and `support`.
    """
    found = {}
    for title, places in _largest_weights(learned).items():
        columns = dict(weight_table(learned, places).columns)
        if errors is not None and np.isfinite(errors.values[places]).any():
            columns["error"] = np.where(np.isfinite(errors.values), errors.values, np.nan)[places]
        if title == _CANDIDATES_TITLE and {"gain", "support"} <= set(learned.vectors):
            columns |= {name: learned.vectors[name][places] for name in ("gain", "support")}
        if len(places):
            found[title] = Frame(columns)
    return found


def shown_weights(learned: LearnedModel) -> np.ndarray:
    """Return a mask of the weights that `tables` shows, shape (layout.size,)."""
    found = np.zeros(learned.layout.size, dtype=bool)
    for places in _largest_weights(learned).values():
        found[places] = True
    return found


_CANDIDATES_TITLE = "Strongest candidates"


def _largest_weights(learned: LearnedModel) -> dict[str, np.ndarray]:
    candidates = _candidate_names(learned)
    learnt = [k for k, block in enumerate(learned.layout.blocks) if not block.fixed]
    chosen = [k for k in learnt if learned.templates[k].name in candidates]
    others = [k for k in learnt if k not in chosen]
    return {
        title: largest_of_blocks(learned, blocks, MAX_WEIGHTS)
        for title, blocks in ((_CANDIDATES_TITLE, chosen), ("Strongest weights", others))
    }


def _candidate_names(learned: LearnedModel) -> set[str]:
    """The names of the declarations of candidates."""
    return {template.name for template in learned.spec.flatten().templates if template.is_candidate}
