"""Tests of the selection of penalty strengths against a search of the whole grid."""

import itertools

import numpy as np
import pytest

from relcrf.structure.strength_selection import select_strengths

PATHS = [(8.0, 4.0, 2.0, 1.0), (8.0, 4.0, 2.0, 1.0), (3.0,)]


@pytest.mark.parametrize("best", list(itertools.product((8.0, 4.0, 1.0), (8.0, 2.0))))
def test_finds_the_minimum_of_the_grid(best):
    """The strengths interact, but the loss is convex in their logarithms."""
    seen = []

    def evaluate(strengths):
        seen.append(strengths)
        x, y, _ = np.log2(strengths) - np.log2((*best, 3.0))
        return x**2 + y**2 + 0.5 * x * y

    found = select_strengths(PATHS, evaluate)
    assert found == min(itertools.product(*PATHS), key=evaluate) == (*best, 3.0)
    assert len(set(seen[:-16])) == len(seen) - 16, "no combination is evaluated twice"
    assert seen[0] == (8.0, 8.0, 3.0)


def test_looks_beyond_a_single_strength_without_improvement():
    losses = {8.0: 1.0, 4.0: 1.0, 2.0: 0.5, 1.0: 0.7}
    assert select_strengths([tuple(losses)], lambda strengths: losses[strengths[0]]) == (2.0,)


def test_moves_back_to_stronger_penalties():
    """Once the second strength is 4, the best value of the first is 8 again."""
    losses = {(8, 8): 3.0, (4, 8): 2.0, (4, 4): 1.0, (8, 4): 0.5}
    assert select_strengths([(8, 4), (8, 4)], lambda strengths: losses[strengths]) == (8, 4)
