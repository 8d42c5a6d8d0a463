"""Reduction of a ground graph to its free variables: tables of nodes, edges and cliques, given clamped variables.

Each variable has a role: free, clamped to a state, or absent. Roles are not part of the ground graph, so that one
ground graph serves training, testing and every fold. Each free variable becomes a node. A factor with one free variable
becomes a term of this node's table. A factor with two free variables becomes a term of an edge's table; all factors
over the same two nodes are terms of one edge. A factor with more free variables becomes a separate clique. A factor
without free variables is constant and is dropped. Every term is a strided view of the factor's joint table. The `base`
of a term is the index of the joint state in which clamped variables have their states and free variables have state 0.
The strides are the increments of this index if the state of a free variable increases by one (the sum of two strides if
the variable is at two positions).

The tables are linear in the weights. `counts` is the adjoint of the linear map from weights to tables; it returns one
*pattern count* per weight. The gradient of any log-likelihood is therefore `counts(observed) - counts(expected)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.columns.storage import read_rows
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import score_tables
from relcrf.kernels.counting_sort import stable_order

CHUNK = 1 << 13
"""Maximum number of terms that are expanded at a time; the tables of a chunk fit into the cache of a core."""

MAX_CHUNK_CELLS = 1 << 21
"""Maximum number of table entries that are expanded at a time (16 MiB), which limits the chunks of terms with large tables."""

FACTORS_PER_CHUNK = 1 << 20
"""Number of factors whose free nodes are determined at a time; 2**20 factors over two variables take 30 MiB."""

MAX_COPIED_ROW_BYTES = 64
"""Maximum bytes of features per factor (one cache line) for which `reordered` copies the features in the new order."""


class Role:
    """The role of a variable in one use of the graph: integers, because NumPy compares arrays with enums ten times slower."""

    FREE: Final = 0
    CLAMPED: Final = 1
    ABSENT: Final = 2
    """The variable and every factor over it are excluded from the graph."""


@dataclass(frozen=True)
class TableTerms:
    """Terms of the factors of one group. Each term is added to the table of one node or edge, the *target* of the term.

    Args:
        group: Index of the group in the graph.
        on_edges: True if the targets are edges, False if they are nodes.
        factor: Factor of each term, shape (n_terms,); None stands for all factors of the group in order.
        target: Target of each term, ascending, shape (n_terms,).
        base, stride_row, stride_column: See the module docstring; shape (n_terms,). Node terms have column stride 0. An array
            of equal numbers may be a read-only view of one number.
        full_tables: If True, each term is the complete table of a factor, targets are consecutive, and strides are not
            read.
    """

    group: int
    on_edges: bool
    factor: np.ndarray | None
    target: np.ndarray
    base: np.ndarray
    stride_row: np.ndarray
    stride_column: np.ndarray
    full_tables: bool = False

    def span(self, start: int, stop: int) -> slice:
        """Return the slice of the terms with targets start..stop-1."""
        if self.full_tables:
            first, n = self._first_target, len(self.target)
            return slice(min(max(start - first, 0), n), min(max(stop - first, 0), n))
        # Use the dtype of the targets; otherwise NumPy converts all targets first.
        first, last = np.searchsorted(self.target, np.array((start, stop), dtype=self.target.dtype)).tolist()
        return slice(first, last)

    @cached_property
    def _first_target(self) -> int:
        return int(self.target[0])

    def take(self, indices: np.ndarray, target: np.ndarray) -> TableTerms:
        """Return the terms at `indices`, with new targets."""
        factor = indices if self.factor is None else self.factor[indices]
        base, row, column = (_take(values, indices) for values in (self.base, self.stride_row, self.stride_column))
        return TableTerms(self.group, self.on_edges, factor, target, base, row, column)


@dataclass(frozen=True)
class CliqueTerms:
    """The factors of one group that have `arity` free variables, three or more; each factor has a separate table.

    Args:
        group: Index of the group in the graph.
        factor: Index of each factor in the group, shape (n,).
        node: Free nodes of each factor in scope order, shape (n, arity).
        base, stride: See the module docstring; shapes (n,) and (n, arity).
    """

    group: int
    factor: np.ndarray
    node: np.ndarray
    base: np.ndarray
    stride: np.ndarray


@dataclass(frozen=True)
class ReducedGraph:
    """A factor graph over free variables: nodes 0..n-1, an edge for each pair of nodes with a pairwise factor, and
    cliques.

    Args:
        graph: The ground graph that was reduced.
        variables: Index of each node's variable in `graph`, ascending, shape (n_nodes,).
        cardinality: Number of states of each node, shape (n_nodes,), int32.
        state_start: Offset of each node's states in flat node tables, shape (n_nodes + 1,).
        edges: End nodes of each edge, the lower node first, shape (n_edges, 2), int32. Rows are distinct and ascending.
        table_start: Offset of each edge's joint states in flat edge tables, shape (n_edges + 1,).
        agreement: Mask of the edges whose table is a single number, see `Scopes`; None if there are no such edges.
        table_class: Class of each edge, see `Scopes`; None if it was not determined.
    """

    graph: FactorGraph
    variables: np.ndarray
    cardinality: np.ndarray
    state_start: np.ndarray
    edges: np.ndarray
    table_start: np.ndarray
    node_terms: tuple[TableTerms, ...]
    edge_terms: tuple[TableTerms, ...]
    clique_terms: tuple[CliqueTerms, ...] = ()
    agreement: np.ndarray | None = None
    table_class: np.ndarray | None = None

    @property
    def n_nodes(self) -> int:
        return len(self.variables)

    @property
    def n_edges(self) -> int:
        return len(self.edges)

    def node_log_potentials(
        self, weights: np.ndarray, start: int = 0, stop: int | None = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the flat tables of log potentials of nodes start..stop-1, stored in `out` if it is given."""
        return self._log_potentials(self.node_terms, self.state_start, weights, start, stop, out)

    def edge_log_potentials(
        self, weights: np.ndarray, start: int = 0, stop: int | None = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the flat tables of log potentials of edges start..stop-1, stored in `out` if it is given."""
        return self._log_potentials(self.edge_terms, self.table_start, weights, start, stop, out)

    def _log_potentials(
        self,
        all_terms: tuple[TableTerms, ...],
        table_start: np.ndarray,
        weights: np.ndarray,
        start: int,
        stop: int | None,
        out: np.ndarray | None,
    ) -> np.ndarray:
        stop = len(table_start) - 1 if stop is None else stop
        origin = int(table_start[start])
        if out is None:
            out = np.empty(int(table_start[stop]) - origin)
        spans = [terms.span(start, stop) for terms in all_terms]
        overwrite = bool(spans) and all_terms[0].full_tables and spans[0].stop - spans[0].start == stop - start
        if not overwrite:
            out[:] = 0.0
        for terms, span in zip(all_terms, spans, strict=True):
            self._add_log_potentials(terms, span, weights, origin, out, overwrite)
            overwrite = False
        return out

    def add_node_counts(
        self, node_tables: np.ndarray, out: np.ndarray, start: int = 0, stop: int | None = None
    ) -> None:
        """Add the pattern counts of nodes start..stop-1, given flat tables (marginals or one-hot states), to `out`."""
        stop = self.n_nodes if stop is None else stop
        origin = int(self.state_start[start])
        for terms in self.node_terms:
            self._add_counts(terms, terms.span(start, stop), node_tables, origin, out)

    def add_edge_counts(
        self, edge_tables: np.ndarray, out: np.ndarray, start: int = 0, stop: int | None = None
    ) -> None:
        """Add the pattern counts of edges start..stop-1, given flat tables (marginals or one-hot states), to `out`."""
        stop = self.n_edges if stop is None else stop
        origin = int(self.table_start[start])
        for terms in self.edge_terms:
            self._add_counts(terms, terms.span(start, stop), edge_tables, origin, out)

    @cached_property
    def scopes(self) -> Scopes:
        """Return the scopes for inference: edges first, then cliques."""
        arity = [np.full(self.n_edges, 2)]
        node = [self.edges.ravel()]
        for terms in self.clique_terms:
            arity.append(np.full(len(terms.node), terms.node.shape[1]))
            node.append(terms.node.ravel())
        start = offsets(np.concatenate(arity))
        agreement = None
        if self.agreement is not None:
            agreement = np.zeros(len(start) - 1, dtype=bool)
            agreement[: self.n_edges] = self.agreement
        table_class = None
        if self.table_class is not None and not self.clique_terms:
            table_class = self.table_class
        return Scopes(self.cardinality, start, np.concatenate(node), agreement, table_class)

    def with_agreements(self) -> ReducedGraph:
        """Return the graph with a single number as the table of each edge that has only agreement factors.

        The number replaces a table of k x k entries, and inference methods have special kernels for it (see `Scopes`).
        Call `potentials` and `counts` of the returned graph for inference. Sweeps over forests need full tables.
        """
        agreement = np.ones(self.n_edges, dtype=bool)
        for terms in self.edge_terms:
            if not self.graph.groups[terms.group].is_agreement:
                agreement[terms.target] = False
        # A factor may have the end nodes of its edge in either order, but an agreement is symmetric.
        if not agreement.any():
            return self
        table_start = _table_start(self.cardinality, self.edges, agreement)
        return replace(self, agreement=agreement, table_start=table_start)

    def potentials(self, weights: np.ndarray) -> Potentials:
        """Return the log potentials of `scopes` for weights of shape (layout.size,)."""
        pairs = self.edge_log_potentials(weights)
        if not self.clique_terms:
            return Potentials(self.node_log_potentials(weights), pairs)
        out = np.zeros(int(self.scopes.table_start[-1]))
        out[: len(pairs)] = pairs
        for terms, chunk, cells in self._clique_chunks():
            group = self.graph.groups[terms.group]
            matrix = self.graph.layout.matrix(weights, group.block)
            scores = group.features.scores(matrix, terms.factor[chunk])
            score_tables.add_cliques(scores, score_tables.pattern_matrix(group.patterns), *cells, out)
        return Potentials(self.node_log_potentials(weights), out)

    def counts(self, potentials: Potentials) -> np.ndarray:
        """Return the pattern counts, one per weight, given flat marginals of `scopes`: the adjoint of `potentials`."""
        out = np.zeros(self.graph.layout.size)
        self.add_node_counts(potentials.nodes, out)
        self.add_edge_counts(potentials.factors[: int(self.table_start[-1])], out)
        for terms, chunk, cells in self._clique_chunks():
            group = self.graph.groups[terms.group]
            gradient = self.graph.layout.matrix(out, group.block)
            rows = 1 if group.features.rows_are_equal else chunk.stop - chunk.start
            residual = np.zeros((rows, group.n_patterns))
            score_tables.collect_cliques(
                residual, score_tables.pattern_matrix(group.patterns), *cells, potentials.factors
            )
            group.features.accumulate(residual, terms.factor[chunk], gradient)
        return out

    def _clique_chunks(self) -> Iterator[tuple[CliqueTerms, slice, tuple[np.ndarray, ...]]]:
        """Yield chunks of cliques: terms, slice, and a tuple of bases, strides, cardinalities and table offsets."""
        first = self.n_edges
        for terms in self.clique_terms:
            for start in range(0, len(terms.factor), CHUNK):
                chunk = slice(start, min(start + CHUNK, len(terms.factor)))
                table_start = self.scopes.table_start[first + chunk.start : first + chunk.stop]
                cardinality = self.cardinality[terms.node[chunk]]
                yield terms, chunk, (terms.base[chunk].astype(np.int64), terms.stride[chunk], cardinality, table_start)
            first += len(terms.factor)

    def state_counts(self, states: np.ndarray) -> np.ndarray:
        """Return the pattern counts, shape (layout.size,), of a joint state; `states` is the state of each node."""
        if self.clique_terms:
            nodes, factors = np.zeros(int(self.state_start[-1])), np.zeros(int(self.scopes.table_start[-1]))
            nodes[self.state_start[:-1] + states] = 1.0
            factors[self.scopes.cells(states)] = 1.0
            return self.counts(Potentials(nodes, factors))
        out = np.zeros(self.graph.layout.size)
        nodes = np.zeros(int(self.state_start[-1]))
        nodes[self.state_start[:-1] + states] = 1.0
        self.add_node_counts(nodes, out)
        for start, stop in self.edge_chunks():
            pairs = np.zeros(int(self.table_start[stop] - self.table_start[start]))
            pairs[self.edge_cells(states, start, stop)] = 1.0
            self.add_edge_counts(pairs, out, start, stop)
        return out

    def edge_cells(self, states: np.ndarray, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return, for each edge start..stop-1, the index of a joint state's entry in the flat tables of these edges."""
        stop = self.n_edges if stop is None else stop
        row, column = self.edges[start:stop, 0], self.edges[start:stop, 1]
        cell = self.table_start[start:stop] + states[row] * self.cardinality[column].astype(np.int64) + states[column]
        return np.asarray(cell - self.table_start[start])

    def edge_chunks(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield ranges of the edges first..last-1 whose expanded tables fit into the cache, unless single tables are larger."""
        largest = int(np.diff(self.table_start).max(initial=1))
        step = max(1, min(CHUNK, MAX_CHUNK_CELLS // max(largest, 1)))
        last = self.n_edges if last is None else last
        for start in range(first, last, step):
            yield start, min(start + step, last)

    def with_edges(self, indices: np.ndarray) -> ReducedGraph:
        """Return the graph without cliques and with only the edges at `indices`, which must ascend."""
        new_index = np.full(self.n_edges, -1, dtype=np.int32)
        new_index[indices] = np.arange(len(indices), dtype=np.int32)
        edge_terms = []
        for terms in self.edge_terms:
            kept = np.flatnonzero(new_index[terms.target] >= 0)
            if len(kept):
                edge_terms.append(terms.take(kept, new_index[terms.target[kept]]))
        edges = self.edges[indices]
        agreement = None if self.agreement is None else self.agreement[indices]
        return replace(
            self,
            edges=edges,
            table_start=_table_start(self.cardinality, edges, agreement),
            edge_terms=tuple(edge_terms),
            clique_terms=(),
            agreement=agreement,
            table_class=None,
        )

    def reordered(self, node_order: np.ndarray, edge_order: np.ndarray) -> ReducedGraph:
        """Return the graph with reordered nodes, edges and features; sweeps in the new order read memory sequentially.

        The end nodes of an edge keep their order, so the lower node may be second. The graph must not have cliques.

        Args:
            node_order, edge_order: Permutations: element i is the old index of new node or edge i.
        """
        node_position, edge_position = (np.empty(len(order), dtype=np.int32) for order in (node_order, edge_order))
        node_position[node_order] = np.arange(len(node_order), dtype=np.int32)
        edge_position[edge_order] = np.arange(len(edge_order), dtype=np.int32)
        groups: list[FactorGroup] = []
        cardinality = self.cardinality[node_order]
        reordered_graph = replace(
            self,
            variables=self.variables[node_order],
            cardinality=cardinality,
            state_start=offsets(cardinality),
            edges=node_position[self.edges[edge_order]],
            table_start=_table_start(self.cardinality, self.edges[edge_order]),
            node_terms=tuple(self._reorder_terms(terms, node_position, groups) for terms in self.node_terms),
            edge_terms=tuple(self._reorder_terms(terms, edge_position, groups) for terms in self.edge_terms),
        )
        return replace(reordered_graph, graph=replace(self.graph, groups=tuple(groups)))

    def _reorder_terms(self, terms: TableTerms, position: np.ndarray, groups: list[FactorGroup]) -> TableTerms:
        """Return the terms for new target positions; append their group to `groups`, with small features reordered."""
        group, target = self.graph.groups[terms.group], position[terms.target]
        order = np.argsort(target, kind="stable")
        factor = order if terms.factor is None else terms.factor[order]
        if group.features.nbytes <= MAX_COPIED_ROW_BYTES * group.n_factors:
            group, remaining_factor = replace(group, features=group.features.take(factor)), None
        else:
            remaining_factor = factor
        groups.append(group)
        moved = replace(terms.take(order, target[order]), group=len(groups) - 1, factor=remaining_factor)
        return replace(moved, full_tables=_are_full_tables(group, moved))

    @staticmethod
    def _split_span(span: slice, group: FactorGroup) -> Sequence[slice]:
        step = max(1, min(CHUNK, MAX_CHUNK_CELLS // max(group.n_patterns, 1)))
        if 0 < span.stop - span.start <= step:
            return (span,)
        return [slice(start, min(start + step, span.stop)) for start in range(span.start, span.stop, step)]

    def table_geometry(self, terms: TableTerms, chunk: slice, origin: int) -> tuple[np.ndarray, ...]:
        """Return the bases, strides, table shapes and table offsets of some terms; offsets are relative to `origin`."""
        target = terms.target[chunk]
        if terms.on_edges:
            n_rows = self.cardinality[self.edges[target, 0]]
            n_columns = self.cardinality[self.edges[target, 1]]
            if self.agreement is not None:  # an agreement has a single entry
                n_rows, n_columns = (np.where(self.agreement[target], np.int32(1), n) for n in (n_rows, n_columns))
            start = self.table_start[target] - origin
        else:
            n_rows = self.cardinality[target]
            n_columns = np.ones(len(target), dtype=np.int32)
            start = self.state_start[target] - origin
        views = (values[chunk] for values in (terms.base, terms.stride_row, terms.stride_column))
        base, row, column = (values if values.flags.writeable else values.copy() for values in views)
        return base, row, column, n_rows, n_columns, start

    def _view_full_tables(self, terms: TableTerms, span: slice, origin: int, values: np.ndarray) -> np.ndarray:
        """Return the tables of terms with `full_tables`: a view of the flat tables, shape (n_terms, n_joint_states)."""
        starts = self.table_start if terms.on_edges else self.state_start
        first = int(starts[terms._first_target + span.start]) - origin
        n, width = span.stop - span.start, self.graph.groups[terms.group].n_joint_states
        return values[first : first + n * width].reshape(n, width)

    def _add_log_potentials(
        self, terms: TableTerms, span: slice, weights: np.ndarray, origin: int, out: np.ndarray, overwrite: bool = False
    ) -> None:
        """Add the log potentials of some terms to `out`; with `overwrite` and `full_tables`, assign them instead."""
        group = self.graph.groups[terms.group]
        matrix = self.graph.layout.matrix(weights, group.block)
        for chunk in self._split_span(span, group):
            if terms.full_tables:
                cells = self._view_full_tables(terms, chunk, origin, out)
                rows = chunk if terms.factor is None else terms.factor[chunk]
                group.features.add_scores(matrix, rows, cells, overwrite)
                continue
            scores = group.features.scores(matrix, chunk if terms.factor is None else terms.factor[chunk])
            *views, n_rows, n_columns, start = self.table_geometry(terms, chunk, origin)
            if terms.on_edges and group.is_agreement:
                score_tables.add_diagonals(scores, n_rows, start, out)
            else:
                score_tables.add_tables(
                    scores, score_tables.pattern_matrix(group.patterns), *views, n_rows, n_columns, start, out
                )

    def _add_counts(self, terms: TableTerms, span: slice, values: np.ndarray, origin: int, out: np.ndarray) -> None:
        group = self.graph.groups[terms.group]
        gradient = self.graph.layout.matrix(out, group.block)
        for chunk in self._split_span(span, group):
            if terms.full_tables:
                cells = self._view_full_tables(terms, chunk, origin, values)
                if group.features.rows_are_equal:
                    cells = cells.sum(axis=0, keepdims=True)
                group.features.accumulate(cells, chunk if terms.factor is None else terms.factor[chunk], gradient)
                continue
            rows = 1 if group.features.rows_are_equal else chunk.stop - chunk.start
            residual = np.zeros((rows, group.n_patterns))
            *views, n_rows, n_columns, start = self.table_geometry(terms, chunk, origin)
            if terms.on_edges and group.is_agreement:
                score_tables.collect_diagonals(residual, n_rows, start, values)
            else:
                score_tables.collect_tables(
                    residual, score_tables.pattern_matrix(group.patterns), *views, n_rows, n_columns, start, values
                )
            group.features.accumulate(residual, chunk if terms.factor is None else terms.factor[chunk], gradient)


def reduce_graph(graph: FactorGraph, roles: np.ndarray, states: np.ndarray) -> ReducedGraph:
    """Reduce a ground graph to its free variables.

    Args:
        roles: A `Role` for each variable, shape (n_variables,), int8.
        states: State of each variable, shape (n_variables,); only the entries of clamped variables are read.
    """
    free = roles == Role.FREE
    variables = np.flatnonzero(free)
    node_of = np.full(graph.n_variables, -1, dtype=np.int32)
    node_of[variables] = np.arange(len(variables), dtype=np.int32)
    cardinality = graph.cardinality[variables]

    node_terms: list[TableTerms] = []
    pairs: list[tuple[TableTerms, np.ndarray]] = []
    cliques: list[CliqueTerms] = []
    for index, group in enumerate(graph.groups):
        for arity, (factor, node, stride, base) in _factors_by_arity(group, roles, node_of, states):
            if arity == 1:
                terms = build_node_terms(index, factor, node[0], base, stride[0])
                node_terms.append(replace(terms, full_tables=_are_full_tables(group, terms)))
            elif arity == 2:
                swap = node[0] > node[1]
                low, high = np.where(swap, node[::-1], node)
                stride = np.where(swap, stride[::-1], stride)
                terms = TableTerms(index, True, factor, low, _share(base), _share(stride[0]), _share(stride[1]))
                pairs.append((terms, high))
            else:
                node, stride = (np.ascontiguousarray(rows.T) for rows in (node, stride))
                cliques.append(CliqueTerms(index, factor, node, base, stride))

    edges, edge_terms = _merge_parallel(pairs, len(variables))
    return ReducedGraph(
        graph=graph,
        variables=variables,
        cardinality=cardinality,
        state_start=offsets(cardinality),
        edges=edges,
        table_start=_table_start(cardinality, edges),
        node_terms=tuple(node_terms),
        edge_terms=edge_terms,
        clique_terms=tuple(cliques),
    )


def _factors_by_arity(
    group: FactorGroup, roles: np.ndarray, node_of: np.ndarray, states: np.ndarray
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield, for each number of free nodes from 1, the indices of the factors, and their nodes, strides and bases.

    Nodes and strides have shape (arity, n); factors are read in chunks, which bound the memory.
    """
    found: dict[int, list[tuple[np.ndarray, ...]]] = {}
    scope = [*group.scope]
    for first in range(0, group.n_factors, FACTORS_PER_CHUNK):
        rows = [read_rows(variable, first, min(first + FACTORS_PER_CHUNK, group.n_factors)) for variable in scope]
        count, nodes, strides, base = _free_nodes(rows, group.strides, roles, node_of, states)
        for arity in range(1, int(count.max(initial=0)) + 1):
            factor = np.flatnonzero(count == arity)
            if len(factor):
                node, stride = (part[:arity].take(factor, axis=1) for part in (nodes, strides))
                found.setdefault(arity, []).append((factor + first, node, stride, base[factor]))
    for arity in sorted(found):
        yield arity, tuple(np.concatenate(parts, -1) for parts in zip(*found.pop(arity), strict=True))


def _free_nodes(
    scope: Sequence[np.ndarray], stride_of: Sequence[int], roles: np.ndarray, node_of: np.ndarray, states: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of free nodes of each factor, 0 if a variable is absent; the nodes; their strides; and the base.

    Nodes and strides have shape (arity, n_factors), in scope order; missing nodes are -1.
    """
    shape = len(scope), len(scope[0])
    nodes, strides = np.full(shape, -1, dtype=np.int32), np.zeros(shape, dtype=np.int32)
    base, count = np.zeros(shape[1], dtype=np.int32), np.zeros(shape[1], dtype=np.int32)
    present = np.ones(shape[1], dtype=bool)
    for position, (variable, stride) in enumerate(zip(scope, stride_of, strict=True)):
        role, node = roles[variable], node_of[variable]
        present &= role != Role.ABSENT
        clamped = role == Role.CLAMPED
        base[clamped] += states[variable[clamped]].astype(np.int32) * stride
        is_new = node >= 0
        for earlier in range(position):  # a variable may occur at several positions
            repeated = is_new & (nodes[earlier] == node)
            strides[earlier][repeated] += stride
            is_new &= ~repeated
        new = np.flatnonzero(is_new)
        nodes[count[new], new], strides[count[new], new] = node[new], stride
        count[new] += 1
    return np.where(present, count, 0), nodes, strides, base


def _are_full_tables(group: FactorGroup, terms: TableTerms) -> bool:
    """Return True if each term is its factor's complete table and the targets are consecutive."""
    strides = (*group.strides, 0)
    return (
        len(group.scope) == 1 + terms.on_edges
        and group.patterns is None
        and bool((np.diff(terms.target) == 1).all())
        and not terms.base.any()
        and bool((terms.stride_row == strides[0]).all() and (terms.stride_column == strides[1]).all())
    )


def build_node_terms(
    group: int, factor: np.ndarray, node: np.ndarray, base: np.ndarray, stride: np.ndarray
) -> TableTerms:
    """Return the terms of factors with one free variable; each array has shape (n,)."""
    column = np.broadcast_to(np.int32(0), stride.shape)
    terms = TableTerms(group, False, factor, node, _share(base), _share(stride), column)
    if (node[1:] >= node[:-1]).all():
        return terms
    order = stable_order(node, n_keys=int(node.max()) + 1)
    return terms.take(order, node[order])


def _merge_parallel(
    pairs: list[tuple[TableTerms, np.ndarray]], n_nodes: int
) -> tuple[np.ndarray, tuple[TableTerms, ...]]:
    """Return one edge per distinct pair of nodes, and the terms with these edges as targets, in ascending order.

    Args:
        pairs: The terms, whose targets are the lower nodes, and the higher nodes.
    """
    if not pairs:
        return np.empty((0, 2), dtype=np.int32), ()
    low, high = (np.concatenate(nodes) for nodes in zip(*((terms.target, node) for terms, node in pairs), strict=True))
    order = stable_order(low, high, n_keys=n_nodes)
    low, high = low[order], high[order]
    is_first = np.concatenate(([True], (low[1:] != low[:-1]) | (high[1:] != high[:-1])))
    edge = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    merged, first = [], 0
    for terms, _ in pairs:
        rank = np.flatnonzero((order >= first) & (order < first + len(terms.target)))
        merged.append(terms.take(order[rank] - np.int32(first), edge[rank]))
        first += len(terms.target)
    return np.column_stack((low[is_first], high[is_first])), tuple(merged)


def _share(values: np.ndarray) -> np.ndarray:
    """Return the values or, if all are equal, a view of one number, which takes no memory."""
    return np.broadcast_to(values[0], values.shape) if len(values) and (values == values[0]).all() else values


def _take(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values[:1], indices.shape) if values.strides == (0,) else values[indices]


def _table_start(cardinality: np.ndarray, edges: np.ndarray, agreement: np.ndarray | None = None) -> np.ndarray:
    sizes = cardinality[edges[:, 0]].astype(np.int64) * cardinality[edges[:, 1]]
    if agreement is not None:
        sizes[agreement] = 1
    return offsets(sizes)
