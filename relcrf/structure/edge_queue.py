"""Candidate edges that wait for a test, the most promising first, and the history of those that failed one.

Source: Chaabene & Huang, edge grafting with a priority queue of candidates and a search history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.kernels.distinct import distinct
from relcrf.structure.pair_index import PairIndex

UNTESTED_PRIORITY, HUB_PRIORITY = 0.0, -1.0
"""Priorities; the lower one goes first. An edge that has been tested has its violation, to which being at a hub adds."""

MAX_HISTORY = 1 << 22
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
    def untested(cls) -> EdgeQueue:
        """Return the queue in which no pair has been seen."""
        none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(0, none, nothing, none, nothing, none)

    def is_fully_listed(self, pair_index: PairIndex) -> bool:
        """Return whether every pair has had a test or waits for one in the list."""
        return self.cursor >= pair_index.size

    def is_empty(self, pair_index: PairIndex) -> bool:
        """Return whether no pair waits."""
        return self.is_fully_listed(pair_index) and not len(self.waiting)

    @property
    def has_promising_pairs(self) -> bool:
        """Whether something waits, or is in the history, that had passed its last test; at a hub, or that was near to it."""
        return bool((self.priority < 0.0).any() or (self.violation < 0.0).any())

    def pop(self, n: int, pair_index: PairIndex) -> tuple[np.ndarray, np.ndarray, EdgeQueue]:
        """The first `n` pairs and their priorities, fewer at the end, and the queue without them."""
        first, cursor = [self.waiting[:n]], self.cursor
        missing = n - len(first[0])
        while missing > 0 and cursor < pair_index.size:
            places = np.arange(cursor, min(cursor + missing, pair_index.size))
            unseen = pair_index.search_order(places)
            unseen = unseen[~_touches_ends(pair_index, unseen, self.hubs)]
            first.append(unseen)
            cursor, missing = cursor + len(places), missing - len(unseen)
        pairs = np.concatenate(first)
        priority = np.concatenate((self.priority[:n], np.full(len(pairs) - len(first[0]), UNTESTED_PRIORITY)))
        return pairs, priority, replace(self, cursor=cursor, waiting=self.waiting[n:], priority=self.priority[n:])

    def with_waiting(self, pairs: np.ndarray, priority: np.ndarray) -> EdgeQueue:
        """With more that wait; of one priority, those that have waited go first."""
        every, ranks = np.concatenate((self.waiting, pairs)), np.concatenate((self.priority, priority))
        order = np.argsort(ranks, kind="stable")
        return replace(self, waiting=every[order], priority=ranks[order])

    def with_failed(self, pairs: np.ndarray, violation: np.ndarray) -> EdgeQueue:
        """With more in the history."""
        failed, distance = np.concatenate((self.failed, pairs)), np.concatenate((self.violation, violation))
        if len(failed) > 2 * MAX_HISTORY:
            nearest = np.sort(np.argpartition(distance, MAX_HISTORY)[:MAX_HISTORY])
            failed, distance = failed[nearest], distance[nearest]
        return replace(self, failed=failed, violation=distance)

    def requeue_history(self, pair_index: PairIndex) -> EdgeQueue:
        """With the history waiting again."""
        priority = self.violation + HUB_PRIORITY * _touches_ends(pair_index, self.failed, self.hubs)
        emptied = replace(self, failed=self.failed[:0], violation=self.violation[:0])
        return emptied.with_waiting(self.failed, priority)

    def with_hubs(self, ends: np.ndarray, pair_index: PairIndex) -> EdgeQueue:
        """With all unseen pairs at some ends, which become hubs, in the list; those in it move forward."""
        new = np.setdiff1d(ends, self.hubs)
        if not len(new):
            return self
        at_new = distinct(np.concatenate([pair_index.pairs_at(int(end)) for end in new]))
        unseen = (pair_index.search_order.inverse(at_new) >= self.cursor) & ~_touches_ends(
            pair_index, at_new, self.hubs
        )
        at_new = at_new[unseen]
        # In the order in which they would have come.
        at_new = at_new[np.argsort(pair_index.search_order.inverse(at_new))]
        moved: np.ndarray = _touches_ends(pair_index, self.waiting, new) & ~_touches_ends(
            pair_index, self.waiting, self.hubs
        )
        priority = self.priority + HUB_PRIORITY * moved
        order = np.argsort(priority, kind="stable")
        sorted_again = replace(self, waiting=self.waiting[order], priority=priority[order])
        return replace(
            sorted_again.with_waiting(at_new, np.full(len(at_new), HUB_PRIORITY)), hubs=np.concatenate((self.hubs, new))
        )


def _touches_ends(pair_index: PairIndex, pairs: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return which pairs have one of some ends, bool."""
    if not len(ends):
        return np.zeros(len(pairs), dtype=bool)
    return np.asarray(np.isin(pair_index.ends(pairs), ends).any(axis=1))
