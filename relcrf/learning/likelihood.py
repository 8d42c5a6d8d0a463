"""Maximum likelihood objectives: exact for forests, by any inference method for other graphs, and pairwise.

Each objective is the negative log-likelihood of observed states, a sum and not an average. The pattern count of a
weight is the sum, over all factors that use the weight, of a feature times a pattern (a function of the joint state).
The gradient is the expected minus the observed pattern counts. The objective is convex unless some states are latent.
If there are latent states, expectations given the observed states replace the observed counts, and the log partition
function given the observed states replaces the score.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.edge_classes import SharedEdgeTables, shared_edge_tables, with_table_classes
from relcrf.graph.feature_scales import column_scales, ordinary_values, scale_key
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials
from relcrf.graph.table_matrix import TableMatrices, table_matrices
from relcrf.inference.forest import (
    LANES,
    AbstractForestTables,
    Block,
    ForestPlan,
    ForestSweep,
    SharedTables,
)
from relcrf.inference.result import AbstractInference, Marginals
from relcrf.learning.lbfgs import Objective
from relcrf.learning.node_passes import node_counts, node_potentials, reads_scattered_rows

ROUNDING_ERROR = 1e-6
"""Maximum absolute error of a loss, in nats per node, due to rounding and to the tolerance of inference."""

Expectation = Callable[[np.ndarray, np.ndarray | None], tuple[float, np.ndarray]]
"""A function with the arguments and results of `AbstractJointLikelihood.expectation`."""


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """Return a dot product whose rounding errors do not depend on the number of threads, unlike those of BLAS."""
    return float((a * b).sum())


def clamping_tables(graph: ReducedGraph, states: np.ndarray) -> np.ndarray:
    """Return flat node tables that clamp observed nodes: -inf for states other than the observed one, otherwise 0."""
    out = np.full(int(graph.state_start[-1]), -np.inf)
    observed = states >= 0
    out[graph.state_start[:-1][observed] + states[observed]] = 0.0
    out[np.repeat(~observed, graph.cardinality)] = 0.0
    return out


class AbstractLikelihood(ABC):
    """A function of the weights, such as a negative log-likelihood, that is a sum over components of a graph.

    Args:
        states: The observed states, shape (n_nodes,); -1 for latent nodes.
    """

    graph: ReducedGraph
    states: np.ndarray

    @abstractmethod
    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient at the given weights, shape (layout.size,)."""

    @cached_property
    def curvature(self) -> np.ndarray:
        """An upper estimate of the Hessian's diagonal for equally likely states, shape (layout.size,)."""
        return hessian_diagonal_bound(self.graph)

    def evaluate_coarsely(self, weights: np.ndarray, near: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """Return the value and the gradient, less accurate and in less time if the inference method can do so.

        Args:
            near: Weights that are the same for a sequence of evaluations near them; inference may start from its result for
                them, which is stored.
        """
        return self(weights)


class AbstractJointLikelihood(AbstractLikelihood):
    """The loss `log Z(e, w) - score(x, e, w)` of all nodes jointly, or the sum of such losses of several small models.

    x are the states, e is the evidence and w are the weights.

    Args:
        evidence: Mask of the nodes whose states are evidence, shape (n_nodes,), bool; None without evidence.
    """

    evidence: np.ndarray | None

    @abstractmethod
    def expectation(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> tuple[float, np.ndarray]:
        """Return log partition function and expected pattern counts; `added_potentials` is added to node potentials."""

    @cached_property
    def observed_counts(self) -> np.ndarray:
        """Return the pattern counts of the observed states, shape (layout.size,)."""
        return self.graph.state_counts(self.states)

    @cached_property
    def evidence_tables(self) -> np.ndarray | None:
        """Return flat node tables that clamp the evidence, see `clamping_tables`; None without evidence."""
        return None if self.evidence is None else clamping_tables(self.graph, np.where(self.evidence, self.states, -1))

    @cached_property
    def _label_tables(self) -> np.ndarray:
        return clamping_tables(self.graph, self.states)

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        return self._evaluate(weights, self.expectation)

    def _evaluate(self, weights: np.ndarray, expectation: Expectation) -> tuple[float, np.ndarray]:
        """Return the value and the gradient, computed by a function with the arguments and results of `expectation`."""
        log_partition, expected = expectation(weights, self.evidence_tables)
        if (self.states >= 0).all():
            # The score is the dot product of the observed counts and the weights.
            return log_partition - _dot(self.observed_counts, weights), expected - self.observed_counts
        clamped, observed = expectation(weights, self._label_tables)
        return log_partition - clamped, expected - observed

    def clamped_expectation(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log partition function and the expected pattern counts given the observed states."""
        return self.expectation(weights, self._label_tables)


@dataclass(frozen=True, eq=False)
class ForestLikelihood(AbstractJointLikelihood):
    """The exact likelihood of a graph whose edges form a forest.

    Edge tables are computed, summed out and counted a few at a time, so that the tables stay in the cache of a core;
    see `kernels/forest.py`. The tables of small graphs are the products of a sparse matrix and the weights. An instance
    must not be used by two threads at once.

    Source: Chechetka & Guestrin (2010), equations (6) and (12); with latent states, Quattoni et al. (2007), equation
    (4).

    Args:
        plan: The order of the nodes and the edge from each node to its parent.
        graph: The graph, with the nodes in the order of the plan.
        states, evidence: Observed states, and mask of the evidence, in the order of the plan.
        unordered: The graph with the nodes in the original order, if their features are faster to read in this order; see
            `node_passes.py`. None if the features are read block by block.
        allows_matrices: Whether the tables of a small graph are products of a matrix.
    """

    plan: ForestPlan
    graph: ReducedGraph
    states: np.ndarray
    evidence: np.ndarray | None = None
    unordered: ReducedGraph | None = None
    allows_matrices: bool = True

    @classmethod
    def build(cls, graph: ReducedGraph, states: np.ndarray, evidence: np.ndarray | None = None) -> ForestLikelihood:
        """Return the likelihood; `states` and `evidence` have shape (n_nodes,) and the order of the nodes of `graph`.

        Raises:
            ValueError: If the edges contain a cycle.
        """
        plan = ForestPlan.from_scopes(graph.scopes)
        evidence = None if evidence is None else evidence[plan.order]
        ordered = graph.reordered(plan.order, plan.edge[plan.edge >= 0])
        return cls(plan, ordered, states[plan.order], evidence, graph if reads_scattered_rows(ordered) else None)

    @cached_property
    def _sweep(self) -> ForestSweep:
        return ForestSweep(self.plan)

    @cached_property
    def _first_edge(self) -> np.ndarray:
        """Return the index of the edge from each node, in the order of the plan, to its parent, shape (n + 1,).

        The index is the number of earlier nodes with a parent. The index of a node without a parent is meaningless.
        """
        return offsets(self.plan.edge >= 0)

    @cached_property
    def _shared_tables(self) -> SharedEdgeTables | None:
        return shared_edge_tables(self.graph)

    @cached_property
    def _table_of_node(self) -> np.ndarray:
        """Return the offset of the shared table of each node's edge, in the order of the plan, shape (n + 1,)."""
        table_start = np.zeros(self.plan.n + 1, dtype=np.int64)
        if self._shared_tables is not None:
            table_start[:-1][self.plan.edge >= 0] = self._shared_tables.table_start
        return table_start

    @cached_property
    def _matrices(self) -> TableMatrices | None:
        return table_matrices(self.graph) if self.allows_matrices else None

    def expectation(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> tuple[float, np.ndarray]:
        if self._matrices is not None:
            tables, edges = self._matrices.potentials(weights)
            if added_potentials is not None:
                tables += added_potentials
            table_starts = self.graph.state_start, self._first_edge, self.graph.table_start
            log_partition = self._sweep.marginals(_ComputedTables(*table_starts, tables, edges))
            return log_partition, self._matrices.counts(tables, edges)
        nodes, unordered = None, self.unordered
        if unordered is not None:
            nodes = self.plan.sort_states(unordered.state_start, node_potentials(unordered, weights))
        counts = np.zeros((1 if nodes is not None and self._shared_tables else LANES, self.graph.graph.layout.size))
        geometry = self._first_edge, self._shared_tables, self._table_of_node
        log_partition = self._sweep.marginals(
            _WeightedTables(self.graph, *geometry, weights, nodes, added_potentials, counts)
        )
        expected = counts.sum(axis=0)
        if unordered is not None and nodes is not None:
            expected += node_counts(unordered, self.plan.restore_states(unordered.state_start, nodes))
        return log_partition, expected


@dataclass(frozen=True)
class _WeightedTables(AbstractForestTables):
    """Tables computed from features and weights during a sweep; marginals are immediately added to the counts.

    Args:
        first_edge, shared, table_of_node: See the properties of `ForestLikelihood`.
        nodes: Flat log potentials of the nodes, which the sweep replaces by the marginals; None if they are computed during
            the sweep.
        added_potentials: Flat node tables that are added to the log potentials of the nodes, or None.
        counts: Expected pattern counts of each lane (partial sum), shape (LANES, layout.size), or (1, layout.size) if only
            shared edge tables are counted.
    """

    graph: ReducedGraph
    first_edge: np.ndarray
    shared: SharedEdgeTables | None
    table_of_node: np.ndarray
    weights: np.ndarray
    nodes: np.ndarray | None
    added_potentials: np.ndarray | None
    counts: np.ndarray

    def _edge_range(self, block: Block) -> tuple[int, int]:
        return int(self.first_edge[block[0]]), int(self.first_edge[block[1]])

    def _node_range(self, block: Block) -> slice:
        return slice(int(self.graph.state_start[block[0]]), int(self.graph.state_start[block[1]]))

    def node_potentials(self, block: Block, out: np.ndarray) -> None:
        if self.nodes is None:
            self.graph.node_log_potentials(self.weights, *block, out)
        else:
            out[:] = self.nodes[self._node_range(block)]
        if self.added_potentials is not None:
            out += self.added_potentials[self._node_range(block)]

    def edge_potentials(self, block: Block, out: np.ndarray) -> None:
        self.graph.edge_log_potentials(self.weights, *self._edge_range(block), out)

    def shared_tables(self) -> SharedTables | None:
        if self.shared is None:
            return None
        return SharedTables(self.shared.graph.edge_log_potentials(self.weights), self.table_of_node)

    def store_shared(self, sums: np.ndarray) -> None:
        assert self.shared is not None
        self.shared.graph.add_edge_counts(sums, self.counts[0])

    def store_marginals(self, block: Block, nodes: np.ndarray, edges: np.ndarray, lane: int) -> None:
        if self.nodes is None:
            self.graph.add_node_counts(nodes, self.counts[lane], *block)
        else:
            self.nodes[self._node_range(block)] = nodes
        if self.shared is None:
            self.graph.add_edge_counts(edges, self.counts[lane], *self._edge_range(block))


@dataclass(frozen=True)
class _ComputedTables(AbstractForestTables):
    """Flat tables in the order of the plan; the sweep replaces the log potentials by the marginals.

    Args:
        state_start, first_edge, table_start: Offsets of the node tables; see `ForestLikelihood`; offsets of the edge tables.
        nodes, edges: The log potentials, later the marginals.
    """

    state_start: np.ndarray
    first_edge: np.ndarray
    table_start: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray

    def _nodes_of(self, block: Block) -> slice:
        return slice(int(self.state_start[block[0]]), int(self.state_start[block[1]]))

    def _edges_of(self, block: Block) -> slice:
        first, last = self.first_edge[block[0]], self.first_edge[block[1]]
        return slice(int(self.table_start[first]), int(self.table_start[last]))

    def node_potentials(self, block: Block, out: np.ndarray) -> None:
        out[:] = self.nodes[self._nodes_of(block)]

    def edge_potentials(self, block: Block, out: np.ndarray) -> None:
        out[:] = self.edges[self._edges_of(block)]

    def store_marginals(self, block: Block, nodes: np.ndarray, edges: np.ndarray, lane: int) -> None:
        self.nodes[self._nodes_of(block)] = nodes
        self.edges[self._edges_of(block)] = edges


@dataclass(frozen=True, eq=False)
class InferredLikelihood(AbstractJointLikelihood):
    """The likelihood of any graph, computed by an inference method and exact if this method is exact.

    If some states are latent, inference runs twice, once without and once with the observed states clamped, and the
    gradient is the difference of the expected counts (Quattoni et al. 2007, equation 4). For loopy belief propagation,
    the gradient is the derivative of the value (the Bethe approximation) at fixed points. For mean field, the gradient
    is only an approximation of the derivative.

    Args:
        method: Function that creates the inference method for the scopes of the graph's factors.
    """

    graph: ReducedGraph
    states: np.ndarray
    method: Callable[[Scopes], AbstractInference]
    evidence: np.ndarray | None = None

    @cached_property
    def _compact(self) -> ReducedGraph:
        return with_table_classes(self.graph.with_agreements())

    @cached_property
    def _shared_tables(self) -> SharedEdgeTables | None:
        graph = self._compact
        return None if graph.table_class is None or graph.clique_terms else shared_edge_tables(graph)

    @cached_property
    def _inference(self) -> AbstractInference:
        return self.method(self._compact.scopes)

    @cached_property
    def _coarse_methods(self) -> dict[bytes, AbstractInference]:
        """Coarse inference by the weights from whose messages it starts; one at a time, because the messages are large."""
        return {}

    def expectation(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> tuple[float, np.ndarray]:
        self._coarse_methods.clear()
        return self._expectation(weights, added_potentials, self._inference)

    def evaluate_coarsely(self, weights: np.ndarray, near: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        key = b"" if near is None else near.tobytes()
        if key not in self._coarse_methods:
            self._coarse_methods.clear()
            shared = None if near is None else self._shared_potentials(near, self.evidence_tables)
            self._coarse_methods[key] = self._inference.coarse(shared)
        return self._evaluate(weights, partial(self._expectation, inference=self._coarse_methods[key]))

    def _evaluate(self, weights: np.ndarray, expectation: Expectation) -> tuple[float, np.ndarray]:
        value, gradient = super()._evaluate(weights, expectation)
        # A probability is at most 1, so a loss is not negative, and neither are the losses at the maxima of the Bethe and the
        # mean-field approximation. Negative losses of propagation that fails have no lower bound and would attract learning.
        return (np.inf if value < -ROUNDING_ERROR * len(self.states) else value), gradient

    def _expectation(
        self, weights: np.ndarray, added_potentials: np.ndarray | None, inference: AbstractInference
    ) -> tuple[float, np.ndarray]:
        graph, shared = self._compact, self._shared_tables
        if shared is None:
            found = inference.marginals(self._potentials(weights, added_potentials))
            found.verdict.raise_if_interrupted()
            return found.log_partition, graph.counts(Potentials(found.nodes, found.factors))
        found = inference.shared_marginals(self._shared_potentials(weights, added_potentials))
        found.verdict.raise_if_interrupted()
        return found.log_partition, shared.graph.counts(Potentials(found.nodes, found.factors))

    def _shared_potentials(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> SharedPotentials:
        if self._shared_tables is None:
            return SharedPotentials.from_potentials(self._compact.scopes, self._potentials(weights, added_potentials))
        potentials = self._shared_tables.potentials(weights)
        if added_potentials is None:
            return potentials
        return replace(potentials, nodes=potentials.nodes + added_potentials)

    def marginals(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> Marginals:
        """Return the result of inference; `added_potentials` is added to the log potentials of the nodes."""
        found = self._inference.marginals(self._potentials(weights, added_potentials))
        found.verdict.raise_if_interrupted()
        return found

    def _potentials(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> Potentials:
        nodes, factors = self._compact.potentials(weights)
        return Potentials(nodes if added_potentials is None else nodes + added_potentials, factors)


def square_features(graph: ReducedGraph) -> ReducedGraph:
    """Return the graph with every feature and every pattern squared."""
    groups = tuple(
        replace(g, features=g.features.squared(), patterns=None if g.patterns is None else g.patterns**2)
        for g in graph.graph.groups
    )
    return replace(graph, graph=replace(graph.graph, groups=groups))


def with_ordinary_values(graph: ReducedGraph) -> ReducedGraph:
    """Return the graph with each extreme feature replaced by the scale of its column."""
    scales = column_scales(graph.graph.groups)
    groups = tuple(replace(g, features=ordinary_values(g.features, scales[scale_key(g)])) for g in graph.graph.groups)
    return replace(graph, graph=replace(graph.graph, groups=groups))


def hessian_diagonal_bound(graph: ReducedGraph) -> np.ndarray:
    """Return an upper estimate of the Hessian's diagonal for equally likely states, shape (n_weights,).

    An entry is the variance of the product of a feature and a pattern, which is at most the product's mean square. Extreme
    values (see `graph/feature_scales.py`) count as ordinary ones: their factors have almost no variance as soon as a weight
    is large enough for the others.
    """
    squares = square_features(with_ordinary_values(graph))
    if graph.clique_terms:
        sizes = np.diff(graph.scopes.table_start)
        nodes, factors = (np.repeat(1.0 / each, each) for each in (graph.cardinality, sizes))
        return squares.counts(Potentials(nodes, factors))
    out = np.zeros(graph.graph.layout.size)
    squares.add_node_counts(np.repeat(1.0 / graph.cardinality, graph.cardinality), out)
    for start, stop in graph.edge_chunks():
        sizes = np.diff(graph.table_start[start : stop + 1])
        squares.add_edge_counts(np.repeat(1.0 / sizes, sizes), out, start, stop)
    return out


def add_l2_penalty(
    objective: Objective, l2: np.ndarray, learned: np.ndarray, centre: np.ndarray | float = 0.0
) -> Objective:
    """Return the objective plus `sum l2 / 2 * (w - centre)^2`, with a gradient of 0 for weights that are not `learned`.

    Args:
        l2: Strength of each weight, shape (n,).
        learned: Mask of the weights that may change, shape (n,), bool.
        centre: The weights without penalty, shape (n,): the mean of the Gaussian prior whose precision is `l2`.
    """
    strength = np.where(learned, l2, 0.0)

    def evaluate(weights: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(weights)
        difference = weights - centre
        value += 0.5 * float(strength @ (difference * difference))
        return value, np.where(learned, gradient + strength * difference, 0.0)

    return evaluate
