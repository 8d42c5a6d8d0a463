"""Near-duplicates equal those of a comparison of all pairs, and are included in the leakage report."""

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.evaluation import near_duplicates
from relcrf.evaluation.leakage import measure_leakage
from relcrf.evaluation.local_evidence import LocalEvidence
from relcrf.evaluation.near_duplicates import find_near_duplicates
from relcrf.evaluation.splits import Fold

MODEL = """
domain D = {{ x, y }}
domain W = open
entity E {{ predict d : D  words : bag of W  v : vector }}
{}
"""
WORDS = "template word(e: E, w: W) where w in e.words over e.d per w"
VECTOR = "template vector(e: E) over e.d by 1, e.v"


def bags(n, rng):
    """Return bags of 30 of 400 words; two of three are copies of the previous one with a few changed words."""
    found = [rng.choice(400, 30, replace=False)]
    while len(found) < n:
        fresh = rng.choice(400, 30, replace=False)
        changed = int(rng.integers(0, 8))
        found.append(np.unique(np.concatenate((found[-1][changed:], fresh[:changed]))) if len(found) % 3 else fresh)
    return found


def vectors(n, width, rng):
    """Return random vectors; two of three are near the previous one."""
    found = [rng.normal(size=width)]
    while len(found) < n:
        fresh = rng.normal(size=width)
        found.append(found[-1] + rng.uniform(0.0, 0.1) * fresh if len(found) % 3 else fresh)
    return np.array(found)


def ground(*templates, words=(), numbers=None, labels=None):
    n = len(words) or len(numbers)
    numbers = np.ones((n, 1)) if numbers is None else numbers
    columns = {f"v{k}": column for k, column in enumerate(numbers.T)}
    listed = [(k, f"w{w}") for k, bag in enumerate(words) for w in bag]
    return relcrf.parse(MODEL.format("\n".join(templates))).ground(
        relcrf.Dataset(
            {
                "e": pd.DataFrame({"id": range(n), "d": labels or ["x", "y"] * (n // 2), **columns}),
                "e_words": pd.DataFrame(listed, columns=["e", "word"]),
            }
        )
    )


def as_set(pairs):
    return {tuple(sorted(pair)) for pair in pairs.tolist()}


def pairs_above_diagonal(near):
    return {(a, b) for a, b in zip(*np.nonzero(near), strict=True) if a < b}


def sets_are_near(words):
    incidence = np.zeros((len(words), 400))
    for row, bag in enumerate(words):
        incidence[row, bag] = 1.0
    n_common, sizes = incidence @ incidence.T, incidence.sum(axis=1)
    return n_common >= near_duplicates.MIN_JACCARD * (sizes[:, None] + sizes - n_common)


def vectors_are_near(numbers):
    scaled = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    squares = ((scaled[:, None] - scaled) ** 2).sum(axis=2)
    return squares <= near_duplicates.MAX_DISTANCE**2 * 2.0 * numbers.shape[1]


def test_sets_equal_comparison_of_all_pairs():
    words = bags(600, np.random.default_rng(0))
    grounding = ground(WORDS, words=words)
    truth = pairs_above_diagonal(sets_are_near(words))
    found = as_set(find_near_duplicates(LocalEvidence(grounding), np.arange(600)))
    assert found <= truth and len(truth) > 100
    assert len(found) > 0.98 * len(truth)


@pytest.mark.parametrize("width", [6, 60])
def test_vectors_equal_comparison_of_all_pairs(width):
    numbers = vectors(600, width, np.random.default_rng(1))
    grounding = ground(VECTOR, numbers=numbers)
    truth = pairs_above_diagonal(vectors_are_near(numbers))
    found = as_set(find_near_duplicates(LocalEvidence(grounding), np.arange(600)))
    assert found <= truth and len(truth) > 50
    assert len(found) > 0.98 * len(truth)


def test_sets_and_vectors_equal_comparison_of_all_pairs():
    rng = np.random.default_rng(2)
    words, numbers = bags(600, rng), vectors(600, 6, rng)
    grounding = ground(WORDS, VECTOR, words=words, numbers=numbers)
    truth = pairs_above_diagonal(sets_are_near(words) & vectors_are_near(numbers))
    found = as_set(find_near_duplicates(LocalEvidence(grounding), np.arange(600)))
    assert found <= truth and len(truth) > 20
    assert len(found) > 0.98 * len(truth)


def test_large_buckets_are_not_compared_completely(monkeypatch):
    rng = np.random.default_rng(3)
    same = rng.choice(400, 80, replace=False)
    words = [np.delete(same, rng.choice(80, 3, replace=False)) for _ in range(1000)]
    compared = []
    monkeypatch.setattr(
        near_duplicates,
        "are_near_duplicates",
        lambda values, numbers, pairs: compared.append(len(pairs)) or np.ones(len(pairs), dtype=bool),
    )
    find_near_duplicates(LocalEvidence(ground(WORDS, words=words)), np.arange(1000))
    assert 1000 < compared[0] <= 1000 * near_duplicates.BUCKET_WINDOW * near_duplicates.BANDS < 1000 * 999 / 2


def test_near_duplicates_are_reported():
    first, second, third = (np.arange(start, start + 12) for start in (0, 20, 40))
    words = [first, first[:-1], second, np.append(second, 99), third, third]
    grounding = ground(WORDS, words=words, labels=["x", "x", "y", "x", "x", "y"])
    held = np.array([False, True, False, True, False, True])
    found = measure_leakage(grounding, [Fold.from_test("1", held)])
    assert (found.distinctive, found.duplicates, found.duplicates_same_label) == (3, 1, 0)
    assert (found.near_duplicates, found.near_same_label) == (2, 1), "duplicates are not counted as near-duplicates"
    assert any(
        "2 of 3 test entities are near-duplicates of a training entity (1 with" in s for s in found.interpretation
    )
    same_fold = measure_leakage(grounding, [Fold.from_test("1", np.array([True, True, False, False, False, False]))])
    assert (same_fold.near_duplicates, same_fold.duplicates) == (0, 0), "near-duplicates in the same fold do not count"
