"""Makes rows whose best tree depends on the evidence: 16 variables of 3 states, and 5 evidence attributes.

The level of the first attribute says which of three random trees joins the variables; all attributes push the states of
single variables. Rows are drawn exactly, and their likelihood under the model that drew them is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

VARIABLES, STATES = 16, 3
ATTRIBUTES = (3, 2, 2, 2, 2)
"""How many levels each has. Those of the first have trees of their own."""
LEVELS = ATTRIBUTES[0]
STRENGTH, EVIDENCE_SPREAD = 2.0, 0.3
"""By how much an edge prefers, for each state of the one end, one state of the other; and the standard deviation of the log
potentials of single variables for each level of each attribute."""

MODEL = """
domain Item = open

entity Row {
    level : 1..3    # of the first attribute
    known : vector  # for each attribute and each level but the first, whether it has that
}

relation Candidate(level: 1..3, i: Item, j: Item)

predict relation state(r: Row, i: Item) : 1..3

template pair(r: Row, i: Item, j: Item)
    where Candidate(k, i, j) and r.level == k
    over  state(r, i), state(r, j)  # all there is to say of single variables, too: each is in some pair
    per   i, j
    by    1, r.known
"""


@dataclass(frozen=True)
class SwitchingTrees:
    """The model that rows are drawn from.

    Args:
        trees: for each level its edges from parent to child, parents first; shape (LEVELS, VARIABLES - 1, 2).
        edges: log potentials, shape (LEVELS, VARIABLES - 1, STATES, STATES).
        nodes: log potentials, shape (VARIABLES, n_attributes, LEVELS, STATES).
    """

    trees: np.ndarray
    edges: np.ndarray
    nodes: np.ndarray


@dataclass(frozen=True)
class SwitchingRows:
    """Levels from 0, shape (n, n_attributes), and states from 0, shape (n, VARIABLES)."""

    levels: np.ndarray
    states: np.ndarray


def make_switching_trees(rng: np.random.Generator) -> SwitchingTrees:
    trees = np.empty((LEVELS, VARIABLES - 1, 2), dtype=np.int64)
    for tree in trees:
        order = rng.permutation(VARIABLES)
        tree[:, 0] = [order[rng.integers(k)] for k in range(1, VARIABLES)]
        tree[:, 1] = order[1:]
    partner = rng.permuted(np.broadcast_to(np.arange(STATES), (LEVELS, VARIABLES - 1, STATES)), axis=2)
    return SwitchingTrees(
        trees,
        STRENGTH * np.eye(STATES)[partner],
        EVIDENCE_SPREAD * rng.normal(size=(VARIABLES, len(ATTRIBUTES), LEVELS, STATES)),
    )


def draw_rows(model: SwitchingTrees, n: int, rng: np.random.Generator) -> SwitchingRows:
    """Independent rows, from the root of each row's tree to its leaves."""
    levels = rng.integers(ATTRIBUTES, size=(n, len(ATTRIBUTES)))
    states = np.empty((n, VARIABLES), dtype=np.int64)
    for level, tree in enumerate(model.trees):
        here = np.flatnonzero(levels[:, 0] == level)
        inward = _upward_messages(model, level, levels[here])
        root = tree[0, 0]
        states[here, root] = _choose(inward[:, root], rng)
        for (parent, child), table in zip(tree, model.edges[level], strict=True):
            states[here, child] = _choose(inward[:, child] + table[states[here, parent]], rng)
    return SwitchingRows(levels, states)


def log_likelihood(model: SwitchingTrees, rows: SwitchingRows) -> float:
    """Of the states given the levels, in nats a row."""
    total = 0.0
    for level, tree in enumerate(model.trees):
        here = rows.levels[:, 0] == level
        states = rows.states[here]
        score = np.take_along_axis(_node_potentials(model, rows.levels[here]), states[:, :, None], axis=2).sum()
        for (parent, child), table in zip(tree, model.edges[level], strict=True):
            score += table[states[:, parent], states[:, child]].sum()
        total += (
            score - np.logaddexp.reduce(_upward_messages(model, level, rows.levels[here])[:, tree[0, 0]], axis=1).sum()
        )
    return float(total / len(rows.states))


def tables(rows: SwitchingRows, candidates: np.ndarray) -> dict[str, pd.DataFrame]:
    """Tables for `MODEL`.

    Args:
        candidates: for each level the pairs that may be joined, shape (LEVELS, n, 2).
    """
    names = np.array([f"v{k:02}" for k in range(VARIABLES)], dtype=object)
    known = np.stack([rows.levels[:, k] == v for k, count in enumerate(ATTRIBUTES) for v in range(1, count)], axis=1)
    row = np.arange(len(rows.states))
    pairs = np.sort(candidates, axis=2).reshape(-1, 2)
    return {
        "row": pd.DataFrame({"id": row, "level": 1 + rows.levels[:, 0], "known": list(known.astype(float))}),
        "state": pd.DataFrame(
            {"r": np.repeat(row, VARIABLES), "i": np.tile(names, len(row)), "value": 1 + rows.states.ravel()}
        ),
        "candidate": pd.DataFrame(
            {
                "level": np.repeat(1 + np.arange(LEVELS), candidates.shape[1]),
                "i": names[pairs[:, 0]],
                "j": names[pairs[:, 1]],
            }
        ),
    }


def _node_potentials(model: SwitchingTrees, levels: np.ndarray) -> np.ndarray:
    """Log potentials of single variables, shape (n, VARIABLES, STATES)."""
    return np.asarray(model.nodes[:, np.arange(len(ATTRIBUTES)), levels].sum(axis=2).swapaxes(0, 1))


def _upward_messages(model: SwitchingTrees, level: int, levels: np.ndarray) -> np.ndarray:
    """Log potentials of each variable with all that hangs below it summed out, shape (n, VARIABLES, STATES)."""
    out = _node_potentials(model, levels)
    for (parent, child), table in zip(model.trees[level][::-1], model.edges[level][::-1], strict=True):
        out[:, parent] += np.logaddexp.reduce(table + out[:, None, child], axis=2)
    return out


def _choose(log_potential: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A state of each row, shape (n,), with probabilities proportional to exp of shape (n, STATES)."""
    return np.asarray((log_potential + rng.gumbel(size=log_potential.shape)).argmax(axis=1))
