"""Tests of clusterings of scored pairs against plain implementations and enumeration on small sets of records."""

from itertools import combinations

import numpy as np
import pytest

from relcrf.clustering import METHODS, cluster_records, cost_threshold, parse_costs
from relcrf.errors import UsageError

UNLISTED = 0.05


def random_pairs(seed, n=12, m=30):
    """Return distinct pairs with probabilities that have no ties; two thirds of the pairs match a planted partition."""
    rng = np.random.default_rng(seed)
    every = np.array(list(combinations(range(n), 2)))
    pairs = every[rng.choice(len(every), m, replace=False)]
    planted = rng.integers(0, 4, n)
    same = planted[pairs[:, 0]] == planted[pairs[:, 1]]
    return pairs[:, 0], pairs[:, 1], 1 / (1 + np.exp(-rng.normal(np.where(same, 1.5, -1.5), 1.5)))


def weight_matrix(n, first, second, probability, threshold=0.5):
    """Return the weight of each pair of records, shape (n, n)."""
    shift = np.log(threshold / (1 - threshold))
    weights = np.full((n, n), min(np.log(UNLISTED / (1 - UNLISTED)) - shift, -1.0))
    weights[first, second] = weights[second, first] = np.log(probability / (1 - probability)) - shift
    np.fill_diagonal(weights, 0.0)
    return weights


def objective(weights, cluster):
    return weights[cluster[:, None] == cluster].sum() / 2


def is_allowed(cluster, source):
    return all(
        source[i] < 0 or source[i] != source[j]
        for i, j in combinations(range(len(cluster)), 2)
        if cluster[i] == cluster[j]
    )


def numbered(parts, n):
    cluster = np.empty(n, dtype=int)
    for number, part in enumerate(sorted(map(sorted, parts))):
        cluster[part] = number
    return cluster


def plain_average(weights, source):
    """Join the two allowed clusters with the highest mean weight until no mean is positive."""
    parts = [[i] for i in range(len(weights))]
    while True:
        means = [
            (weights[np.ix_(a, b)].mean(), k, j)
            for (k, a), (j, b) in combinations(enumerate(parts), 2)
            if not any(source[first] == source[second] >= 0 for first in a for second in b)
        ]
        best = max(means, default=(0.0, 0, 0))
        if best[0] <= 0:
            return numbered(parts, len(weights))
        parts = [p for k, p in enumerate(parts) if k not in best[1:]] + [parts[best[1]] + parts[best[2]]]


def plain_components(n, first, second, probability, threshold, source):
    parts = {i: [i] for i in range(n)}
    for k in np.argsort(-probability):
        a, b = parts[first[k]], parts[second[k]]
        if probability[k] > threshold and a is not b and not any(source[i] == source[j] >= 0 for i in a for j in b):
            for i in b:
                parts[i] = a
            a += b
    return numbered({id(p): p for p in parts.values()}.values(), n)


def partitions(n):
    """Yield all partitions of n records as arrays of cluster numbers."""

    def extend(prefix):
        if len(prefix) == n:
            yield np.array(prefix)
        else:
            for c in range(max(prefix, default=-1) + 2):
                yield from extend([*prefix, c])

    return extend([])


SOURCES = {"free": np.full(12, -1), "two": np.arange(12) % 2, "pairs": np.array([0, 0, 1, 1, 2, 2, -1, -1, 3, 3, 4, 4])}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("threshold", [0.5, 0.2])
def test_clusters_equal_those_of_plain_implementations(source, threshold):
    for seed in range(25):
        pairs = random_pairs(seed)
        options = {"threshold": threshold, "unlisted": UNLISTED, "distinct": source}
        weights = weight_matrix(12, *pairs, threshold)
        average = cluster_records(12, *pairs, method="average", **options)
        assert average.cluster.tolist() == plain_average(weights, source).tolist()
        components = cluster_records(12, *pairs, method="components", **options)
        assert components.cluster.tolist() == plain_components(12, *pairs, threshold, source).tolist()
        for found in (average, components):
            assert found.objective == pytest.approx(objective(weights, found.cluster))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_no_move_and_no_merge_raises_the_objective_of_correlation(source):
    for seed in range(25):
        pairs = random_pairs(seed)
        weights = weight_matrix(12, *pairs)
        found = cluster_records(12, *pairs, method="correlation", unlisted=UNLISTED, distinct=source)
        others = [cluster_records(12, *pairs, method="average", unlisted=UNLISTED, distinct=source)]
        if source[0] < 0:
            others.append(cluster_records(12, *pairs, method="components", unlisted=UNLISTED))
        assert is_allowed(found.cluster, source)
        assert found.objective >= max(one.objective for one in others) - 1e-9
        assert found.objective == pytest.approx(objective(weights, found.cluster))
        n_clusters = len(found.sizes)
        for record in range(12):
            for target in range(n_clusters + 1):
                moved = found.cluster.copy()
                moved[record] = target
                assert not is_allowed(moved, source) or objective(weights, moved) <= found.objective + 1e-6
        for a, b in combinations(range(n_clusters), 2):
            merged = np.where(found.cluster == b, a, found.cluster)
            assert not is_allowed(merged, source) or objective(weights, merged) <= found.objective + 1e-6


