"""The influence of labels on other predictions through the graph, for backends of every kind.

For backends with inference tasks, it is the mutual information of the marginals of factors (`inference/influence.py`). For
backends that propagate labels, the conditionals of linked variables are the changes of their scores by a label.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_array

from relcrf.backends.base import AbstractBackend, Problem
from relcrf.backends.inference_task import InferenceTask
from relcrf.backends.propagation import AbstractPropagationBackend, DomainPropagation, LinkedProblem
from relcrf.inference.influence import PairConditionals


def label_influence(
    system: AbstractBackend, problem: Problem, vectors: dict[str, np.ndarray], candidates: np.ndarray
) -> csr_array:
    """Return the mutual information, in nats, of candidates with other free variables, shape (n, n_variables).

    If the backend averages several distributions, the result is the mean of their information.

    Args:
        candidates: Free variables, ascending, shape (n,).

    Raises:
        UsageError: The backend has neither inference tasks nor links (E368).
    """
    if isinstance(system, AbstractPropagationBackend):
        return _propagated_influence(system, problem, vectors, candidates)
    tasks = system.inference_tasks(problem, vectors)
    return csr_array(sum(_task_influence(task, candidates, problem.graph.n_variables) for task in tasks) / len(tasks))


def _task_influence(task: InferenceTask, candidates: np.ndarray, n_variables: int) -> csr_array:
    scopes, potentials = task.graph.scopes.expand_agreements(task.potentials)
    marginals = task.method(scopes).marginals(potentials)
    marginals.verdict.raise_if_interrupted()
    conditionals = PairConditionals.from_marginals(scopes, marginals)
    return _by_variable(conditionals, task.graph.variables, candidates, n_variables)


def _by_variable(
    conditionals: PairConditionals, variables: np.ndarray, candidates: np.ndarray, n_variables: int
) -> csr_array:
    """Return the information by variable; `variables` contains the variable of each node, ascending, shape (n_nodes,)."""
    own = np.isin(candidates, variables)
    found = conditionals.information(np.searchsorted(variables, candidates[own]))
    counts = np.zeros(len(candidates), dtype=np.int64)
    counts[own] = np.diff(found.indptr)
    start = np.concatenate(([0], np.cumsum(counts)))
    return csr_array((found.data, variables[found.indices], start), shape=(len(candidates), n_variables))


def _propagated_influence(
    system: AbstractPropagationBackend,
    problem: Problem,
    vectors: Mapping[str, np.ndarray],
    candidates: np.ndarray,
) -> csr_array:
    n_variables = problem.graph.n_variables
    found = csr_array((len(candidates), n_variables))
    for each in system.propagations(LinkedProblem.build(problem, system.name), vectors):
        conditionals = propagated_conditionals(each, system.calibration.smoothing)
        found = found + _by_variable(conditionals, each.links.variables, candidates, n_variables)
    return csr_array(found)


def propagated_conditionals(propagation: DomainPropagation, smoothing: float) -> PairConditionals:
    """Return the conditionals of linked variables: a label adds its part of the neighbour's score to the probabilities.

    Let w be the score that a label adds to a neighbour, divided by all scores of the neighbour, including the smoothing. The
    conditional is then (1 - w) times the neighbour's probabilities, plus w at the state of the label.
    """
    links, last = propagation.links, propagation.last
    n_states, matrix = links.n_states, links.normalised
    row = np.repeat(np.arange(len(links.variables)), np.diff(matrix.indptr))
    added = (1.0 - last.alpha) * last.alpha * matrix.data
    # The label replaces the present source of the variable, e.g. its base prediction, which is part of the scores already.
    new = np.maximum(1.0 - last.sources.sum(axis=1), 0.0)[row] * added
    total = np.maximum(last.values, 0.0).sum(axis=1)[matrix.indices] + smoothing + new
    weight = np.minimum(added / total, 1.0)[:, None, None]
    conditional = (1.0 - weight) * propagation.probabilities[matrix.indices][:, None, :] + weight * np.eye(n_states)
    cardinality = np.full(len(links.variables), n_states, dtype=np.int32)
    pairs = [(row, matrix.indices.astype(np.int64), conditional)]
    return PairConditionals.from_pairs(pairs, cardinality, propagation.probabilities.ravel())
