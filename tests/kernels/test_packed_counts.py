"""Counts of joint states from bit planes, compared with counts of samples."""

import numpy as np
import pytest

from relcrf.kernels import packed_counts
from relcrf.kernels.keyed_cells import KeyedCells
from relcrf.kernels.threads import freeze


def pack_labels(labels, n_states):
    """Pack labels, shape (n_keys, n_samples), -1 for missing ones, into bit planes."""
    key, sample = np.nonzero(labels >= 0)
    start = np.searchsorted(key, np.arange(len(labels) + 1))
    n_words = -(-labels.shape[1] // 64)
    planes, totals = (
        np.zeros((len(labels), n_states, n_words), dtype=np.uint64),
        np.zeros((len(labels), n_states), dtype=np.int64),
    )
    cells = KeyedCells.from_arrays(start, sample, np.arange(len(key)))
    packed_counts.pack(cells, freeze(labels[key, sample], np.int32), planes, totals)
    return freeze(planes, np.uint64), freeze(totals, np.int64)


@pytest.mark.parametrize("n_samples", [1, 64, 65, 300])
@pytest.mark.parametrize("fraction", [1.0, 0.6])
def test_counts_match_reference(n_samples, fraction):
    rng = np.random.default_rng(n_samples)
    first, second = rng.integers(0, 3, (4, n_samples)), rng.integers(0, 5, (6, n_samples))
    first[1:][rng.random((3, n_samples)) > fraction] = -1  # the first key has no missing samples
    second[2:][rng.random((4, n_samples)) > fraction] = -1
    pairs = np.stack(np.indices((4, 6)).reshape(2, -1))
    out = np.empty((24, 3, 5), dtype=np.int64)
    a, b = (freeze(key, np.int64) for key in pairs)
    packed_counts.count_pairs(a, b, n_samples, *pack_labels(first, 3), *pack_labels(second, 5), out)
    for pair, (a_key, b_key) in enumerate(pairs.T):
        for x in range(3):
            for y in range(5):
                assert out[pair, x, y] == ((first[a_key] == x) & (second[b_key] == y)).sum()
