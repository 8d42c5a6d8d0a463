"""Generator of rows whose best tree depends on the evidence: 16 variables of 3 states, and 5 evidence attributes.

The level of the first attribute selects one of three random trees over the variables; all attributes influence the
states of single variables. Rows are drawn exactly. Their likelihood under the generating model is computed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

VARIABLES, STATES = 16, 3
ATTRIBUTES = (3, 2, 2, 2, 2)
"""Number of levels of each attribute. Each level of the first attribute has a separate tree."""
LEVELS = ATTRIBUTES[0]
STRENGTH, EVIDENCE_SPREAD = 2.0, 0.3
"""STRENGTH is the log potential of the one state of a child that an edge prefers, for each state of the parent.
EVIDENCE_SPREAD is the standard deviation of the log potentials of single variables for each level of an attribute."""

MODEL = """
domain Item = open

entity Row {
    level : 1..3    # level of the first attribute
    known : vector  # one 0/1 component for each level of each attribute, except the first level
}

relation Candidate(level: 1..3, i: Item, j: Item)

predict relation state(r: Row, i: Item) : 1..3

template pair(r: Row, i: Item, j: Item)
    where Candidate(k, i, j) and r.level == k
    over  state(r, i), state(r, j)  # also covers single variables: each is in some pair
    per   i, j
    by    1, r.known
"""


@dataclass(frozen=True)
class SwitchingTrees:
    """The model from which rows are drawn.

    Args:
        trees: The edges (parent, child) of each level's tree, parents first; shape (LEVELS, VARIABLES - 1, 2).
        edges: Log potentials of the edges in `trees`, shape (LEVELS, VARIABLES - 1, STATES, STATES).
        nodes: Log potentials of single variables, shape (VARIABLES, n_attributes, LEVELS, STATES).
    """

    trees: np.ndarray
    edges: np.ndarray
    nodes: np.ndarray


@dataclass(frozen=True)
class SwitchingRows:
    """Rows: the attributes' levels from 0, shape (n, n_attributes), and the states from 0, shape (n, VARIABLES)."""

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
    """Draw independent rows; the states of a row are drawn from the root of the tree to the leaves."""
    levels = rng.integers(ATTRIBUTES, size=(n, len(ATTRIBUTES)))
    states = np.empty((n, VARIABLES), dtype=np.int64)
    for level, tree in enumerate(model.trees):
        rows = np.flatnonzero(levels[:, 0] == level)
        messages = _upward_messages(model, level, levels[rows])
        root = tree[0, 0]
        states[rows, root] = _choose(messages[:, root], rng)
        for (parent, child), table in zip(tree, model.edges[level], strict=True):
            states[rows, child] = _choose(messages[:, child] + table[states[rows, parent]], rng)
    return SwitchingRows(levels, states)


def log_likelihood(model: SwitchingTrees, rows: SwitchingRows) -> float:
    """Return the log-likelihood of the states given the levels, in nats per row."""
    total = 0.0
    for level, tree in enumerate(model.trees):
        mask = rows.levels[:, 0] == level
        states = rows.states[mask]
        score = np.take_along_axis(_node_potentials(model, rows.levels[mask]), states[:, :, None], axis=2).sum()
        for (parent, child), table in zip(tree, model.edges[level], strict=True):
            score += table[states[:, parent], states[:, child]].sum()
        total += (
            score - np.logaddexp.reduce(_upward_messages(model, level, rows.levels[mask])[:, tree[0, 0]], axis=1).sum()
        )
    return float(total / len(rows.states))


def tables(rows: SwitchingRows, candidates: np.ndarray) -> dict[str, pd.DataFrame]:
    """Return tables for `MODEL`.

    Args:
        candidates: The candidate pairs of each level, shape (LEVELS, n, 2).
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
    """Return the log potentials of single variables, shape (n, VARIABLES, STATES)."""
    return np.asarray(model.nodes[:, np.arange(len(ATTRIBUTES)), levels].sum(axis=2).swapaxes(0, 1))


def _upward_messages(model: SwitchingTrees, level: int, levels: np.ndarray) -> np.ndarray:
    """Return the log potentials of each variable with its descendants summed out, shape (n, VARIABLES, STATES)."""
    messages = _node_potentials(model, levels)
    for (parent, child), table in zip(model.trees[level][::-1], model.edges[level][::-1], strict=True):
        messages[:, parent] += np.logaddexp.reduce(table + messages[:, None, child], axis=2)
    return messages


def _choose(log_potential: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a state of each row, shape (n,), with probability proportional to exp(log_potential), shape (n, STATES)."""
    return np.asarray((log_potential + rng.gumbel(size=log_potential.shape)).argmax(axis=1))
