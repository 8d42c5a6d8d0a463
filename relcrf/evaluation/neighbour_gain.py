"""The gain of a relational model over the local model, by the number of labelled neighbours of a variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from relcrf.evaluation.intervals import MIN_CLUSTERS, Interval, percentile_interval
from relcrf.evaluation.predictions import LOCAL, Predictions

NEIGHBOUR_BINS = ((0, 0), (1, 1), (2, 2), (3, 5), (6, None))
"""Lowest and highest number of labelled neighbours of each row; the last row has no upper limit."""


@dataclass(frozen=True)
class NeighbourGain:
    """The accuracy or error of a model and of `local` on the variables with a number of labelled neighbours.

    Args:
        measures: The measure of each of the two systems with its 95 % bootstrap interval, by the system's name.
        gain: The paired difference in the measure, with its interval; positive if the model is better than `local`.
        is_reliable: Whether the bootstrap resamples enough units for a verdict.
    """

    neighbours: str
    n_labels: int
    measures: Mapping[str, tuple[float, Interval]]
    gain: tuple[float, Interval]
    is_reliable: bool

    @property
    def tone(self) -> str:
        """The style class: `good` or `bad` if the interval of the gain excludes 0, otherwise `unclear`."""
        low, high = self.gain[1]
        if self.is_reliable and low > 0.0:
            return "good"
        return "bad" if self.is_reliable and high < 0.0 else "unclear"


def gain_by_neighbours(
    results: Predictions, system: str, attribute: str, n_neighbours: np.ndarray, measure: str = "accuracy"
) -> tuple[NeighbourGain, ...]:
    """Compare a system with `local` on the test labels with each number of labelled neighbours.

    Args:
        n_neighbours: The number of labelled neighbours of each test label, in the order of `Predictions.pooled`.
        measure: A measure that is a mean over labels; lower values are better for all but `accuracy`.
    """
    scored = {name: results.pooled(name, attribute).item_measures[measure] for name in (system, LOCAL)}
    sign = 1.0 if measure == "accuracy" else -1.0
    clusters = results.clusters(attribute)
    gain = sign * (scored[system] - scored[LOCAL])
    columns = np.column_stack([*scored.values(), gain])
    limits = [(low, np.inf if high is None else high) for low, high in NEIGHBOUR_BINS]
    masks = [(n_neighbours >= low) & (n_neighbours <= high) for low, high in limits]
    group = np.select(masks, range(len(masks)), default=-1)
    resampled = clusters.resampled_means(columns, group, len(masks))
    rows = []
    for number, (low, high) in enumerate(NEIGHBOUR_BINS):
        items = np.flatnonzero(group == number)
        if not len(items):
            continue
        *estimates, gain_estimate = (
            (float(values.mean()), percentile_interval(means))
            for values, means in zip(columns[items].T, resampled[:, number].T, strict=True)
        )
        by_system = dict(zip(scored, estimates, strict=True))
        text = str(low) if low == high else f"{low} or more" if high is None else f"{low} to {high}"
        is_reliable = len(np.unique(clusters.index[items])) >= MIN_CLUSTERS
        rows.append(NeighbourGain(text, len(items), by_system, gain_estimate, is_reliable))
    return tuple(rows)
