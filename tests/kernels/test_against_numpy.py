"""Kernels compared with reference implementations in NumPy and SciPy."""

import numpy as np
import pytest
from numba import float32, float64
from scipy.sparse import csr_matrix
from scipy.special import logsumexp

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.forest import BLOCK_SIZE, ForestInference, ForestPlan
from relcrf.kernels import dense, pairs, score_tables, sparse, vector_math
from relcrf.kernels.compile import kernel
from relcrf.kernels.threads import freeze


def random_csr(rng, implicit):
    lengths = rng.integers(0, 5, size=30)
    row_start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    column = rng.integers(7, size=row_start[-1]).astype(np.int32)
    values = sparse_values(rng, len(column), implicit)
    full = values if len(values) else np.ones(len(column), dtype=np.float32)
    matrix = csr_matrix((full.astype(float), column, row_start), shape=(30, 7))
    return *(freeze(array, array.dtype) for array in (row_start, column, values)), matrix


def sparse_values(rng, n, implicit):
    return np.empty(0, dtype=np.float32) if implicit else rng.normal(size=n).astype(np.float32)


@pytest.mark.parametrize("k", [1, *sparse.CSR_KERNELS, 11])
@pytest.mark.parametrize("implicit", [True, False])
def test_csr(implicit, k):
    rng = np.random.default_rng(0)
    row_start, column, values, matrix = random_csr(rng, implicit)
    weights, rows = rng.normal(size=(7, k)), rng.permutation(30)[:11]
    scores, general_scores = np.full((2, 13, k), np.nan)
    residual, gradient = rng.normal(size=(11, k)), rng.normal(size=(7, k))
    expected, general_gradient = gradient + matrix[rows].T @ residual, gradient.copy()
    for kernels, out, total in (
        (sparse.csr_kernels(k), scores, gradient),
        (sparse.CSR_KERNELS[0], general_scores, general_gradient),
    ):
        kernels.scores(row_start, column, values, weights, rows, out[1:12])
        np.testing.assert_allclose(out[1:12], (matrix @ weights)[rows], atol=1e-12)
        assert np.isnan(out[[0, 12]]).all()  # nothing is written beyond the rows
        kernels.accumulate(row_start, column, values, residual, rows, total)
        np.testing.assert_allclose(total, expected, atol=1e-12)
    assert np.array_equal(scores, general_scores, equal_nan=True) and np.array_equal(gradient, general_gradient)


@pytest.mark.parametrize("width", [0, 1, 3])
def test_keyed(width):
    rng = np.random.default_rng(1)
    key = rng.integers(4, size=20).astype(np.int32)
    values = rng.normal(size=(20, width)) if width else np.empty((0, 1))
    full = values if width else np.ones((20, 1))
    weights = rng.normal(size=(4 * full.shape[1], 2))
    blocks = weights.reshape(4, full.shape[1], 2)
    out = np.full((20, 2), np.nan)
    frozen = freeze(key, np.int32), freeze(values, np.float64)
    sparse.keyed_scores(*frozen, weights, out)
    np.testing.assert_allclose(out, np.einsum("nd,ndp->np", full, blocks[key]), atol=1e-12)
    residual, gradient = rng.normal(size=(20, 2)), np.zeros_like(weights)
    sparse.keyed_accumulate(*frozen, residual, gradient)
    expected = np.zeros_like(blocks)
    np.add.at(expected, key, full[:, :, None] * residual[:, None, :])
    np.testing.assert_allclose(gradient.reshape(blocks.shape), expected, atol=1e-12)


