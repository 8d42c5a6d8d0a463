"""The gain and the support of each candidate that structure learning has selected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.candidates import PairSpace
from relcrf.graph.triples import PairOrTripleSpace
from relcrf.kernels.pair_gains import pair_gains
from relcrf.kernels.threads import freeze
from relcrf.learning.literal_likelihood import LiteralLikelihood


@dataclass(frozen=True)
class CandidateGains:
    """The gain and the support of each selected candidate, shape (n_chosen,).

    Args:
        gain: Decrease of the log pseudo-likelihood of the labels, in nats, if the candidate's weight is set to 0.
        support: Number of samples in which all literals of the candidate are true.
    """

    gain: np.ndarray
    support: np.ndarray


def candidate_gains(model: LiteralLikelihood, point: np.ndarray) -> CandidateGains:
    """Compute the gains of the selected candidates of a model at the given weights."""
    gain, support = np.zeros(len(model.chosen)), np.zeros(len(model.chosen))
    probability = model.residual(point)[1] + model.observed
    for number, space in enumerate(model.spaces):
        indices = model.chosen.indices_in_space(number)
        if isinstance(space, PairSpace):
            gain[indices], support[indices], repeats = _pair_gains(model, probability, space, indices, point)
            indices = indices[repeats]
        if len(indices):
            gain[indices], support[indices] = _candidate_gains(model, probability, space, indices, point)
    return CandidateGains(gain, support)


def _pair_gains(
    model: LiteralLikelihood, probability: np.ndarray, space: PairSpace, indices: np.ndarray, point: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gains and supports of chosen pairs, and a mask of those whose gain needs `_candidate_gains`."""
    literals = model.literals
    negated = replace(literals, truth_tables=tuple(freeze(1.0 - t, np.float64) for t in literals.truth_tables))
    with np.errstate(divide="ignore"):  # probabilities may be rounded to 0
        log_true, log_false = (np.log(each.expectations(probability)) for each in (literals, negated))
    gain, support, repeats = np.empty(len(indices)), np.empty(len(indices)), np.empty(len(indices), dtype=bool)
    pair_gains(
        *(side.kernel_cells for side in space.sides),
        *(freeze(keys, np.int32) for keys in model.chosen.pairs(indices).T),
        *(
            freeze(each, np.float64)
            for each in (point[model.n_base + indices], model.truth_values, log_true, log_false)
        ),
        *(literals.n_variables, literals.n_nodes, gain, support, repeats),
    )
    return gain, support, repeats


def _candidate_gains(
    model: LiteralLikelihood,
    probability: np.ndarray,
    space: PairOrTripleSpace,
    indices: np.ndarray,
    point: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gains and the supports of chosen candidates of a space; a candidate may affect a node repeatedly."""
    sides = space.sides
    *cells, index = space.matching_cells(model.chosen.pairs(indices))
    literals = [side.variable[cell] for side, cell in zip(sides, cells, strict=True)]
    truth_values = [model.truth_values[literal] for literal in literals]
    support = np.bincount(index, reduce(np.multiply, truth_values), minlength=len(indices))
    others = [reduce(np.multiply, truth_values[:k] + truth_values[k + 1 :]) for k in range(len(sides))]
    score = np.concatenate(others) * np.tile(point[model.n_base + indices][index], len(sides))
    literal, candidate = np.concatenate(literals), np.tile(index, len(sides))
    # Only nodes, which are labelled, have a term in the pseudo-likelihood.
    target = (literal % model.literals.n_variables < model.literals.n_nodes) & (score != 0.0)
    change, changed_candidate = _gains_by_node(model, probability, candidate[target], literal[target], score[target])
    return np.bincount(changed_candidate, change, minlength=len(indices)), support


def _gains_by_node(
    model: LiteralLikelihood, probability: np.ndarray, candidate: np.ndarray, literal: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each pair of a candidate and an affected node, the gain from the node's term, and the candidate.

    Args:
        probability: Flat conditional distributions of the nodes under the model with all candidates.
        candidate, literal, score: `candidate[i]` adds `score[i]` to the score of `literal[i]`; shape (n,) each.
    """
    literals, base = model.literals, model.base
    kind, node = np.divmod(literal, literals.n_variables)
    distinct, pair = np.unique(candidate.astype(np.int64) * literals.n_nodes + node, return_inverse=True)
    affected_candidate, affected_node = np.divmod(distinct, max(literals.n_nodes, 1))
    start = offsets(base.cardinality[affected_node])
    scores = np.zeros(start[-1])
    for number, truth in enumerate(literals.truth_tables):
        selected = kind == number
        for state in np.flatnonzero(truth):
            scores += np.bincount(start[pair[selected]] + state, score[selected], minlength=len(scores))
    states = np.repeat(base.state_start[affected_node] - start[:-1], np.diff(start)) + np.arange(len(scores))
    if not len(states):
        return np.empty(0), affected_candidate
    # Without the candidate, the unnormalised probability of a state is divided by exp(score).
    with np.errstate(divide="ignore"):  # probabilities may be rounded to 0
        log_weights = np.log(probability[states]) - scores
    return np.logaddexp.reduceat(log_weights, start[:-1]) + np.add.reduceat(
        scores * model.observed[states], start[:-1]
    ), affected_candidate
