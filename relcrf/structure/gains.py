"""What chosen candidates are worth: how much less probable the labels would be without each, and how often it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from relcrf.graph.triples import Space
from relcrf.learning.induced import InducedLikelihood


@dataclass(frozen=True)
class Worth:
    """Of each chosen candidate, shape (n_chosen,).

    Args:
        gain: log pseudo-likelihood of the labels, less that with the candidate's weight set to 0 and all else as it is; nats.
        support: samples in which it holds.
    """

    gain: np.ndarray
    support: np.ndarray


def worth(model: InducedLikelihood, spaces: Sequence[Space], point: np.ndarray) -> Worth:
    """What the chosen candidates of a model are worth at some weights."""
    gain, support = np.zeros(len(model.chosen)), np.zeros(len(model.chosen))
    probability = model.literals.expectations(model.residual(point)[1] + model.observed) + model.filled
    for number, (space, sides) in enumerate(zip(spaces, model.sides, strict=True)):
        places = model.chosen.places(number)
        *cells, which = space.placed(sides).cells(model.chosen.pairs(places))
        literals = [side.variable[cell] for side, cell in zip(sides, cells, strict=True)]
        holds = [model.holds[literal] for literal in literals]
        support[places] = np.bincount(which, reduce(np.multiply, holds), minlength=len(places))
        others = [reduce(np.multiply, holds[:k] + holds[k + 1 :]) for k in range(len(sides))]
        own = np.concatenate(literals)
        # A variable without a label is a neighbour and no target.
        target = own % model.literals.n_places < model.literals.n_nodes
        gain[places] = _gain(
            np.tile(which, len(sides))[target],
            own[target],
            np.concatenate(others)[target],
            point[model.n_base + places],
            probability,
            model.holds,
        )
    return Worth(gain, support)


def _gain(
    which: np.ndarray,
    literal: np.ndarray,
    others_hold: np.ndarray,
    weights: np.ndarray,
    probability: np.ndarray,
    holds: np.ndarray,
) -> np.ndarray:
    """The part of the literals that a candidate joins to others, shape (n_candidates,)."""
    numbers = which.astype(np.int64) * len(probability) + literal
    distinct, place = np.unique(numbers, return_inverse=True)
    candidate, at = np.divmod(distinct, max(len(probability), 1))
    score = np.bincount(place, others_hold, minlength=len(distinct)) * weights[candidate]
    # Without the candidate the literal's odds are those of now over exp(score).
    with np.errstate(divide="ignore"):  # a probability may have been rounded to 0 or 1
        change = np.logaddexp(np.log1p(-probability[at]), np.log(probability[at]) - score) + score * holds[at]
    return np.bincount(candidate, change, minlength=len(weights))
