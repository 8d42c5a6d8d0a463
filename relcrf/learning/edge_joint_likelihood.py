"""The likelihood of models with edges chosen from spaces of candidate edges, computed by any inference method.

Source: Chaabene & Huang, Best-choice edge grafting for efficient structure learning of Markov random fields (2018). The
gradient for the weights of an edge is the difference between the model's and the data's marginals of the two ends.

See `edge_conditionals.py` for the terms space, side, cell, key, sample and edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from relcrf.graph.candidates import CandidateSet, PairSpace, match_cells
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph, Role, reduce_graph
from relcrf.graph.sample_columns import SampleColumns
from relcrf.graph.scope_components import label_scope_components
from relcrf.graph.scopes import Scopes
from relcrf.inference.result import AbstractInference, Marginals
from relcrf.kernels import edge_tables
from relcrf.kernels.threads import freeze
from relcrf.learning.column_conditionals import ColumnPotentials
from relcrf.learning.edge_conditionals import to_edge_cells
from relcrf.learning.edge_counts import EdgeCounts
from relcrf.learning.edge_objective import AbstractEdgeObjective, spaces_of_nodes
from relcrf.learning.likelihood import InferredLikelihood, clamping_tables

InferenceFactory = Callable[[Scopes], AbstractInference]
"""A function that creates an inference method for the scopes of a graph's factors."""


@dataclass(frozen=True, eq=False)
class GraphPart:
    """A part of the ground graph, which represents several copies with equal potentials for any weights.

    Args:
        graph: The factors of the part, without candidates.
        roles: A `Role` for each variable, shape (n_variables,), int8; variables of other parts are absent.
        states: States of the variables, shape (n_variables,).
        spaces: The spaces of candidate edges, restricted to the part; the `variable` arrays contain variables.
        evidence: Mask of the nodes of the part whose labels are evidence, shape (n_nodes,), bool; None without evidence.
        n_copies: Number of copies.
    """

    graph: FactorGraph
    roles: np.ndarray
    states: np.ndarray
    spaces: tuple[PairSpace, ...]
    evidence: np.ndarray | None
    n_copies: int

    @classmethod
    def build(
        cls,
        base: ReducedGraph,
        roles: np.ndarray,
        states: np.ndarray,
        spaces: tuple[PairSpace, ...],
        nodes: np.ndarray,
        n_copies: int,
    ) -> GraphPart:
        """Return the part that contains some nodes of `base`, given in ascending order.

        Args:
            spaces: Candidate spaces; the `variable` arrays contain nodes of `base`.
        """
        in_part = np.zeros(base.n_nodes, dtype=bool)
        in_part[nodes] = True
        part_roles = roles.copy()
        part_roles[base.variables[~in_part]] = Role.ABSENT
        groups = []
        for group in base.graph.groups:
            present = np.logical_and.reduce([part_roles[variables] != Role.ABSENT for variables in group.scope])
            rows = np.flatnonzero(present)
            scope = tuple(variables[rows] for variables in group.scope)
            groups.append(replace(group, scope=scope, features=group.features.take(rows)))
        restricted = [space.restrict_to_variables(in_part) for space in spaces]
        part_spaces = tuple(
            space.with_sides([replace(side, variable=base.variables[side.variable]) for side in space.sides])
            for space in restricted
        )
        return cls(replace(base.graph, groups=tuple(groups)), part_roles, states, part_spaces, None, n_copies)

    def likelihood(self, chosen: CandidateSet, method: InferenceFactory) -> InferredLikelihood:
        """Return the likelihood of one copy with chosen edges, whose weights follow those of the base, by space."""
        graph = self.graph
        for number, space in enumerate(self.spaces):
            pairs = chosen.pairs(chosen.indices_in_space(number))
            if len(pairs):
                group = space.build_factor_group(pairs, np.arange(len(pairs)), len(pairs), len(graph.layout.blocks))
                graph = graph.with_groups((group,), space.build_weight_block(len(pairs)))
        reduced = reduce_graph(graph, self.roles, self.states)
        return InferredLikelihood(reduced, self.states[reduced.variables], method, self.evidence)


