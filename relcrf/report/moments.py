"""Empirical moments and moments expected by the model: a plot of all moments, and a table of the largest mismatches."""

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
"""Maximum number of rows of the table."""

MAX_POINTS = 1000
"""Maximum number of points of the plot: half are the largest mismatches, half are spread evenly over all moments."""

N_TICKS = 5
"""Number of ticks that the locator of the horizontal axis aims at; the labels of more ticks overlap."""

MISMATCH_LIMIT = 2.0
"""Difference in standard errors above which a moment counts as mismatched."""


@dataclass(frozen=True)
class MomentSummary:
    """A comparison of the empirical moments with the moments that the model expects.

    Args:
        largest_mismatches: The largest mismatches in descending order; see `named_moments`.
        n_moments, n_mismatched: The number of moments, and of moments that differ by more than `limit` standard errors.
    """

    plot: Plot
    largest_mismatches: Frame
    n_moments: int
    n_mismatched: int
    limit: float = MISMATCH_LIMIT


def summarise_moments(learned: LearnedModel) -> MomentSummary | None:
    """Compare the moments of the learned weights; return None if the run has no finite moments."""
    stored = learned.moments
    if stored is None:
        return None
    magnitudes = np.abs((stored.empirical, stored.expected))
    # Omit weights without training factors: their two moments are stored as 0.
    offsets = np.flatnonzero(
        learned.layout.learnable_mask() & (magnitudes <= MAX_ABSOLUTE_EDGE).all(axis=0) & magnitudes.any(axis=0)
    )
    if not len(offsets):
        return None
    empirical, expected, differences = stored.empirical[offsets], stored.expected[offsets], stored.differences[offsets]
    return MomentSummary(
        _plot(empirical, expected, differences),
        named_moments(learned, offsets[largest_indices(differences, MAX_ROWS)]),
        len(offsets),
        int((np.abs(differences) > MISMATCH_LIMIT).sum()),
    )


def _plot(empirical: np.ndarray, expected: np.ndarray, differences: np.ndarray) -> Plot:
    spread = np.linspace(0, len(empirical) - 1, MAX_POINTS // 2).astype(np.int64)
    shown = np.union1d(np.argsort(empirical, kind="stable")[spread], largest_indices(differences, MAX_POINTS // 2))
    limits = [float(bound([empirical[shown], expected[shown]])) for bound in (np.min, np.max)]

    def paint(axes: Any) -> None:
        axes.plot(limits, limits, color=MARK, linewidth=1.2, linestyle="--")
        axes.plot(empirical[shown], expected[shown], ".", color=FIRST, markersize=4)
        # Symmetric logarithmic scale, linear below 1, because moments may be 0 or negative.
        for scale in (axes.set_xscale, axes.set_yscale):
            scale("symlog", linthresh=1.0)
        axes.xaxis.get_major_locator().set_params(numticks=N_TICKS)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("empirical moment")
        axes.set_ylabel("expected moment")

    note = "" if len(shown) == len(empirical) else f", {len(shown):,} of {len(empirical):,}"
    return draw("moments", paint, ((FIRST, f"weights{note}"), (MARK, "equality")))