def test_correlation_is_close_to_the_optimum():
    """Of 20 random problems, at least 17 are solved exactly, which enumeration of the 4,140 partitions shows."""
    every, solved = list(partitions(8)), 0
    for seed in range(20):
        pairs = random_pairs(seed, 8, 20)
        weights = weight_matrix(8, *pairs)
        best = max(objective(weights, cluster) for cluster in every)
        found = cluster_records(8, *pairs, method="correlation", unlisted=UNLISTED).objective
        assert found <= best + 1e-9
        solved += found > best - 1e-6
    assert solved >= 17


@pytest.mark.parametrize("method", METHODS)
def test_order_and_direction_of_pairs_do_not_matter(method):
    rng = np.random.default_rng(0)
    n = 2000
    first, second, probability = rng.integers(n, size=6000), rng.integers(n, size=6000), rng.random(6000)
    source = rng.integers(40, size=n)
    found = cluster_records(n, first, second, probability, method=method, distinct=source)
    shuffled = rng.permutation(6000)
    other = cluster_records(n, second[shuffled], first[shuffled], probability[shuffled], method=method, distinct=source)
    assert (found.cluster == other.cluster).all()
    cells = found.cluster * 40 + source
    assert len(np.unique(cells)) == n
    numbers, starts = np.unique(found.cluster, return_index=True)
    assert (numbers == np.arange(len(numbers))).all() and (np.diff(starts) > 0).all()


def test_repeated_pairs_are_averaged_and_loops_ignored():
    found = cluster_records(3, [0, 1, 2, 1], [1, 0, 2, 2], [0.9, 0.05, 1.0, 0.6], method="components")
    assert found.cluster.tolist() == [0, 1, 1]
    assert found.n_pairs == 2


@pytest.mark.parametrize("method", METHODS)
def test_empty_inputs(method):
    none = np.empty(0)
    assert cluster_records(0, none, none, none, method=method).cluster.tolist() == []
    assert cluster_records(2, none, none, none, method=method, distinct=np.zeros(2)).cluster.tolist() == [0, 1]


def test_certain_pairs_have_finite_weights():
    found = cluster_records(3, [0, 1, 0], [1, 2, 2], [1.0, 1.0, 0.0], method="correlation")
    assert np.isfinite(found.objective) and found.cluster.tolist() in ([0, 0, 1], [0, 1, 1])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("threshold", [1e-12, 1e-7, 1e-5, 1 - 1e-5, 1 - 1e-7, 1 - 1e-12])
def test_certain_pairs_are_on_their_side_of_any_threshold(threshold, method):
    """With fn=1 and fp=10000000, the threshold is 1 - 1e-7; labelled matches still share a cluster."""
    found = cluster_records(4, [0, 2], [1, 3], [1.0, 0.0], threshold=threshold, method=method)
    assert found.cluster.tolist() == [0, 0, 1, 2] and np.isfinite(found.objective)


def test_pairs_at_the_threshold_are_not_above_it():
    for threshold in (np.arange(1, 100) / 100).tolist():
        found = cluster_records(6, [0, 2, 4], [1, 3, 5], [threshold, threshold + 1e-12, threshold], threshold=threshold)
        assert found.cluster.tolist() == [0, 1, 2, 2, 3, 4]


def test_a_missing_pair_speaks_against_a_cluster():
    """A star whose leaves are not compared has clusters of two with 'average', however low the threshold is."""
    leaves = np.arange(1, 50)
    star = (50, np.zeros(49, dtype=int), leaves, np.full(49, 0.6))
    assert cluster_records(*star, method="components").sizes.max() == 50
    for method in ("average", "correlation"):
        assert cluster_records(*star, method=method).sizes.max() == 2
        assert cluster_records(*star, method=method, threshold=1e-5).sizes.max() < 30


def test_costs_determine_the_threshold():
    assert parse_costs("fn=10, fp=1") == pytest.approx(1 / 11)
    assert parse_costs("fp=3,fn=1") == cost_threshold(1, 3) == 0.75
    p = np.array([0.3])
    assert len(cluster_records(2, [0], [1], p, threshold=parse_costs("fn=10,fp=1")).sizes) == 1
    assert len(cluster_records(2, [0], [1], p).sizes) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10,1",
        "fn=10",
        "fn=1,fp=0",
        "fn=-1,fp=1",
        "fn=a,fp=1",
        "fn=1,fp=inf",
        "fn=1,fp=nan",
        "fn=1,fn=2",
        "fn=1,fp=1,fp=2",
    ],
)
def test_malformed_costs_are_rejected(text):
    with pytest.raises(UsageError) as caught:
        parse_costs(text)
    assert caught.value.diagnostics[0].code == "E443"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"threshold": 0.0}, "E444"),
        ({"threshold": 1.5}, "E444"),
        ({"threshold": float("nan")}, "E444"),
        ({"unlisted": 0.0}, "E444"),
        ({"method": "averag"}, "E445"),
    ],
)
def test_invalid_options_are_rejected(options, code):
    with pytest.raises(UsageError) as caught:
        cluster_records(2, [0], [1], [0.9], **options)
    assert caught.value.diagnostics[0].code == code


@pytest.mark.parametrize(
    "pairs", [([0], [2], [0.5]), ([-1], [1], [0.5]), ([0], [1], [1.5]), ([0], [1], [np.nan]), ([0, 1], [1], [0.5])]
)
def test_invalid_arrays_are_rejected(pairs):
    with pytest.raises(ValueError):
        cluster_records(2, *pairs)
