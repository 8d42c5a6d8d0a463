"""Tests of the pseudo-likelihood with candidate edges, in both layouts, against a graph with the edges as factors."""

from dataclasses import replace

import numpy as np
import pytest

from relcrf.backends.base import Problem
from relcrf.backends.pseudo import PseudoLikelihoodSpec
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, PairSpace, TableSpace
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Keyed, Ones
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.learning.column_conditionals import ColumnConditionals
from relcrf.learning.edge_conditionals import CellConditionals
from relcrf.learning.edge_counts import EdgeCounts
from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.learning.literal_likelihood import LiteralLikelihood

N_SAMPLES, N_KEYS = 37, 6


def grid(rng, n_keys, k, first=0, share=1.0, n_samples=N_SAMPLES):
    """Return a side with a separate variable of k states in each cell, for a fraction of the cells."""
    there = rng.random((n_keys, n_samples)) < share
    key, sample = np.nonzero(there)
    # Variables are numbered by sample and not by key, as relations are.
    order = np.lexsort((key, sample))
    variable = np.empty(len(key), dtype=int)
    variable[order] = first + np.arange(len(key))
    return CandidateSide.from_cells(n_keys, key, sample, variable, np.ones(k))


def table_space(name, first, second, relation, n_samples=N_SAMPLES):
    k = len(first.truth) * len(second.truth)
    return TableSpace(name, first, second, relation, n_samples, table=np.eye(k))


def complete(rng):
    side = grid(rng, N_KEYS, 3)
    return [3] * len(side.variable), [table_space("edge", side, side, KeyRelation.ASCENDING)], False


def missing(rng):
    side = grid(rng, N_KEYS, 3, share=0.7)
    return [3] * len(side.variable), [table_space("edge", side, side, KeyRelation.ASCENDING)], False


def evidence(rng):
    cardinality, spaces, _ = missing(rng)
    return cardinality + [2] * 50, spaces, True


def two_kinds(rng):
    """Return columns of 2 and of 4 states, with edges within the first and between both, and few patterns."""
    a = grid(rng, 4, 2)
    b = grid(rng, 3, 4, first=len(a.variable), share=0.8)
    within = table_space("within", a, a, KeyRelation.DISTINCT)
    table = rng.normal(size=(8, 3))
    between = TableSpace("between", a, b, KeyRelation.ANY, N_SAMPLES, table=table)
    return [2] * len(a.variable) + [4] * len(b.variable), [within, between], False


def literals(rng):
    side = replace(grid(rng, N_KEYS, 3), truth=np.array([0.0, 1.0, 1.0]))
    other = replace(side, truth=np.array([0.0, 0.0, 1.0]))
    return [3] * len(side.variable), [PairSpace("both", side, other, KeyRelation.ASCENDING, N_SAMPLES)], False


def in_many_cells(rng):
    """Return variables in several samples and under several keys, like those of a graph of pages."""
    cells = rng.permutation(N_KEYS * N_SAMPLES)[:150]
    key, sample = np.divmod(cells, N_SAMPLES)
    variable = (key + sample) % N_KEYS * 10 + rng.integers(0, 10, len(cells))
    side = CandidateSide.from_cells(N_KEYS, key, sample, variable, np.ones(3))
    return [3] * 10 * N_KEYS, [table_space("edge", side, side, KeyRelation.ASCENDING)], False


def of_many_samples(rng):
    """Return more samples than a kernel processes at a time, and more states than the length of a vector."""
    side = grid(rng, N_KEYS, 11, share=0.9, n_samples=1100)
    return [11] * len(side.variable), [table_space("edge", side, side, KeyRelation.ASCENDING, 1100)], False


