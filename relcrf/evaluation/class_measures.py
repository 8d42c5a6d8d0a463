"""Measures of each value of an attribute: precision, recall, F1, and the curves over all thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relcrf.data.frame import Frame
from relcrf.evaluation.measures import ScoredLabels

MAX_VALUES = 50
"""Maximum number of values in the table of measures; the most frequent ones have a row."""

Curve = tuple[np.ndarray, np.ndarray]
"""Horizontal and vertical coordinates of the points of a curve, shape (n_points,) each."""


def measure_classes(scored: ScoredLabels, values: Sequence[str]) -> Frame:
    """Return `value`, `precision`, `recall`, `f1` and `support` of the values that occur or are predicted, most frequent first.

    A measure without predictions or labels of the value is nan.

    Args:
        values: The names of the states.
    """
    k = len(values)
    correct, labels, predicted = (
        np.bincount(states, minlength=k)
        for states in (scored.truth[scored.truth == scored.modes], scored.truth, scored.modes)
    )
    rows = np.argsort(-labels, kind="stable")
    rows = rows[labels[rows] + predicted[rows] > 0][:MAX_VALUES]
    columns = {
        name: np.divide(n, total, out=np.full(k, np.nan), where=total > 0)[rows]
        for name, n, total in (
            ("precision", correct, predicted),
            ("recall", correct, labels),
            ("f1", 2 * correct, labels + predicted),
        )
    }
    return Frame({"value": np.array([*values], dtype=object)[rows], **columns, "support": labels[rows]})


def count_above_thresholds(scored: ScoredLabels, state: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count the items whose probability of a state reaches a threshold, for each distinct probability, descending.

    Returns:
        The thresholds, the numbers of items with this label (true positives), and those of other items (false
        positives); the first threshold is infinite, with counts of 0. Shape (n_thresholds + 1,) each.
    """
    order = np.argsort(-scored.probabilities[:, state], kind="stable")
    probabilities, is_state = scored.probabilities[order, state], scored.truth[order] == state
    last = np.flatnonzero(np.append(probabilities[1:] != probabilities[:-1], True)[: len(order)])
    true, false = (np.append(0, np.cumsum(mask)[last]) for mask in (is_state, ~is_state))
    return np.append(np.inf, probabilities[last]), true, false


def roc_curve(scored: ScoredLabels, state: int) -> Curve:
    """Return the false positive rates and the true positive rates of a state against the rest; nan if undefined."""
    _, true, false = count_above_thresholds(scored, state)
    with np.errstate(invalid="ignore"):
        return false / false[-1], true / true[-1]


def precision_recall_curve(scored: ScoredLabels, state: int) -> Curve:
    """Return the recalls and the precisions of a state against the rest, without the point of no predictions."""
    _, true, false = count_above_thresholds(scored, state)
    with np.errstate(invalid="ignore"):
        return true[1:] / true[-1], true[1:] / (true[1:] + false[1:])
