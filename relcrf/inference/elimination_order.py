"""Elimination orders of a graph: greedy orders, improved by randomised restarts where the cliques are large.

Source: Kjaerulff (1990) for the greedy rules; Kask, Gelfand, Otten & Dechter, Pushing the power of stochastic greedy ordering
schemes (AAAI 2011), for randomised restarts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.scopes import Scopes
from relcrf.kernels import elimination
from relcrf.kernels.elimination import LOG2_SCALE, EliminationRule

MIN_SEARCHED_CELLS = 1 << 18
"""Minimum number of cells for which a search pays off; tables of 2**18 cells take a few milliseconds."""

STEPS_PER_CELL = 0.02
"""Steps of elimination per cell of the best order so far; a step takes 30 ns and a cell 5 ns or more, so that the search takes
at most about a tenth of the time of inference."""

STEPS_PER_ALLOWED_CELL = 0.1
"""Steps of elimination per allowed cell, as long as each order has more cells than allowed; inference without these cells would
be approximate."""

WEIGHT_SCALE = 64
"""Weight of a node with two states in weighted min-fill; it makes the rounding of other weights small."""

NO_LIMIT = 1 << 62
"""Limit of the weight of a clique that no clique exceeds; an order with larger cliques is a step towards better orders."""

HOPELESS_CELLS = 2.0**64
"""Number of cells at which elimination stops. Some orders of the linkage models of UAI 2014 have 2**57 cells, the best 2**28."""

HOPELESS_ORDERS = 10
"""Number of orders after which the search ends if each of them has `HOPELESS_CELLS` or more."""

MAX_WEIGHT = 1 << 16
"""Maximum weight of a node; sums of products of two weights then fit into 64 bits."""

FRESH_PROBABILITY = 0.1
"""Probability that weights are drawn anew instead of changing the best ones."""

CHANGES = ((0.3, 1.0), (1.0, 0.05))
"""Changes of weights: the standard deviation of their logarithm, and the fraction of nodes. On the linkage models of the UAI 2014
competition, each reduces the cells by a factor of 10 to 60, compared with random ties alone; none is always the better one."""


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


def adjacent_pairs(scopes: Scopes, is_included: np.ndarray) -> np.ndarray:
    """Return the distinct pairs of nodes that share a factor, the lower node first, shape (n_pairs, 2), int32.

    Args:
        is_included: Mask of the entries of `scopes.node` that are considered, bool.
    """
    node = scopes.node[is_included]
    arity = np.bincount(scopes.factor[is_included], minlength=scopes.n_factors).astype(np.int64)
    start = offsets(arity)
    keys = [np.empty(0, dtype=np.int64)]
    for size in np.unique(arity[arity > 1]):
        scope = node[start[:-1][arity == size, None] + np.arange(size)].astype(np.int64)
        i, j = np.triu_indices(size, 1)
        low, high = np.minimum(scope[:, i], scope[:, j]), np.maximum(scope[:, i], scope[:, j])
        keys.append((low * scopes.n_nodes + high).ravel())
    key = np.sort(np.concatenate(keys))  # np.unique would hash and take ten times as long
    key = key[np.diff(key, prepend=-1) > 0]
    return np.stack([key // max(1, scopes.n_nodes), key % max(1, scopes.n_nodes)], axis=1).astype(np.int32)


def greedy_rule(stage: np.ndarray, *, add_edges: bool = True) -> EliminationRule:
    """Return min-fill or, without `add_edges`, the rule that gives a lower bound; ties go to the node of lower index.

    Args:
        stage: Stage of each node, shape (n_nodes,), int64; see `EliminationRule`.
    """
    return EliminationRule(np.ones(len(stage), dtype=np.int64), stage, np.arange(len(stage)), False, add_edges)


def search_order(
    cardinality: np.ndarray, stage: np.ndarray, first: np.ndarray, second: np.ndarray, limit: int, max_cells: int
) -> Elimination | None:
    """Search an elimination order with few cells in all cliques of a connected graph.

    The first orders are those of the greedy rules min-fill, weighted min-fill and lightest clique. All others are orders of
    weighted min-fill whose weights are random changes of the weights of the best order, or drawn anew (an evolution strategy).
    The search ends after `STEPS_PER_CELL` steps per cell of the best order or, if no order is allowed, after
    `STEPS_PER_ALLOWED_CELL` steps per allowed cell, and earlier if `HOPELESS_ORDERS` orders are hopeless. The result does not
    depend on the speed of the machine.

    Args:
        cardinality: Number of states of each node, shape (n_nodes,).
        stage: Stage of each node, shape (n_nodes,), int64; see `EliminationRule`.
        first, second: The two nodes of each edge, shape (n_edges,), int32, without duplicates.
        limit: Maximum weight of a clique.
        max_cells: Allowed number of cells of all cliques.

    Returns:
        The best elimination; None if it has a clique heavier than `limit`, or if each order has `HOPELESS_CELLS` or more.
    """
    n_nodes = len(cardinality)
    weight, component = node_weights(cardinality), np.zeros(n_nodes, dtype=np.int32)
    is_included = np.ones(n_nodes, dtype=np.bool_)
    unweighted, weighted = np.zeros(n_nodes), np.log(np.maximum(np.log2(np.maximum(1, cardinality)), 1e-3))
    log_factor, lightest_clique = unweighted, False
    rng, best, n_steps, turn = np.random.default_rng(0), None, 0, 0
    best_factor, best_cells = unweighted, HOPELESS_CELLS
    while n_steps < (STEPS_PER_CELL * best_cells if best_cells <= max_cells else STEPS_PER_ALLOWED_CELL * max_cells):
        if best is None and turn == HOPELESS_ORDERS:
            break
        if turn < 3:
            log_factor, lightest_clique = (unweighted, weighted, unweighted)[turn], turn == 2
        else:
            scale, fraction = CHANGES[turn % len(CHANGES)]
            is_fresh = rng.random() < FRESH_PROBABILITY
            center = (unweighted, weighted)[turn % 2] if is_fresh else best_factor
            is_changed = rng.random(n_nodes) < (1.0 if is_fresh else fraction)
            log_factor, lightest_clique = center + rng.normal(scale=scale, size=n_nodes) * is_changed, False
        factor = np.clip(np.rint(WEIGHT_SCALE * np.exp(log_factor)), 1, MAX_WEIGHT).astype(np.int64)
        priority = rng.permutation(n_nodes) if turn else np.arange(n_nodes)
        rule = EliminationRule(factor, stage, priority, lightest_clique, True)
        found = Elimination(
            *elimination.eliminate(weight, component, is_included, first, second, NO_LIMIT, best_cells, rule)
        )
        if len(found.order) == n_nodes and found.n_cells < best_cells:
            best, best_cells, best_factor = found, found.n_cells, log_factor
        n_steps += found.n_steps
        turn += 1
    is_accepted = best is not None and np.add.reduceat(weight[best.member], best.start[:-1]).max() <= limit
    return best if is_accepted else None
