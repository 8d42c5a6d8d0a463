"""Synthetic answers to four questions, and models with pair tables on a tree or a ring."""

from __future__ import annotations

import numpy as np
import pandas as pd

NETWORK = """
domain Item = open
domain Level = { low, middle, high }
domain Kind = { old, young }
entity Row { kind : Kind }
relation Pair(i: Item, j: Item)
predict relation has(r: Row, i: Item) : Level
template alone(r: Row, i: Item) over has(r, i) per i
"""
MARKOV = NETWORK + "template pair(r: Row, i: Item, j: Item) where Pair(i, j) over has(r, i), has(r, j) per i, j"
CRF = (
    NETWORK
    + """
template pair(r: Row, i: Item, j: Item)
    where Pair(i, j)
    over  has(r, i), has(r, j)
    per   i, j, r.kind
template same(r: Row, i: Item, j: Item) where i < j over has(r, i) == has(r, j) per r.kind
"""
)
TREE = (("a", "b"), ("b", "c"), ("b", "d"))
RING = (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"))


def tables(pairs, rows=300, seed=0, without=()):
    """Return correlated answers, with a stronger correlation for rows of kind `young`.

    Args:
        without: joint states of a and b that do not occur.
    """
    rng = np.random.default_rng(seed)
    kind, common = rng.integers(2, size=rows), rng.integers(3, size=rows)
    found = {i: np.where(rng.random(rows) < 0.3 + 0.3 * kind, common, rng.integers(3, size=rows)) for i in "abcd"}
    keep = np.array([(a, b) not in without for a, b in zip(found["a"], found["b"], strict=True)])
    kept = [k for k in range(rows) if keep[k]]
    has = [(f"r{k}", i, ("low", "middle", "high")[found[i][k]]) for k in kept for i in "abcd"]
    return {
        "row": pd.DataFrame({"id": [f"r{k}" for k in kept], "kind": [("old", "young")[kind[k]] for k in kept]}),
        "pair": pd.DataFrame(list(pairs), columns=["i", "j"]),
        "has": pd.DataFrame(has, columns=["r", "i", "value"]),
    }
