"""Candidate edges that wait for a test, the most promising first, and the history of those that failed one.

Source: Chaabene & Huang, edge grafting with a priority queue of candidates and a search history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.kernels.distinct import distinct
from relcrf.structure.pair_order import PairNumbers

UNSEEN, AT_A_HUB = 0.0, -1.0
"""Priorities; the lower one goes first. An edge that has been tested has its violation, to which being at a hub adds."""

MOST_FAILED = 1 << 22
"""Failures that are remembered, those nearest to passing: 64 MiB. Before a search ends all pairs are tested once more anyhow."""


@dataclass(frozen=True, eq=False)
class EdgeQueue:
    """A priority queue over all pairs of some spaces, of which only those that are not in their first order take memory.

    The pairs that no test has seen wait in the order of a permutation, from `cursor` on; all others that wait are listed.

    Methods that need the numbers and the order of the pairs take `numbers`.

    Args:
        cursor: how far the permutation has been gone through.
        waiting, priority: what goes before the rest of the permutation, ascending by priority, shape (n,).
        failed, violation: the history, in any order: how far each was from passing; below 0 it had passed.
        hubs: ends whose unseen pairs have been listed.
    """

    cursor: int
    waiting: np.ndarray
    priority: np.ndarray
    failed: np.ndarray
    violation: np.ndarray
    hubs: np.ndarray

    @classmethod
    def unseen(cls) -> EdgeQueue:
        """Return the queue in which no pair has been seen."""
        none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(0, none, nothing, none, nothing, none)

    def seen_all(self, numbers: PairNumbers) -> bool:
        """Return whether every pair has had a test or waits for one in the list."""
        return self.cursor >= numbers.size

    def is_empty(self, numbers: PairNumbers) -> bool:
        """Return whether no pair waits."""
        return self.seen_all(numbers) and not len(self.waiting)

    @property
    def holds_passed(self) -> bool:
        """Whether something waits, or is in the history, that had passed its last test; at a hub, or that was near to it."""
        return bool((self.priority < 0.0).any() or (self.violation < 0.0).any())

    def taken(self, n: int, numbers: PairNumbers) -> tuple[np.ndarray, np.ndarray, EdgeQueue]:
        """The first `n` pairs and their priorities, fewer at the end, and the queue without them."""
        first, cursor = [self.waiting[:n]], self.cursor
        missing = n - len(first[0])
        while missing > 0 and cursor < numbers.size:
            places = np.arange(cursor, min(cursor + missing, numbers.size))
            unseen = numbers.order(places)
            unseen = unseen[~_at(numbers, unseen, self.hubs)]
            first.append(unseen)
            cursor, missing = cursor + len(places), missing - len(unseen)
        pairs = np.concatenate(first)
        priority = np.concatenate((self.priority[:n], np.full(len(pairs) - len(first[0]), UNSEEN)))
        return pairs, priority, replace(self, cursor=cursor, waiting=self.waiting[n:], priority=self.priority[n:])

    def joined(self, pairs: np.ndarray, priority: np.ndarray) -> EdgeQueue:
        """With more that wait; of one priority, those that have waited go first."""
        every, ranks = np.concatenate((self.waiting, pairs)), np.concatenate((self.priority, priority))
        order = np.argsort(ranks, kind="stable")
        return replace(self, waiting=every[order], priority=ranks[order])

    def failing(self, pairs: np.ndarray, violation: np.ndarray) -> EdgeQueue:
        """With more in the history."""
        failed, distance = np.concatenate((self.failed, pairs)), np.concatenate((self.violation, violation))
        if len(failed) > 2 * MOST_FAILED:
            nearest = np.sort(np.argpartition(distance, MOST_FAILED)[:MOST_FAILED])
            failed, distance = failed[nearest], distance[nearest]
        return replace(self, failed=failed, violation=distance)

    def reopened(self, numbers: PairNumbers) -> EdgeQueue:
        """With the history waiting again."""
        priority = self.violation + AT_A_HUB * _at(numbers, self.failed, self.hubs)
        emptied = replace(self, failed=self.failed[:0], violation=self.violation[:0])
        return emptied.joined(self.failed, priority)

    def preferring(self, ends: np.ndarray, numbers: PairNumbers) -> EdgeQueue:
        """With all unseen pairs at some ends, which become hubs, in the list; those in it move forward."""
        new = np.setdiff1d(ends, self.hubs)
        if not len(new):
            return self
        at_new = distinct(np.concatenate([numbers.at(int(end)) for end in new]))
        unseen = (numbers.order.places(at_new) >= self.cursor) & ~_at(numbers, at_new, self.hubs)
        at_new = at_new[unseen]
        # In the order in which they would have come.
        at_new = at_new[np.argsort(numbers.order.places(at_new))]
        moved: np.ndarray = _at(numbers, self.waiting, new) & ~_at(numbers, self.waiting, self.hubs)
        priority = self.priority + AT_A_HUB * moved
        order = np.argsort(priority, kind="stable")
        sorted_again = replace(self, waiting=self.waiting[order], priority=priority[order])
        return replace(
            sorted_again.joined(at_new, np.full(len(at_new), AT_A_HUB)), hubs=np.concatenate((self.hubs, new))
        )


def _at(numbers: PairNumbers, pairs: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return which pairs have one of some ends, bool."""
    if not len(ends):
        return np.zeros(len(pairs), dtype=bool)
    return np.asarray(np.isin(numbers.ends(pairs), ends).any(axis=1))
