"""Confusions between values, and the most confident errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.data.frame import Frame
from relcrf.evaluation.measures import ScoredLabels

MAX_STATES = 12
"""Maximum number of states of a confusion matrix; with more states, only the most frequent confusions are listed."""

MAX_PAIRS = 15
MAX_MISTAKES = 10

MAX_EXAMPLES = 3
"""Maximum number of examples of one confusion."""


@dataclass(frozen=True)
class Confusion:
    """The errors of the predictions of one attribute.

    Args:
        counts: The confusion matrix, one row per true value and one column per predicted value; empty with more than
            `MAX_STATES` values.
        pairs: The most frequent confusions, most frequent first; columns: `truth`, `answer` (the predicted value),
            `count`, `labels` (the number of labels with the true value) and `examples` (the variables with the most
            confident of these errors).
        mistakes: The most confident errors, most confident first; columns: `name`, `truth`, `answer`, `probability`
            (the probability of the predicted value) and `of_truth` (the probability of the true value).
    """

    values: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    pairs: Frame
    mistakes: Frame


def count_confusions(scored: ScoredLabels, values: Sequence[str], names: Sequence[str]) -> Confusion:
    """Count the confusions among the held-out labels of one attribute.

    Args:
        values: The names of the states.
        names: The names of the variables.
    """
    k, texts = len(values), np.array([*values], dtype=object)
    confidence, _ = scored.confidence_bins
    mistaken = np.flatnonzero(scored.modes != scored.truth)
    mistaken = mistaken[np.argsort(-confidence[mistaken], kind="stable")]
    cells = scored.truth.astype(np.int64) * k + scored.modes
    # The cells are counted one by one: a matrix of thousands of values would exhaust the memory.
    wrong, counts = np.unique(cells[mistaken], return_counts=True)
    shown = np.argsort(-counts, kind="stable")[:MAX_PAIRS]
    truth, answer = np.divmod(wrong[shown], k)
    examples = [
        ", ".join(f"{names[one]} ({confidence[one]:.0%})" for one in mistaken[cells[mistaken] == cell][:MAX_EXAMPLES])
        for cell in wrong[shown]
    ]
    pairs = {
        "truth": texts[truth],
        "answer": texts[answer],
        "count": counts[shown],
        "labels": np.bincount(scored.truth, minlength=k)[truth],
        "examples": np.array([*examples, ""], dtype=object)[:-1],
    }
    mistaken = mistaken[:MAX_MISTAKES]
    mistakes = {
        "name": np.array(names, dtype=object)[mistaken],
        "truth": texts[scored.truth[mistaken]],
        "answer": texts[scored.modes[mistaken]],
        "probability": confidence[mistaken],
        "of_truth": scored.probabilities[mistaken, scored.truth[mistaken]],
    }
    matrix = np.bincount(cells, minlength=k * k).reshape(k, k).tolist() if k <= MAX_STATES else []
    return Confusion(tuple(values), tuple(map(tuple, matrix)), Frame(pairs), Frame(mistakes))
