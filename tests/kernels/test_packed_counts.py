"""Counts of joint states from bits, against those of one sample after the other."""

import numpy as np
import pytest

from relcrf.kernels import packed_counts
from relcrf.kernels.keyed_cells import KeyedCells
from relcrf.kernels.threads import freeze


def packed(labels, n_states):
    """Of columns of labels, shape (n_keys, n_samples); -1 where a sample has none."""
    key, sample = np.nonzero(labels >= 0)
    start = np.searchsorted(key, np.arange(len(labels) + 1))
    n_words = -(-labels.shape[1] // 64)
    planes, totals = (
        np.zeros((len(labels), n_states, n_words), dtype=np.uint64),
        np.zeros((len(labels), n_states), dtype=np.int64),
    )
    cells = KeyedCells.from_arrays(start, sample, np.arange(len(key)))
    packed_counts.pack(cells, freeze(labels[key, sample], np.int16), planes, totals)
    return freeze(planes, np.uint64), freeze(totals, np.int64)


@pytest.mark.parametrize("n_samples", [1, 64, 65, 300])
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_counts_are_those_of_samples(n_samples, share):
    rng = np.random.default_rng(n_samples)
    first, second = rng.integers(0, 3, (4, n_samples)), rng.integers(0, 5, (6, n_samples))
    first[1:][rng.random((3, n_samples)) > share] = -1  # the first has all its samples
    second[2:][rng.random((4, n_samples)) > share] = -1
    pairs = np.stack(np.indices((4, 6)).reshape(2, -1))
    out = np.empty((24, 3, 5), dtype=np.int64)
    a, b = (freeze(key, np.int64) for key in pairs)
    packed_counts.count_pairs(a, b, n_samples, *packed(first, 3), *packed(second, 5), out)
    for place, (mine, its) in enumerate(pairs.T):
        for x in range(3):
            for y in range(5):
                assert out[place, x, y] == ((first[mine] == x) & (second[its] == y)).sum()
