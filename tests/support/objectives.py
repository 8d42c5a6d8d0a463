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


def through_a_run_folder(state, folder):
    """Return the state of an optimiser after saving and loading it."""
    (folder / "checkpoint").mkdir()
    saved = CheckpointMonitor(folder, "the run")
    saved.step("weights", state, 100)
    saved.save()
    restored = CheckpointMonitor(folder, "the run").restore("weights", type(state))
    assert restored is not None
    return restored