class World:
    def __init__(self, make, seed=0):
        rng = np.random.default_rng(seed)
        cardinality, spaces, with_evidence = make(rng)
        cardinality = np.array(cardinality, dtype=np.int32)
        n = len(cardinality)
        self.states = rng.integers(0, cardinality).astype(np.int32)
        key = np.zeros(n, dtype=np.int32)  # a bias for each key, like `per` in a template
        for space in spaces:
            for side in space.sides:
                key[side.variable] = side.key
        groups, blocks = [], []
        for k in np.unique(cardinality):
            of_k = np.flatnonzero(cardinality == k).astype(np.int32)
            features = Keyed(key[of_k], np.empty((0, 1)), N_KEYS)
            if with_evidence:
                features = Dense(rng.normal(size=(len(of_k), 2)))
            groups.append(FactorGroup((of_k,), (int(k),), features, None, len(blocks)))
            blocks.append(WeightBlock(f"bias{k}", features.n_features, int(k)))
        if with_evidence:
            scope = tuple(rng.integers(0, n - 50, (2, 60)).astype(np.int32))
            groups.append(FactorGroup(scope, (3, 3), Ones(60), None, len(blocks)))
            blocks.append(WeightBlock("pairs", 1, 9))
        graph = FactorGraph(cardinality, tuple(groups), WeightLayout(tuple(blocks)))
        roles = np.full(n, Role.FREE, dtype=np.int8)
        self.problem = Problem(graph, roles, self.states, candidates=tuple(spaces))
        self.base = blanket_graph(graph, roles, self.states)
        self.empty = EdgeLikelihood.build(self.base, self.states, tuple(spaces))
        everything = CandidateSet.from_spaces(spaces)
        order = rng.permutation(len(everything))
        self.chosen, self.rest = (everything.select(part) for part in np.split(order, [len(everything) // 2]))
        self.model = self.empty.with_candidates(self.chosen)
        self.point = rng.normal(scale=0.5, size=self.model.n_base + self.n_weights(self.chosen))
        self.trained = rng.random(n) < 0.6

    def n_weights(self, chosen):
        return sum(self.problem.candidates[s].patterns.shape[1] for s in chosen.space)

    def expanded(self):
        """Return the pseudo-likelihood of the graph with chosen edges as factors, and the positions of the weights."""
        model, pairs, order = self.model, {}, [np.arange(self.model.n_base)]
        starts = model.n_base + np.concatenate(
            ([0], np.cumsum([self.n_weights(self.chosen.select([i])) for i in range(len(self.chosen))]))
        )
        for number, space in enumerate(self.problem.candidates):
            places = self.chosen.indices_in_space(number)
            pairs[space.name] = self.chosen.pairs(places)
            order += [starts[place] + np.arange(space.patterns.shape[1]) for place in places]
        return self.problem.with_candidates(pairs).total_likelihood(PseudoLikelihoodSpec()), np.concatenate(order)


@pytest.fixture(
    scope="module", params=[complete, missing, evidence, two_kinds, literals, in_many_cells], ids=lambda f: f.__name__
)
def world(request):
    return World(request.param)


@pytest.mark.parametrize(
    ("make", "layout", "shared"),
    [
        (complete, ColumnConditionals, True),
        (missing, ColumnConditionals, True),
        (two_kinds, ColumnConditionals, True),
        (evidence, ColumnConditionals, False),
        (in_many_cells, CellConditionals, False),
    ],
)
def test_layout_follows_the_data(make, layout, shared):
    world = World(make)
    found = world.model.conditionals
    assert type(found) is layout
    assert (getattr(found, "shared", None) is not None) == shared


@pytest.mark.parametrize("make", [missing, evidence, two_kinds, of_many_samples], ids=lambda f: f.__name__)
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_both_layouts_give_the_same(make, scale):
    world = World(make)
    trained = np.random.default_rng(3).random(len(world.states)) < 0.6
    trained[world.problem.candidates[0].first.variable[world.problem.candidates[0].first.sample < 9]] = False
    fast = world.model.trained_on(trained)
    cells = CellConditionals(fast.base, fast.states, fast.trained)
    slow = replace(fast, conditionals=cells)
    assert type(fast.conditionals) is ColumnConditionals
    assert type(slow.conditionals) is CellConditionals
    value, gradient = fast(scale * world.point)
    wanted, wanted_gradient = slow(scale * world.point)
    assert value == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-9)
    pairs = world.rest.pairs(world.rest.indices_in_space(0))
    found = fast.edge_gradients(scale * world.point, 0, pairs)
    np.testing.assert_allclose(found, slow.edge_gradients(scale * world.point, 0, pairs), atol=1e-9)


@pytest.mark.parametrize("make", [complete, in_many_cells], ids=lambda f: f.__name__)
def test_nan_weights_give_nan(make):
    world = World(make)
    world.point[-1] = np.inf
    value, gradient = world.model(world.point)
    assert np.isnan(value) and np.isnan(gradient).all()


def test_value_and_gradient_are_those_of_the_graph_with_its_edges(world):
    objective, order = world.expanded()
    value, gradient = objective(world.point[order])
    found, found_gradient = world.model(world.point)
    assert found == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found_gradient[order], gradient, atol=1e-9)


@pytest.mark.parametrize("k", [300, 40_000])
def test_a_variable_outside_the_spaces_may_have_many_states(k):
    side = CandidateSide.from_cells(2, np.arange(2), np.zeros(2, dtype=int), np.array([1, 2]), np.ones(2))
    groups = tuple(
        FactorGroup((np.array(nodes, dtype=np.int32),), (size,), Ones(len(nodes)), None, number)
        for number, (nodes, size) in enumerate([([0], k), ([1, 2], 2)])
    )
    layout = WeightLayout((WeightBlock("many", 1, k), WeightBlock("few", 1, 2)))
    graph = FactorGraph(np.array([k, 2, 2], dtype=np.int32), groups, layout)
    roles, states = np.full(3, Role.FREE, dtype=np.int8), np.array([k - 1, 0, 1], dtype=np.int32)
    space = table_space("edge", side, side, KeyRelation.ASCENDING, 1)
    model = EdgeLikelihood.build(blanket_graph(graph, roles, states), states, (space,))
    point = np.random.default_rng(0).normal(size=layout.size)
    value, gradient = model(point)
    expected, expected_gradient = Problem(graph, roles, states).total_likelihood(PseudoLikelihoodSpec())(point)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-12)


