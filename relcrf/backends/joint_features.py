"""Learned features that are trained together with the model, in alternating rounds.

In each round, the backend `auto` learns the model with the current values of the features. Then the classifiers also learn
from the entities without labels, whose targets are the marginals of the model: words that only occur near certain labels
become evidence of their own.

Source: Zhao et al. (2023), Learning on large-scale text-attributed graphs via variational inference (GLEM); Qu, Bengio & Tang
(2019), GMNN: Graph Markov Neural Networks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.backends.base import Monitor, Problem
from relcrf.backends.registry import make_backend
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.unaries.application import Marginals

TEACHER = "auto"
"""The backend whose marginals are targets."""


def learn_marginals(grounding: Grounding, problem: Problem) -> Marginals:
    """Learn a model, and return the function that computes its marginals given some labels.

    Args:
        problem: The problem of learning from the training labels of the ground graph.

    Raises:
        UsageError, DataError: The backend rejects the model or the data.
    """
    system = make_backend(TEACHER)
    learned = system.fit(problem, Monitor())
    configured = learned.configure(system)

    def marginals(evidence: np.ndarray, variables: slice, n_states: int) -> np.ndarray:
        roles = np.where(evidence, Role.CLAMPED, Role.FREE).astype(np.int8)
        states = np.where(evidence, grounding.states, -1)
        query = replace(problem, roles=roles, states=states, queries=~evidence).with_candidates(
            learned.chosen_candidates
        )
        inferred = configured.infer(query, learned.vectors)
        inferred.verdict.raise_if_interrupted()
        is_asked = (inferred.variables >= variables.start) & (inferred.variables < variables.stop)
        asked = inferred.select_variables(is_asked)
        out = np.zeros((variables.stop - variables.start, n_states))
        known = np.flatnonzero(evidence[variables])
        out[known, states[variables][known]] = 1.0
        out[asked.variables - variables.start] = asked.marginals.reshape(-1, n_states)
        return out

    return marginals
