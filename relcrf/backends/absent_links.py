"""The evidence of absent links for belief propagation: its strength, and the expected sizes of the classes."""

from __future__ import annotations

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.propagation import clamped_labels, training_labels
from relcrf.columns.offsets import offsets
from relcrf.graph.links import link_matrix
from relcrf.graph.reduction import Role
from relcrf.inference.balance import Balance

MIN_SIZE = 1.0
"""Minimum expected size of a class, so that the strength of a rare class is finite."""

MIN_FREE = 100
"""Number of free variables below which a graph is assumed to be a part of one as large as the training graph: for example, the
rows of a request contain the links to one new variable, but not all variables to which it has no link."""


def measure_assortativity(problem: Problem) -> float:
    """Return the assortativity of the links between training labels, as a number from 0 to 1; 0 without links.

    It is the fraction of links with equal labels, rescaled so that 0 is the fraction by chance, averaged over the domains in
    proportion to their links (Newman 2003, Mixing patterns in networks, equation 2).
    """
    labels, domains = training_labels(problem), problem.graph.domains
    links = link_matrix(problem.graph, domains, labels >= 0).tocoo()
    number, one, other = domains.number[links.row], labels[links.row], labels[links.col]
    total = 0.0
    for domain, size in enumerate(domains.sizes):
        is_inside = number == domain
        n_links = int(is_inside.sum())
        if not n_links:
            continue
        frequency = np.bincount(one[is_inside], minlength=size) / n_links
        by_chance = float((frequency**2).sum())
        if by_chance < 1.0:
            equal = float((one[is_inside] == other[is_inside]).mean())
            total += n_links * (equal - by_chance) / (1.0 - by_chance)
    return float(np.clip(total / max(links.nnz, 1), 0.0, 1.0))


def absent_links(problem: Problem, marginals: np.ndarray, assortativity: float, population: int) -> Balance:
    """Return the evidence of the absent links of the free variables.

    If links join a variable of class k with probability `assortativity` to its own class, and otherwise to any class, a
    variable with d links would have `d * assortativity / size of class k` additional links for each additional variable of
    class k; see `inference/balance.py` for the potential that follows.

    Args:
        marginals: Predictions without links of the free variables, whose sums are the expected sizes of the classes, flat.
        population: Number of variables of the training graph.
    """
    graph, domains = problem.graph, problem.graph.domains
    class_start = offsets(np.asarray(domains.sizes, dtype=np.int64))
    n_classes = int(class_start[-1])
    free = np.flatnonzero(problem.roles == Role.FREE)
    cardinality = graph.cardinality[free]
    first_class = class_start[domains.number[free]]
    position = np.arange(int(cardinality.sum())) - np.repeat(offsets(cardinality)[:-1], cardinality)
    state_class = np.repeat(first_class, cardinality) + position
    expected = np.bincount(state_class, marginals, n_classes)
    labels = clamped_labels(problem)
    labelled = np.flatnonzero(labels >= 0)
    known = np.bincount(class_start[domains.number[labelled]] + labels[labelled], minlength=n_classes)
    degree = np.diff(link_matrix(graph, domains, problem.roles != Role.ABSENT).indptr)[free]
    n_domains = len(domains.sizes)
    mean_degree = np.bincount(domains.number[free], degree, n_domains) / np.maximum(
        np.bincount(domains.number[free], minlength=n_domains), 1
    )
    strength = np.repeat(mean_degree, domains.sizes) * assortativity / np.maximum(expected + known, MIN_SIZE)
    if len(free) < MIN_FREE:
        strength /= max(population / max(len(free) + len(labelled), 1), 1.0)
    return Balance(state_class, expected, strength)
