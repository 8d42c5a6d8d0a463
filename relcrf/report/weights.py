"""The weights that a report shows: the strongest, what they are worth, and a row for each template."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.backends.learned import LearnedModel
from relcrf.backends.strongest import NamedWeight, strongest
from relcrf.evaluation.standard_errors import StandardErrors

MOST_WEIGHTS = 40
"""In a table of the strongest."""


@dataclass(frozen=True)
class TemplateSummary:
    """A block of weights; `nonzero` is how many of its weights are not 0."""

    name: str
    kind: str
    bindings: int
    weights: int
    nonzero: int


@dataclass(frozen=True)
class WeightRow:
    """A weight; what it is worth by its gain and its support, where training kept them, and how far it may be off."""

    weight: NamedWeight
    gain: float | None
    support: float | None
    error: float | None


@dataclass(frozen=True)
class Table:
    """Some of the strongest weights; `has_worth` where they have gains, `has_errors` where one has a standard error."""

    title: str
    rows: tuple[WeightRow, ...]

    @property
    def has_worth(self) -> bool:
        return self.rows[0].gain is not None

    @property
    def has_errors(self) -> bool:
        return any(row.error is not None for row in self.rows)


def templates(learned: LearnedModel) -> list[TemplateSummary]:
    """A row for each block of weights."""
    candidates = _candidates(learned)
    rows = []
    for block, (info, shape) in enumerate(zip(learned.templates, learned.layout.blocks, strict=True)):
        kind = "chosen candidates" if info.name in candidates else "fixed" if shape.fixed else ""
        nonzero = int(np.count_nonzero(learned.layout.matrix(learned.vectors["weights"], block)))
        rows.append(TemplateSummary(info.name, kind, info.bindings, shape.size, nonzero))
    return rows


def tables(learned: LearnedModel, errors: StandardErrors | None = None) -> list[Table]:
    """The strongest candidates, and the strongest of the other weights that were learned, as far as there are any."""
    found = []
    for title, weights in _strongest(learned).items():
        worth = ("gain", "support") if title == _CHOSEN and {"gain", "support"} <= set(learned.vectors) else ()
        rows = tuple(_row(learned, weight, worth, errors) for weight in weights)
        found += [Table(title, rows)] if rows else []
    return found


def shown(learned: LearnedModel) -> np.ndarray:
    """Which weights `tables` shows, shape (layout.size,), bool."""
    found = np.zeros(learned.layout.size, dtype=bool)
    for weights in _strongest(learned).values():
        found[[_number(learned, weight) for weight in weights]] = True
    return found


_CHOSEN = "Strongest candidates"


def _strongest(learned: LearnedModel) -> dict[str, tuple[NamedWeight, ...]]:
    candidates = _candidates(learned)
    learnt = [k for k, block in enumerate(learned.layout.blocks) if not block.fixed]
    chosen = [k for k in learnt if learned.templates[k].name in candidates]
    others = [k for k in learnt if k not in chosen]
    return {
        title: strongest(learned, blocks, MOST_WEIGHTS)
        for title, blocks in ((_CHOSEN, chosen), ("Strongest weights", others))
    }


def _candidates(learned: LearnedModel) -> set[str]:
    """The names of the declarations of candidates."""
    return {template.name for template in learned.spec.flat().templates if template.is_candidate}


def _number(learned: LearnedModel, weight: NamedWeight) -> int:
    """Where a weight is in the layout."""
    block, feature, pattern = weight.place
    return learned.layout.starts[block] + feature * learned.layout.blocks[block].n_patterns + pattern


def _row(learned: LearnedModel, weight: NamedWeight, worth: Sequence[str], errors: StandardErrors | None) -> WeightRow:
    number = _number(learned, weight)
    error = math.nan if errors is None else float(errors.values[number])
    gain, support = (float(learned.vectors[name][number]) for name in worth) if worth else (None, None)
    return WeightRow(weight, gain, support, error if math.isfinite(error) else None)
