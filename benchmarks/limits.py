"""Kernels compared with the limits of the machine (a roofline): CPU time per unit, and the least that the machine allows.

    python benchmarks/limits.py

The limits of one core are measured in the same run: the bandwidth of a copy, the throughput of multiply-adds (a matrix
product), of exponentials in the cache, and of reads of random rows from tables of several sizes. The least time of a kernel is
the larger one of two: that of its arithmetic (multiply-adds and exponentials) and that of its memory traffic (streamed bytes
and random rows). The counts per unit are those of the algorithm, without instructions for indices, comparisons and divisions.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numba  # noqa: E402
import numpy as np  # noqa: E402
from bp_adjoint import N_MESSAGES, RelcrfStep, random_step  # noqa: E402
from forest import N_FEATURES, Forest  # noqa: E402
from loopy import grid  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from spanning_forest import simple_graph  # noqa: E402
from support import BenchmarkParser, sized  # noqa: E402

from relcrf.inference.belief_propagation import BeliefPropagation  # noqa: E402
from relcrf.inference.forest import ForestInference  # noqa: E402
from relcrf.kernels import pairs, sparse  # noqa: E402
from relcrf.kernels.vector_math import exp  # noqa: E402
from relcrf.structure.spanning_forest import maximum_spanning_forest  # noqa: E402

K = 5
"""Number of states, and of numbers in a random row, unless a kernel names another one."""


def nanoseconds(work: Callable[[], object], n_units: float, repeats: int) -> float:
    """Return the least CPU time of several calls per unit; the least, because other work only adds time."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return 1e9 * min(seconds) / n_units


@numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")
def _exponentiate(values, repeats, out):
    """Compute the exponentials of some values, repeatedly."""
    for _ in range(repeats):
        for i in range(len(values)):
            out[i] = exp(values[i])


@numba.njit(nogil=True)
def _sum_rows(table, rows):
    """Return the sum of rows of five numbers; two rows at a time, so that additions do not wait for each other."""
    a = b = c = d = e = f = g = h = i = j = 0.0
    for n in range(0, len(rows) - 1, 2):
        first, second = np.uint64(rows[n]), np.uint64(rows[n + 1])
        a, b, c = a + table[first, 0], b + table[first, 1], c + table[first, 2]
        d, e = d + table[first, 3], e + table[first, 4]
        f, g, h = f + table[second, 0], g + table[second, 1], h + table[second, 2]
        i, j = i + table[second, 3], j + table[second, 4]
    return a + b + c + d + e + f + g + h + i + j


