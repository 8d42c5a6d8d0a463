"""The weights that a report shows: the largest, with their gains and errors, and a row for each template."""

from __future__ import annotations

import numpy as np

from relcrf.backends.learned import LearnedModel
from relcrf.backends.weight_names import largest_of_blocks, weights_at
from relcrf.data.frame import Frame
from relcrf.evaluation.standard_errors import StandardErrors

MOST_WEIGHTS = 40
"""In a table of the strongest."""


def templates(learned: LearnedModel) -> Frame:
    """Return a row for each block of weights: name, kind, and the numbers of bindings, weights, and weights other than 0."""
    candidates = _candidates(learned)
    rows = []
    for block, (info, shape) in enumerate(zip(learned.templates, learned.layout.blocks, strict=True)):
        kind = "chosen candidates" if info.name in candidates else "fixed" if shape.fixed else ""
        nonzero = np.count_nonzero(learned.layout.matrix(learned.vectors["weights"], block))
        rows.append((info.name, kind, info.bindings, shape.size, nonzero))
    return Frame.of_rows({"name": object, "kind": object, "bindings": int, "weights": int, "nonzero": int}, rows)


def tables(learned: LearnedModel, errors: StandardErrors | None = None) -> dict[str, Frame]:
    """Return the largest weights of candidates, and of the other weights that were learned, by a title; none is empty.

    The columns are those of `weights_at`, and where they are known `error` (nan of some), `gain` and `support`.
    """
    found = {}
    for title, places in _largest(learned).items():
        columns = dict(weights_at(learned, places).columns)
        if errors is not None and np.isfinite(errors.values[places]).any():
            columns["error"] = np.where(np.isfinite(errors.values), errors.values, np.nan)[places]
        if title == _CHOSEN and {"gain", "support"} <= set(learned.vectors):
            columns |= {name: learned.vectors[name][places] for name in ("gain", "support")}
        if len(places):
            found[title] = Frame(columns)
    return found


def shown(learned: LearnedModel) -> np.ndarray:
    """Return a mask of the weights that `tables` shows, shape (layout.size,)."""
    found = np.zeros(learned.layout.size, dtype=bool)
    for places in _largest(learned).values():
        found[places] = True
    return found


_CHOSEN = "Strongest candidates"


def _largest(learned: LearnedModel) -> dict[str, np.ndarray]:
    candidates = _candidates(learned)
    learnt = [k for k, block in enumerate(learned.layout.blocks) if not block.fixed]
    chosen = [k for k in learnt if learned.templates[k].name in candidates]
    others = [k for k in learnt if k not in chosen]
    return {
        title: largest_of_blocks(learned, blocks, MOST_WEIGHTS)
        for title, blocks in ((_CHOSEN, chosen), ("Strongest weights", others))
    }


def _candidates(learned: LearnedModel) -> set[str]:
    """The names of the declarations of candidates."""
    return {template.name for template in learned.spec.flat().templates if template.is_candidate}
