"""Statistics of the factors over labelled variables: how many training sees, and how often two labels are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.graph.adjacency import iter_expanded_scopes
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.reduction import Role

NORMAL_QUANTILE = 1.959964
"""Quantile of the standard normal distribution for intervals with a confidence of 95 %."""


@dataclass(frozen=True)
class Homophily:
    """The agreement of the labels that pairwise factors join.

    Source: Platonov, Kuznedelev, Babenko & Prokhorenkova (2023), Characterizing graph datasets for node classification:
    edge homophily and adjusted homophily.

    Args:
        pairs: Number of factors between two different labelled variables.
        equal: Number of these factors whose two labels are equal.
        by_chance: Expected fraction of equal labels if the labels of the end points were independent: the sum of the
            squared frequencies of the states among the end points. 0 without pairs.
        frequencies: Frequency of each state among the end points, shape (n_states,).
    """

    pairs: int
    equal: int
    by_chance: float
    frequencies: tuple[float, ...] = ()

    @property
    def fraction(self) -> float:
        """The fraction of pairs with equal labels; NaN without pairs."""
        return self.equal / self.pairs if self.pairs else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the fraction by Wilson's method; (0, 1) without pairs.

        The interval assumes independent pairs. It is too narrow if many pairs share a variable.
        """
        if not self.pairs:
            return 0.0, 1.0
        n, p, z = self.pairs, self.fraction, NORMAL_QUANTILE
        centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        width = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        return max(centre - width, 0.0), min(centre + width, 1.0)

    @property
    def adjusted(self) -> float:
        """The fraction, rescaled so that 0 is the fraction by chance and 1 is complete agreement; NaN if undefined."""
        return (self.fraction - self.by_chance) / (1.0 - self.by_chance) if self.by_chance < 1.0 else math.nan


def count_seen_factors(groups: Sequence[FactorGroup], roles: np.ndarray) -> int:
    """Return the number of factors that training sees: a variable of the factor is free, and none is absent.

    Args:
        roles: A `Role` for each variable in the training problem, shape (n_variables,), int8.
    """
    if (roles == Role.FREE).all():
        return sum(group.n_factors for group in groups)
    count = 0
    for group in groups:
        for scope in iter_expanded_scopes(group):
            is_present = np.logical_and.reduce([roles[variables] != Role.ABSENT for variables in scope])
            has_target = np.logical_or.reduce([roles[variables] == Role.FREE for variables in scope])
            count += int(np.count_nonzero(is_present & has_target))
    return count


def labelled_neighbours(graph: FactorGraph, labelled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of labelled neighbours and of all neighbours of each variable, shape (n_variables,) each.

    A variable of several common factors counts as often; the other positions of a factor count as neighbours.

    Args:
        labelled: Mask of the labelled variables, shape (n_variables,).
    """
    n_labelled, n_neighbours = np.zeros((2, len(labelled)))
    for group in graph.groups:
        for scope in iter_expanded_scopes(group) if len(group.scope) > 1 else ():
            total = sum(labelled[variables].astype(np.int64) for variables in scope)
            for variables in scope:
                others = total - labelled[variables]
                n_labelled += np.bincount(variables, others, minlength=len(labelled))
                n_neighbours += np.bincount(variables, minlength=len(labelled)) * (len(scope) - 1)
    return n_labelled, n_neighbours


def measure_homophily(groups: Sequence[FactorGroup], labels: np.ndarray, domain: np.ndarray) -> Homophily | None:
    """Return the agreement of the labels that the factors join; None unless all factors join two variables of a domain.

    Args:
        labels: State of each labelled variable, and -1 for other variables, shape (n_variables,).
        domain: Number of each variable's domain, shape (n_variables,); variables of a domain have the same states.
    """
    pairs, equal, counts = 0, 0, np.zeros(0, dtype=np.int64)
    for group in groups:
        if len(group.scope) != 2 or group.cardinalities[0] != group.cardinalities[1]:
            return None
        for first, second in iter_expanded_scopes(group):
            if (domain[first] != domain[second]).any():
                return None
            is_pair = (first != second) & (labels[first] >= 0) & (labels[second] >= 0)
            one, other = labels[first[is_pair]], labels[second[is_pair]]
            pairs += len(one)
            equal += int(np.count_nonzero(one == other))
            found = np.bincount(np.concatenate((one, other)), minlength=max(len(counts), group.cardinalities[0]))
            found[: len(counts)] += counts
            counts = found
    if not groups:
        return None
    frequencies = counts / max(2 * pairs, 1)
    return Homophily(pairs, equal, float((frequencies**2).sum()), tuple(frequencies.tolist()))
