"""Sum-product on forests, compared with NumPy by level, PyTorch with autograd, PGMax and pgmpy.

The computation: log potentials of the edges from 3 features each and of the nodes from k features each; the log partition
function; the marginals of all nodes and edges; and the gradient of the log partition function with respect to the weights.
The forest consists of random recursive trees. CPU time with one thread, after warm-up, measured alternately, medians; each
rival at a size that it can process, per node. Nothing is tuned for either side; large temporary arrays of NumPy and PyTorch
are included. Two cores are compared by wall time, as threads of one process and as processes (`train --workers 2`); the
better one counts. Install the rivals with: pip install -r benchmarks/requirements.txt
"""

from __future__ import annotations

import json
import os
import time
import warnings
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numba  # noqa: E402
import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from support import BenchmarkParser, is_installed, medians, sized  # noqa: E402

from relcrf.backends.base import Problem  # noqa: E402
from relcrf.backends.ess import StructureLikelihoodSpec  # noqa: E402
from relcrf.backends.sharded import BYTES_PER_FACTOR, shard_problem  # noqa: E402
from relcrf.execution.pool import PoolExecutor  # noqa: E402
from relcrf.graph.factor_graph import FactorGraph, FactorGroup  # noqa: E402
from relcrf.graph.features import Dense  # noqa: E402
from relcrf.graph.scopes import Potentials, Scopes  # noqa: E402
from relcrf.graph.weights import WeightBlock, WeightLayout  # noqa: E402
from relcrf.inference.forest import ForestInference  # noqa: E402
from relcrf.learning.likelihood import ForestLikelihood  # noqa: E402
from relcrf.structure.conditional_chow_liu import EdgeSelector  # noqa: E402

N_FEATURES = 3
console = Console()


