"""Activation rules, which select the candidates that are added to a model next.

The rules test candidates by the *ratios* that `CandidateScorer` computes.

Sources: Chaabene & Huang, Best-choice edge grafting for efficient structure learning of Markov random fields (2018):
edge grafting, best choice with a reservoir, first hit; Perkins, Lacker & Theiler, Grafting: fast, incremental feature
selection by gradient descent in function space (2003).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relcrf.graph.candidates import CandidateSet
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.scores import CandidateScorer


@dataclass(frozen=True, eq=False)
class ActivationResult:
    """The candidates that an activation rule adds to a model.

    Args:
        candidates: The added candidates.
        gradient: Gradient of the added candidates' weights, concatenated by candidate, shape (n_weights,).
        queue: The queue without the added candidates.
        is_exhausted: True if no candidate is added and no candidate can pass a test before the weights change.
        n_tests: Number of tested candidates.
        active_weights: Mask of the active weights, bool, over the weights of the candidates in the model and of the
            added candidates; None activates all weights of the added candidates.
    """

    candidates: CandidateSet
    gradient: np.ndarray
    queue: EdgeQueue
    is_exhausted: bool
    n_tests: int = 0
    active_weights: np.ndarray | None = None


class AbstractActivation(ABC):
    """A rule that selects the candidates that are added to a model next."""

    @abstractmethod
    def choose(self, scorer: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        """Return the candidates to add to a model at the current weights."""


@dataclass(frozen=True)
class TopEdges(AbstractActivation):
    """Edge grafting: test all edges that are not in the model and add the best passing edges. The queue is not changed.

    Args:
        max_added: Maximum number of edges to add at a time.
        min_ratio: Ratio above which an edge passes.
    """

    max_added: int
    min_ratio: float = 1.0

    def choose(self, scorer: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        def score_edges(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.column_stack((pairs, np.zeros_like(pairs))), scorer.ratios(pairs)

        best, _, n_tests = _select_best(scorer, score_edges, self.min_ratio, self.max_added)
        return _make_result(
            scorer, best[:, 0], queue, n_tests, is_exhausted=not len(best) and not scorer.is_out_of_time()
        )


@dataclass(frozen=True)
class TopWeights(AbstractActivation):
    """Grafting of single weights: activate the inactive weights with the largest gradients.

    An edge is added to the model when the first weight of this edge is activated.

    The ratio of a weight is `|gradient| / l1`. The penalty must treat each weight as a separate group.

    Args:
        max_added: Maximum number of weights to activate at a time.
        min_ratio: Ratio above which a weight passes.
    """

    max_added: int
    min_ratio: float = 1.0

    def choose(self, scorer: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        model = scorer.edge_model
        sizes = np.diff(model.weight_start(model.chosen))
        l1 = np.repeat(np.array(scorer.l1)[model.chosen.space], sizes)
        inactive = np.flatnonzero(~scorer.active_weights)
        inactive_ratio = np.abs(scorer.smooth_gradient[model.n_base :][inactive]) / l1[inactive]
        rows, ratio, n_tests = _select_best(scorer, scorer.weight_ratios, self.min_ratio, self.max_added)
        number, weight = rows.T
        all_ratios = np.concatenate((inactive_ratio, ratio))
        best = np.argsort(-all_ratios, kind="stable")[: self.max_added]
        best = best[all_ratios[best] > self.min_ratio]
        old, new = inactive[best[best < len(inactive)]], best[best >= len(inactive)] - len(inactive)
        pairs, new_edge = np.unique(number[new], return_inverse=True)
        result = _make_result(scorer, pairs, queue, n_tests, is_exhausted=not len(best) and not scorer.is_out_of_time())
        start = model.weight_start(result.candidates)
        active = np.concatenate((scorer.active_weights, np.zeros(start[-1], dtype=bool)))
        active[old] = True
        active[len(scorer.active_weights) + start[new_edge] + weight[new]] = True
        return replace(result, active_weights=active)


def _select_best(
    scorer: CandidateScorer,
    test: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    min_ratio: float,
    max_rows: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the best rows of all edges that are not in the model; a row is an edge, or one weight of an edge.

    Args:
        test: Function that returns the rows of some edges (edge number, weight index) and the ratio of each row.
        min_ratio: Ratio above which a row passes.
        max_rows: Maximum number of rows.

    Returns:
        The best rows, the ratios of these rows, and the number of tested edges.
    """
    best, ratios, n_tests = np.empty((0, 2), dtype=np.int64), np.empty(0), 0
    for pairs in scorer.iter_unchosen():
        rows, batch_ratios = test(pairs)
        n_tests += len(pairs)
        passing = batch_ratios > min_ratio
        best, ratios = np.concatenate((best, rows[passing])), np.concatenate((ratios, batch_ratios[passing]))
        order = np.argsort(-ratios, kind="stable")[:max_rows]
        best, ratios = best[order], ratios[order]
    return best, ratios, n_tests


