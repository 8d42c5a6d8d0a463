"""Products and gradient of feature induction, compared with SciPy and BLAS: CPU seconds of one thread, and memory.

    python benchmarks/induction.py

Products: h = S'E + E'S over random sparse tables of errors E and signals S. SciPy and NumPy are timed on the product S'E only
(the other is its transpose); relcrf on both products, over pairs a < b, and the list of the largest entries. Gradient: two
sums per feature over all samples; NumPy's are part of one dense product of residuals and literals. All are measured
alternately after one warm-up run; medians. Dense products are float32, which is faster for BLAS; sparse sums are float64. The
last case runs in a separate process, whose peak memory is reported.

Learning: random sparse networks as in section 4.1 of Lao & Zhu (2014), `datasets/sparse_networks.py`. In test rows, a fifth
of the states is hidden and predicted given the rest. `full`, `grafting` and `cfi` have the same L1; `true` has the true pairs
as templates, without L1.
"""

from __future__ import annotations

import os

# NumPy and Numba read these variables when they are loaded: one thread for all libraries.
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
)

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from network_task import TRUE_MODEL, Figures, NetworkTask, sparse_networks
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_matrix
from support import BenchmarkParser, cpu_seconds, in_fresh_process, medians, peak_mib, sized, status_bytes

from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, PairSpace
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Keyed
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.kernels.active_pairs import add_scores, gradient
from relcrf.kernels.induction import ASCENDING, top_products
from relcrf.kernels.keyed_cells import KeyedCells
from relcrf.learning.literal_likelihood import LiteralLikelihood
from relcrf.structure.induction import ContrastiveInduction
from relcrf.structure.search import PenaltyStrengths, StructureSearch, lasso_factory

N_BEST = 50
SIZES, ROWS, TEST_ROWS = (100, 300, 1_000), 1_000, 200
L1 = 12.0
"""About twice the standard deviation of the gradient of an irrelevant candidate: about forty of a thousand exceed it."""
WIDE = ((2_000, 500), (10_000, 1_000))
"""Numbers of states and rows of the quick and the full run."""
SPARSE_L1 = 5.0
"""About four times the standard deviation of the gradient of an irrelevant candidate if 2.5 % of the states are true."""
WIDE_BIAS, WIDE_L1, WIDE_BATCH, WIDE_STEPS = -4.0, 25.0, 50_000, 25
THRESHOLD_PAIRS = ((0.1, 0.1), (0.0, 0.0), (0.3, 0.3), (0.5, 0.5))
THRESHOLDS = {50: THRESHOLD_PAIRS[:2], 100: THRESHOLD_PAIRS, 300: THRESHOLD_PAIRS[:3], 1_000: THRESHOLD_PAIRS[:1]}
"""Thresholds of errors and signals by the number of states; high thresholds require many rounds."""
console = Console()


def random_table(rng: np.random.Generator, n_samples: int, n_keys: int, a_row: int) -> csr_matrix:
    """Return a sparse table with standard normal entries at `a_row` random columns of each row, without duplicates."""
    key = rng.integers(n_keys, size=(n_samples, a_row))
    start = np.arange(n_samples + 1) * a_row
    out = csr_matrix((rng.normal(size=key.size), key.ravel(), start), shape=(n_samples, n_keys))
    out.sum_duplicates()
    return out


