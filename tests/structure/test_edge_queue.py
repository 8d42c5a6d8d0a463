"""Pairs by number, their order, and the queue of candidates: every pair once, hubs first, failures again by their violation."""

import numpy as np
import pytest

from relcrf.graph.candidates import CandidateSet, KeyRelation, PairSpace, Side
from relcrf.structure import edge_queue
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.pair_order import PairNumbers, Shuffled


def side(n):
    empty = np.empty(0, dtype=np.int32)
    return Side(np.zeros(n + 1, dtype=np.int64), empty, empty, np.ones(2))


def spaces():
    kinds = ((KeyRelation.ASCENDING, 7, 7), (KeyRelation.ANY, 4, 5), (KeyRelation.DISTINCT, 6, 6))
    return tuple(PairSpace(str(k), side(n), side(m), relation, 1) for k, (relation, n, m) in enumerate(kinds))


def test_numbers_are_those_of_every_pair_and_back():
    numbers = PairNumbers(spaces())
    found = numbers.chosen(np.arange(numbers.size))
    every = CandidateSet.everything(spaces())
    assert sorted(map(tuple, found.rows.T)) == sorted(map(tuple, every.rows.T))
    np.testing.assert_array_equal(numbers.numbers(found), np.arange(numbers.size))


def test_ends_are_keys_and_those_of_one_sort_are_shared():
    numbers = PairNumbers(spaces())
    ends = numbers.ends(np.arange(numbers.size))
    assert numbers.n_ends == 7 + (4 + 5) + 6
    for end in range(numbers.n_ends):
        np.testing.assert_array_equal(numbers.at(end), np.flatnonzero((ends == end).any(axis=1)))
    # In a space of ascending keys a key meets all others, in one of distinct keys twice.
    assert numbers.n_partners.tolist() == [6] * 7 + [5] * 4 + [4] * 5 + [5] * 6


def test_numbers_of_billions_of_pairs():
    numbers = PairNumbers((PairSpace("wide", side(100_000), side(100_000), KeyRelation.ASCENDING, 1),))
    assert numbers.size == 4_999_950_000
    some = np.concatenate((np.random.default_rng(0).integers(numbers.size, size=10_000), [0, numbers.size - 1]))
    found = numbers.chosen(some)
    assert (found.first < found.second).all() and found.second.max() == 99_999
    np.testing.assert_array_equal(numbers.numbers(found), some)


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 70_001])
def test_the_order_is_a_permutation_that_the_seed_decides(size):
    order = Shuffled(size, 5)
    found = order(np.arange(size))
    np.testing.assert_array_equal(np.sort(found), np.arange(size))
    np.testing.assert_array_equal(order.places(found), np.arange(size))
    if size >= 1000:
        assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.1
        assert (Shuffled(size, 6)(np.arange(size)) != found).mean() > 0.9


def drained(queue, n, numbers):
    """All that waits, in order."""
    found = []
    while not queue.is_empty(numbers):
        pairs, _, queue = queue.taken(n, numbers)
        found.append(pairs)
    return np.concatenate(found), queue


def test_every_pair_comes_once():
    numbers = PairNumbers(spaces())
    found, queue = drained(EdgeQueue.unseen(), 7, numbers)
    assert len(found) == numbers.size == len(np.unique(found)) and queue.seen_all(numbers)


def test_what_failed_returns_by_its_violation():
    numbers = PairNumbers(spaces())
    _, queue = drained(EdgeQueue.unseen(), 10, numbers)
    queue = queue.failing(np.array([3, 1, 2]), np.array([0.5, 0.9, 0.1]))
    assert queue.is_empty(numbers)
    pairs, priority, queue = queue.reopened(numbers).taken(9, numbers)
    assert pairs.tolist() == [2, 3, 1] and priority.tolist() == [0.1, 0.5, 0.9] and queue.is_empty(numbers)


def test_hubs_go_first_and_each_pair_still_once():
    numbers = PairNumbers(spaces()[:1], 1)
    first, _, queue = EdgeQueue.unseen().taken(4, numbers)
    queue = queue.preferring(np.array([2]), numbers)
    at_hub = np.setdiff1d(numbers.at(2), first)
    pairs, priority, later = queue.taken(len(at_hub), numbers)
    assert set(pairs) == set(at_hub) and (priority == edge_queue.AT_A_HUB).all()
    # A second hub: the pair of both is in the list already.
    later = queue.preferring(np.array([2, 5]), numbers)
    rest, _ = drained(later, 3, numbers)
    assert sorted([*first, *rest]) == list(range(numbers.size))
    both = set(numbers.at(2)) | set(numbers.at(5))
    n_first = len(both - set(first))
    assert set(rest[:n_first]) == both - set(first)
    # Failures at hubs return before others that were nearer to passing.
    _, queue = drained(later, 10, numbers)
    other = next(n for n in range(numbers.size) if n not in both)
    again, _, _ = (
        queue.failing(np.array([other, numbers.at(2)[0]]), np.array([0.1, 0.9])).reopened(numbers).taken(2, numbers)
    )
    assert again.tolist() == [numbers.at(2)[0], other]


def test_history_forgets_what_is_farthest_from_passing(monkeypatch):
    monkeypatch.setattr(edge_queue, "MOST_FAILED", 5)
    queue = EdgeQueue.unseen()
    queue = queue.failing(np.arange(11), np.arange(11.0)[::-1].copy())
    assert sorted(queue.failed.tolist()) == [6, 7, 8, 9, 10]
