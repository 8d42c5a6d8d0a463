"""Learning of evidence-specific forests of numbers by backend `ess`.

The structure weights maximise the product of the likelihoods of links, each of which is a separate model of two numbers. The
other weights maximise the likelihood of the labelled numbers on the maximum spanning forest of the links between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from relcrf.backends.ess import MIN_GAIN, MIN_STANDARD_ERRORS, EssBackend
from relcrf.backends.number_model import NumberModel
from relcrf.inference.gaussian import ConditionalPattern
from relcrf.learning.gaussian_likelihood import GaussianLikelihood, NumberWeights, NumericLikelihood
from relcrf.learning.lbfgs import OptimiserState
from relcrf.learning.number_fit import NumberProblem
from relcrf.structure.number_forest import NumberForest

Summary: TypeAlias = dict[str, float | int | str]
"""Values for the summary of a training run."""


COMPARED_FOLDS = 5
"""Number of folds in the comparison of structures. On a grid of 900 numbers, half of them unknown, all links to known numbers
gain 0.034 nats in prediction. The comparison finds a gain of 0.009 with five folds, and none if half of the labels are hidden."""


def learn_forest(
    labelled: NumberProblem,
    single: NumberWeights,
    backend: EssBackend,
    learn: Callable[[str, NumberProblem, NumericLikelihood, np.ndarray], OptimiserState],
) -> tuple[NumberModel, tuple[tuple[str, OptimiserState], ...], Summary]:
    """Learn the structure weights, select a forest, and learn the weights on it.

    Args:
        labelled: The labelled numbers with all pairs.
        single: The weights of numbers without pairs.
        learn: Function that maximises a likelihood, given the name of the stage, the problem, the likelihood, and the start.

    Returns:
        The learned distribution, the stages of learning, and values for the summary.
    """
    graph = labelled.graph
    rows, copies = graph.separate_links()
    separate = replace(labelled, graph=copies, values=labelled.values[rows], is_forest=True)
    likelihood = GaussianLikelihood(copies, separate.values)
    pairs = learn("number structure", separate, likelihood, separate.start_at(single))
    # Numbers with many links dominate the product of likelihoods, so that only the weights of pairs are used.
    combined, of_pairs = single.weights.copy(), labelled.kinds[2]
    combined[of_pairs] = separate.weights_at(pairs.point).weights[of_pairs]
    structure = NumberWeights(combined, single.offset, is_forest=True)
    rule = NumberForest(structure, backend.min_information, uses_known=backend.edges == "all")
    fit = training_forest(labelled, rule)
    selected = fit.graph
    stages: tuple[tuple[str, OptimiserState], ...] = (("number structure", pairs),)
    weights = structure
    if backend.weights == "tree":
        joint = learn("all numbers", fit, GaussianLikelihood(selected, fit.values), fit.start_at(structure))
        # A weight of pairs that the forest omits keeps its structure weight.
        weights, omitted = fit.weights_at(joint.point), np.setdiff1d(of_pairs, fit.kinds[2])
        weights.weights[omitted] = combined[omitted]
        stages = (*stages, ("all numbers", joint))
    summary: Summary = {
        "numeric_links": len(graph.links[0]),
        "numeric_forest_links": len(selected.links[0]),
    }
    if backend.edges == "auto":
        rule, densities = _choose_links(labelled, weights, rule)
        summary |= densities
    summary["numeric_edges"] = "all" if rule.uses_known else "tree"
    return NumberModel(weights, are_linked=True, forest=rule), stages, summary


def training_forest(labelled: NumberProblem, rule: NumberForest) -> NumberProblem:
    """Return the labelled numbers with the forest of links on which the weights are learned."""
    selected = replace(rule, uses_known=False).select(labelled.graph, np.zeros(len(labelled.values), dtype=bool))
    return replace(labelled, graph=selected, is_forest=True)


def _choose_links(labelled: NumberProblem, weights: NumberWeights, rule: NumberForest) -> tuple[NumberForest, Summary]:
    """Return the rule with all links to known numbers if it predicts the labels better, each fold given the other folds.

    Returns:
        The rule, and the mean log densities of the labels.
    """
    graph, n = labelled.graph, len(labelled.values)
    fold = np.random.default_rng(0).permutation(n) % COMPARED_FOLDS
    root = np.exp(0.5 * weights.log_precision(graph))
    u = root * (labelled.values - weights.mean(graph))
    rules = [replace(rule, uses_known=uses_known) for uses_known in (False, True)]
    logs = np.zeros((2, n))
    for one, log in zip(rules, logs, strict=True):
        for number in range(COMPARED_FOLDS):
            selected = one.select(graph, fold != number)
            pattern = ConditionalPattern(n, selected.first, selected.second, fold != number)
            means, inverse = pattern.condition(weights.pairs(selected), u)
            error, variances, hidden = u - means, inverse.variances, pattern.unknown
            log[hidden] = np.log(root[hidden]) - 0.5 * (
                error[hidden] ** 2 / variances + np.log(2.0 * np.pi * variances)
            )
    gain = logs[1] - logs[0]
    is_better = gain.mean() > max(MIN_GAIN, MIN_STANDARD_ERRORS * gain.std() / np.sqrt(n))
    densities = dict(zip(("tree", "all"), logs.mean(axis=1).tolist(), strict=True))
    return rules[int(is_better)], {f"numeric_log_density_{name}": value for name, value in densities.items()}
