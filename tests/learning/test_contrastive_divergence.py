"""Tests of mean-field contrastive divergence against plain loops over the factors, and in known special cases."""

from dataclasses import replace

import numpy as np
import pytest
from graphs import dense_features, random_graph
from induction import induced
from traits import TEXT, traits_world
from triples import TEXT as TRIPLES
from triples import every_candidate, proposed

import relcrf
from relcrf import api
from relcrf.backends.base import Problem
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, PairSpace
from relcrf.graph.reduction import Role
from relcrf.graph.scopes import Potentials
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.mean_field import MeanField
from relcrf.kernels import conditionals
from relcrf.learning.contrastive_divergence import (
    ContrastiveDivergence,
    MeanFieldUpdater,
    blocks_by_entity,
    blocks_by_key,
)
from relcrf.learning.literal_likelihood import LiteralLikelihood


class World:
    """A model with chosen candidates, random weights of both, and the same model as a list of expanded factors.

    Args:
        hidden: Fraction of the labels to remove.
        text: Text of the model, for odd seeds.
        share: Fraction of the candidates to choose.
    """

    def __init__(self, seed, hidden, text=TEXT, share=0.5):
        rng = np.random.default_rng(seed)
        if seed % 2:
            grounding = relcrf.parse(text).ground(relcrf.Dataset(traits_world(seed, nations=4)))
            self.problem = api.training_problem(grounding, with_candidates=True)
        else:
            graph = random_graph(rng, n_variables=6, max_arity=2)
            roles = np.full(6, Role.FREE, dtype=np.int8)
            self.problem = Problem(graph, roles, np.array([rng.integers(k) for k in graph.cardinality]))
        states = self.problem.states.copy()
        free = np.flatnonzero(self.problem.roles == Role.FREE)
        states[free[rng.random(len(free)) < hidden]] = -1
        self.problem = replace(self.problem, states=states)
        self.spaces = tuple(
            space.restrict_to_variables(self.problem.roles == Role.FREE) for space in self.problem.candidates
        )
        self.base = self.problem.reduced_graph("a test")
        self.states = states[self.base.variables]
        everything = every_candidate(self.spaces)
        self.chosen = everything.select(np.sort(rng.permutation(len(everything))[: int(len(everything) * share)]))
        n_base = self.base.graph.layout.size
        self.point = rng.normal(scale=0.4, size=n_base + len(self.chosen))

    def model(self, **settings):
        return ContrastiveDivergence.build(self.base, self.states, self.spaces, **settings).with_candidates(self.chosen)

    def factors(self):
        """Yield each factor of the expanded graph: its nodes, its table, and its counts by weight and cell."""
        node_of = {v: n for n, v in enumerate(self.base.variables.tolist())}
        n_base = self.base.graph.layout.size
        layout = self.base.graph.layout
        for group in self.base.graph.groups:
            x = dense_features(group.features)
            patterns = np.eye(group.n_joint_states) if group.patterns is None else group.patterns
            for n in range(group.n_factors):
                variables = [int(scope[n]) for scope in group.scope]
                if any(self.problem.roles[v] == Role.ABSENT for v in variables):
                    continue
                counts = {}
                for cell in np.ndindex(*group.cardinalities):
                    joint = np.ravel_multi_index(cell, group.cardinalities)
                    row = np.zeros(len(self.point))
                    layout.matrix(row[:n_base], group.block)[:] = np.outer(x[n], patterns[joint])
                    counts[cell] = row
                yield [node_of[v] for v in variables], counts
        for at, (number, *key) in enumerate(self.chosen.rows.T.tolist()):
            space = self.spaces[number]
            group = space.build_factor_group(np.array([key]), np.zeros(1, dtype=int), 1, 0)
            for variables in zip(*group.scope, strict=True):
                counts = {}
                for cell in np.ndindex(*group.cardinalities):
                    row = np.zeros(len(self.point))
                    row[n_base + at] = all(side.truth[c] for side, c in zip(space.sides, cell, strict=True))
                    counts[cell] = row
                yield [node_of[int(v)] for v in variables], counts


