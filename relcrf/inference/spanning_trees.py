"""Distributions over spanning forests that together contain every pair, for tree-reweighted belief propagation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import entr

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.forest import ForestInference
from relcrf.inference.result import UnsupportedGraphError
from relcrf.kernels.messages import MessageNetwork, MessageState
from relcrf.kernels.spanning import maximum_forest

MIN_FORESTS = 8
"""Minimum number of sampled forests; appearance probabilities from fewer forests are coarse."""


@dataclass(frozen=True)
class SpanningForest:
    """A spanning forest of a pairwise graph.

    Args:
        scopes: Scopes of all pairs of the graph.
        pairs: Indices of the pairs of the forest, ascending.
    """

    scopes: Scopes
    pairs: np.ndarray

    @cached_property
    def inference(self) -> ForestInference:
        """The exact inference of the forest; its plan is cached."""
        return ForestInference(self.scopes.with_factors(self.pairs))

    def select_potentials(self, potentials: Potentials) -> Potentials:
        return potentials.select_factors(self.scopes, self.pairs)


@dataclass(frozen=True)
class SpanningTrees:
    """A distribution over spanning forests of a pairwise graph.

    Args:
        scopes: Scopes of the pairs; agreements are stored as full tables.
        forests: Forests that together contain every pair.
        probabilities: Probability of each forest, shape (n_forests,).
    """

    scopes: Scopes
    forests: tuple[SpanningForest, ...]
    probabilities: np.ndarray

    @classmethod
    def sample(cls, scopes: Scopes, seed: int) -> SpanningTrees:
        """Sample forests of equal probability until each pair is in a forest.

        Each forest prefers the least used pairs and breaks ties at random.

        Raises:
            UnsupportedGraphError: A ValueError, if a factor has more than two nodes.
        """
        if (scopes.arity != 2).any():
            raise UnsupportedGraphError("a factor has more than two nodes; tree-reweighted propagation requires pairs")
        rng = np.random.default_rng(seed)
        scopes = replace(scopes, agreement=None)
        n_uses = np.zeros(scopes.n_factors, dtype=np.int64)
        forests: list[SpanningForest] = []
        while len(forests) < MIN_FORESTS or not n_uses.all():
            order = np.lexsort((rng.random(scopes.n_factors), n_uses))
            preference = np.empty(scopes.n_factors)
            preference[order] = -np.arange(scopes.n_factors)
            forests.append(_heaviest_forest(scopes, preference))
            n_uses[forests[-1].pairs] += 1
        return cls(scopes, tuple(forests), np.full(len(forests), 1.0 / len(forests)))

    @property
    def appearance(self) -> np.ndarray:
        """Return the appearance probability of each pair, i.e. that of the forests with the pair, shape (n_factors,)."""
        pairs = np.concatenate([forest.pairs for forest in self.forests])
        probability = np.repeat(self.probabilities, [len(forest.pairs) for forest in self.forests])
        return np.minimum(np.bincount(pairs, probability, self.scopes.n_factors), 1.0)

    def descent_direction(self, information: np.ndarray) -> tuple[SpanningForest, float]:
        """Return the forest towards which the bound of the log partition function decreases most, and the Frank-Wolfe gap.

        This is the maximum spanning forest for the mutual information of the pairs, which is minus the derivative of the
        bound with respect to the appearance probabilities (Wainwright, Jaakkola & Willsky 2005, section V.B). The gap is
        the difference of the total information between the forest and the mean forest; by convexity, it is at least the
        difference between the bound and its minimum.

        Args:
            information: Mutual information of each pair; see `pair_information`.
        """
        forest = _heaviest_forest(self.scopes, information)
        return forest, float(information[forest.pairs].sum() - self.appearance @ information)

    def mix(self, forest: SpanningForest, step: float) -> SpanningTrees:
        """Return the mixture of this distribution, with weight `1 - step`, and a forest, with weight `step`."""
        probabilities = (1.0 - step) * self.probabilities
        for i, known in enumerate(self.forests):
            if np.array_equal(known.pairs, forest.pairs):
                probabilities[i] += step
                return replace(self, probabilities=probabilities)
        return SpanningTrees(self.scopes, (*self.forests, forest), np.append(probabilities, step))

    def mean_log_partition(self, potentials: Potentials) -> float:
        """Return the expected log partition function of the forests."""
        values = [f.inference.marginals(f.select_potentials(potentials)).log_partition for f in self.forests]
        return float(self.probabilities @ values)

    def mean_best_score(self, potentials: Potentials) -> float:
        """Return the expected maximum score of the forests."""
        values = [f.inference.map_states(f.select_potentials(potentials)).score for f in self.forests]
        return float(self.probabilities @ values)


def pair_information(scopes: Scopes, potentials: Potentials) -> np.ndarray:
    """Return the mutual information of the two nodes of each pair in nats, shape (n_factors,).

    Args:
        scopes: Scopes of pairs without agreements.
        potentials: Log potentials; the distribution of a pair is proportional to the exponential of the sum of the
            potentials of the pair and of its nodes.
    """
    start, sizes = scopes.table_start[:-1], np.diff(scopes.table_start)
    first, second = scopes.node.reshape(-1, 2).T
    pair = np.repeat(np.arange(scopes.n_factors), sizes)
    cell = np.arange(len(pair)) - start[pair]
    row, column = np.divmod(cell, scopes.cardinality[second][pair])
    table = potentials.factors + potentials.nodes[scopes.state_start[first][pair] + row]
    table += potentials.nodes[scopes.state_start[second][pair] + column]
    table = np.exp(table - np.maximum.reduceat(table, start)[pair])
    table /= np.add.reduceat(table, start)[pair]
    rows, columns = np.bincount(start[pair] + row, table), np.bincount(start[pair] + column, table)
    entropies = -entr(table)  # the marginals are padded with zeros to the size of the table
    entropies[: len(rows)] += entr(rows)
    entropies[: len(columns)] += entr(columns)
    return np.maximum(np.add.reduceat(entropies, start), 0.0)


def _heaviest_forest(scopes: Scopes, weight: np.ndarray) -> SpanningForest:
    chosen = np.zeros(scopes.n_factors, dtype=np.bool_)
    maximum_forest(scopes.n_nodes, scopes.node.reshape(-1, 2), weight, np.empty(0), chosen)
    return SpanningForest(scopes, np.flatnonzero(chosen))


def reparametrise(scopes: Scopes, potentials: Potentials, net: MessageNetwork, state: MessageState) -> Potentials:
    """Return potentials with which the mean score over the spanning forests equals the score of the graph.

    Every forest contains all nodes; the log potential of a pair is divided by the pair's appearance probability.
    """
    full, expanded = scopes.expand_agreements(potentials)
    nodes = np.where(state.n_impossible > 0, -np.inf, state.product)
    message = np.where(state.message == -np.inf, 0.0, state.message)
    factors = expanded.factors / np.repeat(net.appearance, np.diff(full.table_start))
    factor = np.repeat(np.arange(full.n_factors), np.diff(full.table_start))
    cell = np.arange(len(factors)) - full.table_start[factor]
    second = scopes.cardinality[scopes.node[2 * factor + 1]]
    factors -= message[net.message_start[2 * factor] + cell // second]
    factors -= message[net.message_start[2 * factor + 1] + cell % second]
    return Potentials(nodes, factors)
