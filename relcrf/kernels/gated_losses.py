"""Losses of node beliefs, and their derivatives with respect to unnormalised log beliefs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float64, int32, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.threads import freeze
from relcrf.kernels.vector_math import exp

LINEAR, SQUARED_ERROR, CROSS_ENTROPY = 0, 1, 2


class BeliefLoss(NamedTuple):
    """A loss of node beliefs, created by `linear_loss`, `squared_error_loss` or `cross_entropy_loss`.

    Args:
        kind: `LINEAR`, `SQUARED_ERROR` or `CROSS_ENTROPY`.
        observed, weight: see `squared_error_loss`; shape (n_nodes,), int32 and float64; empty for a linear loss.
        slope: see `linear_loss`; shape (n_states,), float64; empty for other losses.
    """

    kind: int
    observed: np.ndarray
    weight: np.ndarray
    slope: np.ndarray


LOSS = types.NamedTuple([int64, read_only(int32[::1]), read_only(float64[::1]), read_only(float64[::1])], BeliefLoss)


def linear_loss(slope: np.ndarray) -> BeliefLoss:
    """Create the loss `sum of slope * beliefs`; a loss with derivatives `slope` by beliefs has the same gradient."""
    return BeliefLoss(LINEAR, freeze(np.empty(0), np.int32), freeze(np.empty(0), np.float64), freeze(slope, np.float64))


def squared_error_loss(observed: np.ndarray, weight: np.ndarray) -> BeliefLoss:
    """Create the squared error: weight / 2 * sum over states of (belief - indicator of the observed state)^2.

    For a binary node with observed state y, this loss is weight * (belief of state 1 - y)^2.

    Args:
        observed: observed state of each node, shape (n_nodes,); ignored for nodes of weight 0.
        weight: weight of each node, shape (n_nodes,); 0 for nodes that are not outputs.
    """
    return _make_node_loss(SQUARED_ERROR, observed, weight)


def cross_entropy_loss(observed: np.ndarray, weight: np.ndarray) -> BeliefLoss:
    """Create the cross-entropy, -weight * log(belief of the observed state); arguments as in `squared_error_loss`."""
    return _make_node_loss(CROSS_ENTROPY, observed, weight)


def _make_node_loss(kind: int, observed: np.ndarray, weight: np.ndarray) -> BeliefLoss:
    state = np.where(np.asarray(weight) != 0.0, observed, 0)
    return BeliefLoss(kind, freeze(state, np.int32), freeze(weight, np.float64), freeze(np.empty(0), np.float64))


@kernel()
def evaluate_binary_loss(loss, node, start, odds):
    """Evaluate the loss of a binary node whose states have offset `start` and whose belief has log odds `odds`.

    Returns:
        The loss, its derivative with respect to `odds`, and the smaller of the two beliefs; all float64.
    """
    small = exp(-abs(odds))
    large = 1.0 / (1.0 + small)
    small *= large
    one, zero = (large, small) if odds >= 0.0 else (small, large)
    if loss.kind == LINEAR:
        low, high = loss.slope[start], loss.slope[start + 1]
        return low * zero + high * one, (high - low) * large * small, small
    weight = loss.weight[node]
    if weight == 0.0:
        return 0.0, 0.0, small
    wrong = zero if loss.observed[node] == 1 else one
    sign = -1.0 if loss.observed[node] == 1 else 1.0
    if loss.kind == SQUARED_ERROR:
        return weight * wrong * wrong, sign * weight * 2.0 * wrong * large * small, small
    return weight * (max(sign * odds, 0.0) - np.log(large)), sign * weight * wrong, small


@kernel()
def evaluate_loss(loss, node, start, beliefs, logs, slope):
    """Evaluate the loss of a node of any cardinality.

    Args:
        start: offset of the node's states.
        beliefs, logs: the node's beliefs and their logarithms, shape (k,).
        slope: overwritten by the derivatives with respect to the unnormalised log beliefs, shape (k,).

    Returns:
        The loss.
    """
    k = len(beliefs)
    if loss.kind == LINEAR:
        value = 0.0
        for x in range(k):
            value += loss.slope[start + x] * beliefs[x]
        for x in range(k):
            slope[x] = beliefs[x] * (loss.slope[start + x] - value)
        return value
    weight = loss.weight[node]
    slope[:] = 0.0
    if weight == 0.0:
        return 0.0
    observed = loss.observed[node]
    if loss.kind == CROSS_ENTROPY:
        for x in range(k):
            slope[x] = weight * beliefs[x]
        slope[observed] -= weight
        return -weight * logs[observed]
    value, mean = 0.0, 0.0
    for x in range(k):
        error = beliefs[x] - (1.0 if x == observed else 0.0)
        value += 0.5 * weight * error * error
        mean += weight * error * beliefs[x]
    for x in range(k):
        error = beliefs[x] - (1.0 if x == observed else 0.0)
        slope[x] = beliefs[x] * (weight * error - mean)
    return value