class Loops:
    """A plain implementation of mean field: a dictionary of factors, and one variable after another."""

    def __init__(self, world):
        self.world, self.listed = world, list(world.factors())
        self.cardinality = world.base.cardinality

    def start(self):
        return [
            np.eye(k)[state] if state >= 0 else np.full(k, 1.0 / k)
            for k, state in zip(self.cardinality, self.world.states, strict=True)
        ]

    def updated(self, q, node):
        score = np.zeros(self.cardinality[node])
        for nodes, counts in self.listed:
            if node in nodes:
                for cell, row in counts.items():
                    at = dict(zip(nodes, cell, strict=True))
                    if any(at[n] != c for n, c in zip(nodes, cell, strict=True)):
                        continue  # the same variable twice in the scope
                    others = np.prod([q[n][at[n]] for n in set(nodes) - {node}])
                    score[at[node]] += others * (row @ self.world.point)
        return np.exp(score - score.max()) / np.exp(score - score.max()).sum()

    def sweep(self, q, moving, blocks):
        for block in np.unique(blocks):
            new = {n: self.updated(q, n) for n in np.flatnonzero(blocks == block) if moving[n]}
            q = [new.get(n, each) for n, each in enumerate(q)]
        return q

    def counts(self, q):
        """Return the expected counts of each weight under the product of q."""
        out = np.zeros(len(self.world.point))
        for nodes, counts in self.listed:
            for cell, row in counts.items():
                at = dict(zip(nodes, cell, strict=True))
                if all(at[n] == c for n, c in zip(nodes, cell, strict=True)):
                    out += np.prod([q[n][at[n]] for n in set(nodes)]) * row
        return out

    def free_energy(self, q):
        entropy = -sum(float((p[p > 0] * np.log(p[p > 0])).sum()) for p in q)
        return -entropy - float(self.counts(q) @ self.world.point)


@pytest.fixture(
    scope="module",
    params=[(0, 0.0), (2, 0.4), (4, 0.4), (1, 0.0), (3, 0.3), (5, 0.3, TRIPLES, 0.15)],
    ids=lambda p: str(p[:2]),
)
def world(request):
    return World(*request.param)


@pytest.mark.parametrize("way", ["parallel", "blocks"])
@pytest.mark.parametrize("steps", [1, 3])
def test_updates_value_and_gradient_are_those_of_plain_loops(world, way, steps):
    loops, n = Loops(world), world.base.n_nodes
    rng = np.random.default_rng(7)
    numbers = rng.integers(3, size=n) if way == "blocks" else np.zeros(n, dtype=int)
    model = world.model(steps=steps, blocks=numbers if way == "blocks" else None)
    model = replace(model, trained=rng.random(n) < 0.8)
    value, before, after = model.contrast(world.point)
    hidden = world.states < 0
    q0 = loops.start()
    if hidden.any():
        q0 = np.split(before, world.base.state_start[1:-1])
        settled = loops.sweep(q0, hidden, numbers)
        np.testing.assert_allclose(np.concatenate(settled), before, atol=1e-5)
    np.testing.assert_allclose(before, np.concatenate(q0), atol=1e-12)
    q = q0
    for _ in range(steps):
        q = loops.sweep(q, hidden | model.trained, numbers)
    np.testing.assert_allclose(after, np.concatenate(q), atol=1e-9)
    assert value == pytest.approx(loops.free_energy(q0) - loops.free_energy(q), abs=1e-9)
    found, gradient = model(world.point)
    assert found == value
    np.testing.assert_allclose(gradient, loops.counts(q) - loops.counts(q0), atol=1e-9)


def test_the_value_is_the_difference_of_two_divergences():
    world = World(2, 0.4)
    model = world.model(steps=2)
    value, *ends = model.contrast(world.point)
    scopes, potentials = world.base.scopes, world.base.potentials(world.point)
    log_partition = Enumeration(scopes).marginals(potentials).log_partition
    divergences = []
    for q in ends:
        tables = np.split(q, world.base.state_start[1:-1])
        total = 0.0
        for states in np.ndindex(*world.base.cardinality):
            mass = np.prod([table[s] for table, s in zip(tables, states, strict=True)])
            if mass > 0.0:
                total += mass * (np.log(mass) - scopes.score(potentials, np.array(states)) + log_partition)
        divergences.append(total)
    assert value == pytest.approx(divergences[0] - divergences[1], abs=1e-9)
    assert min(divergences) >= 0.0


