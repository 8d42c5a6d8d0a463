"""Gains of pair features: the decrease of the log pseudo-likelihood if the weight of one feature is set to 0.

For the terms cell, key and feature, see `active_pairs`.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.keyed_cells import CELLS
from relcrf.kernels.vector_math import exp

_FLAT, _SHORT = read_only(float64[::1]), read_only(int32[::1])


@kernel()
def _log_sum(x, y):
    """Return log(exp(x) + exp(y)); at most one of the arguments is -inf."""
    top = max(x, y)
    return top + np.log(exp(x - top) + exp(y - top))


@kernel(
    (
        CELLS,
        CELLS,
        _SHORT,
        _SHORT,
        _FLAT,
        _FLAT,
        _FLAT,
        _FLAT,
        int64,
        int64,
        float64[::1],
        float64[::1],
        boolean[::1],
    )
)
def pair_gains(first, second, a, b, weight, truth, log_true, log_false, n_variables, n_nodes, gain, support, repeats):
    """Compute the gains of features each of which affects a node at most once, and the support of all features.

    A literal with index v is a condition on the state of variable `v % n_variables`; only the variables below `n_nodes`
    are nodes. In each sample, a feature with weight w adds `w * truth[v2]` to the score of literal v1, and vice versa.

    Args:
        a, b: key of each feature on the first and on the second side, shape (n_features,).
        weight: weight of each feature, shape (n_features,).
        truth: truth value of each literal for the labels, shape (n_literals,).
        log_true, log_false: log probabilities of each literal and of its negation under the model with all features.
        gain, support: overwritten; the gains and the numbers of samples in which both literals are true.
        repeats: overwritten; whether a feature affects a node more than once. Its gain is then undefined.
    """
    affected_by = np.full(n_nodes, -1)  # the last feature that affects the node
    for f in range(len(a)):
        gain[f], support[f], repeats[f] = 0.0, 0.0, False
        i, i_end = first.start[a[f]], first.start[a[f] + 1]
        j, j_end = second.start[b[f]], second.start[b[f] + 1]
        while i < i_end and j < j_end:
            if first.sample[i] != second.sample[j]:
                if first.sample[i] < second.sample[j]:
                    i += 1
                else:
                    j += 1
                continue
            u, v = first.variable[i], second.variable[j]
            support[f] += truth[u] * truth[v]
            for side in range(2):
                own, other = (u, v) if side == 0 else (v, u)
                score, node = weight[f] * truth[other], own % n_variables
                if score != 0.0 and node < n_nodes:
                    repeats[f] |= affected_by[node] == f
                    affected_by[node] = f
                    gain[f] += score * truth[own] + _log_sum(log_true[own] - score, log_false[own])
            i += 1
            j += 1