class Forest:
    """Random recursive trees: the parent of each node except the roots is an earlier node, uniformly at random."""

    def __init__(self, n: int, k: int, tree: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n, self.k, self.n_roots = n, k, max(1, n // tree)
        ahead = np.arange(self.n_roots, n)
        self.parent = np.full(n, -1, dtype=np.int32)
        self.parent[self.n_roots :] = (rng.random(len(ahead)) * ahead).astype(np.int32)
        self.edge_features = rng.normal(size=(len(ahead), N_FEATURES))
        self.node_features = rng.normal(size=(n, k))
        self.edge_weights = 0.3 * rng.normal(size=(N_FEATURES, k * k))
        self.node_weights = 0.3 * rng.normal(size=(k, k))

    @property
    def edges(self) -> np.ndarray:
        return np.column_stack((self.parent[self.n_roots :], np.arange(self.n_roots, self.n))).astype(np.int32)

    def problem(self) -> tuple[Problem, np.ndarray]:
        """Return the forest as a ground graph with all nodes in state 0, and the weights."""
        k, edges = self.k, self.edges
        groups = (
            FactorGroup((edges[:, 0].copy(), edges[:, 1].copy()), (k, k), Dense(self.edge_features), None, 0),
            FactorGroup((np.arange(self.n, dtype=np.int32),), (k,), Dense(self.node_features), None, 1),
        )
        layout = WeightLayout((WeightBlock("edges", N_FEATURES, k * k), WeightBlock("nodes", k, k)))
        graph = FactorGraph(np.full(self.n, k, dtype=np.int32), groups, layout)
        states = np.zeros(self.n, dtype=np.int32)
        weights = np.concatenate((self.edge_weights.ravel(), self.node_weights.ravel()))
        return Problem(graph, states.astype(np.int8), states), weights

    def relcrf(self):
        """Return value and gradient; the value is the negative log-likelihood."""
        problem, weights = self.problem()
        likelihood = ForestLikelihood.build(problem.reduced_graph("ess"), problem.states)
        return lambda: likelihood(weights)

    def potentials(self) -> tuple[Scopes, Potentials]:
        edges = self.edges
        scopes = Scopes(np.full(self.n, self.k, dtype=np.int32), 2 * np.arange(len(edges) + 1), edges.ravel())
        nodes, tables = self.node_features @ self.node_weights, self.edge_features @ self.edge_weights
        return scopes, Potentials(nodes.ravel(), tables.ravel())

    def by_level(self):
        """Return the nodes by depth and parent; for each level its range, the offsets of children, and their parents."""
        depth = np.zeros(self.n, dtype=np.int64)
        for v in range(self.n_roots, self.n):
            depth[v] = depth[self.parent[v]] + 1
        order = np.argsort(depth, kind="stable")
        bounds = np.concatenate(([0], np.cumsum(np.bincount(depth))))
        place = np.empty(self.n, dtype=np.int64)
        place[order] = np.arange(self.n)
        levels = []
        for a, b in pairwise(bounds[1:].tolist()):
            order[a:b] = order[a:b][np.argsort(place[self.parent[order[a:b]]], kind="stable")]
            place[order[a:b]] = np.arange(a, b)
            above = place[self.parent[order[a:b]]]
            first = np.concatenate(([0], np.flatnonzero(np.diff(above)) + 1))
            levels.append((slice(a, b), above, first))
        return order, int(bounds[1]), levels


def numpy_by_level(forest: Forest):
    """Compute whole levels at a time in the log domain with NumPy."""
    order, n_roots, levels = forest.by_level()
    k = forest.k
    edge_features = forest.edge_features[order[n_roots:] - forest.n_roots]
    node_features = forest.node_features[order]

    def run():
        tables = (edge_features @ forest.edge_weights).reshape(-1, k, k)
        belief = node_features @ forest.node_weights
        message = np.empty((forest.n, k))
        for span, above, first in reversed(levels):
            scores = tables[span.start - n_roots : span.stop - n_roots] + belief[span][:, None, :]
            top = scores.max(axis=2)
            message[span] = top + np.log(np.exp(scores - top[:, :, None]).sum(axis=2))
            belief[above[first]] += np.add.reduceat(message[span], first, axis=0)
        top = belief[:n_roots].max(axis=1)
        totals = top + np.log(np.exp(belief[:n_roots] - top[:, None]).sum(axis=1))
        marginal = np.empty((forest.n, k))
        marginal[:n_roots] = np.exp(belief[:n_roots] - totals[:, None])
        pairs = np.empty_like(tables)
        for span, above, _ in levels:
            edges = slice(span.start - n_roots, span.stop - n_roots)
            pairs[edges] = np.exp(tables[edges] + belief[span][:, None, :] - message[span][:, :, None])
            pairs[edges] *= marginal[above][:, :, None]
            marginal[span] = pairs[edges].sum(axis=1)
        return totals.sum(), edge_features.T @ pairs.reshape(-1, k * k), node_features.T @ marginal

    return run


def torch_by_level(forest: Forest):
    """Compute the same upward pass in PyTorch; marginals and gradient by autograd."""
    import torch

    torch.set_num_threads(1)
    order, n_roots, levels = forest.by_level()
    k = forest.k
    edge_features = torch.from_numpy(forest.edge_features[order[n_roots:] - forest.n_roots])
    node_features = torch.from_numpy(forest.node_features[order])
    spans = [(span, torch.from_numpy(above)) for span, above, _ in levels]

    def run():
        edge_weights = torch.from_numpy(forest.edge_weights).requires_grad_()
        node_weights = torch.from_numpy(forest.node_weights).requires_grad_()
        tables = (edge_features @ edge_weights).reshape(-1, k, k)
        nodes = node_features @ node_weights
        tables.retain_grad()  # the marginals of the edges
        nodes.retain_grad()
        sizes = [n_roots, *(span.stop - span.start for span, _ in spans)]
        by_level = list(torch.split(nodes, sizes))
        offset = n_roots
        starts = np.cumsum([0, *sizes])
        for level in range(len(spans), 0, -1):
            span, above = spans[level - 1]
            scores = tables[span.start - offset : span.stop - offset] + by_level[level][:, None, :]
            message = torch.logsumexp(scores, dim=2)
            by_level[level - 1] = by_level[level - 1].index_add(0, above - int(starts[level - 1]), message)
        total = torch.logsumexp(by_level[0], dim=1).sum()
        total.backward()
        return float(total), edge_weights.grad.numpy(), node_weights.grad.numpy()

    return run


def pgmax(forest: Forest):
    """Run compiled belief propagation for as many iterations as the tree's diameter; marginals only."""
    import jax
    from pgmax import fgraph, fgroup, infer, vgroup

    _, potentials = forest.potentials()
    variables = vgroup.NDVarArray(num_states=forest.k, shape=(forest.n,))
    pairs = [[variables[i], variables[j]] for i, j in forest.edges.tolist()]
    graph = fgraph.FactorGraph(variable_groups=variables)
    tables = potentials.factors.reshape(-1, forest.k, forest.k)
    graph.add_factors(fgroup.PairwiseFactorGroup(variables_for_factors=pairs, log_potential_matrix=tables))
    method = infer.build_inferer(graph.bp_state, backend="bp")
    arrays = method.init(evidence_updates={variables: potentials.nodes.reshape(forest.n, forest.k)})
    depth = 2 * (len(forest.by_level()[2]) + 1)

    @jax.jit
    def loop(arrays):
        return infer.get_marginals(
            method.get_beliefs(method.run(arrays, num_iters=depth, damping=0.0, temperature=1.0))
        )

    return lambda: np.asarray(loop(arrays)[variables])


def pgmpy(forest: Forest):
    """Calibrate a junction tree; marginals only."""
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.inference import BeliefPropagation
    from pgmpy.models import DiscreteMarkovNetwork

    _, potentials = forest.potentials()
    network = DiscreteMarkovNetwork(forest.edges.tolist())
    k = forest.k
    factors = [DiscreteFactor([v], [k], np.exp(potentials.nodes[k * v : k * v + k])) for v in range(forest.n)]
    tables = np.exp(potentials.factors).reshape(-1, k * k)
    factors += [DiscreteFactor(edge, [k, k], table) for edge, table in zip(forest.edges.tolist(), tables, strict=True)]
    network.add_factors(*factors)

    def run():
        propagation = BeliefPropagation(network)
        propagation.calibrate()
        return [propagation.query([v], show_progress=False).values for v in range(forest.n)]

    return run


def wall(work, threads: int, repeats: int = 7) -> float:
    numba.config.NUMBA_NUM_THREADS = threads
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    numba.config.NUMBA_NUM_THREADS = 1
    return min(seconds)


def by_processes(forest: Forest, workers: int, folder: Path, repeats: int = 7) -> float:
    """Return wall seconds of value and gradient in worker processes, as with `fit(..., executor=PoolExecutor(workers))`."""
    problem, weights = forest.problem()
    with PoolExecutor(workers) as executor:
        sharded = shard_problem(
            problem, executor, folder, BYTES_PER_FACTOR * 2 * forest.n
        )  # eight shards, all in memory
        # A forest is its own spanning forest for any structure weights.
        structure = sharded.share_vector(np.zeros_like(weights))
        objective = sharded.total_likelihood(StructureLikelihoodSpec("ess", EdgeSelector(), structure, None, None))
        objective(weights)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            objective(weights)
            seconds.append(time.perf_counter() - start)
    return min(seconds)


def check(ours, theirs, forest: Forest) -> None:
    """Check that gradients are equal up to rounding; relcrf's is that of the negative log-likelihood of state 0 everywhere."""
    _, gradient = ours()
    _, of_edges, of_nodes = theirs()
    of_edges, of_nodes = np.array(of_edges), np.array(of_nodes)
    of_edges[:, 0] -= forest.edge_features.sum(axis=0)
    of_nodes[:, 0] -= forest.node_features.sum(axis=0)
    expected = np.concatenate((of_edges.ravel(), of_nodes.ravel()))
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="smaller forests, fewer repetitions")
    parser.add_argument("--tree", type=int, default=100, help="mean number of nodes per tree")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    numba.config.NUMBA_NUM_THREADS = 1
    names = ("ratio_numpy_k5", "ratio_torch_k5", "ratio_pgmax_k5", "ratio_pgmpy_k5", "ratio_numpy_k25")
    figures: dict[str, float | None] = dict.fromkeys((*names, "ratio_two_cores", "ratio_max_over_sum"))
    rows: list[tuple[str, str, str, str]] = []

    def row(name: str, per_node: float, own: float | None) -> None:
        rows.append((name, f"{per_node * 1e9:,.0f}", "" if own is None else f"{own * 1e9:,.0f}",
                     "" if own is None else f"{per_node / own:,.1f}"))  # fmt: skip

    repeats = sized(options, 5, 2, 1)
    large = Forest(sized(options, 1_000_000, 200_000, 2_000), 5, options.tree)
    ours = large.relcrf()
    (seconds,) = medians(repeats, ours)
    own = seconds / large.n
    figures["nanoseconds_k5"] = own * 1e9
    row(f"relcrf, k = 5, {large.n:,} nodes", own, None)
    (seconds,) = medians(repeats, Forest(large.n // 10, 5, options.tree).relcrf())
    figures["growth_10x"] = own * large.n / seconds
    smaller = Forest(sized(options, 100_000, 100_000, 1_000), 5, options.tree)
    small = smaller.relcrf()

    for name, make in (("NumPy by level", numpy_by_level), ("PyTorch, autograd", torch_by_level)):
        key = "ratio_numpy_k5" if make is numpy_by_level else "ratio_torch_k5"
        if make is torch_by_level and not is_installed("torch"):
            continue
        theirs = make(smaller)
        check(small, theirs, smaller)
        at_small, at_theirs = medians(repeats, small, theirs)
        figures[key] = at_theirs / at_small
        row(f"{name}, k = 5, {smaller.n:,} nodes", at_theirs / smaller.n, at_small / smaller.n)
    for name, make, n in (
        ("PGMax", pgmax, sized(options, 2_000, 2_000, 20)),
        ("pgmpy", pgmpy, sized(options, 40, 20, 5)),
    ):
        if not is_installed(name):
            continue
        few = Forest(n, 5, n)
        theirs = make(few)
        (at_theirs,) = medians(1 if options.quick else 3, theirs)
        exact = ForestInference(few.potentials()[0]).marginals(few.potentials()[1]).nodes
        np.testing.assert_allclose(np.concatenate([np.ravel(m) for m in theirs()]), exact, atol=1e-4)
        figures[f"ratio_{name.lower()}_k5"] = at_theirs / n / own
        row(f"{name}, k = 5, {n:,} nodes", at_theirs / n, own)

    wide = Forest(sized(options, 40_000, 20_000, 400), 25, options.tree)
    ours25, theirs25 = wide.relcrf(), numpy_by_level(wide)
    check(ours25, theirs25, wide)
    at_own, at_theirs = medians(repeats, ours25, theirs25)
    figures["ratio_numpy_k25"] = at_theirs / at_own
    row(f"NumPy by level, k = 25, {wide.n:,} nodes", at_theirs / wide.n, at_own / wide.n)

    one = Forest(large.n, 5, large.n).relcrf()
    (seconds,) = medians(repeats, one)
    row(f"relcrf, k = 5, one tree of {large.n:,} nodes", seconds / large.n, None)
    figures["nanoseconds_one_tree_k5"] = seconds / large.n * 1e9

    scopes, potentials = smaller.potentials()
    inference = ForestInference(scopes)
    at_sum, at_max = medians(
        2 * repeats + 1, lambda: inference.marginals(potentials), lambda: inference.map_states(potentials)
    )
    figures["ratio_max_over_sum"] = at_sum / at_max
    row(f"marginals written out, k = 5, {smaller.n:,} nodes", at_sum / smaller.n, None)
    row("max-product, the same", at_max / smaller.n, None)
    alone, together = wall(ours, 1), wall(ours, 2)
    figures["ratio_two_threads"] = alone / together
    with TemporaryDirectory() as folder:
        seconds = [by_processes(large, n, Path(mkdtemp(dir=folder))) for n in (1, 2)]
    figures["ratio_two_processes"] = seconds[0] / seconds[1]
    figures["ratio_two_cores"] = max(figures["ratio_two_threads"], figures["ratio_two_processes"])

    table = Table("", "ns per node", "relcrf, same work", "ratio", title="Forests", title_justify="left")
    for cells in rows:
        table.add_row(*cells)
    console.print(table)
    console.print(f"10 times the nodes: {figures['growth_10x']:.1f} times the CPU time")
    console.print(
        f"two threads: {figures['ratio_two_threads']:.2f} times as fast as one, two processes "
        f"{figures['ratio_two_processes']:.2f} times ({os.cpu_count()} cores)"
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
