"""Calibration of prediction sets on the held-out labels that are nearest to each variable in the ground graph.

With one threshold for the whole graph, sets cover too few labels in parts where the model is wrong more often, and too many in
others. A threshold from the nearest labels adapts to each part.

Source: Clarkson, Distribution free prediction sets for node classification (2023), for weights of labels by their distance in a
graph; Barber, Candes, Ramdas & Tibshirani, Conformal prediction beyond exchangeability (2023), for the guarantee with weights.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csr_array

from relcrf.backends.calibration_labels import ROUNDING, CalibrationLabels, require_coverage
from relcrf.errors import Diagnostic, UsageError

EXPECTED_MISSES = 10
"""Expected number of the nearest labels that are not in the sets of their variables: 100 labels for a coverage of 0.9. On Cora,
sets from 50 labels are larger without better coverage of the worst part of the graph; sets from 200 cover it less."""

MAX_NEIGHBOURHOOD = 1 << 16
"""Number of variables after which the search for labels near a variable ends; with fewer labels than 1 in 600, for a coverage of
0.9, the nearest ones are far."""

CELLS_PER_BLOCK = 1 << 23
"""Approximate number of variables in all neighbourhoods that are searched together; it bounds their memory to 100 MiB."""

MIN_BLOCK, MAX_BLOCK = 16, 4096
"""Limits of the number of variables whose neighbourhoods are searched together."""


def count_nearest(coverage: float) -> int:
    """Return the number of nearest labels that calibrate a set.

    Raises:
        UsageError: If `coverage` is not between 0 and 1 (E376).
    """
    require_coverage(coverage)
    return math.ceil(EXPECTED_MISSES / (1.0 - coverage) - ROUNDING)


def require_labels_in_data(labels: CalibrationLabels, states: np.ndarray) -> None:
    """Require that the data contain the held-out labels of a run.

    Args:
        states: State of each variable of the ground graph of the data, shape (n_variables,).

    Raises:
        UsageError: If they do not (E375).
    """
    variables = labels.variables
    if (variables >= len(states)).any() or (states[variables] != labels.states).any():
        message = "the data do not contain the held-out labels of the run, so that none is near"
        hint = "use the tables with which the run was trained, or omit --nearby"
        raise UsageError(Diagnostic("E375", message, hint=hint))


def nearby_min_probabilities(
    labels: CalibrationLabels, adjacency: csr_array, variables: np.ndarray, coverage: float
) -> np.ndarray:
    """Return the smallest probability of a state in the prediction set of each variable, shape (n,).

    With m = `count_nearest(coverage)`, the labels within a distance at which fewer than m are reached have the weight 1. Those at
    the next distance share what is missing to the total weight m equally. The variable itself has the weight 1, and its label may
    have any probability. The result is the largest number such that labels with at least this probability have the weight
    `coverage * (m + 1)`. Variables without m labels among the nearest `MAX_NEIGHBOURHOOD` variables have nan.

    Args:
        adjacency: Adjacency matrix of the variables of the ground graph, bool.
        variables: The predicted variables, shape (n,).

    Raises:
        UsageError: If `coverage` is not between 0 and 1 (E376), or labels were held out with their whole components (E375).
    """
    if labels.are_components_held_out:
        message = "labels were held out with their whole connected components, so that none is near"
        raise UsageError(Diagnostic("E375", message, hint="omit --nearby; all held-out labels calibrate each set"))
    order = np.argsort(-labels.probabilities, kind="stable")
    n_nearest, n_labels = count_nearest(coverage), len(order)
    thresholds = np.full(len(variables), np.nan)
    if n_labels < n_nearest:
        return thresholds
    probabilities = labels.probabilities[order]
    shape = (adjacency.shape[0], n_labels)
    # Column k selects the variable of the label with the k-th largest probability.
    select = csr_array((np.ones(n_labels, dtype=bool), (labels.variables[order], np.arange(n_labels))), shape=shape)
    identity = csr_array((np.ones(shape[0], dtype=bool), (np.arange(shape[0]),) * 2), shape=(shape[0],) * 2)
    step = (adjacency.astype(bool) + identity).tocsr()
    start, block = 0, MIN_BLOCK
    while start < len(variables):
        rows, widest = np.arange(start, min(start + block, len(variables))), 1
        start += len(rows)
        reached, before = identity[variables[rows]], csr_array((len(rows), n_labels), dtype=bool)
        while len(rows):
            wider = (reached @ step).tocsr()
            near, size = (wider @ select).tocsr(), _row_counts(wider)
            widest = max(widest, int(size.max()))
            is_enough = _row_counts(near) >= n_nearest
            found = np.flatnonzero(is_enough)
            nearest = _nearest_weights(before[found], near[found], n_nearest)
            position = _first_reaching(nearest, coverage * (n_nearest + 1) - ROUNDING)
            thresholds[rows[found]] = probabilities[position]
            grows = ~is_enough & (size > _row_counts(reached)) & (size <= MAX_NEIGHBOURHOOD)
            rows, reached, before = rows[grows], wider[grows], near[grows]
        block = int(np.clip(CELLS_PER_BLOCK // widest, MIN_BLOCK, MAX_BLOCK))
    return thresholds


def _row_counts(matrix: csr_array) -> np.ndarray:
    return np.diff(matrix.indptr)


def _nearest_weights(before: csr_array, near: csr_array, total: int) -> csr_array:
    """Return the weights of labels: 1 for those of `before`; the others of `near` share what is missing to `total` equally."""
    share = (total - _row_counts(before)) / (_row_counts(near) - _row_counts(before))
    weights = near.astype(np.float64)
    weights.data = np.repeat(share, _row_counts(near))
    inner = before.astype(np.float64)
    inner.data = np.repeat(1.0 - share, _row_counts(before))
    weights = (weights + inner).tocsr()
    weights.sort_indices()
    return weights


def _first_reaching(weights: csr_array, required: float) -> np.ndarray:
    """Return, for each row, the first column at which the sum of the weights up to it reaches `required`, shape (n_rows,)."""
    sums = np.cumsum(weights.data)
    first = weights.indptr[:-1]
    before_row = np.where(first > 0, sums[first - 1], 0.0) if len(sums) else np.zeros(len(first))
    is_reached = sums - np.repeat(before_row, _row_counts(weights)) >= required
    entry = np.flatnonzero(is_reached)
    return np.asarray(weights.indices[entry[np.searchsorted(entry, first)]])
