"""The layout of clique trees for kernels: the inputs of each clique, and products that combine small inputs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.graph.scopes import Scopes
from relcrf.kernels.clique_blocks import MAX_BLOCK, CliqueForest, compute_strides

MIN_COMBINED_RATIO = 16
"""Minimum ratio of a clique's cells to the cells of a product of several inputs; the product then costs little."""


class MaximalCliques(NamedTuple):
    """Maximal cliques of a chordal graph, as `kernels.elimination.maximal_cliques` returns them."""

    start: np.ndarray
    node: np.ndarray
    n_shared: np.ndarray
    parent: np.ndarray
    owner: np.ndarray


class _Cliques(NamedTuple):
    """Cliques, children before parents, and the tables that are their inputs.

    The tables are those of all nodes, then those of all factors, then the messages of all cliques.

    Args:
        start, node: Nodes of each clique, in CSR form, own nodes first.
        n_own: Number of own nodes of each clique.
        parent: Parent of each clique, -1 at roots.
        is_agreement: Mask of the cliques whose only input is an agreement.
        consumer: The clique of which each node table and each factor table is an input, -1 if none.
    """

    start: np.ndarray
    node: np.ndarray
    n_own: np.ndarray
    parent: np.ndarray
    is_agreement: np.ndarray
    consumer: np.ndarray


class _Product(NamedTuple):
    """Tables that are combined into one input of a clique: the clique, the nodes of the product, and the tables' indices."""

    clique: int
    nodes: np.ndarray
    tables: list[int]


def arrange_cliques(scopes: Scopes, order: np.ndarray, maximal: MaximalCliques) -> CliqueForest:
    """Return maximal cliques and the cliques of products and agreements, with the layout of all tables.

    Args:
        order: Elimination order of the nodes.
    """
    # A factor is an input of the first clique of which a node of the factor is an own node. Nodes with one state are ignored,
    # unless all nodes of the factor have one state.
    n_maximal = len(maximal.parent)
    slot_clique = np.where(scopes.cardinality[scopes.node] > 1, maximal.owner[scopes.node], n_maximal)
    assigned = np.minimum.reduceat(slot_clique, scopes.start[:-1])
    assigned = np.where(assigned == n_maximal, maximal.owner[scopes.node[scopes.start[:-1]]], assigned)
    n_own = np.diff(maximal.start) - maximal.n_shared
    is_agreement = np.zeros(n_maximal, dtype=np.bool_)
    consumer = np.concatenate((maximal.owner, assigned))
    cliques = _Cliques(maximal.start, maximal.node, n_own, maximal.parent, is_agreement, consumer)
    return _lay_out(scopes, _insert_products(scopes, order, cliques))


def _insert_products(scopes: Scopes, order: np.ndarray, cliques: _Cliques) -> _Cliques:
    """Insert a clique without own nodes for each agreement, and for each product of small inputs of large cliques."""
    n_old, n_nodes, n_tables = len(cliques.parent), scopes.n_nodes, len(cliques.consumer)
    agreements = np.flatnonzero(scopes.is_agreement & (cliques.consumer[n_nodes:] >= 0))
    products = _select_products(scopes, cliques)
    n_agreements, n_new = len(agreements), len(agreements) + len(products)
    new = n_old + np.arange(n_new)
    # The consumers of all tables and of the messages of old and new cliques.
    consumer = np.concatenate((cliques.consumer, cliques.parent, np.full(n_new, -1)))
    place = np.concatenate((np.arange(n_old), consumer[n_nodes + agreements] - 0.75, np.zeros(len(products))))
    for each, product in zip(new[n_agreements:].tolist(), products, strict=True):
        place[each] = product.clique - 0.5
        consumer[n_tables + each] = product.clique
        consumer[product.tables] = each
    consumer[n_tables + new[:n_agreements]] = consumer[
        n_nodes + agreements
    ]  # an agreement may be an input of a product
    consumer[n_nodes + agreements] = new[:n_agreements]
    position = np.empty(n_nodes, dtype=np.int64)
    position[order] = np.arange(len(order))
    scope = scopes.node[entries_of_runs(scopes.start, agreements)]
    scope = scope[np.lexsort((position[scope], np.repeat(np.arange(n_agreements), scopes.arity[agreements])))]
    node = np.concatenate((cliques.node, scope, *(product.nodes for product in products))).astype(np.int32)
    sizes = np.concatenate(
        (np.diff(cliques.start), scopes.arity[agreements], [len(product.nodes) for product in products])
    ).astype(np.int64)
    # Sort the cliques so that children precede parents; -1, no clique, remains -1.
    by_place = np.argsort(place, kind="stable")
    number = np.full(len(by_place) + 1, -1)
    number[by_place] = np.arange(len(by_place))
    is_agreement = np.zeros(len(by_place), dtype=np.bool_)
    is_agreement[number[new[:n_agreements]]] = True
    return _Cliques(
        offsets(sizes[by_place]),
        node[entries_of_runs(offsets(sizes), by_place)],
        np.concatenate((cliques.n_own, np.zeros(n_new, dtype=np.int64)))[by_place],
        number[consumer[n_tables:][by_place]],
        is_agreement,
        number[consumer[:n_tables]],
    )


