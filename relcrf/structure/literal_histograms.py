"""How large the errors and the signals of literals are: what thresholds of contrastive feature induction leave of them."""

from __future__ import annotations

import numpy as np

from relcrf.learning.histogram import Histogram
from relcrf.learning.induced import AbstractInduced
from relcrf.structure.candidate_scores import Scorer, key_means

EDGES = np.round(np.linspace(-1.0, 1.0, 101), 2)
"""Of the bins: errors and signals are differences of probabilities."""


def literal_histograms(model: AbstractInduced, point: np.ndarray, scorer: Scorer) -> dict[str, Histogram]:
    """`errors` and `signals` of all cells of all sides of a model's spaces at some weights, as the scorer goes through them.

    Args:
        point: shape (n_base + n_chosen,).
        scorer: whose thresholds the histograms tell; where it is exhaustive they do not act.
    """
    errors, holds = model.errors_and_signals(point)
    sides = [side for pair in model.sides for side in pair]
    least_error, least_signal = (None, None) if scorer.exhaustive else (scorer.least_error, scorer.least_signal)
    signals = (holds[side.variable] - key_means(side, holds[side.variable])[side.key] for side in sides)
    return {
        "errors": Histogram.of((errors[side.variable] for side in sides), EDGES, least_error),
        "signals": Histogram.of(signals, EDGES, least_signal),
    }
