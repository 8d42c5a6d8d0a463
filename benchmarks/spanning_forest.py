"""Maximum spanning forests, compared with SciPy: CPU seconds on the same edges, and equal total weight.

    python benchmarks/spanning_forest.py

Each graph runs in a separate process, so that no memory remains from another. The graphs are simple, because SciPy adds the
weights of parallel edges, and have no weight of 0, which SciPy interprets as a missing edge. A final check on a graph with
parallel edges, loops and equal weights compares with Kruskal's textbook algorithm.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import minimum_spanning_tree
from support import BenchmarkParser, in_fresh_process, sized, status_bytes

from relcrf.structure.spanning_forest import maximum_spanning_forest

CASES = {"a tenth": (100_000, 1_000_000), "sparse": (1_000_000, 10_000_000), "dense": (4_500, 10_000_000)}
SMALLEST = {"a tenth": (1_000, 2_000), "sparse": (10_000, 20_000), "dense": (150, 10_000)}


def simple_graph(rng: np.random.Generator, n_nodes: int, n_edges: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct edges i < j in random order, shape (n_edges, 2), and their positive weights."""
    n_pairs = n_nodes * (n_nodes - 1) // 2
    if n_edges > n_pairs // 2:
        low, high = np.triu_indices(n_nodes, 1)
        pairs = np.column_stack((low, high)).astype(np.int32)
    else:
        drawn = rng.integers(n_nodes, size=(n_edges + n_edges // 50, 2))
        drawn = drawn[drawn[:, 0] != drawn[:, 1]]
        code = np.unique(drawn.min(axis=1) * n_nodes + drawn.max(axis=1))
        pairs = np.column_stack((code // n_nodes, code % n_nodes)).astype(np.int32)
    edges = pairs[rng.permutation(len(pairs))[:n_edges]]
    assert len(edges) == n_edges
    return edges, 1.0 - rng.random(n_edges)


def kruskal(n_nodes: int, edges: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the edges of the maximum spanning forest, ascending, by a stable sort and one pass over the edges."""
    leader = list(range(n_nodes))
    chosen = []
    pairs = edges.tolist()
    for e in np.argsort(-weight, kind="stable").tolist():
        a, b = pairs[e]
        while leader[a] != a:
            leader[a] = a = leader[leader[a]]
        while leader[b] != b:
            leader[b] = b = leader[leader[b]]
        if a != b:
            leader[a] = b
            chosen.append(e)
    return np.sort(np.array(chosen, dtype=np.int64))


def negated_matrix(n_nodes: int, edges: np.ndarray, weight: np.ndarray) -> csr_matrix:
    """Return the graph with negated weights, because SciPy computes the minimum."""
    return coo_matrix((-weight, (edges[:, 0], edges[:, 1])), shape=(n_nodes, n_nodes)).tocsr()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measure(n_nodes: int, n_edges: int, rounds: int) -> dict[str, float]:
    """Return median CPU seconds of relcrf and of SciPy, from the edge list and from a matrix, measured alternately."""
    edges, weight = simple_graph(np.random.default_rng(n_nodes), n_nodes, n_edges)
    maximum_spanning_forest(2, edges[:0], weight[:0])  # compile or load the kernels
    ctypes.CDLL(None).malloc_trim(0)  # release the memory used to create the graph
    before = status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the current memory
    chosen = maximum_spanning_forest(n_nodes, edges, weight)
    peak = status_bytes("VmHWM") - before
    ours, theirs, built = [], [], []
    for _ in range(rounds):
        seconds, chosen = timed(lambda: maximum_spanning_forest(n_nodes, edges, weight))
        ours.append(seconds)
        building, matrix = timed(lambda: negated_matrix(n_nodes, edges, weight))
        seconds, tree = timed(lambda: minimum_spanning_tree(matrix))  # noqa: B023  (called immediately)
        theirs.append(building + seconds)
        built.append(seconds)
    total, reference = float(weight[chosen].sum()), -float(tree.sum())
    assert len(chosen) == tree.nnz
    assert abs(total - reference) <= 1e-9 * reference
    return {
        "relcrf": median(ours),
        "scipy": median(theirs),
        "scipy_prebuilt": median(built),
        "peak_over_edges": peak / (edges.nbytes + weight.nbytes),
    }


def matches_kruskal(n_nodes: int, n_edges: int) -> bool:
    """Return True if relcrf selects the same edges as `kruskal` with parallel edges, loops and equal weights."""
    rng = np.random.default_rng(0)
    edges = rng.integers(n_nodes, size=(n_edges, 2)).astype(np.int32)
    weights = (rng.integers(-3, 4, size=n_edges).astype(float), np.ones(n_edges), rng.normal(size=n_edges))
    return all(np.array_equal(maximum_spanning_forest(n_nodes, edges, w), kruskal(n_nodes, edges, w)) for w in weights)


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="one repetition, and a smaller final check")
    parser.add_argument("--rounds", type=int, default=5, help="number of repetitions; the median is reported")
    parser.add_argument("--measure", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = sized(options, CASES, CASES, SMALLEST)
    if options.measure:
        print(json.dumps(measure(*cases[options.measure], options.rounds)))
        return
    console = Console()
    columns = ("nodes", "edges", "relcrf", "SciPy", "matrix given", "ratio", "memory")
    table = Table(*columns, title="CPU in ns per edge; memory relative to that of the edges")
    found = {}
    for name, (n_nodes, n_edges) in cases.items():
        console.print(f"{name}: {n_nodes:,} nodes, {n_edges:,} edges")
        rounds = 1 if options.quick else options.rounds
        size = ("--smallest",) if options.smallest else ()
        row = found[name] = in_fresh_process(__file__, "--measure", name, "--rounds", rounds, *size)
        each = [f"{row[k] / n_edges * 1e9:.1f}" for k in ("relcrf", "scipy", "scipy_prebuilt")]
        ratio = f"{row['scipy'] / row['relcrf']:.1f}"
        table.add_row(f"{n_nodes:,}", f"{n_edges:,}", *each, ratio, f"{row['peak_over_edges']:.2f}")
    console.print(table)
    same = matches_kruskal(2_000, sized(options, 1_000_000, 100_000, 1_000))
    console.print(f"parallel edges, loops and equal weights: {'the' if same else 'NOT the'} edges of a stable sort")
    result = {
        "ratio_scipy": found["sparse"]["scipy"] / found["sparse"]["relcrf"],
        "ratio_scipy_dense": found["dense"]["scipy"] / found["dense"]["relcrf"],
        "ratio_scipy_prebuilt": found["sparse"]["scipy_prebuilt"] / found["sparse"]["relcrf"],
        "ratio_scipy_prebuilt_dense": found["dense"]["scipy_prebuilt"] / found["dense"]["relcrf"],
        "growth_10x": found["sparse"]["relcrf"] / found["a tenth"]["relcrf"],
        "peak_over_edges": max(row["peak_over_edges"] for row in found.values()),
        "same_as_in_books": same,
        "seconds": {name: row["relcrf"] for name, row in found.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