def _select_products(scopes: Scopes, cliques: _Cliques) -> list[_Product]:
    """Select small inputs of large cliques that are combined into one table."""
    if not len(cliques.parent):
        return []
    log_cells = np.add.reduceat(np.log2(scopes.cardinality[cliques.node]), cliques.start[:-1])
    large = np.flatnonzero(log_cells > math.log2(MIN_COMBINED_RATIO * MAX_BLOCK))
    consumer = np.concatenate((cliques.consumer, cliques.parent))
    by_clique = np.argsort(consumer, kind="stable")
    bounds = np.searchsorted(consumer[by_clique], np.arange(len(cliques.parent) + 1))
    products = []
    for c in large.tolist():
        nodes = cliques.node[cliques.start[c] : cliques.start[c + 1]]
        max_log_cells = float(log_cells[c]) - math.log2(MIN_COMBINED_RATIO)
        groups: list[tuple[set[int], list[int]]] = []
        for table in by_clique[bounds[c] : bounds[c + 1]].tolist():
            scope = _table_scope(scopes, cliques, table)
            if _log_cells(scopes, scope) > max_log_cells:
                continue
            unions = [scope | group for group, _ in groups]
            fitting = [k for k, union in enumerate(unions) if _log_cells(scopes, union) <= max_log_cells]
            if fitting:
                k = min(fitting, key=lambda k: len(unions[k]) - len(groups[k][0]))
                groups[k] = unions[k], [*groups[k][1], table]
            else:
                groups.append((scope, [table]))
        products += [
            _Product(c, nodes[np.isin(nodes, list(group))], tables) for group, tables in groups if len(tables) > 1
        ]
    return products


def _table_scope(scopes: Scopes, cliques: _Cliques, table: int) -> set[int]:
    """Return the nodes of a table with the given index; see `_Cliques`."""
    if table < scopes.n_nodes:
        return {table}
    factor = table - scopes.n_nodes
    if factor < scopes.n_factors:
        return set(scopes.node[scopes.start[factor] : scopes.start[factor + 1]].tolist())
    c = factor - scopes.n_factors
    return set(cliques.node[cliques.start[c] + cliques.n_own[c] : cliques.start[c + 1]].tolist())


def _log_cells(scopes: Scopes, nodes: set[int]) -> float:
    return float(np.log2(scopes.cardinality[list(nodes)]).sum())


def _lay_out(scopes: Scopes, cliques: _Cliques) -> CliqueForest:
    """Return the cliques with the indices and the strides of their inputs; see `CliqueForest`."""
    start, sizes, n_shared = cliques.start, np.diff(cliques.start), np.diff(cliques.start) - cliques.n_own
    is_shared = np.arange(len(cliques.node)) - np.repeat(start[:-1], sizes) >= np.repeat(cliques.n_own, sizes)
    cardinality = scopes.cardinality[cliques.node].astype(np.int64)
    n_rows = np.multiply.reduceat(np.where(is_shared, cardinality, 1), start[:-1])
    n_columns = np.multiply.reduceat(np.where(is_shared, 1, cardinality), start[:-1])
    message = scopes.state_start[-1] + scopes.table_start[-1] + offsets(n_rows)[:-1]
    # The scopes of the tables, without nodes of one state.
    shared = Scopes(scopes.cardinality, offsets(n_shared), cliques.node[is_shared])
    table_start = offsets(np.concatenate((np.ones(scopes.n_nodes, dtype=np.int64), scopes.arity, n_shared)))
    table_node = np.concatenate((np.arange(scopes.n_nodes), scopes.node, shared.node)).astype(np.int32)
    table_stride = np.concatenate((np.ones(scopes.n_nodes, dtype=np.int64), scopes.stride, shared.stride))
    source = np.concatenate((scopes.state_start[:-1], scopes.state_start[-1] + scopes.table_start[:-1], message))
    has_states = scopes.cardinality[table_node] > 1
    table_start = np.concatenate(([0], np.cumsum(has_states)))[table_start]
    # The inputs, sorted by clique.
    consumer = np.concatenate((cliques.consumer, cliques.parent))
    inputs = np.argsort(consumer, kind="stable")
    inputs = inputs[np.searchsorted(consumer[inputs], 0) :]
    input_start = np.searchsorted(consumer[inputs], np.arange(len(sizes) + 1))
    stride_start = offsets(sizes[consumer[inputs]])
    stride = np.empty(int(stride_start[-1]), dtype=np.int64)
    slots = entries_of_runs(table_start, inputs)
    scope = offsets(np.diff(table_start)[inputs]), table_node[has_states][slots], table_stride[has_states][slots]
    compute_strides(start, cliques.node, input_start, *scope, stride_start, stride)
    return CliqueForest(
        start,
        cliques.node,
        cliques.n_own,
        n_columns,
        n_rows,
        cliques.parent,
        cliques.is_agreement,
        message,
        input_start,
        source[inputs],
        stride_start,
        stride,
    )