@dataclass(frozen=True)
class BestChoice(AbstractActivation):
    """Best choice: test the first edges of the queue and add the best edges that pass.

    The best passing edges form the reservoir. An edge of the reservoir is added if the edge's ratio is at least
    `(1 - alpha) mean + alpha max`, where mean and max are those of the ratios in the reservoir. The other edges of the
    reservoir are tested again in the next round. Edges that fail or do not fit into the reservoir are moved to the
    history, which is queued again when the queue is empty. The reservoir is limited because passing edges would
    otherwise soon fill every round, and untested pairs would never be tested: with 600 nodes, far more pairs are
    statistically dependent than the graph has edges.

    Args:
        alpha: With 0, edges whose ratio is at least the mean are added; with 1, only the best edge is added.
        reservoir_size: Maximum number of edges in the reservoir.
        tests_per_round: Number of edges to test per round.
    """

    alpha: float
    reservoir_size: int
    tests_per_round: int

    def choose(self, scorer: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        if queue.is_empty(scorer.pair_index):
            queue = queue.requeue_history(scorer.pair_index)
        pairs, _, queue = queue.pop(self.tests_per_round, scorer.pair_index)
        pairs = pairs[scorer.is_unchosen(pairs)]
        ratios = scorer.ratios(pairs)
        order = np.argsort(-ratios, kind="stable")
        n_reservoir = min(int((ratios > 1.0).sum()), self.reservoir_size)
        reservoir, rejected = ratios[order[:n_reservoir]], order[n_reservoir:]
        n_added = 0
        if len(reservoir):
            threshold = (1.0 - self.alpha) * reservoir.mean() + self.alpha * reservoir[0]
            n_added = int((reservoir >= min(threshold, reservoir[0])).sum())
        remaining = order[n_added:n_reservoir]
        queue = queue.with_waiting(pairs[remaining], 1.0 - ratios[remaining])
        queue = queue.with_failed(pairs[rejected], 1.0 - ratios[rejected])
        is_exhausted = not n_added and queue.is_at_end(scorer.pair_index) and not queue.has_promising_pairs
        return _make_result(scorer, pairs[order[:n_added]], queue, len(pairs), is_exhausted=is_exhausted)


@dataclass(frozen=True)
class FirstHit(AbstractActivation):
    """First hit: test edges in the order of the queue and add the first that passes (best choice, reservoir of one).

    Args:
        max_tests: Maximum number of edges to test before the weights change again.
        batch_size: Initial number of edges to test at a time; edges after the first passing edge stay in the queue.
    """

    max_tests: int
    batch_size: int = 64

    def choose(self, scorer: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        if queue.is_empty(scorer.pair_index):
            queue = queue.requeue_history(scorer.pair_index)
        n_tests, size = 0, self.batch_size
        while n_tests < self.max_tests and not queue.is_empty(scorer.pair_index):
            pairs, priority, queue = queue.pop(min(size, self.max_tests - n_tests), scorer.pair_index)
            new = scorer.is_unchosen(pairs)
            pairs, priority = pairs[new], priority[new]
            ratios = scorer.ratios(pairs)
            hits = np.flatnonzero(ratios > 1.0)
            n_failed = int(hits[0]) if len(hits) else len(pairs)
            queue = queue.with_failed(pairs[:n_failed], 1.0 - ratios[:n_failed])
            n_tests, size = n_tests + min(n_failed + 1, len(pairs)), 2 * size
            if len(hits):
                queue = queue.with_waiting(pairs[n_failed + 1 :], priority[n_failed + 1 :])
                return _make_result(scorer, pairs[n_failed : n_failed + 1], queue, n_tests, is_exhausted=False)
        return _make_result(
            scorer, np.empty(0, dtype=np.int64), queue, n_tests, is_exhausted=queue.is_at_end(scorer.pair_index)
        )


def _make_result(
    scorer: CandidateScorer, pairs: np.ndarray, queue: EdgeQueue, n_tests: int, *, is_exhausted: bool
) -> ActivationResult:
    """Return the result that adds the edges with the numbers `pairs`."""
    return ActivationResult(scorer.pair_index.decode(pairs), scorer.gradient(pairs), queue, is_exhausted, n_tests)