@pytest.mark.parametrize("seed", [1, 3])
def test_one_parallel_step_with_all_labels_is_each_variable_given_the_others(seed):
    world = World(seed, 0.0)
    blankets = blanket_graph(world.problem.graph, world.problem.roles, world.problem.states)
    likelihood = LiteralLikelihood.build(blankets, world.states, world.spaces).with_candidates(world.chosen)
    model = world.model()
    np.testing.assert_allclose(
        model.errors_and_signals(world.point)[0], likelihood.errors_and_signals(world.point)[0], atol=1e-10
    )
    # With one variable at a time no labels interact, so value and gradient equal those of the likelihood.
    value, gradient, wanted, wanted_gradient = 0.0, 0.0, *likelihood(world.point)
    for node in range(world.base.n_nodes):
        one = replace(model, trained=np.arange(world.base.n_nodes) == node)(world.point)
        value, gradient = value + one[0], gradient + one[1]
    assert value == pytest.approx(wanted, rel=1e-9)
    np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-8)


def test_many_steps_end_at_the_fixed_point_of_mean_field():
    rng = np.random.default_rng(3)
    graph = random_graph(rng, n_variables=8, forest=True, max_arity=2)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    base = Problem(graph, np.full(8, Role.FREE, dtype=np.int8), states).reduced_graph("a test")
    point = rng.normal(scale=0.3, size=graph.layout.size)
    found = MeanField(base.scopes, tolerance=1e-12).marginals(base.potentials(point))
    distances = []
    for blocks in (None, blocks_by_key(base, ())):
        for steps in (1, 3, 60):
            _, _, after = ContrastiveDivergence.build(base, states, (), steps, blocks).contrast(point)
            distances.append(np.abs(after - found.nodes).max())
    assert distances[2] < 1e-9 and distances[5] < 1e-9
    assert distances[0] > distances[1] > 1e-7
    # At the fixed point, the gradient is that of an approximate likelihood.
    model = ContrastiveDivergence.build(base, states, (), 60)
    expected = base.counts(Potentials(found.nodes, found.factors))
    np.testing.assert_allclose(model(point)[1], expected - base.state_counts(states), atol=1e-7)


def test_blocks_have_one_key_and_no_edges():
    world = World(3, 0.0)
    blocks = blocks_by_key(world.base, world.spaces)
    assert (blocks[world.base.edges[:, 0]] != blocks[world.base.edges[:, 1]]).all()
    first = world.spaces[0].first
    at = np.searchsorted(world.base.variables, first.variable)
    assert len({(b, k) for b, k in zip(blocks[at], first.key, strict=True)}) == len(set(blocks[at]))
    np.testing.assert_array_equal(np.unique(blocks), np.arange(blocks.max() + 1))
    model = ContrastiveDivergence.build(world.base, world.states, world.spaces, 4, blocks).with_candidates(world.chosen)
    # Coordinate ascent: nodes of a block do not interact, so no sweep makes the approximation worse.
    values = [replace(model, steps=k).contrast(world.point)[0] for k in (1, 2, 3, 4)]
    assert values[0] > 0.0 and (np.diff(values) > -1e-9).all()


@pytest.mark.parametrize("text", [TEXT, TRIPLES])
def test_regions_evaluate_only_their_nodes(text, monkeypatch):
    world, counted = World(3, 0.0, text, 0.2), []
    model = world.model(blocks=np.arange(world.base.n_nodes))
    compute = conditionals.compute_expectations

    def count(nodes, *arguments):
        counted.append(len(nodes))
        compute(nodes, *arguments)

    monkeypatch.setattr(conditionals, "compute_expectations", count)
    model.contrast(world.point)
    # all literals at the start of the sweep and for each free energy, and once in their regions, except the last one
    last = sum(map(len, model.regions[-1].literals.nodes))
    assert sum(counted) == 4 * sum(map(len, model.literals.nodes)) - last
    n_cells = sum(len(side.sample) for space in model.spaces for side in space.sides)
    assert sum(len(side.cells.sample) for region in model.regions for side in region.sides) == n_cells
    assert sum(len(region.end_states) for region in model.regions) == len(model.whole_region.end_states)


@pytest.mark.parametrize("text", [TEXT, TRIPLES])
def test_entities_are_updated_one_after_another(text):
    """Simultaneous updates of entities that do not interact equal separate updates."""
    world = World(5, 0.3, text, 0.2)
    blocks = blocks_by_entity(world.base, world.spaces)
    entity = {}
    for space in world.spaces:
        cells = [
            pair for side in space.sides for pair in zip(side.variable.tolist(), side.sample.tolist(), strict=True)
        ]
        first = {}
        for variable, sample in cells:
            first[variable] = min(sample, first.get(variable, sample))
        for variable, sample in first.items():
            entity.setdefault(variable, (space.name, sample))
    of_node = [entity.get(variable, ("", variable)) for variable in world.base.variables.tolist()]
    order = sorted(set(zip(blocks.tolist(), of_node, strict=True)))
    assert len(set(of_node)) == len(order) > len(set(blocks.tolist())) > 1
    numbers = np.array([order.index(each) for each in zip(blocks.tolist(), of_node, strict=True)])
    model = world.model(blocks=blocks)
    _, before, after = model.contrast(world.point)
    q = Loops(world).sweep(np.split(before, world.base.state_start[1:-1]), np.ones(len(blocks), dtype=bool), numbers)
    np.testing.assert_allclose(after, np.concatenate(q), atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"steps": 3}], ids=str)
