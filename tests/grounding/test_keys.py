"""Combinations of many keys: distinct codes, or an error."""

import numpy as np
import pytest

import relcrf

MODEL = """
domain N = open
entity Visit { predict out : bool  a : N  b : N  c : N  d : N }
template one(v: Visit) over v.out per v.a, v.b, v.c, v.d
"""


def visits(n):
    names = np.array([f"k{k}" for k in range(n)], dtype=object)
    return relcrf.Dataset({"visit": {"id": np.arange(n), "out": [True] * n, **dict.fromkeys("abcd", names)}})


def test_combinations_below_limit_have_distinct_codes():
    grounding = relcrf.parse(MODEL).ground(visits(30_000))  # 8.1e17 combinations
    assert len(grounding.templates[0].keys.values) == 30_000
    assert all(len(set(key)) == 1 for key in grounding.templates[0].keys.values)


def test_too_many_combinations_raise_e420():
    with pytest.raises(relcrf.UsageError) as caught:
        relcrf.parse(MODEL).ground(visits(50_000))  # 6.25e18 combinations, more than 2^62
    (found,) = caught.value.diagnostics
    assert found.code == "E420" and found.location.line == 4
    assert "50,000 x 50,000 x 50,000 x 50,000" in found.notes[0]
