"""Where the nodes of a picture stand: neighbours close together, and nothing over anything else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module

import numpy as np

MAX_EXACT_NODES = 200
"""Nodes of a component that is laid out by the distances of all pairs; larger ones by forces, in less time."""

SEPARATION_STEPS = 60
"""Of pushing boxes apart before the whole is made wider."""

GAP = 3.0
"""Between boxes, in points."""


def position_nodes(pairs: np.ndarray, boxes: np.ndarray, seed: int = 0) -> np.ndarray:
    """The centres of boxes, shape (n_nodes, 2), in points: none overlaps another, and all have coordinates from 0 on.

    Args:
        pairs: of nodes that are joined, shape (n_edges, 2).
        boxes: width and height of each node, in points, shape (n_nodes, 2).
        seed: of layouts that are drawn.
    """
    at = _pack_components(_component_layouts(pairs, len(boxes), seed))
    # Boxes take a sixth of the area to begin with, which is a quarter wider than high.
    area = 6.0 * float(np.prod(boxes + GAP, axis=1).sum())
    height = math.sqrt(area / 1.25)
    at *= np.array([1.25 * height, height])
    at = _separate_boxes(at, boxes + GAP)
    return np.asarray(at - (at - boxes / 2).min(axis=0))


def _component_layouts(pairs: np.ndarray, n_nodes: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The nodes of each component and where they stand in a square of side 1, the largest first."""
    networkx = import_module("networkx")  # no other command needs it, and it takes long to import
    graph = networkx.Graph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from(pairs.tolist())
    found = []
    for members in sorted(networkx.connected_components(graph), key=lambda nodes: (-len(nodes), min(nodes))):
        nodes = np.array(sorted(members))
        part = networkx.Graph()
        part.add_nodes_from(nodes.tolist())  # in this order, so that the same graph is laid out in the same way
        part.add_edges_from(graph.subgraph(members).edges)
        if len(nodes) <= MAX_EXACT_NODES:
            at = networkx.kamada_kawai_layout(part, weight=None)
        else:
            at = networkx.forceatlas2_layout(part, max_iter=120, scaling_ratio=4.0, seed=seed)
        found.append((nodes, _expand_centre(np.array([at[node] for node in nodes.tolist()]))))
    return found


def _expand_centre(at: np.ndarray) -> np.ndarray:
    """Places with more room in their middle, where hubs crowd, and less at their rim; in a square of side 1."""
    at = at - at.mean(axis=0)
    radius = np.linalg.norm(at, axis=1, keepdims=True)
    at = at / np.maximum(radius, 1e-9) ** 0.35
    at = at - at.min(axis=0)
    return np.asarray(at / np.maximum(at.max(axis=0), 1e-9))


def _pack_components(components: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """All components beside each other in a square of side 1, in rows of squares whose areas are as their numbers of nodes."""
    sides = [math.sqrt(len(nodes)) for nodes, _ in components]
    width = max(sides[0], math.sqrt(1.3 * sum(side**2 for side in sides)))
    out = np.empty((sum(len(nodes) for nodes, _ in components), 2))
    x = y = row = 0.0
    for side, (nodes, at) in zip(sides, components, strict=True):
        if x + side > width + 1e-9:
            x, y, row = 0.0, y + row, 0.0
        # A tenth is left between a component and the next.
        out[nodes] = np.array([x, y]) + side * (0.05 + 0.9 * at)
        x, row = x + side, max(row, side)
    return np.asarray(out / np.maximum(out.max(axis=0), 1e-9))


def _separate_boxes(at: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Centres of boxes that have been pushed apart until none overlaps another, the whole being made wider where it must."""
    first, second = np.triu_indices(len(at), 1)
    least = (boxes[first] + boxes[second]) / 2
    while True:
        for _ in range(SEPARATION_STEPS):
            between = at[second] - at[first]
            over = least - np.abs(between)
            met = np.flatnonzero((over > 1e-6).all(axis=1))
            if not len(met):
                return at
            axis = over[met].argmin(axis=1)
            push = np.where(between[met, axis] < 0, -0.5, 0.5) * (over[met, axis] + 1e-3)
            shift = np.zeros_like(at)
            np.add.at(shift, (second[met], axis), push)
            np.add.at(shift, (first[met], axis), -push)
            at = at + np.clip(shift, -20.0, 20.0)
        at = at * 1.06
