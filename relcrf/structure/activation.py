"""Activations: which candidates join a model next, the best of all or of a few that are tested.

Source: Chaabene & Huang: edge grafting, best choice with a reservoir, first hit; Perkins, Lacker & Theiler, Grafting (2003).
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
    """Candidates that join.

    Args:
        candidates: the candidates. gradient: of their weights, one candidate after the other, shape (n_weights,).
        queue: without them.
        is_exhausted: nothing joins, and nothing is left that would be worth a test before the weights have moved.
        n_tests: how many candidates were tested.
        active_weights: which weights of the chosen, and then of these, have joined, bool; None opens all of these.
    """

    candidates: CandidateSet
    gradient: np.ndarray
    queue: EdgeQueue
    is_exhausted: bool
    n_tests: int = 0
    active_weights: np.ndarray | None = None


class AbstractActivation(ABC):
    """A way to choose candidates."""

    @abstractmethod
    def choose(self, tests: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        """Return the candidates that join a model at a point."""


@dataclass(frozen=True)
class TopEdges(AbstractActivation):
    """Tests all edges that are not in the model, and takes the best that pass: edge grafting. The queue stays as it is.

    Args:
        max_added: how many join at a time.
        min_ratio: the ratio above which an edge passes.
    """

    max_added: int
    min_ratio: float = 1.0

    def choose(self, tests: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        def whole(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.column_stack((pairs, np.zeros_like(pairs))), tests.ratios(pairs)

        best, _, n_tests = _select_best(tests, whole, self.min_ratio, self.max_added)
        return _make_result(
            tests, best[:, 0], queue, n_tests, is_exhausted=not len(best) and not tests.is_out_of_time()
        )


@dataclass(frozen=True)
class TopWeights(AbstractActivation):
    """Takes the single weights with the largest gradients of all that have not joined; an edge joins with its first one.

    A weight's ratio is `|gradient| / l1`. The penalty must have each weight as a group of its own.

    Args:
        max_added: how many weights join at a time.
        min_ratio: the ratio above which a weight passes.
    """

    max_added: int
    min_ratio: float = 1.0

    def choose(self, tests: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        model = tests.edge_model
        sizes = np.diff(model.weight_start(model.chosen))
        l1 = np.repeat(np.array(tests.l1)[model.chosen.space], sizes)
        closed = np.flatnonzero(~tests.active_weights)
        closed_ratio = np.abs(tests.smooth_gradient[model.n_base :][closed]) / l1[closed]
        rows, ratio, n_tests = _select_best(tests, tests.weight_ratios, self.min_ratio, self.max_added)
        number, weight = rows.T
        every = np.concatenate((closed_ratio, ratio))
        best = np.argsort(-every, kind="stable")[: self.max_added]
        best = best[every[best] > self.min_ratio]
        old, new = closed[best[best < len(closed)]], best[best >= len(closed)] - len(closed)
        pairs, of_new = np.unique(number[new], return_inverse=True)
        found = _make_result(tests, pairs, queue, n_tests, is_exhausted=not len(best) and not tests.is_out_of_time())
        start = model.weight_start(found.candidates)
        opened = np.concatenate((tests.active_weights, np.zeros(start[-1], dtype=bool)))
        opened[old] = True
        opened[len(tests.active_weights) + start[of_new] + weight[new]] = True
        return replace(found, active_weights=opened)


def _select_best(
    tests: CandidateScorer, test: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], min_ratio: float, max_rows: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the best of all edges that are not chosen, or of their weights.

    Args:
        test: returns, of some edges, rows of an edge's number and of a weight's in it, and a ratio for each row.
        min_ratio: the ratio above which a row passes. most: maximum number of rows.

    Returns:
        the best rows, their ratios, and the number of edges that were tested.
    """
    best, ratios, n_tests = np.empty((0, 2), dtype=np.int64), np.empty(0), 0
    for pairs in tests.iter_unchosen():
        rows, found = test(pairs)
        n_tests += len(pairs)
        passing = found > min_ratio
        best, ratios = np.concatenate((best, rows[passing])), np.concatenate((ratios, found[passing]))
        order = np.argsort(-ratios, kind="stable")[:max_rows]
        best, ratios = best[order], ratios[order]
    return best, ratios, n_tests


