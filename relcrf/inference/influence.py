"""The influence of variables on each other: mutual information along paths of pairwise conditional distributions.

On a forest, the conditional of a node given another node is the product of the conditionals along their only path, so that
the information is exact. Elsewhere, the product along a shortest path is an approximation. Information never increases along
a path (data processing inequality), so that on a forest each omitted pair has less than the minimum information.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from scipy.sparse import csr_array

from relcrf.columns.offsets import offsets
from relcrf.graph.scopes import Scopes
from relcrf.inference.result import Marginals
from relcrf.kernels.influence import spread_information

MIN_INFORMATION = 1e-3
"""Information in nats below which a path ends; a thousand pairs that are omitted have together less than one nat."""

MAX_REACH = 256
"""Maximum number of nodes beyond the neighbours of a node whose information is computed, which bounds the memory."""

MAX_PRODUCTS = 1 << 17
"""Maximum number of multiplications per node for nodes beyond its neighbours; 2**17 take about 0.1 ms."""

MIN_MARGINAL = 1e-300
"""Marginal probability below which a state counts as impossible; smaller numbers have no full precision."""

MAX_RESULTS = 1 << 22
"""Maximum number of results of one call of the kernel, which take 50 MB."""


@dataclass(frozen=True, eq=False)
class PairConditionals:
    """Conditional distributions of neighbours, in both directions, and the marginals of the nodes.

    Args:
        start, neighbour: Neighbours of each node in CSR form, shapes (n_nodes + 1,) and (n,).
        cell: Offset in `table` of the conditional of each neighbour, shape (n,).
        table: Conditionals, row-major, one row per state of the node.
        cardinality: Number of states of each node, shape (n_nodes,).
        marginals: Flat marginals of all nodes.
    """

    start: np.ndarray
    neighbour: np.ndarray
    cell: np.ndarray
    table: np.ndarray
    cardinality: np.ndarray
    marginals: np.ndarray

    @classmethod
    def from_pairs(
        cls, pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]], cardinality: np.ndarray, marginals: np.ndarray
    ) -> PairConditionals:
        """Sort conditionals by node.

        Args:
            pairs: Triples of nodes, neighbours and conditionals of the neighbours given the nodes, shapes (n,), (n,) and
                (n, n_states, n_neighbour_states).
        """
        node = np.concatenate([np.empty(0, dtype=np.int64), *(pair[0] for pair in pairs)])
        neighbour = np.concatenate([np.empty(0, dtype=np.int64), *(pair[1] for pair in pairs)])
        sizes = [np.full(len(pair[0]), pair[2].shape[1] * pair[2].shape[2]) for pair in pairs]
        cell = offsets(np.concatenate([np.empty(0, dtype=np.int64), *sizes]))[:-1]
        table = np.concatenate([np.empty(0), *(pair[2].ravel() for pair in pairs)])
        order = np.argsort(node, kind="stable")
        start = offsets(np.bincount(node, minlength=len(cardinality)))
        return cls(start, neighbour[order].astype(np.int32), cell[order], table, cardinality, marginals)

    @classmethod
    def from_marginals(cls, scopes: Scopes, marginals: Marginals) -> PairConditionals:
        """Return the conditionals of the marginals of factors; `scopes` has no agreements."""
        pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for factors in _factor_classes(scopes):
            node = scopes.node[scopes.start[factors][:, None] + np.arange(scopes.arity[factors[0]])]
            shape = tuple(scopes.cardinality[node[0]].tolist())
            cells = scopes.table_start[factors][:, None] + np.arange(int(np.prod(shape)))
            joint = marginals.factors[cells].reshape(-1, *shape)
            for a, b in permutations(range(len(shape)), 2):
                others = tuple(k + 1 for k in range(len(shape)) if k not in (a, b))
                both = joint.sum(axis=others) if others else joint
                both = both if a < b else both.transpose(0, 2, 1)
                total = both.sum(axis=2, keepdims=True)
                pairs.append(
                    (
                        node[:, a],
                        node[:, b],
                        np.divide(both, total, out=np.zeros_like(both), where=total > MIN_MARGINAL),
                    )
                )
        return cls.from_pairs(pairs, scopes.cardinality, marginals.nodes)

    def information(
        self,
        nodes: np.ndarray,
        min_information: float = MIN_INFORMATION,
        max_reach: int = MAX_REACH,
        max_products: int = MAX_PRODUCTS,
    ) -> csr_array:
        """Return the mutual information, in nats, of some nodes with the nodes around them.

        Args:
            nodes: The nodes, shape (n,).
            min_information, max_reach, max_products: See the constants; they bound the result and the work.

        Returns:
            A sparse matrix without the information of a node with itself, shape (n, n_nodes).
        """
        arrays = (self.start, self.neighbour, self.cell, self.table, self.cardinality, offsets(self.cardinality))
        degree = np.diff(self.start)[nodes]
        max_reach = min(max_reach, len(self.cardinality))
        counts, targets, values = [], [np.empty(0, dtype=np.int32)], [np.empty(0)]
        step = max(1, int(MAX_RESULTS / (float(degree.mean() if len(nodes) else 0.0) + max_reach + 1)))
        for first in range(0, len(nodes), step):
            chunk = nodes[first : first + step].astype(np.int32)
            out_start = offsets(degree[first : first + step] + max_reach)
            target, information = np.empty(int(out_start[-1]), dtype=np.int32), np.empty(int(out_start[-1]))
            count = spread_information(
                *arrays, self.marginals, chunk, out_start, min_information, max_products, target, information
            )
            stored = np.arange(int(out_start[-1])) - np.repeat(out_start[:-1], np.diff(out_start))
            stored = stored < np.repeat(count, np.diff(out_start))
            counts.append(count)
            targets.append(target[stored])
            values.append(information[stored])
        start = offsets(np.concatenate([np.empty(0, dtype=np.int64), *counts]))
        shape = (len(nodes), len(self.cardinality))
        return csr_array((np.concatenate(values), np.concatenate(targets), start), shape=shape)


def _factor_classes(scopes: Scopes) -> list[np.ndarray]:
    """Return the factors over two or more nodes, grouped by the cardinalities of their nodes."""
    found = []
    for arity in np.unique(scopes.arity[scopes.arity > 1]).tolist():
        factors = np.flatnonzero(scopes.arity == arity)
        sizes = scopes.cardinality[scopes.node[scopes.start[factors][:, None] + np.arange(arity)]]
        _, number = np.unique(sizes, axis=0, return_inverse=True)
        found += [factors[number.ravel() == k] for k in range(int(number.max()) + 1)]
    return found


def node_entropies(marginals: np.ndarray, state_start: np.ndarray) -> np.ndarray:
    """Return the entropy of each node in nats, shape (n_nodes,), for flat marginals with the offsets `state_start`."""
    if len(state_start) == 1:
        return np.empty(0)
    terms = np.where(marginals > 0.0, -marginals * np.log(np.maximum(marginals, 1e-300)), 0.0)
    return np.asarray(np.maximum(np.add.reduceat(terms, state_start[:-1]), 0.0))
