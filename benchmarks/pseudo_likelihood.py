"""The pseudo-likelihood of edges, compared with its dense form; counts, compared with a matrix product; an L1 fit, with saga.

CPU seconds of one thread each, measured alternately after one warm-up run; medians.

    python benchmarks/pseudo_likelihood.py

Columns of 5 states, 20,000 samples from a random tree; as many active edges as columns. The dense form is the usual one: a
float32 one-hot matrix times a matrix of all weights, probabilities by row, and the one-hot matrix times the residuals; its
creation is not measured. relcrf computes in float64, and its table is created once, as for a fit. `ratio_torch_200` is the
same dense form with PyTorch's autograd.

Counts are those of all pairs. The creation of the one-hot matrix is not measured; relcrf's packing of bits is.

The fit has 30 columns, 5,000 samples, and L1 on each weight of all 435 edges. scikit-learn regresses each column on all
others, so each edge has two tables with L1 on both; relcrf's single table has twice the strength. `objective_saga` is the
objective of the mean of both tables, next to `objective`; the negative log pseudo-likelihoods per node are those of 5,000
test samples, for saga with its two tables. `gap` is the relative difference of relcrf's objective to the minimum.
"""

from __future__ import annotations

import os

# NumPy and Numba read these variables when they are loaded: one thread for all libraries.
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
)

import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from support import BenchmarkParser, is_installed, medians, sized

from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, TableSpace
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Keyed
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.learning.edge_counts import EdgeCounts
from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.learning.lbfgs import OptimiserState
from relcrf.learning.owlqn import Owlqn

N_SAMPLES, N_STATES, SIZES = 20_000, 5, (200, 600)
QUICK_SAMPLES = 4_000
FIT_COLUMNS, QUICK_COLUMNS, FIT_SAMPLES, FIT_L1 = 30, 15, 5_000, 20.0
"""Sizes of the fit, and the L1 strength of a column's weights, which selects the edges of the tree and few others."""
SAGA = {"max_iter": 50, "tol": 1e-4}
TOLERANCE = 1e-3
"""Stopping criterion of relcrf's fit: the largest gradient component relative to its initial value."""
console = Console()


