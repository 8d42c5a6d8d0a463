"""A priority queue of candidate edges to be tested, and the history of edges that failed a test.

Source: Chaabene & Huang, Best-choice edge grafting for efficient structure learning of Markov random fields (2018): a
priority queue of candidates and a search history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.kernels.distinct import distinct
from relcrf.structure.pair_index import PairIndex

UNTESTED_PRIORITY, HUB_PRIORITY = 0.0, -1.0
"""The priority of an untested edge, and the amount added to the priority of an edge at a *hub* (a key with many edges).

Lower priorities are tested first. The priority of a tested edge is the violation `1 - ratio` of this edge (see
`CandidateScorer`), plus `HUB_PRIORITY` if an end of the edge is a hub.
"""

MAX_HISTORY = 1 << 22
"""Number of pairs to which a history of twice this length is reduced; these pairs take 64 MiB.

The pairs with the smallest violations are retained; the other pairs are tested again only in the final test of all
pairs.
"""


@dataclass(frozen=True, eq=False)
class EdgeQueue:
    """A priority queue over all pairs of some spaces.

    The queue consists of the pairs in `waiting`, followed by the pairs of a permutation from position `cursor` on. The
    permutation is not stored. The parameter `pair_index` of the methods defines the permutation, the numbers that
    identify pairs, and the two *ends* (keys) of each pair.

    Args:
        cursor: Position in the permutation.
        waiting, priority: Stored pairs of the queue, and the priority of each pair, ascending; shape (n,) each.
        failed, violation: The pairs of the history in any order, and the violation `1 - ratio` of each pair; negative
            for a pair that passed.
        hubs: Ends with untested pairs that are all stored in `waiting` and skipped in the permutation.
    """

    cursor: int
    waiting: np.ndarray
    priority: np.ndarray
    failed: np.ndarray
    violation: np.ndarray
    hubs: np.ndarray

    @classmethod
    def untested(cls) -> EdgeQueue:
        """Return the initial queue, in which all pairs are untested."""
        no_pairs, no_values = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(0, no_pairs, no_values, no_pairs, no_values, no_pairs)

    def is_at_end(self, pair_index: PairIndex) -> bool:
        """Return True if the cursor is at the end of the permutation; the queue then contains only `waiting`."""
        return self.cursor >= pair_index.size

    def is_empty(self, pair_index: PairIndex) -> bool:
        """Return True if the queue is empty, regardless of the history."""
        return self.is_at_end(pair_index) and not len(self.waiting)

    @property
    def has_promising_pairs(self) -> bool:
        """Return True if a queued pair has a negative priority, or if a pair of the history passed the last test."""
        return bool((self.priority < 0.0).any() or (self.violation < 0.0).any())

    def pop(self, n: int, pair_index: PairIndex) -> tuple[np.ndarray, np.ndarray, EdgeQueue]:
        """Return the first `n` pairs (fewer at the end), the priorities of these pairs, and the queue without them."""
        chunks, cursor = [self.waiting[:n]], self.cursor
        n_missing = n - len(chunks[0])
        while n_missing > 0 and cursor < pair_index.size:
            positions = np.arange(cursor, min(cursor + n_missing, pair_index.size))
            untested = pair_index.search_order(positions)
            untested = untested[~_touches_ends(pair_index, untested, self.hubs)]
            chunks.append(untested)
            cursor, n_missing = cursor + len(positions), n_missing - len(untested)
        pairs = np.concatenate(chunks)
        priority = np.concatenate((self.priority[:n], np.full(len(pairs) - len(chunks[0]), UNTESTED_PRIORITY)))
        return pairs, priority, replace(self, cursor=cursor, waiting=self.waiting[n:], priority=self.priority[n:])

    def with_waiting(self, pairs: np.ndarray, priority: np.ndarray) -> EdgeQueue:
        """Return the queue with additional pairs; among pairs of equal priority, those queued earlier come first."""
        all_pairs, priorities = np.concatenate((self.waiting, pairs)), np.concatenate((self.priority, priority))
        order = np.argsort(priorities, kind="stable")
        return replace(self, waiting=all_pairs[order], priority=priorities[order])

    def with_failed(self, pairs: np.ndarray, violation: np.ndarray) -> EdgeQueue:
        """Return the queue with pairs added to the history."""
        failed, distance = np.concatenate((self.failed, pairs)), np.concatenate((self.violation, violation))
        if len(failed) > 2 * MAX_HISTORY:
            nearest = np.sort(np.argpartition(distance, MAX_HISTORY)[:MAX_HISTORY])
            failed, distance = failed[nearest], distance[nearest]
        return replace(self, failed=failed, violation=distance)

    def requeue_history(self, pair_index: PairIndex) -> EdgeQueue:
        """Return the queue with all pairs of the history queued again."""
        priority = self.violation + HUB_PRIORITY * _touches_ends(pair_index, self.failed, self.hubs)
        emptied = replace(self, failed=self.failed[:0], violation=self.violation[:0])
        return emptied.with_waiting(self.failed, priority)

    def with_hubs(self, ends: np.ndarray, pair_index: PairIndex) -> EdgeQueue:
        """Return the queue with additional hubs; queued pairs at hubs are stored in `waiting` with lower priorities."""
        new_hubs = np.setdiff1d(ends, self.hubs)
        if not len(new_hubs):
            return self
        hub_pairs = distinct(np.concatenate([pair_index.pairs_at(int(end)) for end in new_hubs]))
        is_untested = (pair_index.search_order.inverse(hub_pairs) >= self.cursor) & ~_touches_ends(
            pair_index, hub_pairs, self.hubs
        )
        hub_pairs = hub_pairs[is_untested]
        # Preserve the order of the permutation.
        hub_pairs = hub_pairs[np.argsort(pair_index.search_order.inverse(hub_pairs))]
        is_moved: np.ndarray = _touches_ends(pair_index, self.waiting, new_hubs) & ~_touches_ends(
            pair_index, self.waiting, self.hubs
        )
        priority = self.priority + HUB_PRIORITY * is_moved
        order = np.argsort(priority, kind="stable")
        sorted_queue = replace(self, waiting=self.waiting[order], priority=priority[order])
        return replace(
            sorted_queue.with_waiting(hub_pairs, np.full(len(hub_pairs), HUB_PRIORITY)),
            hubs=np.concatenate((self.hubs, new_hubs)),
        )


def _touches_ends(pair_index: PairIndex, pairs: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return a mask of the pairs with at least one end in `ends`, bool."""
    if not len(ends):
        return np.zeros(len(pairs), dtype=bool)
    return np.asarray(np.isin(pair_index.ends(pairs), ends).any(axis=1))
