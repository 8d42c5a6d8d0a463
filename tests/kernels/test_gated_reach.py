"""Counts of useful messages, compared with belief propagation in which one message at a time is replaced."""

import numpy as np
import pytest

from relcrf.kernels.gated_reach import count_useful_messages
from relcrf.kernels.threads import freeze


def final_totals(ends, contrasts, is_open, own, n_iterations, replaced=None):
    """Run belief propagation on binary nodes in log odds; return the final log odds of the nodes.

    Args:
        contrasts: log a, log b and log r of each pair (see `gated_binary`), shape (n_pairs, 3).
        is_open: mask of the pairs that send messages; the messages of the others are 0.
        replaced: (iteration, pair, end) of a message that is replaced by 1.
    """
    messages = np.zeros((len(ends), 2))
    for t in range(n_iterations):
        total = own.copy()
        np.add.at(total, ends, messages)
        new = np.empty_like(messages)
        for p, (a, b, r) in enumerate(np.exp(contrasts)):
            first, second = np.exp(total[ends[p]] - messages[p])
            new[p, 1] = np.log(a * (1 + first * b * r) / (1 + first * b))
            new[p, 0] = np.log(b * (1 + second * a * r) / (1 + second * a))
        new[~is_open] = 0.0
        if replaced is not None and replaced[0] == t:
            new[replaced[1:]] = 1.0
        messages = new
    total = own.copy()
    np.add.at(total, ends, messages)
    return total


def random_pairs(rng):
    """Return pairs of 7 nodes, possibly parallel, and masks of open pairs and query nodes."""
    ends = np.array([rng.choice(7, size=2, replace=False) for _ in range(rng.integers(1, 10))], dtype=np.int32)
    return ends, rng.random(len(ends)) < 0.7, rng.random(7) < 0.4


@pytest.mark.parametrize("n_iterations", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_useful_messages_are_those_that_change_a_query(seed, n_iterations):
    rng = np.random.default_rng(seed)
    ends, is_open, is_query = random_pairs(rng)
    contrasts, own = rng.normal(size=(len(ends), 3)), rng.normal(size=7)
    counts, reaches_query = np.empty(len(ends), dtype=np.int32), np.empty(7, dtype=bool)
    frozen = [freeze(array, array.dtype) for array in (ends, is_open, is_query)]
    count_useful_messages(*frozen, n_iterations, counts, reaches_query)

    def changes_a_query(own, replaced=None):
        """Return whether the log odds of a query differ from those with the original nodes and messages."""
        changed = final_totals(ends, contrasts, is_open, own, n_iterations, replaced)
        return bool((abs(changed - original)[is_query] > 1e-13).any())

    original = final_totals(ends, contrasts, is_open, own, n_iterations)
    for p in range(len(ends)):
        assert counts[p] == sum(changes_a_query(own, (t, p, end)) for t in range(n_iterations) for end in (0, 1))
    np.testing.assert_array_equal(reaches_query, [changes_a_query(own + np.eye(7)[v]) for v in range(7)])
