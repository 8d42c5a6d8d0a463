"""Kernels of pairs with shared tables compared with joint distributions in NumPy."""

import numpy as np
import pytest
from scipy.special import logsumexp

from relcrf.kernels.pairs import SHARED_PAIR_KERNELS


@pytest.mark.parametrize("spread", [1.0, 400.0])  # the linear partition functions of the second graph underflow
@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
def test_shared_pair_marginals(k, spread):
    rng = np.random.default_rng(k)
    n, m, n_tables = 30, 80, 3
    edges = np.sort([rng.choice(n, 2, replace=False) for _ in range(m)], axis=1).astype(np.int32)
    cardinality, state_start = np.full(n, k, dtype=np.int32), k * np.arange(n + 1)
    node, table, which = (
        rng.normal(size=(n, k)),
        spread * rng.normal(size=(n_tables, k, k)),
        rng.integers(n_tables, size=m),
    )
    node_top, table_top = node.max(axis=1, keepdims=True), table.max(axis=(1, 2), keepdims=True)
    joint = node[edges[:, 0], :, None] + node[edges[:, 1], None, :] + table[which]
    log_partition = logsumexp(joint, axis=(1, 2))
    joint = np.exp(joint - log_partition[:, None, None])
    expected_nodes, expected_tables = np.zeros((n, k)), np.zeros((n_tables, k, k))
    np.add.at(expected_nodes, edges[:, 0], joint.sum(axis=2))
    np.add.at(expected_nodes, edges[:, 1], joint.sum(axis=1))
    np.add.at(expected_tables, which, joint)
    shift = (node_top[edges].sum() + table_top[which].sum()).item()
    for kernel in {SHARED_PAIR_KERNELS.get(k, SHARED_PAIR_KERNELS[0]), SHARED_PAIR_KERNELS[0]}:
        node_sum, table_sum = np.zeros(n * k), np.zeros(n_tables * k * k)
        found = kernel(
            edges, cardinality, state_start, which * k * k, node.ravel(), np.exp(node - node_top).ravel(),
            table.ravel(), np.exp(table - table_top).ravel(), node_sum, table_sum,
        )  # fmt: skip
        np.testing.assert_allclose(found + shift, log_partition.sum(), rtol=1e-12)
        np.testing.assert_allclose(node_sum.reshape(n, k), expected_nodes, atol=1e-12)
        np.testing.assert_allclose(table_sum.reshape(n_tables, k, k), expected_tables, atol=1e-12)
