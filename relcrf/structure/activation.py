"""Which candidate edges join a model next: the best of all, or of a few that are tested.

Source: Chaabene & Huang: edge grafting, best choice with a reservoir, first hit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.edge_tests import EdgeTests


@dataclass(frozen=True, eq=False)
class Activated:
    """Edges that join.

    Args:
        pairs: their numbers, the steepest first.
        queue: without them.
        tests: how many edges were tested.
        done: nothing joins, and nothing is left that would be worth a look before the weights have moved.
    """

    pairs: np.ndarray
    queue: EdgeQueue
    tests: int
    done: bool


class AbstractActivation(ABC):
    """A way to choose edges."""

    @abstractmethod
    def choose(self, tests: EdgeTests, queue: EdgeQueue) -> Activated:
        """The edges that join a model at a point."""


@dataclass(frozen=True)
class EveryEdge(AbstractActivation):
    """Tests all edges that are not in the model, and takes the best that pass: edge grafting. The queue stays as it is.

    Args:
        most: how many join at a time.
        least: the ratio above which an edge passes.
    """

    most: int
    least: float = 1.0

    def choose(self, tests: EdgeTests, queue: EdgeQueue) -> Activated:
        best, ratios, n_tests = np.empty(0, dtype=np.int64), np.empty(0), 0
        for pairs in tests.every():
            found = tests.ratios(pairs)
            n_tests += len(pairs)
            passing = found > self.least
            best, ratios = np.concatenate((best, pairs[passing])), np.concatenate((ratios, found[passing]))
            order = np.argsort(-ratios, kind="stable")[: self.most]
            best, ratios = best[order], ratios[order]
        return Activated(best, queue, n_tests, done=not len(best) and not tests.late())


@dataclass(frozen=True)
class BestChoice(AbstractActivation):
    """Tests the first of the queue and takes those that stand out among the passing ones.

    Of those that pass the `reservoir` has the best; those of them join whose ratio is no less than `(1 - alpha) mean + alpha
    max` over it, and the others are tested again in the next round. What fails, or has no place in the reservoir, goes to the
    history, which waits again when the queue is empty. (Were all that pass tested again at once, they would soon fill every
    round: of 600 nodes many more pairs depend on each other than are edges, and the rest would never be seen.)

    Args:
        alpha: 0 takes those above the mean, 1 only the best.
        reservoir: its size.
        tests: how many edges are tested at a time.
    """

    alpha: float
    reservoir: int
    tests: int

    def choose(self, tests: EdgeTests, queue: EdgeQueue) -> Activated:
        if queue.is_empty:
            queue = queue.reopened()
        pairs, _, queue = queue.taken(self.tests)
        pairs = pairs[tests.new(pairs)]
        ratios = tests.ratios(pairs)
        order = np.argsort(-ratios, kind="stable")
        n_held = min(int((ratios > 1.0).sum()), self.reservoir)
        held, out = ratios[order[:n_held]], order[n_held:]
        joining = 0
        if len(held):
            threshold = (1.0 - self.alpha) * held.mean() + self.alpha * held[0]
            joining = int((held >= min(threshold, held[0])).sum())
        left = order[joining:n_held]
        queue = queue.joined(pairs[left], 1.0 - ratios[left]).failing(pairs[out], 1.0 - ratios[out])
        done = not joining and queue.seen_all and not queue.holds_passed
        return Activated(pairs[order[:joining]], queue, len(pairs), done)


@dataclass(frozen=True)
class FirstHit(AbstractActivation):
    """Takes the first edge of the queue that passes: a reservoir of one.

    Args:
        tests: how many edges are tested at the most, before the weights move again.
        batch: how many at a time, to begin with; those behind the first that passes wait as they have.
    """

    tests: int
    batch: int = 64

    def choose(self, tests: EdgeTests, queue: EdgeQueue) -> Activated:
        if queue.is_empty:
            queue = queue.reopened()
        n_tests, size = 0, self.batch
        while n_tests < self.tests and not queue.is_empty:
            pairs, priority, queue = queue.taken(min(size, self.tests - n_tests))
            new = tests.new(pairs)
            pairs, priority = pairs[new], priority[new]
            ratios = tests.ratios(pairs)
            hits = np.flatnonzero(ratios > 1.0)
            failed = int(hits[0]) if len(hits) else len(pairs)
            queue = queue.failing(pairs[:failed], 1.0 - ratios[:failed])
            n_tests, size = n_tests + min(failed + 1, len(pairs)), 2 * size
            if len(hits):
                queue = queue.joined(pairs[failed + 1 :], priority[failed + 1 :])
                return Activated(pairs[failed : failed + 1], queue, n_tests, done=False)
        return Activated(np.empty(0, dtype=np.int64), queue, n_tests, done=queue.seen_all)