@dataclass(frozen=True, eq=False)
class PartMarginals:
    """The marginals of one part of the graph at a point.

    Args:
        likelihood: The likelihood of the part.
        weights: Weights of the part's graph.
        marginals: Result of inference.
    """

    likelihood: InferredLikelihood
    weights: np.ndarray
    marginals: Marginals

    def pair_sums(self, space: PairSpace, pairs: np.ndarray) -> np.ndarray:
        """Return the sums, over samples, of the pairwise marginals of the ends of edges that are not in the graph.

        If inference is exact, the pairwise marginals are exact. Otherwise they are the products of the marginals of the
        two nodes, which are the pairwise marginals of belief propagation and of mean field for an edge with weights 0.

        Args:
            space: A candidate space; the `variable` arrays of the sides contain variables.
            pairs: The keys of the edges, shape (n, 2).

        Returns:
            Shape (n, n_first_states, n_second_states).
        """
        (space,) = spaces_of_nodes(self.likelihood.graph, (space,))
        out = np.zeros((len(pairs), *(len(side.truth) for side in space.sides)))
        starts = freeze(self.likelihood.graph.state_start, np.int64)
        nodes = freeze(self.marginals.nodes, np.float64)
        edge_tables.add_marginal_products(to_edge_cells(space, pairs), starts, nodes, out)
        if self.marginals.verdict.status == "exact":
            self._add_covariances(space, pairs, out)
        return out

    def _add_covariances(self, space: PairSpace, pairs: np.ndarray, out: np.ndarray) -> None:
        """Add the pairwise marginals of nodes in the same component, minus the products of the nodes' marginals.

        The pairwise marginals are `p(a) p(b | a)`; inference with node a clamped computes `p(b | a)`.
        """
        first_cell, second_cell, pair = match_cells(space.first, space.second, space.n_samples, pairs)
        first, second = space.first.variable[first_cell], space.second.variable[second_cell]
        component = label_scope_components(self.likelihood.graph.scopes)
        is_connected = component[first] == component[second]
        first, second, pair = first[is_connected], second[is_connected], pair[is_connected]
        n_first, n_second = out.shape[1:]
        starts, nodes = self.likelihood.graph.state_start, self.marginals.nodes
        for clamped in _one_node_per_component(np.unique(first), component):
            rows = np.flatnonzero(np.isin(first, clamped))
            second_states = starts[second[rows]][:, None] + np.arange(n_second)
            for state in range(n_first):
                possible = clamped[nodes[starts[clamped] + state] > 0.0]
                conditional = np.where(
                    np.isin(first[rows], possible)[:, None],
                    self._conditional_marginals(possible, state)[second_states],
                    nodes[second_states],
                )
                probability = nodes[starts[first[rows]] + state]
                change = probability[:, None] * (conditional - nodes[second_states])
                np.add.at(out[:, state], pair[rows], change)

    def _conditional_marginals(self, clamped: np.ndarray, state: int) -> np.ndarray:
        """Return the marginals of all nodes given that some nodes are in a state."""
        likelihood = self.likelihood
        states = np.full(likelihood.graph.n_nodes, -1)
        states[clamped] = state
        tables = clamping_tables(likelihood.graph, states)
        if likelihood.evidence_tables is not None:
            tables = tables + likelihood.evidence_tables
        return likelihood.marginals(self.weights, tables).nodes


def _one_node_per_component(nodes: np.ndarray, component: np.ndarray) -> Iterator[np.ndarray]:
    """Partition nodes into sets with at most one node of each component.

    Args:
        component: Component of each node of the graph.
    """
    nodes = nodes[np.argsort(component[nodes], kind="stable")]
    first = np.searchsorted(component[nodes], component[nodes])
    rank = np.arange(len(nodes)) - first
    for number in range(int(rank.max(initial=-1)) + 1):
        yield nodes[rank == number]


