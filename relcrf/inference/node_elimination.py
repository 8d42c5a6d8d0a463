"""Exact elimination of nodes with small cliques, which leaves a smaller graph with the same best score."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.scopes import Potentials, Scopes


@dataclass(frozen=True, eq=False)
class EliminatedGraph:
    """The graph of the remaining nodes, whose best score plus `constant` is the best score of the original graph.

    Args:
        scopes, potentials: The graph of the remaining nodes. No factor's scope is contained in another factor's scope.
        constant: Sum of the best scores of eliminated nodes without remaining neighbours.
        nodes: Original indices of the remaining nodes, ascending, shape (scopes.n_nodes,).
        eliminated: For each eliminated node, in the order of elimination: the node, its neighbours at this time, and the
            scores of its states (last axis) given the states of these neighbours.
    """

    scopes: Scopes
    potentials: Potentials
    constant: float
    nodes: np.ndarray
    eliminated: list[tuple[int, tuple[int, ...], np.ndarray]]

    def extend_states(self, states: np.ndarray) -> np.ndarray:
        """Return the best joint state of the original graph for a joint state of the remaining nodes, int32."""
        out = np.empty(len(self.nodes) + len(self.eliminated), dtype=np.int32)
        out[self.nodes] = states
        for node, neighbours, table in reversed(self.eliminated):
            out[node] = table[tuple(out[list(neighbours)])].argmax()
        return out


def eliminate_nodes(scopes: Scopes, potentials: Potentials, max_cells: int) -> EliminatedGraph:
    """Eliminate nodes by maximisation, as long as the joint table of a node and its neighbours has at most `max_cells` cells."""
    tables = _FactorTables.of_graph(scopes, potentials)
    queue = [(size, v) for v in range(scopes.n_nodes) if (size := tables.clique_size(v)) <= max_cells]
    heapq.heapify(queue)
    eliminated = []
    while queue:
        size, v = heapq.heappop(queue)
        if v not in tables.factors_of or tables.clique_size(v) != size:  # the entry is outdated
            continue
        neighbours, table = tables.remove_node(v)
        eliminated.append((v, neighbours, table))
        tables.add(neighbours, table.max(axis=-1))
        for u in neighbours:
            if (size := tables.clique_size(u)) <= max_cells:
                heapq.heappush(queue, (size, u))
    tables.absorb()
    return tables.build_graph(eliminated)


@dataclass(eq=False)
class _FactorTables:
    """The factors of a graph, as tables with one axis per node, by their scopes in ascending order of nodes.

    Args:
        cardinality: Number of states of each node.
        node_tables: Table of each node.
        tables: Table of each factor; a number if the factor is an agreement.
        factors_of: Scopes of the factors of each remaining node.
        constant: Sum of the potentials without nodes.
    """

    cardinality: list[int]
    node_tables: list[np.ndarray]
    tables: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)
    agreements: dict[tuple[int, ...], float] = field(default_factory=dict)
    factors_of: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    constant: float = 0.0

    @staticmethod
    def of_graph(scopes: Scopes, potentials: Potentials) -> _FactorTables:
        node_tables = np.split(potentials.nodes, scopes.state_start[1:-1]) if scopes.n_nodes else []
        out = _FactorTables(scopes.cardinality.tolist(), node_tables)
        out.factors_of = {v: set() for v in range(scopes.n_nodes)}
        start, table_start = scopes.start.tolist(), scopes.table_start.tolist()
        for f in range(scopes.n_factors):
            scope = tuple(scopes.node[start[f] : start[f + 1]].tolist())
            values = potentials.factors[table_start[f] : table_start[f + 1]]
            order = np.argsort(scope)
            ordered = tuple(sorted(scope))
            if scopes.is_agreement[f]:
                out.agreements[ordered] = out.agreements.get(ordered, 0.0) + float(values[0])
                for v in ordered:
                    out.factors_of[v].add(ordered)
            else:
                out.add(ordered, values.reshape([out.cardinality[v] for v in scope]).transpose(order))
        return out

    def add(self, scope: tuple[int, ...], table: np.ndarray) -> None:
        """Add a table to the factor with this scope, to a node or to the constant."""
        if not scope:
            self.constant += float(table)
        elif len(scope) == 1:
            self.node_tables[scope[0]] = self.node_tables[scope[0]] + table
        else:
            self.tables[scope] = self.tables[scope] + table if scope in self.tables else table
            for v in scope:
                self.factors_of[v].add(scope)

    def clique_size(self, v: int) -> int:
        """Return the number of joint states of a node and its neighbours."""
        size = self.cardinality[v]
        for u in {u for scope in self.factors_of[v] for u in scope if u != v}:
            size *= self.cardinality[u]
        return size

    def remove_node(self, v: int) -> tuple[tuple[int, ...], np.ndarray]:
        """Remove a node and its factors; return its neighbours, and the sum of the tables with the node as the last axis."""
        scopes = self.factors_of.pop(v)
        neighbours = tuple(sorted({u for scope in scopes for u in scope} - {v}))
        axes = (*neighbours, v)
        total = np.zeros([self.cardinality[u] for u in axes]) + self.node_tables[v]
        for scope in sorted(scopes):
            total += self._take(scope, axes)
            for u in scope:
                if u != v:
                    self.factors_of[u].discard(scope)
        return neighbours, total

    def absorb(self) -> None:
        """Add each factor to a factor whose scope contains its scope, if there is one."""
        for scope in sorted(self.tables, key=len):
            rarest = min(scope, key=lambda v: len(self.factors_of[v]))
            wider = [
                s for s in self.factors_of[rarest] if len(s) > len(scope) and s in self.tables and set(s) > set(scope)
            ]
            if wider:
                target = min(wider)
                self.tables[target] = self.tables[target] + self._take(scope, target)
                for v in scope:
                    self.factors_of[v].discard(scope)

    def _take(self, scope: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
        """Remove the factors of a scope, and return the sum of their tables, broadcastable to `axes`."""
        total = np.zeros(())
        if scope in self.agreements:
            n = self.cardinality[scope[0]]
            total = np.zeros([n] * len(scope))
            total[(np.arange(n),) * len(scope)] = self.agreements.pop(scope)
        if scope in self.tables:
            total = total + self.tables.pop(scope)
        present = [u for u in axes if u in scope]
        total = total.transpose([scope.index(u) for u in present])
        return total.reshape([self.cardinality[u] if u in scope else 1 for u in axes])

    def build_graph(self, eliminated: list[tuple[int, tuple[int, ...], np.ndarray]]) -> EliminatedGraph:
        nodes = np.array(sorted(self.factors_of), dtype=np.int64)
        index = {v: i for i, v in enumerate(nodes.tolist())}
        scope_list = [*sorted(self.tables), *sorted(self.agreements)]
        is_agreement = np.repeat([False, True], [len(self.tables), len(self.agreements)])
        node = np.array([index[v] for scope in scope_list for v in scope], dtype=np.int32)
        cardinality = np.array([self.cardinality[v] for v in nodes.tolist()], dtype=np.int32)
        scopes = Scopes(
            cardinality, offsets([len(s) for s in scope_list]), node, is_agreement if self.agreements else None
        )
        values = [self.tables[scope].ravel() for scope in sorted(self.tables)]
        values += [np.array([self.agreements[scope]]) for scope in sorted(self.agreements)]
        potentials = Potentials(
            np.concatenate([np.empty(0), *(self.node_tables[v] for v in nodes.tolist())]),
            np.concatenate([np.empty(0), *values]),
        )
        return EliminatedGraph(scopes, potentials, self.constant, nodes, eliminated)
