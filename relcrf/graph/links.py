"""Links between variables: two variables of one domain are linked if a factor contains both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from scipy.sparse import coo_array, csr_array

from relcrf.graph.adjacency import iter_expanded_scopes
from relcrf.graph.domains import Domains
from relcrf.graph.factor_graph import FactorGraph

MAX_LINKED_ARITY = 8
"""Maximum number of variables of a factor that links them; a larger factor would link too many pairs."""


def link_matrix(graph: FactorGraph, domains: Domains, is_present: np.ndarray) -> csr_array:
    """Return the symmetric matrix of links, float64, shape (n_variables, n_variables): 1 for linked variables, else 0.

    Two different variables are linked if their domains are equal and at least one factor over at most
    `MAX_LINKED_ARITY` variables contains both. Several such factors are one link.

    Args:
        is_present: Mask of the variables in use, shape (n_variables,); factors over other variables are ignored.
    """
    first, second = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
    for one, other in _iter_links(graph, domains, is_present):
        first.append(np.minimum(one, other))
        second.append(np.maximum(one, other))
    rows, columns = np.concatenate(first), np.concatenate(second)
    shape = (graph.n_variables, graph.n_variables)
    upper = csr_array(coo_array((np.ones(len(rows)), (rows, columns)), shape=shape))
    upper.sum_duplicates()
    upper.data[:] = 1.0
    return csr_array(upper + upper.T)


def count_linking_pairs(graph: FactorGraph) -> int:
    """Return an upper bound of the pairs that `link_matrix` collects before it merges duplicates."""
    return sum(
        group.n_factors * math.comb(len(group.scope), 2)
        for group in graph.groups
        if 2 <= len(group.scope) <= MAX_LINKED_ARITY
    )


def _iter_links(
    graph: FactorGraph, domains: Domains, is_present: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    number = domains.number
    for group in graph.groups:
        if not 2 <= len(group.scope) <= MAX_LINKED_ARITY:
            continue
        for scope in iter_expanded_scopes(group):
            in_use = np.logical_and.reduce([is_present[variables] for variables in scope])
            for one, other in combinations(scope, 2):
                linked = in_use & (one != other) & (number[one] == number[other])
                if linked.any():
                    yield one[linked], other[linked]
