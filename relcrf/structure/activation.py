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
from relcrf.structure.scores import CandidateTests


@dataclass(frozen=True, eq=False)
class Activated:
    """Candidates that join.

    Args:
        joining: the candidates. gradient: of their weights, one candidate after the other, shape (n_weights,).
        queue: without them.
        done: nothing joins, and nothing is left that would be worth a test before the weights have moved.
        tests: how many candidates were tested.
        opened: which weights of the chosen, and then of these, have joined, bool; None opens all of these.
    """

    joining: CandidateSet
    gradient: np.ndarray
    queue: EdgeQueue
    done: bool
    tests: int = 0
    opened: np.ndarray | None = None


class AbstractActivation(ABC):
    """A way to choose candidates."""

    @abstractmethod
    def choose(self, tests: CandidateTests, queue: EdgeQueue) -> Activated:
        """Return the candidates that join a model at a point."""


@dataclass(frozen=True)
class Top(AbstractActivation):
    """Tests all edges that are not in the model, and takes the best that pass: edge grafting. The queue stays as it is.

    Args:
        most: how many join at a time.
        least: the ratio above which an edge passes.
    """

    most: int
    least: float = 1.0

    def choose(self, tests: CandidateTests, queue: EdgeQueue) -> Activated:
        def whole(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.column_stack((pairs, np.zeros_like(pairs))), tests.ratios(pairs)

        best, _, n_tests = _best(tests, whole, self.least, self.most)
        return _activated(tests, best[:, 0], queue, n_tests, done=not len(best) and not tests.late())


@dataclass(frozen=True)
class TopWeights(AbstractActivation):
    """Takes the single weights with the largest gradients of all that have not joined; an edge joins with its first one.

    A weight's ratio is `|gradient| / l1`. The penalty must have each weight as a group of its own.

    Args:
        most: how many weights join at a time.
        least: the ratio above which a weight passes.
    """

    most: int
    least: float = 1.0

    def choose(self, tests: CandidateTests, queue: EdgeQueue) -> Activated:
        model = tests.edges
        sizes = np.diff(model.weight_start(model.chosen))
        l1 = np.repeat(np.array(tests.l1)[model.chosen.space], sizes)
        closed = np.flatnonzero(~tests.opened)
        closed_ratio = np.abs(tests.slope[model.n_base :][closed]) / l1[closed]
        rows, ratio, n_tests = _best(tests, tests.weight_ratios, self.least, self.most)
        number, weight = rows.T
        every = np.concatenate((closed_ratio, ratio))
        best = np.argsort(-every, kind="stable")[: self.most]
        best = best[every[best] > self.least]
        old, new = closed[best[best < len(closed)]], best[best >= len(closed)] - len(closed)
        pairs, of_new = np.unique(number[new], return_inverse=True)
        found = _activated(tests, pairs, queue, n_tests, done=not len(best) and not tests.late())
        start = model.weight_start(found.joining)
        opened = np.concatenate((tests.opened, np.zeros(start[-1], dtype=bool)))
        opened[old] = True
        opened[len(tests.opened) + start[of_new] + weight[new]] = True
        return replace(found, opened=opened)


def _best(
    tests: CandidateTests, test: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], least: float, most: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the best of all edges that are not chosen, or of their weights.

    Args:
        test: returns, of some edges, rows of an edge's number and of a weight's in it, and a ratio for each row.
        least: the ratio above which a row passes. most: maximum number of rows.

    Returns:
        the best rows, their ratios, and the number of edges that were tested.
    """
    best, ratios, n_tests = np.empty((0, 2), dtype=np.int64), np.empty(0), 0
    for pairs in tests.every():
        rows, found = test(pairs)
        n_tests += len(pairs)
        passing = found > least
        best, ratios = np.concatenate((best, rows[passing])), np.concatenate((ratios, found[passing]))
        order = np.argsort(-ratios, kind="stable")[:most]
        best, ratios = best[order], ratios[order]
    return best, ratios, n_tests


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

    def choose(self, tests: CandidateTests, queue: EdgeQueue) -> Activated:
        if queue.is_empty(tests.numbers):
            queue = queue.reopened(tests.numbers)
        pairs, _, queue = queue.taken(self.tests, tests.numbers)
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
        done = not joining and queue.seen_all(tests.numbers) and not queue.holds_passed
        return _activated(tests, pairs[order[:joining]], queue, len(pairs), done=done)


@dataclass(frozen=True)
class FirstHit(AbstractActivation):
    """Takes the first edge of the queue that passes: a reservoir of one.

    Args:
        tests: how many edges are tested at the most, before the weights move again.
        batch: how many at a time, to begin with; those behind the first that passes wait as they have.
    """

    tests: int
    batch: int = 64

    def choose(self, tests: CandidateTests, queue: EdgeQueue) -> Activated:
        if queue.is_empty(tests.numbers):
            queue = queue.reopened(tests.numbers)
        n_tests, size = 0, self.batch
        while n_tests < self.tests and not queue.is_empty(tests.numbers):
            pairs, priority, queue = queue.taken(min(size, self.tests - n_tests), tests.numbers)
            new = tests.new(pairs)
            pairs, priority = pairs[new], priority[new]
            ratios = tests.ratios(pairs)
            hits = np.flatnonzero(ratios > 1.0)
            failed = int(hits[0]) if len(hits) else len(pairs)
            queue = queue.failing(pairs[:failed], 1.0 - ratios[:failed])
            n_tests, size = n_tests + min(failed + 1, len(pairs)), 2 * size
            if len(hits):
                queue = queue.joined(pairs[failed + 1 :], priority[failed + 1 :])
                return _activated(tests, pairs[failed : failed + 1], queue, n_tests, done=False)
        return _activated(tests, np.empty(0, dtype=np.int64), queue, n_tests, done=queue.seen_all(tests.numbers))


def _activated(tests: CandidateTests, pairs: np.ndarray, queue: EdgeQueue, n_tests: int, *, done: bool) -> Activated:
    """Return edges that join, given by number."""
    return Activated(tests.numbers.chosen(pairs), tests.gradient(pairs), queue, done, n_tests)