def arrays(matrix: csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data


def paired_with_itself(error: csr_matrix, signal: csr_matrix) -> tuple[Any, ...]:
    """Return one side paired with itself, as an argument of `top_products`."""
    return arrays(error.T.tocsr()), arrays(signal.T.tocsr()), arrays(error), arrays(signal)


def products(n_keys: int, n_samples: int, a_row: int, repeats: int, dense: bool) -> dict[str, float]:
    """Return the seconds of relcrf, SciPy and, if possible, NumPy; their results must be equal."""
    rng = np.random.default_rng(0)
    error, signal = (random_table(rng, n_samples, n_keys, a_row) for _ in range(2))
    given = paired_with_itself(error, signal)
    sort_by_key = signal.T.tocsr()
    works: dict[str, Callable[[], Any]] = {
        "relcrf": lambda: top_products(*given, ASCENDING, 0.0, N_BEST),
        "scipy": lambda: sort_by_key @ error,
    }
    if dense:
        full = [np.asarray(m.toarray(), dtype=np.float32) for m in (signal, error)]
        works["numpy"] = lambda: full[0].T @ full[1]
    found = dict(zip(works, medians(repeats, *works.values()), strict=True))
    a, b, h = works["relcrf"]()
    one = works["scipy"]()
    assert np.allclose(h, np.asarray(one[a, b] + one[b, a]).ravel(), rtol=1e-10)
    if dense:
        sums = np.triu((one + one.T).toarray(), 1)
        assert np.allclose(np.abs(h), np.sort(np.abs(sums), axis=None)[: -N_BEST - 1 : -1], rtol=1e-10)
    return found


def time_active_gradient(n_keys: int, n_samples: int, n_features: int, repeats: int) -> dict[str, float]:
    """Return the seconds of relcrf's gradient and scores, and of NumPy's product; the gradients must be equal."""
    rng = np.random.default_rng(0)
    variable = np.arange(n_keys * n_samples, dtype=np.int32).reshape(n_samples, n_keys)  # row-major, as data are
    sample = np.tile(np.arange(n_samples, dtype=np.int32), n_keys)
    side = KeyedCells.from_arrays(n_samples * np.arange(n_keys + 1), sample, np.ascontiguousarray(variable.T).ravel())
    holds = (rng.random(variable.size) < 0.2).astype(np.float32)
    residual = (rng.random(variable.size) - holds).astype(np.float32)
    a, b = rng.integers(n_keys, size=(2, n_features)).astype(np.int32)
    weight, score = rng.normal(size=n_features), np.zeros_like(holds)
    matrices = [values.reshape(n_samples, n_keys) for values in (residual, holds)]
    works: dict[str, Callable[[], Any]] = {
        "relcrf": lambda: gradient(side, side, n_samples, a, b, residual, holds),
        "scores": lambda: add_scores(side, side, n_samples, a, b, weight, holds, score),
        "numpy": lambda: matrices[0].T @ matrices[1],
    }
    found = dict(zip(works, medians(repeats, *works.values()), strict=True))
    full = works["numpy"]()
    assert np.allclose(works["relcrf"](), full[a, b] + full[b, a], atol=1e-2)
    return found


def peak_of_products(n_keys: int) -> dict[str, float]:
    """Return the peak memory of this process, its memory before, the size of the tables, and seconds."""
    rng = np.random.default_rng(0)
    given = paired_with_itself(*(random_table(rng, n_keys // 5, n_keys, 50) for _ in range(2)))
    top_products(
        *paired_with_itself(*[random_table(rng, 10, 10, 2)] * 2), ASCENDING, 0.0, 1
    )  # compile or load the kernels
    ctypes.CDLL(None).malloc_trim(0)  # release the memory used to create the tables
    before = status_bytes("VmRSS") / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the current memory
    seconds = cpu_seconds(lambda: top_products(*given, ASCENDING, 0.0, N_BEST))
    size = sum(array.nbytes for table in given for array in table) / 2**20
    return {"peak": peak_mib(), "before": before, "input": size, "seconds": seconds}


def wide_likelihood(on: np.ndarray) -> LiteralLikelihood:
    """Return the pseudo-likelihood of rows of binary states, shape (n_rows, n_states), bool, with a bias for each state."""
    n_rows, n_states = on.shape
    key, sample = np.divmod(np.arange(on.size, dtype=np.int32), np.int32(n_rows))
    side = CandidateSide(
        n_rows * np.arange(n_states + 1), sample, sample * np.int32(n_states) + key, np.array([0.0, 1.0])
    )
    space = PairSpace("pairs", side, side, KeyRelation.ASCENDING, n_rows)
    scope = np.arange(on.size, dtype=np.int32)
    bias = FactorGroup(
        (scope,), (2,), Keyed(scope % np.int32(n_states), np.empty((0, 1)), n_states), np.array([[0.0], [1.0]]), 0
    )
    layout = WeightLayout((WeightBlock("bias", n_states, 1),))
    graph = FactorGraph(np.full(on.size, 2, dtype=np.int32), (bias,), layout)
    labels = on.astype(np.int32).ravel()
    base = blanket_graph(graph, np.full(on.size, Role.FREE, dtype=np.int8), labels)
    return LiteralLikelihood.build(base, labels, (space,))


def wide_rows(n_states: int, n_rows: int) -> tuple[sparse_networks.SparseNetwork, np.ndarray]:
    """Return a network in blocks of ten states, and rows, shape (n_rows, n_states); 2.5 % of the states are true."""
    rng = np.random.default_rng(0)
    network = sparse_networks.make_network(n_states, rng, block=10)
    network = replace(network, bias=rng.normal(WIDE_BIAS, 0.3, n_states), weight=1.5 * network.weight)
    return network, sparse_networks.draw_exact(network, n_rows, rng)


def wide_strengths(n_states: int, l1: float) -> PenaltyStrengths:
    """Return the penalties of biases and pairs."""
    biases = np.zeros(n_states), np.full(n_states, 0.1), np.zeros(n_states), np.ones(n_states, dtype=bool)
    return PenaltyStrengths(*biases, [l1], [0.1])


def wide_start(on: np.ndarray) -> np.ndarray:
    """Return the biases of independent states."""
    smoothed = (on.sum(axis=0) + 0.5) / (len(on) + 1)
    return np.asarray(np.log(smoothed / (1 - smoothed)))


def compare_structures(n_states: int, n_rows: int) -> dict[str, dict[str, float]]:
    """Compare full L1, grafting and contrastive induction on rows with few true states: CPU seconds and objectives."""
    _, on = wide_rows(n_states, n_rows)
    model, strengths, found = wide_likelihood(on), wide_strengths(n_states, SPARSE_L1), {}
    rules: dict[str, ContrastiveInduction | None] = {
        "full": None,
        "grafting": ContrastiveInduction(n_states // 2, exhaustive=True),
        "cfi": ContrastiveInduction(n_states // 2, falls_back=True),
        "cfi 0.1": ContrastiveInduction(n_states // 2, 0.1, 0.1, falls_back=True),
    }
    for name, activation in rules.items():
        final = activation.exact() if activation is not None and not activation.exhaustive else None
        minimiser = lasso_factory(1e-4, 500, exact_gradient=True)
        search = StructureSearch(model, strengths, minimiser, activation, final, iterations_per_round=1)
        chosen = CandidateSet.empty() if activation else CandidateSet.from_spaces(model.spaces)
        began = time.process_time()
        state = search.run(search.initial_state(np.append(wide_start(on), np.zeros(len(chosen))), chosen))
        weights = state.point[n_states:]
        found[name] = {
            "seconds": time.process_time() - began,
            "objective": state.value + SPARSE_L1 * float(np.abs(weights).sum()),
            "selected": int((weights != 0.0).sum()), "iterations": state.iteration,
        }  # fmt: skip
        console.print(f"{n_states:,} states, {on.mean():.1%} on, {name}: {found[name]}", highlight=False)
    return found


def wide_network(n_states: int, n_rows: int) -> dict[str, float]:
    """Run contrastive induction on rows of many states, in blocks of ten: seconds, memory, and the number of correct pairs.

    Only true pairs with positive weights can be found: the states of the others rarely occur together.
    """
    network, on = wide_rows(n_states, n_rows)
    began, cpu_began = time.perf_counter(), time.process_time()
    model = wide_likelihood(on)
    search = StructureSearch(
        model,
        wide_strengths(n_states, WIDE_L1),
        lasso_factory(1e-3, 200, exact_gradient=True),
        ContrastiveInduction(WIDE_BATCH, 0.5, 0.5),
        iterations_per_round=WIDE_STEPS,
    )
    state = search.run(search.initial_state(wide_start(on), CandidateSet.empty()))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    chosen, weights = state.chosen, state.point[n_states:]
    found = set(zip(chosen.first[weights != 0.0].tolist(), chosen.second[weights != 0.0].tolist(), strict=True))
    true = {tuple(pair) for pair in network.edges[network.weight > 0].tolist()}
    return {
        "states": n_states, "rows": n_rows, "share_on": float(on.mean()),
        "candidates": model.spaces[0].n_pairs,
        "seconds": seconds, "cpu_seconds": cpu_seconds, "iterations": state.iteration, "chosen": len(found),
        "precision": len(found & true) / max(len(found), 1), "recall": len(found & true) / len(true),
        "peak_mib": peak_mib(),
    }  # fmt: skip


def kernels(options: argparse.Namespace) -> dict[str, float]:
    """Return the results of products and gradient, and print their tables."""
    repeats, parts = sized(options, (7, 1), (2, 1), (1, 100))
    narrow = products(2_000 // parts, 20_000 // parts, 20, repeats, dense=True)
    wide = products(100_000 // parts, 20_000 // parts, 50, repeats, dense=False)
    features = time_active_gradient(5_000 // parts, 1_000 // parts, 100_000 // parts, repeats)
    wide_memory = in_fresh_process(__file__, "--peak", 100_000 // parts)
    table = Table("", "relcrf", "rival", "ratio", title="CPU in ms, one thread", title_justify="left")

    def row(name: str, rival: float, own: float) -> float:
        table.add_row(name, f"{own * 1e3:,.1f}", f"{rival * 1e3:,.1f}", f"{rival / own:,.1f}")
        return rival / own

    figures = {
        "ratio_scipy_product": row("2,000 keys, 20 per row: SciPy", narrow["scipy"], narrow["relcrf"]),
        "ratio_dense_product": row("the same: NumPy", narrow["numpy"], narrow["relcrf"]),
        "ratio_scipy_product_100k": row("100,000 keys, 50 per row: SciPy", wide["scipy"], wide["relcrf"]),
        "ratio_dense_gradient": row("100,000 active of 5,000 keys: NumPy", features["numpy"], features["relcrf"]),
        "ratio_dense_scores": row("their scores: NumPy", features["numpy"], features["scores"]),
        "peak_mib_100k_states": wide_memory["peak"],
        "peak_mib_beyond_input": wide_memory["peak"] - wide_memory["before"],
    }
    console.print(table)
    console.print(
        f"100,000 keys: peak of the process {wide_memory['peak']:,.0f} MiB, of which the tables {wide_memory['input']:,.0f}; "
        f"{figures['peak_mib_beyond_input']:.1f} more than before the products, which took {wide_memory['seconds']:.2f} s"
    )
    return figures


def learning(n_states: int, rows: int) -> dict[str, Figures]:
    """Return the results of each method on one network: CPU seconds, features, correct features, and test scores."""
    rng = np.random.default_rng(n_states)
    network = sparse_networks.make_network(n_states, rng)
    task = NetworkTask.from_rows(network, sparse_networks.draw_gibbs(network, rows + TEST_ROWS, rng), TEST_ROWS, rng)
    ways: dict[str, dict[str, Any]] = {"local": {"backend": "local"}, "true": {"backend": "pseudo", "inference": "mf"}}
    some: dict[str, Any] = {"backend": "trmrf", "l1": L1, "candidates_per_round": max(n_states // 2, 50)}
    if n_states <= 300:  # half a million candidates of 1,000 rows each take minutes
        ways["full"] = {**some, "structure": "full"}
    ways["grafting"] = {**some, "structure": "grafting"}
    for error, signal in THRESHOLDS[n_states]:
        ways[f"cfi {error:g}"] = {**some, "error_threshold": error, "signal_threshold": signal}
    found = {}
    for name, settings in ways.items():
        _, found[name] = task.measure(settings, TRUE_MODEL if name == "true" else sparse_networks.MODEL)
        console.print(
            f"{n_states:,} states, {name}: {found[name]['seconds']:,.1f} s of CPU, {found[name]['features']:,} selected",
            highlight=False,
        )
    return found


def networks_of_sizes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the results of learning, and print a table."""
    figures: dict[str, Any] = {}
    table = Table("states", "method", "CPU s", "features", "true", "of", "error %", "CLL", "AUC", title="learning")
    for n in sized(options, SIZES, (50,), (50,)):
        figures[str(n)] = learning(n, sized(options, ROWS, 500, 20))
        for name, row in figures[str(n)].items():
            numbers = (row["features"], row["true"], row["edges"])
            table.add_row(
                f"{n:,}", name, f"{row['seconds']:.2f}", *(f"{v:,.0f}" for v in numbers), f"{row['error']:.2f}",
                f"{row['cll']:.4f}", f"{row['auc']:.2f}",
            )  # fmt: skip
    console.print(table)
    wide = [in_fresh_process(__file__, "--wide", *size) for size in sized(options, WIDE[1:], WIDE[:1], [(50, 50)])]
    for row in wide:
        console.print(
            f"{row['states']:,} states, {row['candidates']:,} candidates, {row['rows']:,} rows with {row['share_on']:.1%} on: "
            f"{row['chosen']:,} selected in {row['seconds']:,.0f} s ({row['cpu_seconds']:,.0f} s of CPU, {row['peak_mib']:,.0f} "
            f"MiB); {row['precision']:.1%} of them are true, and {row['recall']:.1%} of the true ones are among them"
        )
    sparse = compare_structures(*sized(options, (1_000, ROWS), (300, ROWS), (30, 50)))
    return {
        "learning": figures, "wide": wide, "sparse": sparse,
        "ratio_full_cfi": sparse["full"]["seconds"] / sparse["cfi"]["seconds"],
        "ratio_grafting_cfi": sparse["grafting"]["seconds"] / sparse["cfi"]["seconds"],
    }  # fmt: skip


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="fewer repetitions")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    parser.add_argument(
        "--wide", nargs=2, type=int, metavar=("STATES", "ROWS"), help="only learning on data of this size"
    )
    options = parser.parse_args()
    if options.wide:
        print(json.dumps(wide_network(*options.wide)))
        return
    if options.peak:
        print(json.dumps(peak_of_products(options.peak)))
        return
    print(json.dumps({**kernels(options), **networks_of_sizes(options)}))


if __name__ == "__main__":
    main()
