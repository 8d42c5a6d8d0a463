"""Moments of the labels and of the model: a plot of all, and those that are farthest apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.weight_names import largest_indices
from relcrf.data.frame import Frame
from relcrf.evaluation.named_weights import named_moments
from relcrf.learning.histogram import MAX_ABSOLUTE_EDGE
from relcrf.report.plot import FIRST, MARK, Plot, draw

MAX_ROWS = 20
"""In the table."""

MAX_POINTS = 1000
"""In the plot: half of them the farthest apart, half spread over all by size."""

MISMATCH_LIMIT = 2.0
"""Standard errors, beyond which moments are told to be apart."""


@dataclass(frozen=True)
class MomentSummary:
    """Moments.

    Args:
        largest_mismatches: the farthest apart, in descending order; see `named_moments`.
        n_moments, n_mismatched: how many there are, and how many are more than `limit` standard errors apart.
    """

    plot: Plot
    largest_mismatches: Frame
    n_moments: int
    n_mismatched: int
    limit: float = MISMATCH_LIMIT


def summarise_moments(learned: LearnedModel) -> MomentSummary | None:
    """The moments of the weights that were learned; None where the run has none that are numbers."""
    found = learned.moments
    if found is None:
        return None
    both = np.abs((found.empirical, found.expected))
    # A weight of no factor has none, such as those of links where every variable is alone.
    places = np.flatnonzero(
        learned.layout.learnable_mask() & (both <= MAX_ABSOLUTE_EDGE).all(axis=0) & both.any(axis=0)
    )
    if not len(places):
        return None
    empirical, expected, apart = found.empirical[places], found.expected[places], found.differences[places]
    return MomentSummary(
        _plot(empirical, expected, apart),
        named_moments(learned, places[largest_indices(apart, MAX_ROWS)]),
        len(places),
        int((np.abs(apart) > MISMATCH_LIMIT).sum()),
    )


def _plot(empirical: np.ndarray, expected: np.ndarray, apart: np.ndarray) -> Plot:
    spread = np.linspace(0, len(empirical) - 1, MAX_POINTS // 2).astype(np.int64)
    shown = np.union1d(np.argsort(empirical, kind="stable")[spread], largest_indices(apart, MAX_POINTS // 2))
    ends = [float(bound([empirical[shown], expected[shown]])) for bound in (np.min, np.max)]

    def paint(axes: Any) -> None:
        axes.plot(ends, ends, color=MARK, linewidth=1.2, linestyle="--")
        axes.plot(empirical[shown], expected[shown], ".", color=FIRST, markersize=4)
        # Logarithmic, but for what is below 1: there are counts of 0, and sums of features may be negative.
        for scale in (axes.set_xscale, axes.set_yscale):
            scale("symlog", linthresh=1.0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("in the labels")
        axes.set_ylabel("expected")

    shown_of = "" if len(shown) == len(empirical) else f", {len(shown):,} of {len(empirical):,}"
    return draw("moments", paint, ((FIRST, f"weights{shown_of}"), (MARK, "where both are the same")))