@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_tables(identity, shared):
    rng = np.random.default_rng(2)
    n_terms, n_joint = 15, 6
    patterns = None if identity else rng.normal(size=(n_joint, 4))
    full = np.eye(n_joint) if identity else patterns
    frozen = score_tables.pattern_matrix(patterns)
    scores = rng.normal(size=(1 if shared else n_terms, full.shape[1]))
    base, n_rows, n_columns = np.zeros(n_terms, np.int32), np.full(n_terms, 2, np.int32), np.full(n_terms, 3, np.int32)
    flip = rng.random(n_terms) < 0.5  # read the table along either axis
    stride_row, stride_column = np.where(flip, 1, 3).astype(np.int32), np.where(flip, 2, 1).astype(np.int32)
    start = 6 * rng.integers(4, size=n_terms).astype(np.int64)
    out, expected = np.zeros(24), np.zeros(24)
    score_tables.add_tables(scores, frozen, base, stride_row, stride_column, n_rows, n_columns, start, out)
    weights = rng.normal(size=24)
    residual, adjoint = np.zeros_like(scores), np.zeros_like(scores)
    score_tables.collect_tables(residual, frozen, base, stride_row, stride_column, n_rows, n_columns, start, weights)
    for t in range(n_terms):
        joint = full @ scores[0 if shared else t]
        for x in range(2):
            for y in range(3):
                state = x * stride_row[t] + y * stride_column[t]
                expected[start[t] + 3 * x + y] += joint[state]
                adjoint[0 if shared else t] += weights[start[t] + 3 * x + y] * full[state]
    np.testing.assert_allclose(out, expected, atol=1e-12)
    np.testing.assert_allclose(residual, adjoint, atol=1e-12)
    assert (out * weights).sum() == pytest.approx((scores * residual).sum())


def reference_sum_product(n, edges, node, edge):
    """Compute marginals by recursive message passing in the log domain."""
    neighbours = {v: [] for v in range(n)}
    for e, (i, j) in enumerate(edges):
        neighbours[i].append((j, edge[e]))
        neighbours[j].append((i, edge[e].T))
    memo = {}

    def message(v, w, table):
        if (v, w) not in memo:
            belief = node[v] + sum(message(u, v, t) for u, t in neighbours[v] if u != w)
            memo[v, w] = logsumexp(table + belief[None, :], axis=1)
        return memo[v, w]

    beliefs = [node[v] + sum((message(u, v, t) for u, t in neighbours[v]), np.zeros_like(node[v])) for v in range(n)]
    return [np.exp(b - logsumexp(b)) for b in beliefs], [logsumexp(b) for b in beliefs]


@pytest.mark.parametrize("seed", range(10))
def test_forest_of_mixed_cardinalities(seed):
    rng = np.random.default_rng(seed)
    n = 25
    cardinality = rng.integers(2, 6, size=n).astype(np.int32)
    edges = np.array([(rng.integers(v), v) for v in range(1, n) if rng.random() < 0.9], dtype=np.int32)
    node = [rng.normal(size=k) * 3 for k in cardinality]
    edge = [rng.normal(size=(cardinality[i], cardinality[j])) * 3 for i, j in edges]
    scopes = Scopes(cardinality, 2 * np.arange(len(edges) + 1), edges.ravel())
    potentials = Potentials(np.concatenate(node), np.concatenate([np.empty(0), *(t.ravel() for t in edge)]))
    actual = ForestInference(scopes, block_size=int(rng.choice([1, 30, 200, BLOCK_SIZE]))).marginals(potentials)
    expected, totals = reference_sum_product(n, edges, node, edge)
    np.testing.assert_allclose(actual.nodes, np.concatenate(expected), atol=1e-12)
    below = set(edges[:, 1].tolist())  # each edge connects a node to an earlier one
    assert actual.log_partition == pytest.approx(sum(totals[v] for v in range(n) if v not in below))
    for e, (i, j) in enumerate(edges):
        cells = slice(scopes.table_start[e], scopes.table_start[e + 1])
        table = actual.factors[cells].reshape(cardinality[i], cardinality[j])
        np.testing.assert_allclose(table.sum(axis=1), expected[i], atol=1e-12)
        np.testing.assert_allclose(table.sum(axis=0), expected[j], atol=1e-12)