def sample_tree_states(rng: np.random.Generator, n_columns: int, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return states of a random tree, shape (n_columns, n_samples), int8, and its edges, shape (n_columns - 1, 2)."""
    parents = np.array([rng.integers(column) for column in range(1, n_columns)])
    states = np.empty((n_columns, n_samples), dtype=np.int8)
    states[0] = rng.integers(N_STATES, size=n_samples)
    for column, parent in enumerate(parents, start=1):
        chances = rng.dirichlet(np.full(N_STATES, 0.7), N_STATES).cumsum(axis=1)[states[parent]]
        states[column] = np.minimum((rng.random((n_samples, 1)) > chances).sum(axis=1), N_STATES - 1)
    return states, np.stack((parents, np.arange(1, n_columns)), axis=1)


def likelihood(states: np.ndarray) -> EdgeLikelihood:
    """Return the likelihood of columns with a bias for each state and without selected edges."""
    n_columns, n_samples = states.shape
    n = states.size
    key, sample = np.divmod(np.arange(n, dtype=np.int32), np.int32(n_samples))
    variable = sample * np.int32(n_columns) + key  # row by row, as in a relation
    side = CandidateSide(n_samples * np.arange(n_columns + 1), sample, variable, np.ones(N_STATES))
    table = np.eye(N_STATES**2)
    space = TableSpace("edge", side, side, KeyRelation.ASCENDING, n_samples, table=table)
    scope = np.arange(n, dtype=np.int32)
    bias = Keyed(scope % np.int32(n_columns), np.empty((0, 1)), n_columns)
    layout = WeightLayout((WeightBlock("bias", n_columns, N_STATES),))
    graph = FactorGraph(
        np.full(n, N_STATES, dtype=np.int32), (FactorGroup((scope,), (N_STATES,), bias, None, 0),), layout
    )
    labels = states.T.ravel()
    base = blanket_graph(graph, np.full(n, Role.FREE, dtype=np.int8), labels)
    return EdgeLikelihood.build(base, labels, (space,))


def of_pairs(pairs: np.ndarray) -> CandidateSet:
    return CandidateSet.from_pairs(0, pairs)


def some_edges(rng: np.random.Generator, tree: np.ndarray, n_columns: int, n_edges: int) -> np.ndarray:
    """Return the edges of the tree and others, shape (n_edges, 2), ascending."""
    every = np.stack(np.triu_indices(n_columns, 1), axis=1)
    numbers = every[:, 0] * n_columns + every[:, 1]
    others = np.setdiff1d(numbers, tree[:, 0] * n_columns + tree[:, 1])
    found = np.concatenate((tree[:, 0] * n_columns + tree[:, 1], rng.permutation(others)))[:n_edges]
    return np.stack(np.divmod(np.sort(found), n_columns), axis=1)


def one_hot(states: np.ndarray) -> np.ndarray:
    """Return the one-hot matrix, shape (n_samples, n_columns * N_STATES), float32."""
    out = np.zeros((*states.T.shape, N_STATES), dtype=np.float32)
    np.put_along_axis(out, states.T[:, :, None].astype(np.int64), 1.0, axis=2)
    return out.reshape(len(out), -1)


def dense_weights(n_columns: int, pairs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return biases, shape (n_columns * N_STATES,), and the symmetric matrix of all tables, float32."""
    split = n_columns * N_STATES
    matrix = np.zeros((n_columns, N_STATES, n_columns, N_STATES), dtype=np.float32)
    tables = weights[split:].reshape(-1, N_STATES, N_STATES)
    first, second = pairs.T
    matrix[first, :, second, :] = tables
    matrix[second, :, first, :] = tables.transpose(0, 2, 1)
    return weights[:split].astype(np.float32), matrix.reshape(split, split)


def dense(hot: np.ndarray, bias: np.ndarray, matrix: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the value and the gradients of biases and of the matrix, which contains each table twice."""
    scores = hot @ matrix
    scores += bias
    shape = (len(hot), -1, N_STATES)
    each = scores.reshape(shape)
    each -= each.max(axis=2, keepdims=True)
    at_label = np.einsum("ij,ij->i", scores, hot).sum(dtype=np.float64)
    np.exp(scores, out=scores)
    total = each.sum(axis=2, keepdims=True)
    each /= total
    scores -= hot
    gradient = hot.T @ scores
    return float(np.log(total).sum(dtype=np.float64) - at_label), scores.sum(axis=0, dtype=np.float64), gradient


def torch_dense(hot: np.ndarray, bias: np.ndarray, matrix: np.ndarray) -> Callable[[], float]:
    import torch

    torch.set_num_threads(1)
    data = torch.tensor(hot)
    labels = data.reshape(-1, N_STATES).argmax(dim=1)
    leaves = [torch.tensor(values, requires_grad=True) for values in (bias, matrix)]

    def run() -> float:
        for leaf in leaves:
            leaf.grad = None
        scores = (data @ leaves[1] + leaves[0]).reshape(-1, N_STATES)
        value = torch.nn.functional.cross_entropy_loss(scores, labels, reduction="sum")
        value.backward()
        return float(value.detach())

    return run


def values(rounds: int, n_columns: int, n_samples: int, table: Table, result: dict[str, float | None]) -> None:
    """Measure value and gradient, and counts, for a number of columns."""
    rng = np.random.default_rng(n_columns)
    states, tree = sample_tree_states(rng, n_columns, n_samples)
    pairs = some_edges(rng, tree, n_columns, n_columns)
    empty, hot = likelihood(states), one_hot(states)
    model = empty.with_candidates(of_pairs(pairs))
    point = rng.normal(scale=0.3, size=model.n_base + len(pairs) * N_STATES**2)
    bias, matrix = dense_weights(n_columns, pairs, point)
    works: list[Callable[[], Any]] = [lambda: model(point), lambda: dense(hot, bias, matrix)]
    names = ["relcrf", "NumPy, dense"]
    if n_columns == SIZES[0] and is_installed("torch"):
        works.append(torch_dense(hot, bias, matrix))
        names.append("PyTorch, dense")
    found = medians(rounds, *works)
    for name, seconds in zip(names, found, strict=True):
        table.add_row("value and gradient", f"{n_columns}", f"{n_columns}", name, f"{1e3 * seconds:.1f}")
    result[f"ratio_dense_{n_columns}"] = found[1] / found[0]
    if len(found) > 2:
        result[f"ratio_torch_{n_columns}"] = found[2] / found[0]
    value, gradient = model(point)
    wanted, of_bias, of_matrix = dense(hot, bias, matrix)
    first, second = pairs.T
    cells = of_matrix.reshape(n_columns, N_STATES, n_columns, N_STATES)
    tables = cells[first, :, second, :] + cells[second, :, first, :].transpose(0, 2, 1)
    other = np.concatenate((of_bias, tables.ravel()))
    difference = float(np.abs(other - gradient).max() / np.abs(gradient).max())
    assert abs(value / wanted - 1) < 1e-4, (value, wanted)
    assert difference < 1e-4, difference
    result[f"gradient_difference_{n_columns}"] = difference

    for times in (2, 4, 8):
        more = some_edges(rng, tree, n_columns, times * n_columns)
        larger = empty.with_candidates(of_pairs(more))
        at = rng.normal(scale=0.1, size=larger.n_base + len(more) * N_STATES**2)
        (seconds,) = medians(rounds, partial(larger, at))
        table.add_row("value and gradient", f"{n_columns}", f"{len(more)}", "relcrf", f"{1e3 * seconds:.1f}")
        result[f"growth_{times}n_edges_{n_columns}"] = seconds / found[0]

    every = np.stack(np.triu_indices(n_columns, 1), axis=1)
    space, labels = model.spaces[0], model.states
    count = [lambda: EdgeCounts(space, labels, model.trained)(every), lambda: hot.T @ hot]
    ours, theirs = medians(rounds, *count)
    (alone,) = medians(rounds, lambda: model.edge_counts(0, every))
    table.add_row("counts", f"{n_columns}", f"{len(every)}", "relcrf, with packing", f"{1e3 * ours:.1f}")
    table.add_row("counts", f"{n_columns}", f"{len(every)}", "relcrf, packed", f"{1e3 * alone:.1f}")
    table.add_row("counts", f"{n_columns}", f"{len(every)}", "NumPy, float32", f"{1e3 * theirs:.1f}")
    result[f"ratio_counts_{n_columns}"] = theirs / ours
    product = (hot.T @ hot).reshape(n_columns, N_STATES, n_columns, N_STATES)[every[:, 0], :, every[:, 1], :]
    assert np.array_equal(model.edge_counts(0, every), product.reshape(len(every), -1))


def fit(states: np.ndarray, pairs: np.ndarray, tolerance: float) -> tuple[EdgeLikelihood, np.ndarray, OptimiserState]:
    """Run the complete L1 fit of some edges from states."""
    model = likelihood(states).with_candidates(of_pairs(pairs))
    l1 = np.full(model.n_base + len(pairs) * N_STATES**2, 2 * FIT_L1)
    l1[: model.n_base] = 0.0
    learner = Owlqn(tolerance=tolerance, max_iterations=1_000, l1=l1, inverse_diagonal=1.0 / model.curvature())
    return model, l1, learner.minimise(model, learner.start(model, np.zeros(len(l1))))


def saga(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Regress each column on all others.

    Returns biases, shape (n_columns, N_STATES), and tables of the column's states by those of the others, shape
    (n_columns, N_STATES, n_columns, N_STATES).
    """
    from sklearn.linear_model import LogisticRegression

    n_columns = len(states)
    hot = one_hot(states).astype(np.float64).reshape(-1, n_columns, N_STATES)
    biases, tables = np.zeros((n_columns, N_STATES)), np.zeros((n_columns, N_STATES, n_columns, N_STATES))
    for column in range(n_columns):
        others = np.arange(n_columns) != column
        regression = LogisticRegression(solver="saga", l1_ratio=1.0, C=1.0 / FIT_L1, random_state=0, **SAGA)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning that it has not converged
            regression.fit(hot[:, others].reshape(len(hot), -1), states[column])
        seen = regression.classes_
        biases[column, seen] = regression.intercept_
        tables[column][np.ix_(seen, others)] = regression.coef_.reshape(len(seen), n_columns - 1, N_STATES)
    return biases, tables


def fits(n_columns: int, n_samples: int, table: Table, result: dict[str, float | None]) -> None:
    rng = np.random.default_rng(5)
    states, _ = sample_tree_states(rng, n_columns, 2 * n_samples)
    train, test = np.split(states, 2, axis=1)
    pairs = np.stack(np.triu_indices(n_columns, 1), axis=1)
    fit(train[:, :200], pairs, 1e-1)  # warm-up
    start = time.process_time()
    model, l1, found = fit(train, pairs, TOLERANCE)
    ours = time.process_time() - start
    start = time.process_time()
    biases, tables = saga(train)
    theirs = time.process_time() - start
    first, second = pairs.T
    both = 0.5 * (tables[first, :, second, :] + tables[second, :, first, :].transpose(0, 2, 1))
    of_saga = np.concatenate((biases.ravel(), both.ravel()))
    least = fit(train, pairs, 1e-6)[2].value
    objective = model(of_saga)[0] + float(l1 @ np.abs(of_saga))
    held_out = likelihood(test).with_candidates(of_pairs(pairs))
    own_value = dense(one_hot(test), biases.ravel(), tables.reshape(n_columns * N_STATES, -1).T)[0]
    result |= {
        "ratio_saga": theirs / ours,
        "objective": found.value,
        "objective_saga": objective,
        "gap": found.value / least - 1,
        "gap_saga": objective / least - 1,
        "nlpl": held_out(found.point)[0] / test.size,
        "nlpl_saga": own_value / test.size,
        "nlpl_saga_mean": held_out(of_saga)[0] / test.size,
    }
    table.add_row(
        "L1 fit", f"{n_columns}", f"{len(pairs)}", f"relcrf, {found.evaluations} evaluations", f"{1e3 * ours:.0f}"
    )
    table.add_row("L1 fit", f"{n_columns}", f"{len(pairs)}", "scikit-learn, saga", f"{1e3 * theirs:.0f}")


def main() -> None:
    parser = BenchmarkParser(__doc__, quick="three repetitions with fewer samples, and a fit with fewer columns")
    parser.add_argument("--rounds", type=int, default=5, help="number of repetitions; the median is reported")
    options = parser.parse_args()
    n_samples = sized(options, N_SAMPLES, QUICK_SAMPLES, 50)
    table = Table("", "columns", "edges", "", "CPU ms", title=f"{n_samples:,} samples of {N_STATES} states")
    result: dict[str, float | None] = {}
    for n_columns in SIZES:
        values(sized(options, options.rounds, 3, 1), n_columns, n_samples, table, result)
    result["ratio_counts"] = min(result[f"ratio_counts_{n}"] or 0.0 for n in SIZES)
    fits(*sized(options, (FIT_COLUMNS, FIT_SAMPLES), (QUICK_COLUMNS, FIT_SAMPLES), (4, 200)), table, result)
    console.print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
