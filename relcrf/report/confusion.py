"""Which values are taken for which, and the wrong answers that were the surest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.evaluation.measures import ScoredLabels

MOST_STATES = 12
"""Of a matrix; of more states the pairs that are confused the most are listed."""

MOST_PAIRS = 15
MOST_MISTAKES = 10


@dataclass(frozen=True)
class Line:
    """What becomes of the labels of one value.

    Args:
        answers: how often each value is the answer. shares: of the labels, from 0 to 1.
        recall, precision: None where the value is no label, or no answer.
    """

    value: str
    answers: tuple[int, ...]
    shares: tuple[float, ...]
    recall: float | None
    precision: float | None


@dataclass(frozen=True)
class Pair:
    """How many of the labels of one value are taken for another."""

    truth: str
    answer: str
    count: int
    labels: int


@dataclass(frozen=True)
class Mistake:
    """A wrong answer with its probability, and that of the label."""

    name: str
    truth: str
    answer: str
    probability: float
    of_truth: float


@dataclass(frozen=True)
class Confusion:
    """
    Args:
        lines: one a value; empty where there are more than `MOST_STATES`.
        pairs: of different values, the most frequent first.
        mistakes: the surest first.
    """

    values: tuple[str, ...]
    lines: tuple[Line, ...]
    pairs: tuple[Pair, ...]
    mistakes: tuple[Mistake, ...]


def confusion(scored: ScoredLabels, values: Sequence[str], names: Sequence[str]) -> Confusion:
    """Of what is held out of one attribute.

    Args:
        values: of the states. names: of what each answer is about.
    """
    k = len(values)
    counts = np.bincount(scored.truth * k + scored.modes, minlength=k * k).reshape(k, k)
    lines = tuple(_line(counts, values, state) for state in range(k)) if k <= MOST_STATES else ()
    wrong = np.where(np.eye(k, dtype=bool), 0, counts)
    most = [divmod(int(place), k) for place in np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]]
    pairs = tuple(
        Pair(values[truth], values[answer], int(wrong[truth, answer]), int(counts[truth].sum()))
        for truth, answer in most
        if wrong[truth, answer]
    )
    return Confusion(tuple(values), lines, pairs, _mistakes(scored, values, names))


def _line(counts: np.ndarray, values: Sequence[str], state: int) -> Line:
    own, answers = counts[state], int(counts[:, state].sum())
    labels, right = int(own.sum()), int(own[state])
    shares = own / max(labels, 1)
    return Line(
        values[state],
        tuple(own.tolist()),
        tuple(shares.tolist()),
        right / labels if labels else None,
        right / answers if answers else None,
    )


def _mistakes(scored: ScoredLabels, values: Sequence[str], names: Sequence[str]) -> tuple[Mistake, ...]:
    confidence, _ = scored.bins
    wrong = np.flatnonzero(scored.modes != scored.truth)
    surest = wrong[np.argsort(-confidence[wrong], kind="stable")[:MOST_MISTAKES]]
    return tuple(
        Mistake(
            names[k],
            values[scored.truth[k]],
            values[scored.modes[k]],
            float(confidence[k]),
            float(scored.probabilities[k, scored.truth[k]]),
        )
        for k in surest.tolist()
    )
