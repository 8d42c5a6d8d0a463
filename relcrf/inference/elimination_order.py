"""Elimination orders of a graph: greedy orders, improved by randomised restarts where the cliques are large.

Source: Kjaerulff (1990) for the greedy rules; Kask, Gelfand, Otten & Dechter, Pushing the power of stochastic greedy ordering
schemes (AAAI 2011), for randomised restarts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relcrf.kernels import elimination
from relcrf.kernels.elimination import LOG2_SCALE, Rule

MIN_SEARCHED_CELLS = 1 << 18
"""Minimum number of cells for which a search pays off; tables of 2**18 cells take a few milliseconds."""

STEPS_PER_CELL = 0.02
"""Steps of elimination per cell of the best order so far; a step takes 30 ns and a cell 5 ns or more, so that the search takes
at most about a tenth of the time of inference."""

PAIR_WEIGHT = 4
"""Weight of a node with two states in weighted min-fill; it makes the rounding of other weights small."""


class Elimination(NamedTuple):
    """An elimination order and its cliques, as `kernels.elimination.eliminate` returns them."""

    order: np.ndarray
    start: np.ndarray
    member: np.ndarray
    too_heavy: np.ndarray
    n_cells: float
    n_steps: int


def node_weights(cardinality: np.ndarray) -> np.ndarray:
    """Return the weights of nodes for `eliminate`: scaled base-2 logarithms of the numbers of states, int64."""
    return np.asarray(np.rint(LOG2_SCALE * np.log2(np.maximum(1, cardinality))), dtype=np.int64)


def greedy_rule(n_nodes: int, *, add_edges: bool = True) -> Rule:
    """Return min-fill or, without `add_edges`, the rule that gives a lower bound; ties go to the node of lower index."""
    return Rule(np.ones(n_nodes, dtype=np.int64), np.arange(n_nodes), False, add_edges)


def search_order(
    cardinality: np.ndarray, first: np.ndarray, second: np.ndarray, limit: int, max_steps: int
) -> Elimination | None:
    """Search an elimination order with few cells in all cliques of a connected graph.

    The rules min-fill, weighted min-fill and lightest clique take turns; from the second turn on, ties are broken at random. The
    search ends when it has taken `max_steps` steps, or `STEPS_PER_CELL` times the cells of the best order. The result does not
    depend on the speed of the machine.

    Args:
        cardinality: Number of states of each node, shape (n_nodes,).
        first, second: The two nodes of each edge, shape (n_edges,), int32, without duplicates.
        limit: Maximum weight of a clique.
        max_steps: Maximum number of steps, see `eliminate`.

    Returns:
        The best elimination; None if each order found has a clique heavier than `limit`.
    """
    n_nodes = len(cardinality)
    weight, component = node_weights(cardinality), np.zeros(n_nodes, dtype=np.int32)
    is_included = np.ones(n_nodes, dtype=np.bool_)
    ones = np.ones(n_nodes, dtype=np.int64)
    weighted = np.maximum(1, np.rint(PAIR_WEIGHT * np.log2(np.maximum(1, cardinality)))).astype(np.int64)
    rules = [(ones, False), (weighted, False), (ones, True)]
    if (weighted == weighted[0]).all():
        del rules[1]
    rng, best, n_steps, turn = np.random.default_rng(0), None, 0, 0
    max_cells = np.inf
    while n_steps < min(max_steps, STEPS_PER_CELL * max_cells):
        priority = np.arange(n_nodes) if turn < len(rules) else rng.permutation(n_nodes)
        factor, lightest_clique = rules[turn % len(rules)]
        rule = Rule(factor, priority, lightest_clique, True)
        found = Elimination(
            *elimination.eliminate(weight, component, is_included, first, second, limit, max_cells, rule)
        )
        if len(found.order) == n_nodes and found.too_heavy[0] < 0 and found.n_cells < max_cells:
            best, max_cells = found, found.n_cells
        n_steps += found.n_steps
        turn += 1
    return best
