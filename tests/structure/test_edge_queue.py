"""Numbering and search order of pairs, and the edge queue: every pair once, hubs first, failed pairs by violation."""

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


def ranked_spaces():
    """Return spaces whose keys are compared by parts of the keys."""
    first, second = np.array([0, 0, 1, 3, 3]), np.array([0, 1, 1, 2, 4, 4])
    return tuple(
        PairSpace(str(k), side(5), side(6), relation, 1, ranks=(first, second + k))
        for k, relation in enumerate((KeyRelation.ASCENDING, KeyRelation.DISTINCT, KeyRelation.ASCENDING))
    )


def test_ranked_pairs_are_numbered():
    pair_index = PairIndex(ranked_spaces())
    found = pair_index.decode(np.arange(pair_index.size))
    expected = [
        (k, a, b)
        for k, space in enumerate(ranked_spaces())
        for a in range(5)
        for b in range(6)
        if (space.ranks[0][a] != space.ranks[1][b] if k == 1 else space.ranks[0][a] < space.ranks[1][b])
    ]
    assert found.rows.T.tolist() == list(map(list, expected)) and 40 < len(expected) == pair_index.size
    np.testing.assert_array_equal(pair_index.encode(found), np.arange(pair_index.size))
    assert sum(space.n_pairs for space in ranked_spaces()) == pair_index.size
    ends = pair_index.ends(np.arange(pair_index.size))
    assert pair_index.n_ends == 3 * (5 + 6)
    for end in range(pair_index.n_ends):
        np.testing.assert_array_equal(pair_index.pairs_at(end), np.flatnonzero((ends == end).any(axis=1)))
    for space in ranked_spaces():
        after, before, *excluded = space.key_limits().T
        for a, b in np.ndindex(5, 6):
            is_admissible = after[a] < b < before[a] and b not in [column[a] for column in excluded]
            assert is_admissible == space.allows(np.array([a]), np.array([b]))[0]


def test_encode_inverts_decode_for_all_pairs():
    pair_index = PairIndex(spaces())
    found = pair_index.decode(np.arange(pair_index.size))
    all_candidates = CandidateSet.from_spaces(spaces())
    assert sorted(map(tuple, found.rows.T)) == sorted(map(tuple, all_candidates.rows.T))
    np.testing.assert_array_equal(pair_index.encode(found), np.arange(pair_index.size))


def test_ends_are_shared_if_sides_have_the_same_keys():
    pair_index = PairIndex(spaces())
    ends = pair_index.ends(np.arange(pair_index.size))
    assert pair_index.n_ends == 7 + (4 + 5) + 6
    for end in range(pair_index.n_ends):
        np.testing.assert_array_equal(pair_index.pairs_at(end), np.flatnonzero((ends == end).any(axis=1)))
    # With ascending keys, a key has one pair with each other key; with distinct keys, two.
    assert pair_index.n_partners.tolist() == [6] * 7 + [5] * 4 + [4] * 5 + [5] * 6


def test_encode_inverts_decode_for_billions_of_pairs():
    pair_index = PairIndex((PairSpace("wide", side(100_000), side(100_000), KeyRelation.ASCENDING, 1),))
    assert pair_index.size == 4_999_950_000
    numbers = np.concatenate(
        (np.random.default_rng(0).integers(pair_index.size, size=10_000), [0, pair_index.size - 1])
    )
    found = pair_index.decode(numbers)
    assert (found.first < found.second).all() and found.second.max() == 99_999
    np.testing.assert_array_equal(pair_index.encode(found), numbers)


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 70_001])
def test_search_order_is_a_seeded_permutation(size):
    order = FeistelPermutation(size, 5)
    found = order(np.arange(size))
    np.testing.assert_array_equal(np.sort(found), np.arange(size))
    np.testing.assert_array_equal(order.inverse(found), np.arange(size))
    if size >= 1000:
        assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.1
        assert (FeistelPermutation(size, 6)(np.arange(size)) != found).mean() > 0.9


def drain_queue(queue, n, pair_index):
    """Return all queued pairs in order, and the empty queue."""
    found = []
    while not queue.is_empty(pair_index):
        pairs, _, queue = queue.pop(n, pair_index)
        found.append(pairs)
    return np.concatenate(found), queue


def test_every_pair_is_queued_once():
    pair_index = PairIndex(spaces())
    found, queue = drain_queue(EdgeQueue.untested(), 7, pair_index)
    assert len(found) == pair_index.size == len(np.unique(found)) and queue.is_at_end(pair_index)


def test_failed_pairs_are_requeued_by_violation():
    pair_index = PairIndex(spaces())
    _, queue = drain_queue(EdgeQueue.untested(), 10, pair_index)
    queue = queue.with_failed(np.array([3, 1, 2]), np.array([0.5, 0.9, 0.1]))
    assert queue.is_empty(pair_index)
    pairs, priority, queue = queue.requeue_history(pair_index).pop(9, pair_index)
    assert pairs.tolist() == [2, 3, 1] and priority.tolist() == [0.1, 0.5, 0.9] and queue.is_empty(pair_index)


def test_hubs_come_first_and_every_pair_once():
    pair_index = PairIndex(spaces()[:1], 1)
    first, _, queue = EdgeQueue.untested().pop(4, pair_index)
    queue = queue.with_hubs(np.array([2]), pair_index)
    at_hub = np.setdiff1d(pair_index.pairs_at(2), first)
    pairs, priority, later = queue.pop(len(at_hub), pair_index)
    assert set(pairs) == set(at_hub) and (priority == edge_queue.HUB_PRIORITY).all()
    # The pair of the first and the second hub is stored already.
    later = queue.with_hubs(np.array([2, 5]), pair_index)
    rest, _ = drain_queue(later, 3, pair_index)
    assert sorted([*first, *rest]) == list(range(pair_index.size))
    both = set(pair_index.pairs_at(2)) | set(pair_index.pairs_at(5))
    n_first = len(both - set(first))
    assert set(rest[:n_first]) == both - set(first)
    # Failed pairs at hubs are requeued before others with smaller violations.
    _, queue = drain_queue(later, 10, pair_index)
    other = next(n for n in range(pair_index.size) if n not in both)
    requeued, _, _ = (
        queue.with_failed(np.array([other, pair_index.pairs_at(2)[0]]), np.array([0.1, 0.9]))
        .requeue_history(pair_index)
        .pop(2, pair_index)
    )
    assert requeued.tolist() == [pair_index.pairs_at(2)[0], other]


def test_history_drops_pairs_farthest_from_passing(monkeypatch):
    monkeypatch.setattr(edge_queue, "MAX_HISTORY", 5)
    queue = EdgeQueue.untested()
    queue = queue.with_failed(np.arange(11), np.arange(11.0)[::-1].copy())
    assert sorted(queue.failed.tolist()) == [6, 7, 8, 9, 10]