@dataclass(frozen=True)
class Machine:
    """The limits of one core, in nanoseconds.

    Args:
        byte: A byte of a copy, read or written.
        multiply_add, exponential: One in double precision.
        rows: A random row of K numbers in double precision, by the bytes of the table, ascending.
    """

    byte: float
    multiply_add: float
    exponential: float
    rows: dict[int, float]

    @classmethod
    def measure(cls, repeats: int) -> Machine:
        rng = np.random.default_rng(0)
        source = np.ones(1 << 25)
        target = np.empty_like(source)
        square = rng.normal(size=(768, 768))
        exponents, exponentials = np.full(1 << 11, -1.0), np.empty(1 << 11)
        rows = {}
        for size in (1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 27):
            table = np.ones((size // (8 * K), K))
            chosen = rng.integers(len(table), size=1 << 20).astype(np.int32)
            rows[size] = nanoseconds(lambda t=table, c=chosen: _sum_rows(t, c), len(chosen), repeats)
        return cls(
            nanoseconds(lambda: np.copyto(target, source), 2 * source.nbytes, repeats),
            nanoseconds(lambda: square @ square, 768**3, repeats),
            nanoseconds(lambda: _exponentiate(exponents, 1_000, exponentials), 1_000 * len(exponents), repeats),
            rows,
        )

    def row(self, table_bytes: float) -> float:
        """Return the time of a random row of a table, that of the largest measured table that is not larger."""
        return max(time for size, time in self.rows.items() if size <= max(table_bytes, 1 << 15))


@dataclass(frozen=True)
class Kernel:
    """A kernel and what its algorithm needs per unit.

    Args:
        n_units: Number of units of a call of `work`.
        multiply_adds, exponentials, streamed_bytes, random_rows: Counts per unit.
        table_bytes: Size of the table that contains the random rows.
    """

    name: str
    unit: str
    work: Callable[[], object]
    n_units: float
    multiply_adds: float = 0.0
    exponentials: float = 0.0
    streamed_bytes: float = 0.0
    random_rows: float = 0.0
    table_bytes: float = 0.0

    def limits(self, machine: Machine) -> tuple[float, float]:
        """Return the least times of the arithmetic and of the memory traffic per unit, in nanoseconds."""
        arithmetic = self.multiply_adds * machine.multiply_add + self.exponentials * machine.exponential
        memory = self.streamed_bytes * machine.byte
        if self.random_rows:
            memory += self.random_rows * machine.row(self.table_bytes)
        return arithmetic, memory


def sparse_kernels(n_rows: int) -> list[Kernel]:
    """Return both products of a bag of 100 words per row with the weights of 50,000 words."""
    rng = np.random.default_rng(0)
    n_words = 50_000
    start, column = 100 * np.arange(n_rows + 1), rng.integers(n_words, size=100 * n_rows).astype(np.int32)
    values, rows = np.empty(0, dtype=np.float32), np.arange(n_rows)
    for array in (start, column, values):
        array.flags.writeable = False
    weights, out = rng.normal(size=(n_words, K)), np.empty((n_rows, K))
    gradient = np.zeros_like(weights)
    need = {"multiply_adds": K, "streamed_bytes": 4, "random_rows": 1, "table_bytes": weights.nbytes}
    return [
        Kernel(
            "scores of words", "word", lambda: sparse.CSR_KERNELS[K].scores(start, column, values, weights, rows, out),
            len(column), **need,
        ),
        Kernel(
            "gradient of words", "word", lambda: sparse.CSR_KERNELS[K].accumulate(start, column, values, out, rows, gradient),
            len(column), **need,
        ),
    ]  # fmt: skip


def pair_kernel(n_nodes: int) -> Kernel:
    """Return the kernel of pairs with one shared table, four pairs per node."""
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(n_nodes, size=(4 * n_nodes, 2)), axis=1).astype(np.int32)
    edges = edges[np.lexsort(edges.T[::-1])]
    cardinality, start = np.full(n_nodes, K, dtype=np.int32), K * np.arange(n_nodes)
    node, table = rng.normal(size=n_nodes * K), rng.normal(size=K * K)
    weights = np.exp(node), np.exp(table - table.max())
    sums = np.zeros_like(node), np.zeros_like(table)
    table_start = np.zeros(len(edges), dtype=np.int64)
    arrays = (edges, cardinality, start, table_start, node, weights[0], table, weights[1], *sums)
    need = {"multiply_adds": 4 * K * K, "streamed_bytes": 16 + 6 * K, "random_rows": 2, "table_bytes": node.nbytes}
    return Kernel(
        "pairs of ess, shared table", "pair", lambda: pairs.SHARED_PAIR_KERNELS[K](*arrays), len(edges), **need
    )


def forest_kernels(n_nodes: int) -> list[Kernel]:
    """Return the likelihood with its gradient, and the most probable state, of random trees."""
    forest = Forest(n_nodes, K, 1000)
    scopes, potentials = forest.potentials()
    inference, cells = ForestInference(scopes), K * K
    return [
        Kernel(
            "forest, value and gradient", "node", forest.relcrf(), n_nodes,
            # tables from features twice, messages up and down, gradient; features and beliefs are streamed
            (4 * N_FEATURES + 4) * cells, 2 * cells + K, 2 * 8 * (N_FEATURES + K) + 8 * K,
        ),
        Kernel(
            "forest, sum-product", "node", lambda: inference.marginals(potentials), n_nodes,
            5 * cells, 2 * cells, 8 * 3 * cells + 8 * 3 * K,
        ),
        Kernel(
            "forest, max-product", "node", lambda: inference.map_states(potentials), n_nodes, cells, 0, 8 * cells + 8 * K,
        ),
    ]  # fmt: skip


def flooding_kernels(side: int, iterations: int) -> list[Kernel]:
    """Return flooding belief propagation on square grids."""
    kernels = []
    for k in (2, 5, 10):
        scopes, potentials = grid(side, k)
        method = BeliefPropagation(scopes, max_iterations=iterations, tolerance=0.0)
        n_messages = 2 * scopes.n_factors * iterations
        # per message: half of a table, an old and a new message, and a product and a next product
        need = {"multiply_adds": k * k + 4 * k, "streamed_bytes": 8 * k * k / 2 + 8 * 5 * k}
        kernels.append(
            Kernel(f"flooding, k = {k}", "message", lambda m=method, p=potentials: m.marginals(p), n_messages, **need)
        )
    return kernels


def all_kernels(n: int) -> list[Kernel]:
    """Return all kernels on data of about n nodes."""
    adjoint = RelcrfStep(random_step(), "float64")
    edges, weight = simple_graph(np.random.default_rng(0), n, 10 * n)
    spanning = Kernel(
        "maximum spanning forest", "edge", lambda: maximum_spanning_forest(n, edges, weight), len(edges),
        streamed_bytes=2 * (edges.nbytes + weight.nbytes) / len(edges), random_rows=0.2, table_bytes=4 * n,
    )  # fmt: skip
    return [
        *sparse_kernels(n // 4),
        pair_kernel(n),
        *forest_kernels(n),
        *flooding_kernels(int(n**0.5), 20),
        # per message and iteration: an exponential and a logarithm, and twenty operations for both passes
        Kernel("adjoint of gated propagation", "message", adjoint.run, N_MESSAGES, 20, 2, 8 * 2),
        spanning,
    ]


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="a fifth of the data")
    options = parser.parse_args()
    repeats = sized(options, 7, 3, 1)
    machine = Machine.measure(repeats)
    rates = Table("limit of one core", "ns", title="machine")
    rates.add_row("byte of a copy", f"{machine.byte:.3f}")
    rates.add_row("multiply-add", f"{machine.multiply_add:.3f}")
    rates.add_row("exponential", f"{machine.exponential:.2f}")
    for size, seconds in machine.rows.items():
        rates.add_row(f"random row of {K} numbers, table of {size >> 10:,} KiB", f"{seconds:.2f}")
    table = Table("kernel", "unit", "ns", "arithmetic", "memory", "reached, %", title="least and measured CPU time")
    kernels = {}
    for kernel in all_kernels(sized(options, 250_000, 50_000, 1_000)):
        measured = nanoseconds(kernel.work, kernel.n_units, repeats)
        arithmetic, memory = kernel.limits(machine)
        reached = 100.0 * max(arithmetic, memory) / measured
        table.add_row(
            kernel.name, kernel.unit, f"{measured:.1f}", f"{arithmetic:.1f}", f"{memory:.1f}", f"{reached:.0f}"
        )
        kernels[kernel.name] = {"ns": measured, "arithmetic": arithmetic, "memory": memory, "percent": reached}
    console = Console(width=110)
    console.print(rates)
    console.print(table)
    machine_figures = {"byte": machine.byte, "multiply_add": machine.multiply_add, "exponential": machine.exponential}
    print(json.dumps({"machine": machine_figures, "kernels": kernels}))


if __name__ == "__main__":
    main()