@pytest.mark.parametrize("size", [1, 40, 400, BLOCK_SIZE])
def test_plan_orders_children_before_parents(size):
    """Test also that blocks are contiguous and within their cost, and that parents are in the same block or in the spine."""
    rng = np.random.default_rng(size)
    n = 300
    cardinality = rng.integers(1, 5, size=n).astype(np.int32)
    edges = np.array([(rng.integers(max(0, v - 9), v), v) for v in range(1, n) if v % 60], dtype=np.int32)
    edges[::2] = edges[::2, ::-1]
    plan = ForestPlan.from_scopes(Scopes(cardinality, 2 * np.arange(len(edges) + 1), edges.ravel()), size)
    assert sorted(plan.order) == list(range(n))
    joined = np.flatnonzero(plan.edge >= 0)
    assert sorted(plan.edge[joined]) == list(range(len(edges)))
    assert (plan.forest.parent[joined] > joined).all()
    for v in joined:
        ends = (plan.order[v], plan.order[plan.forest.parent[v]])
        assert tuple(edges[plan.edge[v]]) == (ends[::-1] if plan.forest.parent_first[v] else ends)
    blocks = (*plan.whole_trees, *plan.subtrees, *plan.spines)
    assert [a for a, _ in blocks] == [0, *(b for _, b in blocks[:-1])] and blocks[-1][1] == n
    for lo, hi in plan.whole_trees:
        assert (plan.forest.parent[lo:hi] < hi).all()
        assert plan.forest.cell[hi] - plan.forest.cell[lo] <= size
    spine = plan.spines[0][0] if plan.spines else n
    for lo, hi in plan.subtrees:
        assert ((plan.forest.parent[lo:hi] < hi) | (plan.forest.parent[lo:hi] >= spine)).all()
        assert plan.forest.cell[hi] - plan.forest.cell[lo] <= size
    hanging = [v for v in joined if v < spine <= plan.forest.parent[v]]
    assert hanging == plan.subtree_roots.tolist()


def test_long_chain_and_star_do_not_overflow_the_stack():
    n = 200_000
    for edges in (
        np.column_stack((np.arange(n - 1), np.arange(1, n))).astype(np.int32),
        np.column_stack((np.zeros(n - 1), np.arange(1, n))).astype(np.int32),
    ):
        scopes = Scopes(np.full(n, 2, dtype=np.int32), 2 * np.arange(n), edges.ravel())
        actual = ForestInference(scopes).marginals(Potentials(np.zeros(2 * n), np.ones(4 * (n - 1))))
        assert actual.log_partition == pytest.approx(n * np.log(2) + n - 1)
        np.testing.assert_allclose(actual.nodes, 0.5)


def test_exponentials():
    x = np.concatenate([np.linspace(-708, 709, 100_001), np.random.default_rng(0).normal(size=10_000), [0.0, -0.0]])
    out = x.copy()
    vector_math.exp_in_place(out)
    assert (np.abs(out - np.exp(x)) / np.spacing(np.exp(x))).max() <= 2.0
    below = np.array([-np.inf, -1e300, -800.0, -708.5])
    vector_math.exp_in_place(below)
    np.testing.assert_array_equal(below, 0.0)
    for values, largest in (([3.0, -7.0, 0.0], 7.0), ([3.0, -np.inf], np.inf), ([], 0.0)):
        assert vector_math.exp_in_place(np.array(values)) == largest
    assert not vector_math.exp_in_place(np.array([1.0, np.nan, np.inf])) <= 1e308


@kernel(error_model="numpy", fastmath={"contract"})
def exp_and_log(x, y, exps, logs):
    for i in range(len(x)):
        exps[i], logs[i] = vector_math.exp_like(x[i]), vector_math.log_like(y[i])


@kernel((float64[::1],) * 4, (float32[::1],) * 4, error_model="numpy")
def exps_and_logs(x, y, exps, logs):
    exp_and_log(x, y, exps, logs)


