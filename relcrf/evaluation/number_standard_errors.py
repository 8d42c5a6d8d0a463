"""Standard errors of all weights of a model, including those of the means, precisions and links of numbers.

The likelihood of the numbers is separate from that of the discrete variables (`backends/numeric_targets.py`), so that their
weights have separate Hessians. As in `standard_errors.py`, a Hessian is computed from differences of exact gradients, here in the
units of the optimiser, and the pseudo-likelihood requires the sandwich: the terms of two numbers covary only if the numbers are
linked.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from relcrf.backends.base import Problem
from relcrf.backends.forest_numbers import training_forest
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.number_model import NumberModel
from relcrf.backends.numeric_targets import number_optimiser, number_problem, without_numbers
from relcrf.backends.registry import make_backend
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.standard_errors import (
    DIFFERENCE_STEP,
    EXACT_SOURCE,
    SANDWICH_SOURCE,
    StandardErrors,
    error_of_weights,
    label_standard_errors,
)
from relcrf.graph.reduction import Role
from relcrf.learning.gaussian_likelihood import GaussianLikelihood, GaussianPseudoLikelihood
from relcrf.learning.number_fit import NumberProblem, minimise


def standard_errors(
    learned: LearnedModel, problem: Problem, vectors: dict[str, np.ndarray], requested: np.ndarray | None = None
) -> StandardErrors:
    """Compute the standard errors of all learned weights, or of the `MAX_SOLVED_WEIGHTS` largest requested weights.

    Args:
        problem: The training problem.
        vectors: The weight vectors in the layout of the problem's graph.
        requested: Mask of the requested weights, shape (layout.size,). Default: all.

    Raises:
        UsageError: The backend does not maximise an exact likelihood (E357).
        DataError: Training saw no numbers (E225).
    """
    learnable = problem.graph.layout.learnable_mask()
    if problem.numbers is None:
        return label_standard_errors(learned, problem, vectors, learnable, requested)
    numbers = _number_errors(learned, problem, vectors, requested)
    discrete = without_numbers(problem)
    if not (discrete.roles == Role.FREE).any():
        return numbers
    of_numbers = np.zeros_like(learnable)
    for group in problem.numbers.groups:
        problem.graph.layout.matrix(of_numbers, group.block)[:] = True
    labels = label_standard_errors(learned, discrete, vectors, learnable & ~of_numbers, requested)
    fraction = max(numbers.gradient_fraction, labels.gradient_fraction)
    source = " and ".join(dict.fromkeys((labels.source, numbers.source)))
    return StandardErrors(np.where(of_numbers, numbers.values, labels.values), fraction, source)


def _number_errors(
    learned: LearnedModel, problem: Problem, vectors: dict[str, np.ndarray], requested: np.ndarray | None
) -> StandardErrors:
    """Return the standard errors of the weights of numbers; nan for others."""
    model = NumberModel.from_vectors(vectors)
    request, l2 = learned.original_request, float(learned.summary["numeric_l2"])
    complete = number_problem(problem)
    fit, precisions, score = complete.labelled().without_pairs(), None, None
    likelihood: GaussianLikelihood | GaussianPseudoLikelihood = GaussianLikelihood(fit.graph, fit.values)
    if model.are_linked:
        optimiser = number_optimiser(make_backend(request.backend, **request.settings))
        first = minimise(fit, likelihood, l2, fit.start(), optimiser, lambda state: None)
        precisions = fit.precisions(first.point)  # as in training
        fit = complete.labelled() if request.backend == "pseudo" else complete
        if model.forest is not None:
            if request.settings.get("weights") != "tree":
                message = "standard errors are not available for numbers with the structure weights of backend 'ess'"
                raise UsageError(Diagnostic("E357", message, hint="train with --set weights=tree"))
            fit = training_forest(complete.labelled(), model.forest)
        likelihood = (GaussianPseudoLikelihood if request.backend == "pseudo" else GaussianLikelihood)(
            fit.graph, fit.values
        )
    objective, point, n = fit.objective(likelihood, l2, precisions), fit.start_at(model.weights), len(fit.indices)
    if isinstance(likelihood, GaussianPseudoLikelihood):
        score = _score_variance(fit, likelihood, point)
    start = float(np.abs(objective(fit.start())[1]).max(initial=0.0))
    fraction = float(np.abs(objective(point)[1]).max(initial=0.0)) / max(start, 1e-300)
    strength = np.zeros(len(point))
    strength[:n] = fit.strength(l2)
    means = slice(0, len(fit.kinds[0]))
    lambdas = fit.precisions(point) if precisions is None else precisions
    strength[means] = fit.mean_prior(l2, lambdas) * fit.units[means] ** 2
    selected = np.zeros(len(point), dtype=bool)
    selected[:n] = True if requested is None else requested[fit.indices]
    unit = np.ones(len(point))
    unit[:n] = fit.units
    errors = error_of_weights(
        lambda at: objective(at)[1], point, unit, np.arange(len(point)), strength, score, selected, fit.curvature
    )
    values = np.full(fit.layout.size, np.nan)
    values[fit.indices] = errors[:n]
    source = EXACT_SOURCE if likelihood.is_exact else "an estimate of the observed information"
    return StandardErrors(values, fraction, SANDWICH_SOURCE if score is not None else source)


def _score_variance(
    fit: NumberProblem, likelihood: GaussianPseudoLikelihood, point: np.ndarray
) -> Callable[[np.ndarray], float]:
    """Return a function that computes the variance of the score along a direction; see `score_covariance.py`."""
    graph, n = fit.graph, len(fit.values)
    links = csr_array((np.ones(graph.n_pairs), (graph.first, graph.second)), shape=(n, n))
    adjacency = csr_array(links + links.T)
    adjacency.data[:] = 1.0  # count repeated pairs once

    def variance_along(direction: np.ndarray) -> float:
        step = DIFFERENCE_STEP / max(float(np.abs(direction).max()), 1e-300)
        after, before = (likelihood.terms(fit.weights_at(point + sign * step * direction)) for sign in (1.0, -1.0))
        score = (after - before) / (2.0 * step)
        return float(score @ score + score @ (adjacency @ score))

    return variance_along