@dataclass(frozen=True)
class BestChoice(AbstractActivation):
    """Tests the first of the queue and takes those that stand out among the passing ones.

    Of those that pass the `reservoir_size` has the best; those of them join whose ratio is no less than `(1 - alpha) mean + alpha
    max` over it, and the others are tested again in the next round. What fails, or has no place in the reservoir, goes to the
    history, which waits again when the queue is empty. (Were all that pass tested again at once, they would soon fill every
    round: of 600 nodes many more pairs depend on each other than are edges, and the rest would never be seen.)

    Args:
        alpha: 0 takes those above the mean, 1 only the best.
        reservoir_size: its size.
        tests_per_round: how many edges are tested at a time.
    """

    alpha: float
    reservoir_size: int
    tests_per_round: int

    def choose(self, tests: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        if queue.is_empty(tests.pair_index):
            queue = queue.requeue_history(tests.pair_index)
        pairs, _, queue = queue.pop(self.tests_per_round, tests.pair_index)
        pairs = pairs[tests.is_unchosen(pairs)]
        ratios = tests.ratios(pairs)
        order = np.argsort(-ratios, kind="stable")
        n_held = min(int((ratios > 1.0).sum()), self.reservoir_size)
        held, out = ratios[order[:n_held]], order[n_held:]
        joining = 0
        if len(held):
            threshold = (1.0 - self.alpha) * held.mean() + self.alpha * held[0]
            joining = int((held >= min(threshold, held[0])).sum())
        left = order[joining:n_held]
        queue = queue.with_waiting(pairs[left], 1.0 - ratios[left]).with_failed(pairs[out], 1.0 - ratios[out])
        done = not joining and queue.is_fully_listed(tests.pair_index) and not queue.has_promising_pairs
        return _make_result(tests, pairs[order[:joining]], queue, len(pairs), is_exhausted=done)


@dataclass(frozen=True)
class FirstHit(AbstractActivation):
    """Takes the first edge of the queue that passes: a reservoir of one.

    Args:
        max_tests: how many edges are tested at the most, before the weights move again.
        batch_size: how many at a time, to begin with; those behind the first that passes wait as they have.
    """

    max_tests: int
    batch_size: int = 64

    def choose(self, tests: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        if queue.is_empty(tests.pair_index):
            queue = queue.requeue_history(tests.pair_index)
        n_tests, size = 0, self.batch_size
        while n_tests < self.max_tests and not queue.is_empty(tests.pair_index):
            pairs, priority, queue = queue.pop(min(size, self.max_tests - n_tests), tests.pair_index)
            new = tests.is_unchosen(pairs)
            pairs, priority = pairs[new], priority[new]
            ratios = tests.ratios(pairs)
            hits = np.flatnonzero(ratios > 1.0)
            failed = int(hits[0]) if len(hits) else len(pairs)
            queue = queue.with_failed(pairs[:failed], 1.0 - ratios[:failed])
            n_tests, size = n_tests + min(failed + 1, len(pairs)), 2 * size
            if len(hits):
                queue = queue.with_waiting(pairs[failed + 1 :], priority[failed + 1 :])
                return _make_result(tests, pairs[failed : failed + 1], queue, n_tests, is_exhausted=False)
        return _make_result(
            tests, np.empty(0, dtype=np.int64), queue, n_tests, is_exhausted=queue.is_fully_listed(tests.pair_index)
        )


def _make_result(
    tests: CandidateScorer, pairs: np.ndarray, queue: EdgeQueue, n_tests: int, *, is_exhausted: bool
) -> ActivationResult:
    """Return edges that join, given by number."""
    return ActivationResult(tests.pair_index.decode(pairs), tests.gradient(pairs), queue, is_exhausted, n_tests)
