"""Small learning problems, and gradients by finite differences."""

from __future__ import annotations

import numpy as np
from graphs import random_graph

from relcrf.backends.checkpoints import CheckpointMonitor
from relcrf.graph.reduction import Role, reduce_graph


def problem(seed, forest):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=6, forest=forest, max_arity=2)
    roles = np.where(rng.random(graph.n_variables) < 0.2, Role.CLAMPED, Role.FREE).astype(np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    reduced = reduce_graph(graph, roles, states)
    return reduced, states[reduced.variables], rng.normal(size=graph.layout.size)


def finite_differences(objective, point, step=1e-5):
    out = np.empty_like(point)
    for k in range(len(point)):
        ahead, behind = point.copy(), point.copy()
        ahead[k] += step
        behind[k] -= step
        out[k] = (objective(ahead)[0] - objective(behind)[0]) / (2 * step)
    return out


def require_derivatives(objective, point, blocks, rtol, atol, step=1e-5):
    """Require that a gradient has the derivatives in some directions that finite differences have.

    The directions are two random ones over the weights of each block, and two over all weights, so that each weight
    has a part in four of them.

    Args:
        blocks: The blocks of weights, one after another, as in the point.
    """
    rng = np.random.default_rng(len(point))
    directions, start = list(rng.normal(size=(2, len(point)))), 0
    for block in blocks:
        size = block.n_features * block.n_patterns
        for _ in range(2):
            directions.append(np.zeros(len(point)))
            directions[-1][start : start + size] = rng.normal(size=size)
        start += size
    assert start == len(point)
    gradient = objective(point)[1]
    found = [direction @ gradient for direction in directions]
    expected = [
        (objective(point + step * direction)[0] - objective(point - step * direction)[0]) / (2 * step)
        for direction in directions
    ]
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def through_a_run_folder(state, folder):
    """Return the state of an optimiser after saving and loading it."""
    (folder / "checkpoint").mkdir()
    saved = CheckpointMonitor(folder, "the run")
    saved.step("weights", state, 100)
    saved.save()
    restored = CheckpointMonitor(folder, "the run").restore("weights", type(state))
    assert restored is not None
    return restored
