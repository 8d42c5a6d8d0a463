"""Drift: the differences between the columns of the training data and those of other tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy

from relcrf.backends.learned_model import LearnedModel
from relcrf.data.distributions import ColumnDistribution, measure_distributions
from relcrf.data.frame import Frame
from relcrf.grounding.grounding import Grounding

MIN_DISTANCE = 0.1
"""Minimum distance of a clear change: a tenth of the rows have another value or are in another bin."""

MAX_P_VALUE = 0.001
"""Maximum p-value of a clear change, divided by the number of columns; in small tables, chance causes large distances."""

SECONDS_PER_DAY = 86_400
MAX_SECONDS = 1e15
"""Largest number of seconds before or after 1970 that is shown as a date."""

MAX_SHIFTS = 3
"""Maximum number of values in the text of a change."""

OTHERS, MISSING = "(others)", "(missing)"


@dataclass(frozen=True)
class ValueShift:
    """The fractions of the rows with a value, or in a bin of numbers, in the training data and in the other tables."""

    text: str
    trained: float
    found: float

    def __str__(self) -> str:
        return f"{self.text}: {self.trained:.1%} to {self.found:.1%}"


@dataclass(frozen=True)
class ColumnDrift:
    """The difference between the two distributions of a column.

    Args:
        n_trained, n_found: The numbers of rows; without those of missing values, if the column is predicted.
        distance: The total variation distance: the smallest fraction of rows that must change for equal distributions.
        p_value: The p-value of the chi-squared test that both are samples of the same distribution.
        shifts: The fractions of all values and bins.
        is_clear: Whether the change is large and not due to chance.
    """

    name: str
    n_trained: int
    n_found: int
    distance: float
    p_value: float
    shifts: tuple[ValueShift, ...]
    is_clear: bool

    @property
    def changes_text(self) -> str:
        """The values and bins whose fractions differ most, such as `course: 12.0% to 31.0%`; empty if none differs."""
        largest = sorted(self.shifts, key=lambda shift: -abs(shift.found - shift.trained))[:MAX_SHIFTS]
        return "; ".join(map(str, (shift for shift in largest if shift.found != shift.trained)))


def column_drift(learned: LearnedModel, grounding: Grounding) -> tuple[ColumnDrift, ...]:
    """Compare the columns of a grounding of a trained model with those of the training data; see `measure_drift`."""
    return measure_drift(learned.columns, measure_distributions(grounding.bound, learned.columns))


def drift_table(drifts: Sequence[ColumnDrift]) -> Frame:
    """Return one row per column with the distance, whether the change is clear, and the largest changes as text."""
    types = {"column": object, "trained": int, "found": int, "distance": float, "clear": bool, "changes": object}
    return Frame.from_rows(types, [
        (one.name, one.n_trained, one.n_found, one.distance, one.is_clear, one.changes_text) for one in drifts
    ])  # fmt: skip


def measure_drift(
    trained: Sequence[ColumnDistribution], found: Sequence[ColumnDistribution]
) -> tuple[ColumnDrift, ...]:
    """Compare columns that have rows on both sides; the largest distance is first.

    Args:
        found: The distributions of other tables with the values and bins of `trained`, see `measure_distributions`.
    """
    by_name = {one.name: one for one in found}
    pairs = [
        (one, by_name[one.name], _counts(one), _counts(by_name[one.name])) for one in trained if one.name in by_name
    ]
    pairs = [pair for pair in pairs if pair[2].sum() and pair[3].sum()]
    drifts = [_compare(one, first, second, MAX_P_VALUE / len(pairs)) for one, _, first, second in pairs]
    return tuple(sorted(drifts, key=lambda drift: -drift.distance))


def _counts(column: ColumnDistribution) -> np.ndarray:
    n_missing = 0 if column.is_predicted else column.n_missing
    return np.array([*column.counts, column.n_others, n_missing], dtype=np.int64)


def _compare(column: ColumnDistribution, trained: np.ndarray, found: np.ndarray, max_p_value: float) -> ColumnDrift:
    fractions = trained / trained.sum(), found / found.sum()
    distance = float(np.abs(fractions[0] - fractions[1]).sum() / 2)
    occurs = trained + found > 0
    table = np.stack((trained, found))[:, occurs]
    p_value = float(scipy.stats.chi2_contingency(table).pvalue) if table.shape[1] > 1 else 1.0
    texts = [*column_texts(column), OTHERS, MISSING]
    shifts = [
        ValueShift(text, float(first), float(second))
        for text, first, second, shown in zip(texts, *fractions, occurs, strict=True)
        if shown
    ]
    is_clear = distance >= MIN_DISTANCE and p_value < max_p_value
    return ColumnDrift(column.name, int(trained.sum()), int(found.sum()), distance, p_value, tuple(shifts), is_clear)


def column_texts(column: ColumnDistribution) -> list[str]:
    """Return the texts of the values or bins of a column."""
    if column.values or not column.counts:
        return [*column.values]
    limits = [_limit_text(edge, column.unit) for edge in column.edges]
    if not limits:
        return ["all numbers"]
    first = limits[0] if limits[0] == limits[1] else f"{limits[0]} to {limits[1]}"
    above = [f"above {low} to {high}" for low, high in pairwise(limits[1:])]
    if column.unit == "integer":
        bounds = [(_limit_text(low + 1, ""), _limit_text(high, "")) for low, high in pairwise(column.edges[1:])]
        above = [high if low == high else f"{low} to {high}" for low, high in bounds]
    return [f"below {limits[0]}", first, *above, f"above {limits[-1]}"]


def _limit_text(edge: float, unit: str) -> str:
    seconds = edge * SECONDS_PER_DAY if unit == "date" else edge
    if unit in ("", "integer") or abs(seconds) > MAX_SECONDS:
        return f"{edge:,.6g}"
    day, _, time = str(np.datetime64(round(seconds), "s")).partition("T")
    return {"date": day, "time": time}.get(unit, f"{day} {time}")
