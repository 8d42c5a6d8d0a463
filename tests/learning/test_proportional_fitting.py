"""Tests of iterative proportional fitting against a plain one over the joint table, of its bound and its schedule."""

import numpy as np
import pytest

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Keyed, Ones, Sparse, Tiled
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.inference.auto import Auto
from relcrf.learning import proportional_fitting
from relcrf.learning.likelihood import InferredLikelihood
from relcrf.learning.proportional_fitting import (
    ProportionalFitting,
    WeightTables,
    has_count_features,
    has_disjoint_patterns,
)


def graph_of(cardinality, *groups):
    """Return groups of (scope rows, features, patterns or None), each with separate weights."""
    found, blocks = [], []
    for number, (rows, features, patterns) in enumerate(groups):
        rows = np.asarray(rows, dtype=np.int32)
        cards = tuple(int(cardinality[v]) for v in rows[0])
        width = int(np.prod(cards)) if patterns is None else patterns.shape[1]
        blocks.append(WeightBlock(f"t{number}", features.n_features, width))
        found.append(FactorGroup(tuple(np.ascontiguousarray(c) for c in rows.T), cards, features, patterns, number))
    return FactorGraph(np.asarray(cardinality, dtype=np.int32), tuple(found), WeightLayout(tuple(blocks)))


def keyed(keys):
    return Keyed(np.asarray(keys, dtype=np.int32), np.empty((0, 1)), max(keys) + 1)


def fitted(graph, states, *, together=False, clamped=(), max_iterations=300, smoothing=0.001, tolerance=1e-9):
    """Return the fitting, its last state, and every value that it has evaluated."""
    roles = np.full(graph.n_variables, Role.FREE, dtype=np.int8)
    roles[list(clamped)] = Role.CLAMPED
    reduced = reduce_graph(graph, roles, states)
    likelihood = InferredLikelihood(reduced, states[reduced.variables], Auto)
    counts = likelihood.observed_counts
    start = np.zeros(graph.layout.size)
    # A fraction of the samples comes from the initial model, so that no count is 0.
    target = (1.0 - smoothing) * counts + smoothing * likelihood.expectation(start, None)[1]
    values = []

    def evaluate(weights):
        log_partition, expected = likelihood.expectation(weights, None)
        values.append(log_partition - float(target @ weights))
        return values[-1], expected - target

    tables = WeightTables.build(reduced, simultaneous=together)
    fitting = ProportionalFitting(tables, target, tolerance, max_iterations)
    return fitting, fitting.minimise(evaluate, fitting.start(evaluate, start)), values


def test_matches_plain_fitting_of_the_joint_table():
    """A ring of four variables with one table per clique has equal weights after each iteration."""
    rng, n = np.random.default_rng(0), 50
    cliques = [(0, 1), (1, 2), (2, 3), (0, 3)]
    truth = rng.dirichlet(np.ones(81))
    samples = np.stack(np.unravel_index(rng.choice(81, size=n, p=truth), (3,) * 4), axis=1)
    rows = [(4 * r + a, 4 * r + b) for r in range(n) for a, b in cliques]
    graph = graph_of([3] * (4 * n), (rows, keyed([k for _ in range(n) for k in range(4)]), None))
    for sweeps in (1, 2, 7):
        fitting, state, _ = fitted(graph, samples.ravel(), max_iterations=sweeps)
        joint, target = np.full((3,) * 4, 1 / 81), fitting.target.reshape(4, 3, 3)
        for _ in range(sweeps):
            for (a, b), wanted in zip(cliques, target, strict=True):
                others = tuple({0, 1, 2, 3} - {a, b})
                ratio = wanted / n / joint.sum(axis=others)
                joint = joint * np.expand_dims(ratio, others)
        for (a, b), expected in zip(cliques, (state.gradient + fitting.target).reshape(4, 3, 3), strict=True):
            np.testing.assert_allclose(expected, n * joint.sum(axis=tuple({0, 1, 2, 3} - {a, b})), rtol=1e-9)
    fitting, state, _ = fitted(graph, samples.ravel())
    assert state.status == "converged"
    np.testing.assert_allclose(state.gradient, 0.0, atol=1e-7)


def random_tied(rng):
    """Return components of variables of 2 and 3 states with shared tables, some of formulas."""
    cardinality = np.array([2] * 5 + [3] * 5)
    parts = (np.arange(5), np.arange(5, 10))
    groups = []
    for arity in (1, 1, 2, 2, 3):
        kinds = rng.integers(2, size=arity)
        n = int(rng.integers(2, 7))
        rows = np.column_stack([rng.choice(parts[k], size=n) for k in kinds])
        cards = [(2, 3)[k] for k in kinds]
        n_joint = int(np.prod(cards))
        patterns = None if rng.random() < 0.5 else np.eye(3)[rng.integers(3, size=n_joint)][:, :2]
        kind = rng.integers(3)
        n_keys = int(rng.integers(1, 4))
        features = Ones(n) if kind == 0 else keyed([*rng.integers(n_keys, size=n - 1), n_keys - 1])
        if kind == 2 and arity == 1:
            row_start = np.concatenate(([0], np.cumsum(rng.integers(1, 4, size=n)))).astype(np.int64)
            features = Sparse(row_start, rng.integers(4, size=row_start[-1]).astype(np.int32), np.empty(0), 4)
        groups.append((rows, features, patterns))
    return graph_of(cardinality, *groups), np.array([rng.integers(k) for k in cardinality])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("seed", range(3, 8))
