"""Measures by group: how accurate and how overconfident predictions are for each value of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.data.frame import Frame
from relcrf.evaluation.intervals import percentile_interval
from relcrf.evaluation.predictions import Predictions
from relcrf.evaluation.splits import column_values
from relcrf.grounding.grounding import Grounding

MAX_GROUPS = 50
"""Maximum number of groups in a table; the largest ones have a row."""


@dataclass(frozen=True, eq=False)
class VariableGroups:
    """The groups of the variables of a ground graph.

    Args:
        column: The column whose values are the groups.
        names: The values.
        index: The group of each variable, shape (n_variables,); negative for variables without a group.
    """

    column: str
    names: tuple[str, ...]
    index: np.ndarray

    @classmethod
    def from_column(cls, grounding: Grounding, column: str) -> VariableGroups:
        """Group variables by a column of their entity; for the column and the errors see `splits.column_values`."""
        return cls(column, *column_values(grounding, column))


def measure_groups(predictions: Predictions, system: str, attribute: str, groups: VariableGroups) -> Frame:
    """Return the measures of a system on each group of the held-out labels of an attribute, largest group first.

    The columns are the group, its number of labels, accuracy, log loss (mean, in nats), confidence (the mean probability of
    the most probable value), `overconfidence` (confidence minus accuracy), and `low` and `high`, the limits of the 95 %
    bootstrap interval of the overconfidence. Those of a number are the mean absolute error, the CRPS, the coverage of
    intervals of probability 0.9, and the bias (the mean of the prediction minus the number) with its interval.
    """
    scored, clusters = predictions.pooled(system, attribute), predictions.clusters(attribute)
    group = groups.index[predictions.test_variables(attribute)]
    if predictions.is_numeric(attribute):
        names = ("mae", "crps", "coverage", "bias")
        items = scored.item_measures
        columns, bias = [items["mae"], items["crps"], items["coverage_90"]], scored.means - scored.truth
    else:
        names = ("accuracy", "log_loss", "confidence", "overconfidence")
        confidence = scored.probabilities.max(axis=1, initial=0.0)
        columns = [scored.item_measures["accuracy"], scored.item_measures["log_loss"], confidence]
        bias = confidence - columns[0]
    sizes = np.bincount(group[group >= 0], minlength=len(groups.names))
    shown = np.argsort(-sizes, kind="stable")[:MAX_GROUPS]
    shown = shown[sizes[shown] > 0]
    position = np.full(len(sizes) + 1, -1)  # the last entry is that of variables without a group
    position[shown] = np.arange(len(shown))
    resampled = clusters.resampled_means(bias[:, None], position[np.maximum(group, -1)], len(shown))[:, :, 0]
    rows = []
    for number, gaps in zip(shown.tolist(), resampled.T, strict=True):
        members = np.flatnonzero(group == number)
        interval = percentile_interval(gaps)
        means = (float(values[members].mean()) for values in columns)
        rows.append((groups.names[number], len(members), *means, float(bias[members].mean()), *interval))
    figures = dict.fromkeys((*names, "low", "high"), float)
    return Frame.from_rows({groups.column: object, "labels": int, **figures}, rows)