@dataclass(frozen=True, eq=False)
class JointEdgeLikelihood(AbstractEdgeObjective):
    """The negative log-likelihood of the labels of training nodes, given the labels of all other nodes.

    The value is exact if inference is exact, and convex. The gradient for an edge that is not chosen is the gradient
    after the edge is added with weights 0, for exact inference, belief propagation and mean field at their fixed points.

    Samples often have the same factors, for example the rows of a table with weights per column and no evidence.
    Inference then runs once for all samples in which the same keys have cells.

    Args:
        base: The graph of all factors that are not candidates; its nodes are the training nodes and their evidence.
        roles: A `Role` for each variable of the ground graph, shape (n_variables,), int8.
        variable_states: State of each variable, shape (n_variables,).
        method: Function that creates the inference method.
        all_counts: The counts of joint states of all nodes, for the edges of each space.
        parts: Parts of the graph; all copies together are the whole graph.
    """

    terms_per_edge: ClassVar[int] = 1
    depends_on_zero_candidates: ClassVar[bool] = True
    roles: np.ndarray
    variable_states: np.ndarray
    method: InferenceFactory
    all_counts: tuple[EdgeCounts, ...]
    parts: tuple[GraphPart, ...]
    _marginals: dict[bytes, list[PartMarginals]] = field(default_factory=dict, init=False, repr=False)
    """The marginals at the point of the latest call of `edge_gradients`, by the bytes of the point."""

    @classmethod
    def build(
        cls,
        base: ReducedGraph,
        roles: np.ndarray,
        states: np.ndarray,
        spaces: tuple[PairSpace, ...],
        method: InferenceFactory,
    ) -> JointEdgeLikelihood:
        """Return the objective with no chosen edges, trained on all nodes.

        Args:
            roles, states: The roles with which `base` was reduced, and the states of all variables, shape (n_variables,).
            spaces: Candidate spaces; the variables of all cells are nodes.
        """
        node_spaces = spaces_of_nodes(base, spaces)
        labels, all_nodes = freeze(states[base.variables], np.int32), freeze(np.ones(base.n_nodes), bool)
        counts = tuple(EdgeCounts(space, labels, all_nodes) for space in node_spaces)
        parts = tuple(
            GraphPart.build(base, roles, states, node_spaces, nodes, n_copies)
            for nodes, n_copies in _repeated_parts(base, node_spaces)
        )
        none = CandidateSet.empty()
        return cls(base, labels, node_spaces, none, all_nodes, counts, roles, states, method, counts, parts)

    def trained_on(self, nodes: np.ndarray) -> JointEdgeLikelihood:
        if nodes.all() and self.trained.all():
            return self
        every_node = np.arange(self.base.n_nodes)
        whole = GraphPart.build(self.base, self.roles, self.variable_states, self.spaces, every_node, 1)
        return replace(super().trained_on(nodes), parts=(replace(whole, evidence=~nodes),))

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if not np.isfinite(point).all():
            return np.nan, np.full(len(point), np.nan)
        weights = point[self._graph_order]
        value, gradient = -float((weights * self._observed).sum()), -self._observed
        for part, likelihood in zip(self.parts, self._likelihoods, strict=True):
            log_partition, expected = likelihood.expectation(weights, likelihood.evidence_tables)
            value += part.n_copies * log_partition
            gradient += part.n_copies * expected
        out = np.empty(len(point))
        out[self._graph_order] = gradient
        return value, out

    def edge_gradients(self, point: np.ndarray, space_index: int, pairs: np.ndarray) -> np.ndarray:
        key = point.tobytes()
        if key not in self._marginals:
            weights = point[self._graph_order]
            self._marginals.clear()
            self._marginals[key] = [
                PartMarginals(each, weights, each.marginals(weights, each.evidence_tables))
                for each in self._likelihoods
            ]
        difference = -self.all_counts[space_index](pairs).astype(np.float64)
        for part, marginals in zip(self.parts, self._marginals[key], strict=True):
            difference += part.n_copies * marginals.pair_sums(part.spaces[space_index], pairs)
        joint = difference.reshape(len(pairs), difference.shape[1] * difference.shape[2])
        return np.asarray(joint @ self.spaces[space_index].patterns)

    def candidate_curvature(self, candidates: CandidateSet) -> np.ndarray:
        """Return an upper bound on the Hessian's diagonal: a quarter of the squared range of a pattern, per sample."""
        start = self.weight_start(candidates)
        out = np.empty(int(start[-1]))
        for number, space in enumerate(self.spaces):
            indices = candidates.indices_in_space(number)
            n_samples = self.all_counts[number](candidates.pairs(indices)).sum(axis=(1, 2))
            bound = 0.25 * np.outer(n_samples, np.ptp(space.patterns, axis=0) ** 2)
            out[start[indices, None] + np.arange(space.n_weights)] = bound
        return out

    @cached_property
    def _likelihoods(self) -> tuple[InferredLikelihood, ...]:
        """Return the likelihood of one copy of each part, with the chosen edges."""
        return tuple(part.likelihood(self.chosen, self.method) for part in self.parts)

    @cached_property
    def _graph_order(self) -> np.ndarray:
        """Return the index in a point of each weight of the parts' graphs, in which edges are ordered by space."""
        start, order = self.n_base + self.weight_start(self.chosen), [np.arange(self.n_base)]
        for number, space in enumerate(self.spaces):
            indices = self.chosen.indices_in_space(number)
            order.append((start[indices, None] + np.arange(space.n_weights)).ravel())
        return np.concatenate(order)

    @cached_property
    def _base_counts(self) -> np.ndarray:
        return self.base.state_counts(self.states)

    @cached_property
    def _observed(self) -> np.ndarray:
        """Return the observed pattern counts, in the order of the weights of the parts' graphs."""
        counts = [self._base_counts]
        for number, space in enumerate(self.spaces):
            joint = self.all_counts[number](self.chosen.pairs(self.chosen.indices_in_space(number)))
            counts.append((joint.reshape(len(joint), len(space.patterns)) @ space.patterns).ravel())
        return np.concatenate(counts)


def _repeated_parts(base: ReducedGraph, spaces: tuple[PairSpace, ...]) -> list[tuple[np.ndarray, int]]:
    """Partition the samples into classes with equal factors; return one part for each size of classes.

    Returns:
        The nodes of each part, ascending, and the number of copies of the part. Without candidates, nodes must be
        independent; otherwise, and if a node's factors depend on the sample, the whole graph is one part.
    """
    columns = None
    if not base.n_edges and not base.clique_terms:
        columns = SampleColumns.from_spaces(base.cardinality, spaces)
    if columns is None or ColumnPotentials.build(base, columns) is None:
        return [(np.arange(base.n_nodes), 1)]
    present = np.packbits(columns.node >= 0, axis=0).T
    _, first, sizes = np.unique(present, axis=0, return_index=True, return_counts=True)
    parts = []
    for size in np.unique(sizes):
        nodes = columns.node[:, first[sizes == size]]
        parts.append((np.sort(nodes[nodes >= 0]), int(size)))
    return parts
