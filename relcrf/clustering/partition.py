"""Clusters of records from scored pairs: connected components, average linkage, and correlation clustering.

The *weight* of a pair is its log-odds minus the log-odds of the threshold, in nats. The weight of an unlisted pair is
computed from the probability `unlisted`, and is at most `MAX_UNLISTED_WEIGHT`: a missing pair speaks against a cluster.
The *objective* of a partition is the sum of the weights of all pairs within clusters.

Source: Bansal, Blum & Chawla, Correlation clustering (2004), for the objective; Elsner & Schudy, Bounding and comparing
methods for correlation clustering beyond ILP (2009), for the local search that moves single records. Deviation: moves
alternate with merges of clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from relcrf.clustering.costs import log_odds
from relcrf.columns.offsets import offsets
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.kernels.clustering import Groups, PairLists, agglomerate, link_pairs, move_records
from relcrf.kernels.distinct import number_rows

METHODS = ("components", "average", "correlation")
"""The methods; the first is the default. See docs/how-to/clusters.md for a comparison."""

DEFAULT_UNLISTED = 0.25
"""Default probability that two records match that are not compared, although other pairs join them: about the fraction of
matches that blocking misses."""

MAX_UNLISTED_WEIGHT = -1.0
"""Maximum weight of an unlisted pair, in nats. It limits the size of clusters of records with one common neighbour, which
would otherwise grow without limit, and take quadratic time, if the threshold is below the probability of unlisted pairs.
"""

MIN_PROBABILITY = 1e-6
"""Minimum probability of a pair and of its complement; with log-odds of 14 nats, one label does not outweigh a whole
cluster of predicted pairs.
"""

LIMIT_RATIO = 0.01
"""Maximum ratio of the minimum probability to the threshold, and of the minimum complement to the complement of the threshold. A
pair of probability 0 or 1 is then on its side of a threshold near 0 or 1."""

MAX_ROUNDS = 20
"""Maximum number of rounds of moves and merges; in the tests and benchmarks, at most 6 rounds change a cluster."""


@dataclass(frozen=True, eq=False)
class Clustering:
    """A partition of records into clusters.

    Args:
        cluster: Cluster of each record, shape (n,), int64; clusters are numbered from 0 in the order of their first records.
        objective: Sum of the weights of the pairs within clusters, in nats; see the module.
        n_pairs: Number of listed pairs of different records.
        method: The method that found the clusters.
        threshold: Probability above which a pair speaks for one cluster.
    """

    cluster: np.ndarray
    objective: float
    n_pairs: int
    method: str
    threshold: float

    def __repr__(self) -> str:
        return f"Clustering({len(self.cluster):,} records in {len(self.sizes):,} clusters by {self.method})"

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of records of each cluster, shape (n_clusters,), int64."""
        return np.bincount(self.cluster)


def cluster_records(
    n_records: int,
    first: np.ndarray,
    second: np.ndarray,
    probability: np.ndarray,
    *,
    method: str = METHODS[0],
    threshold: float = 0.5,
    unlisted: float = DEFAULT_UNLISTED,
    distinct: np.ndarray | None = None,
) -> Clustering:
    """Partition records into clusters by the probabilities that pairs of records match.

    - `components` joins the records of each pair whose probability exceeds the threshold.
    - `average` joins the two clusters with the highest mean weight of their pairs, as long as the mean is positive.
    - `correlation` raises the objective: it starts from the better result of the other two methods (with `distinct`, from
      that of `average`), moves single records and merges clusters as long as the objective rises.

    Results are deterministic. `components` joins pairs in the order of their probabilities, which matters only with
    `distinct`; in a tie, the pair with the lowest records comes first. For the ties of the other methods, see
    `kernels/clustering.py`.

    Args:
        n_records: Number of records.
        first, second: The records of each listed pair, shape (m,), int, from 0. If a pair is listed several times, in either
            order, the mean of its log-odds is used; pairs of a record with itself are ignored.
        probability: Probability that the records of each pair match, shape (m,).
        threshold: Probability above which a pair speaks for one cluster; see `cost_threshold`.
        unlisted: Probability that the records of an unlisted pair match.
        distinct: Source of each record, shape (n,), int; two records of the same source never share a cluster. A record
            with a negative source shares a cluster with any record. None for no constraint.

    Raises:
        UsageError: `threshold` or `unlisted` is not between 0 and 1 (E444), or the method is unknown (E445).
        ValueError: The arrays differ in length, or contain an invalid record or probability.
    """
    shift, unlisted_weight = check_options(method, threshold, unlisted)
    low, high, mean = _distinct_pairs(n_records, first, second, probability, threshold)
    problem = _Problem(n_records, low, high, mean - shift, unlisted_weight, _make_groups(n_records, distinct))
    root = problem.search(method)
    return Clustering(number_rows(root), problem.objective(root), len(low), method, threshold)


def check_options(method: str, threshold: float, unlisted: float) -> tuple[float, float]:
    """Validate options of `cluster_records`; return the log-odds of the threshold and the weight of an unlisted pair, in nats.

    Raises:
        UsageError: See `cluster_records`.
    """
    if method not in METHODS:
        hint = suggestion(method, METHODS) or f"use one of: {listing(METHODS)}"
        raise UsageError(Diagnostic("E445", f"unknown clustering method '{method}'", hint=hint))
    shift = log_odds(threshold, "threshold")
    return shift, min(log_odds(unlisted, "probability of unlisted pairs") - shift, MAX_UNLISTED_WEIGHT)