@pytest.mark.parametrize("part", [False, True])
def test_the_gradient_is_that_of_finite_differences(world, part):
    model = world.model.trained_on(world.trained) if part else world.model
    _, gradient = model(world.point)
    for at in np.random.default_rng(5).permutation(len(world.point))[:12]:
        step = np.zeros(len(world.point))
        step[at] = 1e-5
        slope = (model(world.point + step)[0] - model(world.point - step)[0]) / 2e-5
        assert gradient[at] == pytest.approx(slope, abs=1e-5)


def test_held_out_labels_act_as_neighbours_only(world):
    part = world.model.trained_on(world.trained)
    value, gradient = part(world.point)
    rest, rest_gradient = part.held_out()(world.point)
    whole, whole_gradient = world.model(world.point)
    assert value + rest == pytest.approx(whole, rel=1e-12)
    np.testing.assert_allclose(gradient + rest_gradient, whole_gradient, atol=1e-9)
    assert world.model.held_out() is None


@pytest.mark.parametrize("part", [False, True])
def test_gradients_of_inactive_edges_are_those_at_0(world, part):
    model = world.model.trained_on(world.trained) if part else world.model
    longer = np.concatenate((world.point, np.zeros(world.n_weights(world.rest))))
    _, gradient = model.with_candidates(world.chosen.concat(world.rest))(longer)
    end = len(world.point)
    for number in range(len(world.problem.candidates)):
        places = world.rest.indices_in_space(number)
        found = model.edge_gradients(world.point, number, world.rest.pairs(places))
        start = end + np.array([world.n_weights(world.rest.select(slice(place))) for place in places])
        wanted = gradient[start[:, None] + np.arange(found.shape[1])]
        np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize("part", [False, True])
def test_counts_equal_counts_of_shared_samples(world, part):
    model = world.model.trained_on(world.trained) if part else world.model
    for number, space in enumerate(world.problem.candidates):
        pairs = space.all_pairs()
        found = model.edge_counts(number, pairs)
        first, second, place = space.matching_cells(pairs)
        a, b = space.first.variable[first], space.second.variable[second]
        counted = model.trained[a] & model.trained[b]
        wanted = np.zeros_like(found)
        np.add.at(wanted, (place, world.states[a] * len(space.second.truth) + world.states[b]), counted)
        np.testing.assert_array_equal(found, wanted)
        assert len(model.edge_counts(number, pairs[:0])) == 0


def test_few_cells_are_not_packed():
    """500 keys have one cell each in 10,000 samples."""
    rng = np.random.default_rng(4)
    n, n_samples = 500, 10_000
    side = CandidateSide.from_cells(n, np.arange(n), rng.integers(0, 3, n), np.arange(n), np.ones(2))
    space = table_space("edge", side, side, KeyRelation.ASCENDING, n_samples)
    states = rng.integers(0, 2, n)
    counts = EdgeCounts(space, states, np.ones(n, dtype=bool))
    assert counts.packed is None
    pairs = space.all_pairs()
    meet = side.sample[pairs[:, 0]] == side.sample[pairs[:, 1]]
    wanted = np.zeros((len(pairs), 2, 2))
    wanted[np.arange(len(pairs)), states[pairs[:, 0]], states[pairs[:, 1]]] = meet
    np.testing.assert_array_equal(counts(pairs), wanted)


def test_without_edges_it_is_the_base(world):
    value, gradient = world.empty(world.point[: world.model.n_base])
    objective = Problem(world.problem.graph, world.problem.roles, world.states).total_likelihood(PseudoLikelihoodSpec())
    wanted, wanted_gradient = objective(world.point[: world.model.n_base])
    assert value == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-9)


def test_literals_match_literal_likelihood():
    world = World(literals)
    induced = LiteralLikelihood.build(world.base, world.states, world.problem.candidates).with_candidates(world.chosen)
    value, gradient = induced(world.point)
    found, found_gradient = world.model(world.point)
    assert found == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found_gradient, gradient, atol=1e-9)


@pytest.mark.parametrize("make", [complete, missing, two_kinds, literals], ids=lambda f: f.__name__)
def test_curvature_bounds_the_hessian(make):
    world = World(make)
    point = np.zeros_like(world.point)  # equally likely states, as `curvature` assumes for the base
    bound = world.model.curvature()
    for at in range(0, len(point), 3):
        step = np.zeros(len(point))
        step[at] = 1e-4
        hessian = (world.model(point + step)[1][at] - world.model(point - step)[1][at]) / 2e-4
        assert hessian - 1e-6 <= bound[at] <= 8 * hessian
