"""The exactness of marginals, on small connected parts of a graph for which the true ones can be computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from relcrf.backends.base import AbstractBackend, FitResult, Problem
from relcrf.evaluation.measures import MIN_PROBABILITY
from relcrf.graph.adjacency import adjacency_matrix, list_neighbours, unconditional_components
from relcrf.graph.factor_graph import RepeatedScope
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.inference.clique_tree import CliqueTooLargeError
from relcrf.inference.junction_tree import JunctionTree
from relcrf.kernels.distinct import distinct

JOINT_BITS = 20.0
"""Maximum log2 of the joint states of a part; 2**20 can be enumerated."""

MAX_VARIABLES = 16

MAX_TREE_BYTES = 1 << 28
"""Bytes of the junction tree's tables. Parts that chosen candidates have joined may be larger than they were drawn."""


@dataclass(frozen=True)
class Exactness:
    """The error of marginals, compared with the true ones under the same weights.

    Args:
        divergence: Kullback-Leibler divergence of the system's marginals from the true ones, a mean over variables, in nats.
        max_error: the largest error of a probability.
        n_variables: how many were compared, in how many connected parts.
    """

    divergence: float
    max_error: float
    n_variables: int
    n_subgraphs: int


def sample_subgraphs(problem: Problem, n_subgraphs: int, seed: int) -> tuple[np.ndarray, int]:
    """Draw labelled variables in connected parts that do not touch each other, each of at most 2^`JOINT_BITS` joint states.

    Each part grows from a labelled variable over its labelled neighbours, in random order.

    Args:
        problem: of learning from all labels.

    Returns:
        Which variables, shape (n_variables,), bool; and the number of parts, fewer where there is no room for more.
    """
    rng = np.random.default_rng(seed)
    if not n_subgraphs:
        return np.zeros(problem.graph.n_variables, dtype=bool), 0
    free = (problem.roles == Role.FREE) & (problem.states >= 0)
    adjacency = adjacency_matrix(problem.graph)
    component = unconditional_components(problem.graph)
    # Of repeated structure the neighbours are not all known: only parts in different rows are sure not to touch.
    apart = any(isinstance(group.scope, RepeatedScope) for group in problem.graph.groups)
    chosen, number = np.zeros(len(free), dtype=bool), 0
    for start in rng.permutation(np.flatnonzero(free)).tolist():
        if number == n_subgraphs:
            break
        if not free[start]:
            continue
        part = _grow_subgraph(problem, adjacency, free, start, rng)
        chosen[part] = True
        free[part] = False
        free[list_neighbours(adjacency, part)] = False
        if apart:
            free &= component != component[start]
        number += 1
    return chosen, number


def _grow_subgraph(
    problem: Problem, adjacency: csr_array, free: np.ndarray, start: int, rng: np.random.Generator
) -> np.ndarray:
    part, bits = [start], float(np.log2(problem.graph.cardinality[start]))
    waiting = [start]
    while waiting:
        around = distinct(list_neighbours(adjacency, np.array([waiting.pop(0)])))
        for variable in rng.permutation(around[free[around]]).tolist():
            more = float(np.log2(problem.graph.cardinality[variable]))
            if variable not in part and bits + more <= JOINT_BITS and len(part) < MAX_VARIABLES:
                part.append(variable)
                waiting.append(variable)
                bits += more
    return np.array(part)


def measure_exactness(
    system: AbstractBackend, learned: FitResult, problem: Problem, compared: np.ndarray, n_subgraphs: int
) -> Exactness | None:
    """Compare a system's marginals, all other labels being evidence, with the exact ones of all factors and its weights.

    Args:
        problem: of learning from all labels. chosen, parts: of `sample_subgraphs`.

    Returns:
        None where the parts are too large for the truth.
    """
    labelled = (problem.roles == Role.FREE) & (problem.states >= 0)
    roles = np.where(labelled, Role.CLAMPED, Role.ABSENT)
    roles = np.where(compared, Role.FREE, roles).astype(np.int8)
    asked = replace(problem, roles=roles, queries=compared).with_candidates(learned.chosen_candidates)
    graph = reduce_graph(asked.graph, asked.roles, asked.states)
    tree = JunctionTree(graph.scopes, MAX_TREE_BYTES)
    try:
        tree.clique_tree.check_memory()
    except CliqueTooLargeError:
        return None
    truth = tree.marginals(graph.potentials(learned.vectors["weights"])).nodes
    found = system.infer(asked, learned.vectors).marginals
    terms = np.zeros(len(truth))
    some = truth > 0
    terms[some] = truth[some] * np.log(truth[some] / np.maximum(found[some], MIN_PROBABILITY))
    n = int(compared.sum())
    # Rounding may make of 0 a little less.
    return Exactness(max(float(terms.sum() / n), 0.0), float(np.abs(truth - found).max()), n, n_subgraphs)
