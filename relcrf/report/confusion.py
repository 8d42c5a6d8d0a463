"""Which values are taken for which, and the wrong answers that were the surest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.data.frame import Frame
from relcrf.evaluation.measures import ScoredLabels

MAX_STATES = 12
"""Maximum number of states of a matrix; of more states the pairs that are confused the most are listed."""

MAX_PAIRS = 15
MAX_MISTAKES = 10


@dataclass(frozen=True)
class Confusion:
    """The wrong answers for one attribute.

    Args:
        counts: A row per value that is a label, with the number of times that each value is the answer; empty where there
            are more values than `MOST_STATES`.
        pairs: Of different values, the most frequent first: `truth`, `answer`, `count`, and `labels` of the truth's value.
        mistakes: The most confident first: `name`, `truth`, `answer`, the `probability` of the answer, and that `of_truth`.
    """

    values: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    pairs: Frame
    mistakes: Frame


def count_confusions(scored: ScoredLabels, values: Sequence[str], names: Sequence[str]) -> Confusion:
    """Count which values are taken for which among the held-out labels of one attribute.

    Args:
        values: Of the states. names: Of the variables.
    """
    k, texts = len(values), np.array([*values], dtype=object)
    counts = np.bincount(scored.truth * k + scored.modes, minlength=k * k).reshape(k, k)
    labels, right = counts.sum(axis=1), counts.diagonal()
    wrong = counts - np.diag(right)
    truth, answer = np.divmod(
        np.argsort(-wrong, axis=None, kind="stable")[: min(MAX_PAIRS, np.count_nonzero(wrong))], k
    )
    pairs = {"truth": texts[truth], "answer": texts[answer], "count": wrong[truth, answer], "labels": labels[truth]}
    confidence, _ = scored.confidence_bins
    mistaken = np.flatnonzero(scored.modes != scored.truth)
    mistaken = mistaken[np.argsort(-confidence[mistaken], kind="stable")[:MAX_MISTAKES]]
    mistakes = {
        "name": np.array(names, dtype=object)[mistaken],
        "truth": texts[scored.truth[mistaken]],
        "answer": texts[scored.modes[mistaken]],
        "probability": confidence[mistaken],
        "of_truth": scored.probabilities[mistaken, scored.truth[mistaken]],
    }
    shown = tuple(map(tuple, counts.tolist())) if k <= MAX_STATES else ()
    return Confusion(tuple(values), shown, Frame(pairs), Frame(mistakes))
