"""Nearest neighbours compared with a sort of all pairs."""

import numpy as np
import pytest

from relcrf.grounding import nearest
from relcrf.grounding.nearest import find_nearest_neighbours


def naive(vectors, count, measure):
    out = []
    for a, v in enumerate(vectors):
        keys = []
        for b, w in enumerate(vectors):
            if measure == "distance":
                closeness = -np.linalg.norm(v - w)
            else:
                norm = np.linalg.norm(v) * np.linalg.norm(w)
                closeness = v @ w if measure == "dot" else (v @ w / norm if norm else 0.0)
            if a != b:
                keys.append((-round(float(closeness), 9), b))
        out += [(a, b) for _, b in sorted(keys)[:count]]
    return out


@pytest.mark.parametrize("measure", ["cosine", "dot", "distance"])
@pytest.mark.parametrize("block", [1 << 24, 40])
def test_neighbours_equal_naive_sort(measure, block, monkeypatch):
    monkeypatch.setattr(nearest, "BLOCK_CELLS", block)
    rng = np.random.default_rng(0)
    vectors = rng.integers(-3, 4, size=(30, 4)).astype(float)  # small integers: many ties
    vectors[3] = 0.0
    if measure == "cosine":
        vectors = rng.normal(size=(30, 4))  # cosines of equal directions differ by rounding
        vectors[3] = 0.0
    for count in (1, 5, 29, 50):
        a, b = find_nearest_neighbours(vectors, count, measure)
        assert list(zip(a.tolist(), b.tolist(), strict=True)) == naive(vectors, count, measure)


def test_single_entity_has_no_neighbour():
    assert len(find_nearest_neighbours(np.ones((1, 3)), 4, "dot")[0]) == 0


def test_distances_far_from_origin_do_not_cancel():
    vectors = np.random.default_rng(1).integers(-3, 4, size=(30, 4)).astype(float)
    near, far = find_nearest_neighbours(vectors, 5, "distance"), find_nearest_neighbours(vectors + 1e9, 5, "distance")
    np.testing.assert_array_equal(near, far)


@pytest.mark.parametrize("outlier", [0, 7])
def test_outlier_does_not_change_the_neighbours_of_others(outlier):
    """A missing vector may be written as 1e12; squares of this size do not contain the distances of other points."""
    vectors = np.random.default_rng(1).normal(size=(30, 4))
    vectors[outlier] = 1e12
    a, b = find_nearest_neighbours(vectors, 5, "distance")
    expected = [pair for pair in naive(vectors, 5, "distance") if pair[0] != outlier]
    assert [pair for pair in zip(a.tolist(), b.tolist(), strict=True) if pair[0] != outlier] == expected
