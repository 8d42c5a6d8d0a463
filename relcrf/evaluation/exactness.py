"""The error of approximate marginals, measured on small connected subgraphs whose exact marginals can be computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from relcrf.backends.base import AbstractBackend, FitResult, Problem
from relcrf.backends.propagation import AbstractPropagationBackend
from relcrf.evaluation.measures import MIN_PROBABILITY
from relcrf.graph.adjacency import adjacency_matrix, list_neighbours, unconditional_components
from relcrf.graph.factor_graph import RepeatedScope
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.inference.clique_tree import CliqueTooLargeError
from relcrf.inference.junction_tree import JunctionTree
from relcrf.kernels.distinct import distinct

JOINT_BITS = 20.0
"""Maximum log2 of the number of joint states of a subgraph; exact inference over 2**20 states is always feasible."""

MAX_VARIABLES = 16

MAX_TREE_CELLS = 1 << 25
"""Maximum number of cells of the junction tree's cliques; learned edges may connect subgraphs, whose union may be too large."""


@dataclass(frozen=True)
class Exactness:
    """The error of marginals, compared with the exact marginals for the same weights.

    Args:
        divergence: The Kullback-Leibler divergence from the exact to the computed marginal, in nats, averaged over
            variables.
        max_error: The largest absolute error of a probability.
        n_variables, n_subgraphs: The number of compared variables and the number of subgraphs.
    """

    divergence: float
    max_error: float
    n_variables: int
    n_subgraphs: int


def sample_subgraphs(problem: Problem, n_subgraphs: int, seed: int) -> tuple[np.ndarray, int]:
    """Sample disjoint connected subgraphs of labelled variables, each with at most 2^`JOINT_BITS` joint states.

    Each subgraph grows from a labelled variable along edges to labelled variables, in random order. No factor contains
    variables of two subgraphs.

    Args:
        problem: The training problem with all labels.

    Returns:
        A mask of the sampled variables, shape (n_variables,), and the number of subgraphs, which is less than
        `n_subgraphs` if no further subgraph can be placed.
    """
    rng = np.random.default_rng(seed)
    if not n_subgraphs:
        return np.zeros(problem.graph.n_variables, dtype=bool), 0
    free = (problem.roles == Role.FREE) & (problem.states >= 0)
    adjacency = adjacency_matrix(problem.graph)
    component = unconditional_components(problem.graph)
    # The adjacency of a `RepeatedScope` is incomplete; only subgraphs in different components certainly share no
    # factor.
    is_repeated = any(isinstance(group.scope, RepeatedScope) for group in problem.graph.groups)
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
        if is_repeated:
            free &= component != component[start]
        number += 1
    return chosen, number


def _grow_subgraph(
    problem: Problem, adjacency: csr_array, free: np.ndarray, start: int, rng: np.random.Generator
) -> np.ndarray:
    part, bits = [start], float(np.log2(problem.graph.cardinality[start]))
    queue = [start]
    while queue:
        neighbours = distinct(list_neighbours(adjacency, np.array([queue.pop(0)])))
        for variable in rng.permutation(neighbours[free[neighbours]]).tolist():
            bits_needed = float(np.log2(problem.graph.cardinality[variable]))
            if variable not in part and bits + bits_needed <= JOINT_BITS and len(part) < MAX_VARIABLES:
                part.append(variable)
                queue.append(variable)
                bits += bits_needed
    return np.array(part)


def measure_exactness(
    system: AbstractBackend, learned: FitResult, problem: Problem, compared: np.ndarray, n_subgraphs: int
) -> Exactness | None:
    """Compare marginals with exact marginals for the same weights; labels outside the subgraphs are evidence.

    Args:
        problem: The training problem with all labels.
        compared, n_subgraphs: The result of `sample_subgraphs`.

    Returns:
        The error, or None if a subgraph is too large for exact inference, or if the predictions of the backend are not
        marginals of a distribution with the learned weights.
    """
    system = learned.configure(system)
    if isinstance(system, AbstractPropagationBackend):
        return None
    labelled = (problem.roles == Role.FREE) & (problem.states >= 0)
    roles = np.where(labelled, Role.CLAMPED, Role.ABSENT)
    roles = np.where(compared, Role.FREE, roles).astype(np.int8)
    query = replace(problem, roles=roles, queries=compared).with_candidates(learned.chosen_candidates)
    graph = reduce_graph(query.graph, query.roles, query.states)
    tree = JunctionTree(graph.scopes, max_cells=MAX_TREE_CELLS)
    try:
        tree.clique_tree.check_limits()
    except CliqueTooLargeError:
        return None
    exact = tree.marginals(graph.potentials(learned.vectors["weights"])).nodes
    inferred = system.infer(query, learned.vectors)
    inferred.verdict.raise_if_interrupted()
    marginals = inferred.marginals
    terms = np.zeros(len(exact))
    positive = exact > 0
    terms[positive] = exact[positive] * np.log(exact[positive] / np.maximum(marginals[positive], MIN_PROBABILITY))
    n = int(compared.sum())
    # Rounding may yield a value slightly below 0.
    return Exactness(max(float(terms.sum() / n), 0.0), float(np.abs(exact - marginals).max()), n, n_subgraphs)
