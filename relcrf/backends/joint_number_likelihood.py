"""The joint likelihood of held-out categories and numbers, given the observed ones.

It is p(x_H | x_E, y_E) p(y_H | x, y_E) for the held-out categories x_H and numbers y_H, and the observed ones x_E and y_E. In the
first distribution, the observed numbers are factors over the categories on which they depend, see `number_inference.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.number_inference import DiscreteInference, infer_posterior
from relcrf.backends.number_model import NumberModel
from relcrf.errors import DataError, Diagnostic
from relcrf.graph.numeric_graph import lacks_states, numeric_graph
from relcrf.graph.reduction import Role
from relcrf.learning.gaussian_likelihood import GaussianLikelihood


def joint_log_density(
    problem: Problem,
    vectors: dict[str, np.ndarray],
    infer: DiscreteInference,
    evaluate: Callable[[Problem, dict[str, np.ndarray]], float],
) -> float:
    """Return the log density of the states and numbers of the free variables, given the clamped ones.

    Args:
        infer: Function that infers the marginals of the discrete variables.
        evaluate: Function that returns the log probability of the states of the free variables of a problem without numbers.

    Raises:
        DataError: If a number depends on a category without a label, so that its density is a mixture (E379), or if training
            saw no numbers (E225).
    """
    targets = problem.numbers
    assert targets is not None
    posterior = infer_posterior(problem, vectors, infer)
    has_free = bool((posterior.problem.roles == Role.FREE).any())
    discrete = evaluate(posterior.problem, posterior.vectors) if has_free else 0.0
    model = NumberModel.from_vectors(vectors)
    states = np.where(problem.roles == Role.ABSENT, -1, problem.states)
    graph = numeric_graph(targets, states)
    graph = graph.select(problem.roles[graph.variables] != Role.ABSENT)
    role, lacks = problem.roles[graph.variables], lacks_states(targets, states)[graph.variables]
    values = targets.values[graph.variables]
    if (lacks & ~np.isnan(values) & ((role == Role.FREE) | model.are_linked)).any():
        message = "the joint log-likelihood does not support numbers that depend on categories without labels"
        hint = "label these categories, or remove the values of these numbers"
        raise DataError(Diagnostic("E379", message, hint=hint))
    known = np.where(lacks, np.nan, values)
    observed = np.where(role == Role.CLAMPED, known, np.nan)
    linked = model.select(graph, ~np.isnan(observed))
    before, after = (GaussianLikelihood(linked, each)(model.weights)[0] for each in (observed, known))
    return discrete + before - after