def test_likelihood_never_decreases_and_moments_match(seed, together, monkeypatch):
    rng = np.random.default_rng(seed)
    graph, states = random_tied(rng)
    clamped = np.flatnonzero(rng.random(len(states)) < 0.2)
    settings = {"together": together, "clamped": clamped, "smoothing": 0.4}
    with monkeypatch.context() as patch:
        patch.setattr(proportional_fitting, "STEP_GROWTH", 1.0)  # only the conservative step
        _, state, values = fitted(graph, states, **settings, max_iterations=25)
        assert (np.diff(values) <= 1e-10).all()
    _, grown, tried = fitted(graph, states, **settings, max_iterations=4000, tolerance=1e-6)
    assert grown.value <= state.value + 1e-10 and len(tried) == grown.evaluations
    assert np.abs(grown.gradient).max() < 1e-5


def test_three_factors_per_component_divide_the_step_by_three():
    """Each variable has three equal factors, so that the full step would be three times too long."""
    graph = graph_of([2] * 20, ([[v] for v in range(20) for _ in range(3)], Ones(60), None))
    states = np.array([0] * 15 + [1] * 5)
    fitting, state, _ = fitted(graph, states, max_iterations=1)
    assert fitting.tables.rounds[0][1].tolist() == [3.0]
    np.testing.assert_allclose(state.point, np.log(fitting.target / 30.0) / 3.0)
    # For independent variables that reaches the maximum in one iteration.
    np.testing.assert_allclose(state.gradient, 0.0, atol=1e-10)


def test_tables_of_separate_components_change_together():
    pairs = [(0, 1), (2, 3), (4, 5)]
    graph = graph_of([2] * 6, (pairs, keyed([0, 1, 0]), None), ([[0], [2], [4]], keyed([0, 1, 2]), None))
    roles, states = np.full(6, Role.FREE, dtype=np.int8), np.zeros(6, dtype=np.int32)
    reduced = reduce_graph(graph, roles, states)
    tables = WeightTables.build(reduced, simultaneous=False)
    assert [found.tolist() for found, _ in tables.rounds] == [[0, 1], [2, 3, 4]]
    assert tables.n_factors.tolist() == [2, 1, 1, 1, 1]
    ((every, most),) = WeightTables.build(reduced, simultaneous=True).rounds
    assert every.tolist() == [0, 1, 2, 3, 4] and most.tolist() == [2.0] * 5


def test_table_predicates():
    def group(features, patterns):
        return graph_of([2, 2], ([[0, 1]], features, patterns)).groups[0]

    disjoint = np.array([[1.0, 0], [0, 1], [0, 0], [0, 1]])
    assert has_disjoint_patterns(group(Ones(1), None)) and has_disjoint_patterns(group(Ones(1), disjoint))
    assert not has_disjoint_patterns(group(Ones(1), np.array([[1.0, 1], [0, 1], [0, 0], [0, 1]])))
    assert not has_disjoint_patterns(group(Ones(1), -disjoint))
    assert has_count_features(group(Dense(np.array([[0.0, 2.0]])), None))
    assert not has_count_features(group(Dense(np.array([[0.5]])), None))
    assert not has_count_features(group(Dense(np.array([[-1.0]])), None))


@pytest.mark.parametrize(
    "features",
    [
        Ones(4),
        Dense(np.arange(8.0).reshape(4, 2)),
        keyed([1, 0, 2, 1]),
        Keyed(np.array([1, 0, 2, 1], dtype=np.int32), np.arange(8.0).reshape(4, 2), 3),
        Sparse(np.array([0, 2, 2, 3, 6]), np.array([1, 0, 4, 2, 2, 3], dtype=np.int32), np.empty(0), 5),
        Sparse(np.array([0, 2, 2, 3, 6]), np.array([1, 0, 4, 2, 2, 3], dtype=np.int32), np.arange(6.0), 5),
    ],
    ids=lambda features: type(features).__name__,
)
@pytest.mark.parametrize("times", [1, 3])
def test_entries_are_those_of_the_rows(features, times):
    features = Tiled(features, times) if times > 1 else features
    rows = np.array([3, 0, 2, 4 * times - 1])
    found = features.entries(rows)
    dense, wanted = (np.zeros((len(rows), features.n_features)) for _ in range(2))
    np.add.at(dense, (found.row, found.feature), found.value)
    for place, row in enumerate(rows):
        for feature, value in features.row(int(row)):
            wanted[place, feature] += value
    np.testing.assert_array_equal(dense, wanted)
