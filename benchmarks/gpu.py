"""Flooding belief propagation on a GPU compared with one core of the CPU, on grids and on random graphs.

    python benchmarks/gpu.py

Messages per second of wall time, in float64, after warm-up; medians of alternate runs with a fixed number of rounds. Both sides
include the conversion of tables, the beliefs and the Bethe free energy, and the GPU includes the transfers. A ratio is the time
of the CPU divided by the time of the GPU. Without a GPU, only the CPU is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from loopy import grid
from rich.console import Console
from rich.table import Table
from support import BenchmarkParser, sized

from relcrf.errors import UsageError
from relcrf.gpu.device import load_kernels
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.belief_propagation import BeliefPropagation

CARDINALITIES = (2, 5, 10)
console = Console()


def random_graph(n_edges: int, k: int) -> tuple[Scopes, Potentials]:
    """Return standard normal log potentials on random edges; a node has four edges on average, as in a grid."""
    rng = np.random.default_rng(0)
    n_nodes = n_edges // 2
    first = rng.integers(n_nodes, size=n_edges)
    second = (first + rng.integers(1, n_nodes, size=n_edges)) % n_nodes
    nodes = np.column_stack((first, second)).ravel().astype(np.int32)
    scopes = Scopes(np.full(n_nodes, k, dtype=np.int32), 2 * np.arange(n_edges + 1), nodes)
    return scopes, Potentials(rng.normal(size=n_nodes * k), rng.normal(size=n_edges * k * k))


def grid_graph(n_edges: int, k: int) -> tuple[Scopes, Potentials]:
    return grid(round((n_edges / 2) ** 0.5), k)


GRAPHS = {"grid": grid_graph, "random": random_graph}


def find_gpu() -> bool:
    """Return True if there is a GPU; otherwise print that it is skipped."""
    try:
        load_kernels()
    except UsageError as error:
        console.print(f"the GPU is skipped: {error.diagnostics[0].message}")
        return False
    return True


def wall_medians(repeats: int, *works: Callable[[], Any]) -> list[float]:
    """Return the median wall seconds of each call, measured alternately, after one warm-up run each."""
    runs = []
    for _ in range(repeats + 1):
        row = []
        for work in works:
            start = time.perf_counter()
            work()
            row.append(time.perf_counter() - start)
        runs.append(row)
    return [statistics.median(column) for column in zip(*runs[1:], strict=True)]


def compare(name: str, n_edges: int, k: int, rounds: int, repeats: int, has_gpu: bool) -> dict[str, Any]:
    """Return the messages per second of both devices, and the largest difference of their marginals."""
    scopes, potentials = GRAPHS[name](n_edges, k)
    devices = ("cpu", "gpu") if has_gpu else ("cpu",)
    methods = [BeliefPropagation(scopes, max_iterations=rounds, tolerance=0.0, device=each) for each in devices]
    seconds = wall_medians(repeats, *(lambda method=method: method.marginals(potentials) for method in methods))
    row: dict[str, Any] = {"graph": name, "edges": scopes.n_factors, "k": k}
    rates = [rounds * len(scopes.node) / each for each in seconds]
    row |= {"cpu": round(rates[0]), "gpu": None, "ratio": None, "difference": None}
    if has_gpu:
        found = [method.marginals(potentials).nodes for method in methods]
        difference = float(np.abs(found[0] - found[1]).max())
        row |= {"gpu": round(rates[1]), "ratio": round(rates[1] / rates[0], 2), "difference": difference}
    return row


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="at most 100,000 edges, fewer repetitions")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    has_gpu = find_gpu()
    sizes = sized(arguments, (10_000, 100_000, 1_000_000), (10_000, 100_000), (12,))
    rounds, repeats = sized(arguments, 100, 50, 10), sized(arguments, 5, 3, 1)
    table = Table("graph", "edges", "k", "CPU", "GPU", "ratio", "difference", title="flooding, messages per second")
    result: dict[str, Any] = {"rows": []}
    for name in GRAPHS:
        for k in CARDINALITIES:
            for n_edges in sizes:
                row = compare(name, n_edges, k, rounds, repeats, has_gpu)
                table.add_row(*("-" if value is None else str(value) for value in row.values()))
                result["rows"].append(row)
            result[f"cpu_{name}_k{k}"], result[f"gpu_{name}_k{k}"] = row["cpu"], row["gpu"]
            result[f"ratio_{name}_k{k}"] = row["ratio"]
    console.print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
