"""Pairs by number, their order, and the queue of candidates: every pair once, hubs first, failures again by their violation."""

import numpy as np
import pytest

from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, PairSpace
from relcrf.structure import edge_queue
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.pair_index import FeistelPermutation, PairIndex


def side(n):
    empty = np.empty(0, dtype=np.int32)
    return CandidateSide(np.zeros(n + 1, dtype=np.int64), empty, empty, np.ones(2))


def spaces():
    kinds = ((KeyRelation.ASCENDING, 7, 7), (KeyRelation.ANY, 4, 5), (KeyRelation.DISTINCT, 6, 6))
    return tuple(PairSpace(str(k), side(n), side(m), relation, 1) for k, (relation, n, m) in enumerate(kinds))


def test_numbers_are_those_of_every_pair_and_back():
    numbers = PairIndex(spaces())
    found = numbers.decode(np.arange(numbers.size))
    every = CandidateSet.from_spaces(spaces())
    assert sorted(map(tuple, found.rows.T)) == sorted(map(tuple, every.rows.T))
    np.testing.assert_array_equal(numbers.encode(found), np.arange(numbers.size))


def test_ends_are_keys_and_those_of_one_sort_are_shared():
    numbers = PairIndex(spaces())
    ends = numbers.ends(np.arange(numbers.size))
    assert numbers.n_ends == 7 + (4 + 5) + 6
    for end in range(numbers.n_ends):
        np.testing.assert_array_equal(numbers.pairs_at(end), np.flatnonzero((ends == end).any(axis=1)))
    # In a space of ascending keys a key meets all others, in one of distinct keys twice.
    assert numbers.n_partners.tolist() == [6] * 7 + [5] * 4 + [4] * 5 + [5] * 6


def test_numbers_of_billions_of_pairs():
    numbers = PairIndex((PairSpace("wide", side(100_000), side(100_000), KeyRelation.ASCENDING, 1),))
    assert numbers.size == 4_999_950_000
    some = np.concatenate((np.random.default_rng(0).integers(numbers.size, size=10_000), [0, numbers.size - 1]))
    found = numbers.decode(some)
    assert (found.first < found.second).all() and found.second.max() == 99_999
    np.testing.assert_array_equal(numbers.encode(found), some)


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 70_001])
def test_the_order_is_a_permutation_that_the_seed_decides(size):
    order = FeistelPermutation(size, 5)
    found = order(np.arange(size))
    np.testing.assert_array_equal(np.sort(found), np.arange(size))
    np.testing.assert_array_equal(order.inverse(found), np.arange(size))
    if size >= 1000:
        assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.1
        assert (FeistelPermutation(size, 6)(np.arange(size)) != found).mean() > 0.9


def drained(queue, n, numbers):
    """All that waits, in order."""
    found = []
    while not queue.is_empty(numbers):
        pairs, _, queue = queue.taken(n, numbers)
        found.append(pairs)
    return np.concatenate(found), queue


def test_every_pair_comes_once():
    numbers = PairIndex(spaces())
    found, queue = drained(EdgeQueue.untested(), 7, numbers)
    assert len(found) == numbers.size == len(np.unique(found)) and queue.is_fully_listed(numbers)


def test_what_failed_returns_by_its_violation():
    numbers = PairIndex(spaces())
    _, queue = drained(EdgeQueue.untested(), 10, numbers)
    queue = queue.with_failed(np.array([3, 1, 2]), np.array([0.5, 0.9, 0.1]))
    assert queue.is_empty(numbers)
    pairs, priority, queue = queue.requeue_history(numbers).pop(9, numbers)
    assert pairs.tolist() == [2, 3, 1] and priority.tolist() == [0.1, 0.5, 0.9] and queue.is_empty(numbers)


def test_hubs_go_first_and_each_pair_still_once():
    numbers = PairIndex(spaces()[:1], 1)
    first, _, queue = EdgeQueue.untested().pop(4, numbers)
    queue = queue.with_hubs(np.array([2]), numbers)
    at_hub = np.setdiff1d(numbers.pairs_at(2), first)
    pairs, priority, later = queue.pop(len(at_hub), numbers)
    assert set(pairs) == set(at_hub) and (priority == edge_queue.HUB_PRIORITY).all()
    # A second hub: the pair of both is in the list already.
    later = queue.with_hubs(np.array([2, 5]), numbers)
    rest, _ = drained(later, 3, numbers)
    assert sorted([*first, *rest]) == list(range(numbers.size))
    both = set(numbers.pairs_at(2)) | set(numbers.pairs_at(5))
    n_first = len(both - set(first))
    assert set(rest[:n_first]) == both - set(first)
    # Failures at hubs return before others that were nearer to passing.
    _, queue = drained(later, 10, numbers)
    other = next(n for n in range(numbers.size) if n not in both)
    again, _, _ = (
        queue.with_failed(np.array([other, numbers.pairs_at(2)[0]]), np.array([0.1, 0.9]))
        .requeue_history(numbers)
        .pop(2, numbers)
    )
    assert again.tolist() == [numbers.pairs_at(2)[0], other]


def test_history_forgets_what_is_farthest_from_passing(monkeypatch):
    monkeypatch.setattr(edge_queue, "MAX_HISTORY", 5)
    queue = EdgeQueue.untested()
    queue = queue.with_failed(np.arange(11), np.arange(11.0)[::-1].copy())
    assert sorted(queue.failed.tolist()) == [6, 7, 8, 9, 10]
