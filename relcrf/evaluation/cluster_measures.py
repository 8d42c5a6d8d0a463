"""Measures of clusters of records against the true clusters, with bootstrap intervals.

All measures are functions of sums over the true clusters (`_STATISTICS`), so that resampling true clusters reweights the
sums. A pair of records of two true clusters is attributed to each of them by one half. The sizes of the predicted clusters
are not resampled.

Source: Bagga & Baldwin, Entity-based cross-document coreferencing using the vector space model (1998), for B-cubed;
Rosenberg & Hirschberg, V-measure (2007); Field & Welsh, Bootstrapping clustered data (2007), for the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from relcrf.evaluation.intervals import RESAMPLES, percentile_interval
from relcrf.kernels.distinct import number_rows

_STATISTICS = (
    "records",
    "joined_matches",
    "joined_pairs",
    "matches",
    "precision_sum",
    "recall_sum",
    "log_true_size",
    "log_predicted_size",
    "log_shared_size",
)
"""Sums over the records or pairs of a true cluster: numbers of records, of matching pairs in one predicted cluster, of pairs
in one predicted cluster and of matching pairs; precision and recall of records; and, over the records, the logarithms of the
size of the true cluster, of the predicted cluster, and of their intersection.
"""


@dataclass(frozen=True)
class ClusterMeasure:
    """A measure and the limits of its 95 % bootstrap interval; nan if it is undefined."""

    value: float
    low: float
    high: float


def cluster_measures(
    truth: np.ndarray, predicted: np.ndarray, *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, ClusterMeasure]:
    """Compare predicted clusters with true clusters.

    The measures are `pairwise_`, `b_cubed_precision`, `_recall` and `_f1`, and `homogeneity`, `completeness` and `v_measure`.
    Pairwise measures count all pairs of records. A pairwise precision without predicted pairs, or a recall without true
    pairs, is nan.

    Args:
        truth: True cluster of each record, shape (n,), int; records with a negative number are not counted.
        predicted: Predicted cluster of each record, shape (n,), int.
        seed: Seed of the bootstrap, which resamples true clusters.
        resamples: Number of bootstrap resamples.

    Raises:
        ValueError: The arrays differ in length.
    """
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    if len(truth) != len(predicted):
        raise ValueError(f"{len(truth)} true clusters, but {len(predicted)} predicted clusters")
    known = truth >= 0
    statistics = _cluster_statistics(number_rows(truth[known]), number_rows(predicted[known]))
    values = _measures(statistics.sum(axis=0))
    rng, n = np.random.default_rng(seed), len(statistics)
    resampled = []
    for _ in range(resamples if n else 0):
        weights = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
        resampled.append(_measures(weights @ statistics))
    return {
        name: ClusterMeasure(value, *percentile_interval([one[name] for one in resampled]))
        for name, value in values.items()
    }


def _cluster_statistics(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return `_STATISTICS` of each true cluster, shape (n_true, n_statistics).

    Args:
        truth, predicted: Clusters of each record, numbered densely from 0, shape (n,).
    """
    true_size, predicted_size = (np.bincount(each).astype(np.float64) for each in (truth, predicted))
    cell = number_rows(truth, predicted)  # the non-empty cells of the contingency table
    shared = np.bincount(cell).astype(np.float64)
    row, column = np.empty(len(shared), dtype=np.int64), np.empty(len(shared), dtype=np.int64)
    row[cell], column[cell] = truth, predicted
    of_true, of_predicted = true_size[row], predicted_size[column]
    cells = (
        shared,
        shared * (shared - 1) / 2,
        shared * (of_predicted - 1) / 2,
        shared * (of_true - 1) / 2,
        shared * shared / of_predicted,
        shared * shared / of_true,
        shared * np.log(of_true),
        shared * np.log(of_predicted),
        shared * np.log(shared),
    )
    return np.column_stack([np.bincount(row, weights=values, minlength=len(true_size)) for values in cells])


def _measures(sums: np.ndarray) -> Mapping[str, float]:
    """Return the measures by name, given the sums of `_STATISTICS`."""
    total = dict(zip(_STATISTICS, sums.tolist(), strict=True))
    n, joined, matches = total["records"], total["joined_pairs"], total["matches"]
    precision, recall = _ratio(total["precision_sum"], n), _ratio(total["recall_sum"], n)
    true_entropy = n * math.log(max(n, 1.0)) - total["log_true_size"]
    predicted_entropy = n * math.log(max(n, 1.0)) - total["log_predicted_size"]
    homogeneity = _explained(total["log_predicted_size"] - total["log_shared_size"], true_entropy, n)
    completeness = _explained(total["log_true_size"] - total["log_shared_size"], predicted_entropy, n)
    return {
        "pairwise_precision": _ratio(total["joined_matches"], joined),
        "pairwise_recall": _ratio(total["joined_matches"], matches),
        "pairwise_f1": _ratio(2 * total["joined_matches"], joined + matches),
        "b_cubed_precision": precision,
        "b_cubed_recall": recall,
        "b_cubed_f1": _harmonic_mean(precision, recall),
        "homogeneity": homogeneity,
        "completeness": completeness,
        "v_measure": _harmonic_mean(homogeneity, completeness),
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _harmonic_mean(first: float, second: float) -> float:
    """Return the harmonic mean of two non-negative numbers; 0 if both are 0."""
    return 2 * first * second / (first + second) if first + second != 0 else 0.0


def _explained(conditional_entropy: float, entropy: float, n: float) -> float:
    """Return the fraction of an entropy that the other partition explains; 1 if the entropy is 0, nan without records."""
    if not n:
        return float("nan")
    return 1.0 - conditional_entropy / entropy if entropy > 1e-9 * n else 1.0