def _distinct_pairs(
    n_records: int, first: np.ndarray, second: np.ndarray, probability: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the lower and the higher record of each distinct pair, in lexicographic order, and its mean log-odds.

    Raises:
        ValueError: The arrays differ in length, or contain an invalid record or probability.
    """
    first, second = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    probability = np.asarray(probability, dtype=np.float64)
    if not len(first) == len(second) == len(probability):
        raise ValueError(f"{len(first)} first records, {len(second)} second records, {len(probability)} probabilities")
    if len(first) and (min(first.min(), second.min()) < 0 or max(first.max(), second.max()) >= n_records):
        raise ValueError(f"a record of a pair is not between 0 and {n_records - 1}")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError("a probability is not between 0 and 1")
    lowest = min(MIN_PROBABILITY, LIMIT_RATIO * threshold)
    highest = min(max(1 - MIN_PROBABILITY, 1 - LIMIT_RATIO * (1 - threshold)), np.nextafter(1.0, 0.0))
    clipped = np.clip(probability, lowest, highest)
    values = np.log(clipped) - np.log1p(-clipped)
    number = np.minimum(first, second) * n_records + np.maximum(first, second)
    order = np.argsort(number, kind="stable")
    order = order[(first != second)[order]]
    number, values = number[order], values[order]
    start = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1]))[: len(number)])
    means = np.add.reduceat(values, start) / np.diff(start, append=len(number)) if len(start) else values
    low, high = np.divmod(number[start], max(n_records, 1))
    return low.astype(np.int32), high.astype(np.int32), means


def _make_groups(n_records: int, distinct: np.ndarray | None) -> Groups:
    """Return the groups of records with the same source.

    Raises:
        ValueError: The number of sources differs from that of the records.
    """
    group = np.full(n_records, -1, dtype=np.int32)
    if distinct is None:
        return Groups(group, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32))
    source = np.asarray(distinct, dtype=np.int64)
    if len(source) != n_records:
        raise ValueError(f"{n_records} records, but {len(source)} sources")
    known = np.flatnonzero(source >= 0)
    numbers = number_rows(source[known])
    shared = np.bincount(numbers)[numbers] > 1
    member = known[shared]
    group[member] = number_rows(source[member])
    member = member[np.argsort(group[member], kind="stable")]
    return Groups(group, offsets(np.bincount(group[member])).astype(np.int64), member.astype(np.int32))


@dataclass(frozen=True, eq=False)
class _Problem:
    """The weights of the pairs of records, and the constraint.

    Args:
        first, second: The records of each listed pair, shape (m,), int32.
        weight: Weight of each listed pair in nats, shape (m,).
        unlisted: Weight of an unlisted pair in nats; negative.
    """

    n_records: int
    first: np.ndarray
    second: np.ndarray
    weight: np.ndarray
    unlisted: float
    groups: Groups

    def objective(self, root: np.ndarray) -> float:
        """Return the sum of the weights of all pairs within clusters, in nats.

        Args:
            root: The lowest record of each record's cluster, shape (n,).
        """
        within = root[self.first] == root[self.second]
        sizes = np.bincount(root, minlength=1)
        n_within = int((sizes * (sizes - 1) // 2).sum())
        return float(self.weight[within].sum() + (n_within - int(within.sum())) * self.unlisted)

    def search(self, method: str) -> np.ndarray:
        """Return the lowest record of each record's cluster, shape (n,), int32."""
        if method == "components":
            return self._linked(self.groups)
        component = self._linked(_make_groups(self.n_records, None))
        pairs = self._pair_lists(component)
        average = agglomerate(np.arange(self.n_records, dtype=np.int32), pairs, self.unlisted, self.groups)
        if method == "average":
            return np.asarray(average)
        is_constrained = len(self.groups.member) > 0
        root = average if is_constrained else max(average, component, key=self.objective)
        for _ in range(MAX_ROUNDS):
            moved, n_moves = move_records(root, pairs, self.unlisted, self.groups)
            merged = agglomerate(moved, pairs, self.unlisted, self.groups)
            if n_moves == 0 and (merged == root).all():
                break
            root = merged
        return np.asarray(root)

    def _linked(self, groups: Groups) -> np.ndarray:
        """Return the connected components of the pairs with positive weights."""
        positive = np.flatnonzero(self.weight > 0)
        positive = positive[np.argsort(-self.weight[positive], kind="stable")]
        return np.asarray(link_pairs(self.first[positive], self.second[positive], groups))

    def _pair_lists(self, component: np.ndarray) -> PairLists:
        """Return the pairs within connected components of pairs with positive weights; no cluster contains the others."""
        within = component[self.first] == component[self.second]
        first, second, weight = self.first[within], self.second[within], self.weight[within]
        shape = (self.n_records, self.n_records)
        ends = (np.concatenate((first, second)), np.concatenate((second, first)))
        lists = csr_array((np.concatenate((weight, weight)), ends), shape=shape)
        lists.sort_indices()
        return PairLists(lists.indptr.astype(np.int64), lists.indices.astype(np.int32), lists.data)
