"""What chosen candidates are worth: how much less probable the labels would be without each, and how often it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.learning.literal_likelihood import LiteralLikelihood


@dataclass(frozen=True)
class CandidateGains:
    """Of each chosen candidate, shape (n_chosen,).

    Args:
        gain: log pseudo-likelihood of the labels, less that with the candidate's weight set to 0 and all else as it is; nats.
        support: samples in which it holds.
    """

    gain: np.ndarray
    support: np.ndarray


def candidate_gains(model: LiteralLikelihood, point: np.ndarray) -> CandidateGains:
    """What the chosen candidates of a model are worth at some weights."""
    gain, support = np.zeros(len(model.chosen)), np.zeros(len(model.chosen))
    probability = model.residual(point)[1] + model.observed
    for number, space in enumerate(model.spaces):
        places, sides = model.chosen.indices_in_space(number), space.sides
        *cells, which = space.matching_cells(model.chosen.pairs(places))
        literals = [side.variable[cell] for side, cell in zip(sides, cells, strict=True)]
        holds = [model.truth_values[literal] for literal in literals]
        support[places] = np.bincount(which, reduce(np.multiply, holds), minlength=len(places))
        others = [reduce(np.multiply, holds[:k] + holds[k + 1 :]) for k in range(len(sides))]
        score = np.concatenate(others) * np.tile(point[model.n_base + places][which], len(sides))
        literal, candidate = np.concatenate(literals), np.tile(which, len(sides))
        # A variable without a label is a neighbour and no target.
        target = literal % model.literals.n_variables < model.literals.n_nodes
        change, of = _likelihood_changes(model, probability, candidate[target], literal[target], score[target])
        gain[places] = np.bincount(of, change, minlength=len(places))
    return CandidateGains(gain, support)


def _likelihood_changes(
    model: LiteralLikelihood, probability: np.ndarray, candidate: np.ndarray, literal: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each node that a candidate acts on, how much more probable its label is with the candidate; and the candidate.

    Args:
        probability: flat node tables of all states, with all candidates.
        candidate, literal, score: what candidates add to the scores of literals, shape (n,) each.
    """
    literals, base = model.literals, model.base
    kind, node = np.divmod(literal, literals.n_variables)
    distinct, place = np.unique(candidate.astype(np.int64) * literals.n_nodes + node, return_inverse=True)
    of, at = np.divmod(distinct, max(literals.n_nodes, 1))
    start = offsets(base.cardinality[at])
    scores = np.zeros(start[-1])
    for number, truth in enumerate(literals.truth_tables):
        here = kind == number
        for state in np.flatnonzero(truth):
            scores += np.bincount(start[place[here]] + state, score[here], minlength=len(scores))
    states = np.repeat(base.state_start[at] - start[:-1], np.diff(start)) + np.arange(len(scores))
    if not len(states):
        return np.empty(0), of
    # Without the candidate a state's odds are those of now over exp(score).
    with np.errstate(divide="ignore"):  # a probability may have been rounded to 0
        left = np.log(probability[states]) - scores
    return np.logaddexp.reduceat(left, start[:-1]) + np.add.reduceat(scores * model.observed[states], start[:-1]), of
