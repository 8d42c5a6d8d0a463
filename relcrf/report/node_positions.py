"""Positions of the nodes of a picture: neighbours are close together, and no boxes overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module

import numpy as np

MAX_EXACT_NODES = 200
"""Maximum nodes of a component with Kamada-Kawai layout; larger components have the faster ForceAtlas2 layout."""

SEPARATION_STEPS = 60
"""Number of separation steps before the picture is enlarged."""

GAP = 3.0
"""Gap between boxes, in points."""


def position_nodes(pairs: np.ndarray, boxes: np.ndarray, seed: int = 0) -> np.ndarray:
    """Compute the centres of boxes without overlaps, shape (n_nodes, 2), in points, with coordinates from 0.

    Args:
        pairs: Adjacent nodes, shape (n_edges, 2).
        boxes: Width and height of each node, in points, shape (n_nodes, 2).
        seed: The seed of random layouts.
    """
    positions = _pack_components(_component_layouts(pairs, len(boxes), seed))
    # Initially boxes cover a sixth of the picture, which is 1.25 times as wide as high.
    area = 6.0 * float(np.prod(boxes + GAP, axis=1).sum())
    height = math.sqrt(area / 1.25)
    positions *= np.array([1.25 * height, height])
    positions = _separate_boxes(positions, boxes + GAP)
    return np.asarray(positions - (positions - boxes / 2).min(axis=0))


def _component_layouts(pairs: np.ndarray, n_nodes: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the nodes of each component and their positions in a unit square, largest component first."""
    networkx = import_module("networkx")  # imported here because it is slow to import and rarely needed
    graph = networkx.Graph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from(pairs.tolist())
    layouts = []
    for members in sorted(networkx.connected_components(graph), key=lambda nodes: (-len(nodes), min(nodes))):
        nodes = np.array(sorted(members))
        subgraph = networkx.Graph()
        subgraph.add_nodes_from(nodes.tolist())  # in a fixed order, so that equal graphs have equal layouts
        subgraph.add_edges_from(graph.subgraph(members).edges)
        if len(nodes) <= MAX_EXACT_NODES:
            positions = networkx.kamada_kawai_layout(subgraph, weight=None)
        else:
            positions = networkx.forceatlas2_layout(subgraph, max_iter=120, scaling_ratio=4.0, seed=seed)
        layouts.append((nodes, _expand_centre(np.array([positions[node] for node in nodes.tolist()]))))
    return layouts


def _expand_centre(positions: np.ndarray) -> np.ndarray:
    """Enlarge the crowded centre of a layout relative to the border, and scale the layout to a unit square."""
    positions = positions - positions.mean(axis=0)
    radius = np.linalg.norm(positions, axis=1, keepdims=True)
    positions = positions / np.maximum(radius, 1e-9) ** 0.35
    positions = positions - positions.min(axis=0)
    return np.asarray(positions / np.maximum(positions.max(axis=0), 1e-9))


def _pack_components(components: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Pack all components into a unit square, in rows of squares; a square's area is proportional to the node count."""
    side_lengths = [math.sqrt(len(nodes)) for nodes, _ in components]
    width = max(side_lengths[0], math.sqrt(1.3 * sum(side**2 for side in side_lengths)))
    out = np.empty((sum(len(nodes) for nodes, _ in components), 2))
    x = y = row = 0.0
    for side, (nodes, positions) in zip(side_lengths, components, strict=True):
        if x + side > width + 1e-9:
            x, y, row = 0.0, y + row, 0.0
        # A tenth of the side remains free between components.
        out[nodes] = np.array([x, y]) + side * (0.05 + 0.9 * positions)
        x, row = x + side, max(row, side)
    return np.asarray(out / np.maximum(out.max(axis=0), 1e-9))


def _separate_boxes(positions: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Push boxes apart until none overlap, and enlarge the picture if necessary."""
    first, second = np.triu_indices(len(positions), 1)
    min_distance = (boxes[first] + boxes[second]) / 2
    while True:
        for _ in range(SEPARATION_STEPS):
            offset = positions[second] - positions[first]
            overlap = min_distance - np.abs(offset)
            colliding = np.flatnonzero((overlap > 1e-6).all(axis=1))
            if not len(colliding):
                return positions
            axis = overlap[colliding].argmin(axis=1)
            push = np.where(offset[colliding, axis] < 0, -0.5, 0.5) * (overlap[colliding, axis] + 1e-3)
            shift = np.zeros_like(positions)
            np.add.at(shift, (second[colliding], axis), push)
            np.add.at(shift, (first[colliding], axis), -push)
            positions = positions + np.clip(shift, -20.0, 20.0)
        positions = positions * 1.06