@pytest.mark.parametrize(("real", "lowest", "highest"), [(np.float32, -87.0, 88.0), (np.float64, -708.0, 709.0)])
def test_exponentials_and_logarithms_of_either_type(real, lowest, highest):
    rng = np.random.default_rng(0)
    x = np.concatenate((rng.uniform(lowest, highest, 50_000), rng.normal(size=50_000))).astype(real)
    y = np.concatenate((np.exp(x[:50_000].astype(np.longdouble)), rng.uniform(0.6, 1.6, 50_000))).astype(real)
    exps, logs = np.empty_like(x), np.empty_like(x)
    exps_and_logs(x, y, exps, logs)
    for actual, expected in ((exps, np.exp(x.astype(np.longdouble))), (logs, np.log(y.astype(np.longdouble)))):
        assert (np.abs(actual - expected) / np.spacing(np.abs(expected.astype(real)))).max() <= 2.5
    special = np.array([-np.inf, lowest - 1, 0.0], dtype=real), np.array([1.0, 2.0, 0.5], dtype=real)
    exps_and_logs(*special, exps[:3], logs[:3])
    np.testing.assert_array_equal(exps[:3], [0.0, 0.0, 1.0])
    np.testing.assert_allclose(logs[:3], np.log(special[1]), rtol=2 * np.finfo(real).eps)


@pytest.mark.parametrize("n_columns", range(8))
@pytest.mark.parametrize("n_patterns", (0, 1, 2, 3, 5, 7, 8, 10, 16, 25, 40))
def test_dense(n_columns, n_patterns):
    rng = np.random.default_rng(5)
    n_rows = 2 * dense.BLOCK + 7
    values, weights = rng.normal(size=(n_rows, n_columns)), rng.normal(size=(n_columns, n_patterns))
    residual = rng.normal(size=(n_rows, n_patterns))
    kernels, out = dense.dense_kernels(n_patterns), residual.copy()
    kernels.scores(values, freeze(weights, np.float64), False, out)
    np.testing.assert_allclose(out, residual + values @ weights, atol=1e-12)
    out[:] = np.nan
    kernels.scores(values, freeze(weights, np.float64), True, out)
    np.testing.assert_allclose(out, values @ weights, atol=1e-12)
    gradient = weights.copy()
    kernels.accumulate(values, residual, gradient)
    np.testing.assert_allclose(gradient, weights + values.T @ residual, atol=1e-12)


def test_pairs():
    rng = np.random.default_rng(4)
    cardinality = np.array([2, 3, 4], dtype=np.int32)
    edges = np.array([(0, 1), (0, 2), (1, 2)], dtype=np.int32)
    state_start = np.array([0, 2, 5, 9])
    start = np.array([0, 6, 14])
    node, edge = rng.normal(size=9), rng.normal(size=26)
    edge[3] = -np.inf
    actual, log_partition, information = edge.copy(), np.empty(3), np.empty(3)
    pairs.pair_marginals(edges, cardinality, state_start, start, node, actual, log_partition)
    pairs.mutual_information(edges, cardinality, start, actual, information)
    sums = np.zeros(9)
    pairs.add_to_nodes(edges, cardinality, state_start, start, actual, sums)
    expected_sums = np.zeros(9)
    for e, (i, j) in enumerate(edges):
        table = edge[start[e] : start[e] + cardinality[i] * cardinality[j]].reshape(cardinality[i], cardinality[j])
        table = (
            table + node[state_start[i] : state_start[i + 1], None] + node[None, state_start[j] : state_start[j + 1]]
        )
        p = np.exp(table - logsumexp(table))
        np.testing.assert_allclose(actual[start[e] : start[e] + p.size].reshape(p.shape), p, atol=1e-12)
        assert log_partition[e] == pytest.approx(logsumexp(table))
        independent = p.sum(1, keepdims=True) * p.sum(0, keepdims=True)
        terms = np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / independent), 0)
        assert information[e] == pytest.approx(terms.sum())
        expected_sums[state_start[i] : state_start[i + 1]] += p.sum(1)
        expected_sums[state_start[j] : state_start[j + 1]] += p.sum(0)
    np.testing.assert_allclose(sums, expected_sums, atol=1e-12)