def test_induction_returns_gradients_of_inactive_candidates(settings):
    world = World(3, 0.3)
    model = world.model(**settings)
    everything = CandidateSet.from_spaces(world.spaces)
    keys = {tuple(row) for row in world.chosen.rows.T.tolist()}
    rest = everything.select(np.array([tuple(row) not in keys for row in everything.rows.T.tolist()]))
    _, gradient = model.with_candidates(world.chosen.concat(rest))(np.concatenate((world.point, np.zeros(len(rest)))))
    wanted = dict(zip(map(tuple, rest.rows.T.tolist()), gradient[len(world.point) :], strict=True))
    found, slopes = induced(model, world.point, [0.02] * len(world.spaces), 10_000, exhaustive=True)
    got = dict(zip(map(tuple, found.rows.T.tolist()), slopes, strict=True))
    assert got.keys() == {key for key, value in wanted.items() if abs(value) > 0.02} and len(got) > 20
    assert all(got[key] == pytest.approx(wanted[key], abs=1e-9) for key in got)


def test_induction_returns_gradients_of_proposed_triples():
    """Include triples in which two or all three literals change."""
    world = World(5, 0.3, TRIPLES, 0.15)
    model = world.model(steps=2)
    wanted = sorted(proposed(model, world.spaces, world.point))
    longer = np.concatenate((world.point, np.zeros(len(wanted))))
    _, gradient = model.with_candidates(world.chosen.concat(CandidateSet(np.array(wanted).T)))(longer)
    least = [np.inf if isinstance(space, PairSpace) else 1e-6 for space in world.spaces]
    found, slopes = induced(model, world.point, least, 10_000)
    got = dict(zip(map(tuple, found.rows.T.tolist()), slopes, strict=True))
    exact = {row: value for row, value in zip(wanted, gradient[len(world.point) :], strict=True) if abs(value) > 1e-6}
    assert got.keys() == exact.keys() and len(got) > 10
    assert all(got[row] == pytest.approx(exact[row], abs=1e-9) for row in got)


def test_held_out_labels_are_neighbours_and_evaluated():
    world = World(3, 0.2)
    labelled = world.states >= 0
    model = world.model()
    assert model.held_out() is None
    trained = np.arange(len(labelled)) % 3 > 0
    part = replace(model, trained=trained)
    other = part.held_out()
    _, before, after = part.contrast(world.point)
    _, same, also = other.contrast(world.point)
    np.testing.assert_array_equal(before, same)
    for end, moves in ((after, trained), (also, ~trained)):
        stays = np.repeat(labelled & ~moves, world.base.cardinality)
        np.testing.assert_array_equal(end[stays], before[stays])
        assert (np.abs(end - before)[np.repeat(labelled & moves, world.base.cardinality)] > 1e-3).all()


def test_oscillating_updates_converge_with_damping():
    """Simultaneous updates of two hidden variables with a repulsive coupling oscillate without damping."""
    world = relcrf.parse("""
entity A { latent k : 1..2 predict b : bool }
relation R(x: A, y: A)
template bias(x: A) over x.k, x.b
template unlike(x: A, y: A) where R(x, y) over x.k == y.k
""")
    data = {"a": {"id": [1, 2], "b": [True, False]}, "r": {"x": [1], "y": [2]}}
    problem = api.training_problem(world.ground(relcrf.Dataset(data)))
    base = problem.reduced_graph("a test")
    model = ContrastiveDivergence.build(base, problem.states[base.variables], ())
    point = np.array([0.1, 0.1, 0.0, 0.0, -8.0])
    _, before, _ = model.contrast(point)
    again = before.copy()
    MeanFieldUpdater(model, point).sweep(np.repeat(model.states < 0, base.cardinality), again)
    np.testing.assert_allclose(again, before, atol=1e-5)
