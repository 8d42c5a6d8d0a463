"""Tests of the pseudo-likelihood with chosen triples, of gradients of proposed triples, and of their gains."""

from dataclasses import replace

import numpy as np
import pytest
from induction import induced
from traits import traits_world
from triples import TEXT, every_candidate, proposed

import relcrf
from relcrf import api
from relcrf.backends.pseudo import PseudoLikelihoodSpec
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet
from relcrf.graph.reduction import Role
from relcrf.graph.triples import TripleSpace
from relcrf.learning.literal_likelihood import LiteralLikelihood, NodeTables
from relcrf.structure.gains import candidate_gains


class World:
    """A training problem, some chosen candidates of every space, and random weights of all."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        grounding = relcrf.parse(TEXT).ground(relcrf.Dataset(traits_world(seed)))
        self.problem = api.training_problem(grounding, with_candidates=True)
        self.spaces = tuple(
            space.restrict_to_variables(self.problem.roles == Role.FREE) for space in self.problem.candidates
        )
        base = blanket_graph(self.problem.graph, self.problem.roles, self.problem.states)
        everything = every_candidate(self.spaces)
        n = len(everything)
        self.chosen = everything.select(np.sort(rng.permutation(n)[: n // 3]))
        self.empty = LiteralLikelihood.build(base, self.problem.states[base.variables], self.spaces)
        self.model = self.empty.with_candidates(self.chosen)
        self.point = rng.normal(scale=0.3, size=self.model.n_base + len(self.chosen))
        self.point[self.model.n_base :: 7] = 0.0
        self.triples = np.array([isinstance(space, TripleSpace) for space in self.spaces])

    def pairs(self, chosen):
        """Return the chosen candidates in the form of `Problem.with_candidates`, and the positions of their weights."""
        of = {space.name: chosen.indices_in_space(number) for number, space in enumerate(self.spaces)}
        order = np.concatenate((np.arange(self.model.n_base), *(self.model.n_base + at for at in of.values())))
        return {name: chosen.pairs(at) for name, at in of.items()}, order


@pytest.fixture(scope="module", params=[0, 1])
def world(request):
    return World(request.param)


def test_value_and_gradient_are_those_of_the_expanded_graph(world):
    pairs, order = world.pairs(world.chosen)
    graph = world.problem.with_candidates(pairs)
    assert {len(group.scope) for group in graph.graph.groups} >= {1, 2, 3}
    value, gradient = graph.total_likelihood(PseudoLikelihoodSpec())(world.point[order])
    found, found_gradient = world.model(world.point)
    assert found == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found_gradient[order], gradient, atol=1e-9)


def test_the_gradient_is_that_of_finite_differences(world):
    _, gradient = world.model(world.point)
    rng = np.random.default_rng(5)
    triple_factor = world.model.n_base + np.flatnonzero(world.triples[world.chosen.space])
    for at in rng.permutation(triple_factor)[:12]:
        step = np.zeros(len(world.point))
        step[at] = 1e-5
        slope = (world.model(world.point + step)[0] - world.model(world.point - step)[0]) / 2e-5
        assert gradient[at] == pytest.approx(slope, abs=1e-5)


def test_curvature_is_an_upper_bound(world):
    """Each literal is in one sample, so each variable's score changes by the weight or not at all."""
    number = [space.name for space in world.spaces].index("three")
    at = world.model.n_base + world.chosen.indices_in_space(number)
    assert len(at)
    bound = world.model.curvature()
    for place in at:
        step = np.zeros(len(world.point))
        step[place] = 1e-3
        gradients = [world.model(0.0 * world.point + sign * step)[1][place] for sign in (1, -1)]
        assert (gradients[0] - gradients[1]) / 2e-3 <= bound[place] + 1e-6


def test_imputed_variables_are_neighbours_only(world):
    """A neighbour imputed with probability one half has half of the effect."""
    problem, free = world.problem, world.problem.roles == Role.FREE
    rng = np.random.default_rng(2)
    # Traits alone, which no template joins.
    traits = np.isin(np.arange(len(free)), world.spaces[0].first.variable)
    out = np.flatnonzero(free & traits & (rng.random(len(free)) < 0.3))
    roles = problem.roles.copy()
    roles[out] = Role.ABSENT
    base = blanket_graph(problem.graph, roles, problem.states)
    tables = np.column_stack((1 - (p := rng.random(len(out))), p)).ravel()
    filled = NodeTables(out, 2 * np.arange(len(out) + 1), tables)
    model = LiteralLikelihood.build(base, problem.states[base.variables], world.spaces, filled).with_candidates(
        world.chosen
    )
    value, gradient = model(world.point)
    found = candidate_gains(model, world.point)
    at = model.n_base + np.flatnonzero(world.triples[world.chosen.space])
    assert (found.support[at - model.n_base] % 1).any()
    for place in rng.permutation(at)[:12]:
        step = np.zeros(len(world.point))
        step[place] = 1e-5
        slope = (model(world.point + step)[0] - model(world.point - step)[0]) / 2e-5
        assert gradient[place] == pytest.approx(slope, abs=1e-5)
        without = world.point.copy()
        without[place] = 0.0
        assert found.gain[place - model.n_base] == pytest.approx(model(without)[0] - value, abs=1e-8)


@pytest.mark.parametrize("exhaustive", [False, True])
def test_scores_without_thresholds_are_gradients_of_proposed_triples(world, exhaustive):
    """This holds at any weights, converged or not, and each triple occurs once, whichever of its pairs propose it."""
    wanted = proposed(world.model, world.spaces, world.point)
    more = CandidateSet(np.array(sorted(wanted)).T)
    longer = np.concatenate((world.point, np.zeros(len(more))))
    _, gradient = world.model.with_candidates(world.chosen.concat(more))(longer)
    exact = dict(zip(sorted(wanted), gradient[len(world.point) :], strict=True))
    least = [0.05 if triple else np.inf for triple in world.triples]
    settings = {"error_threshold": 0.9, "signal_threshold": 0.9, "exhaustive": True} if exhaustive else {}
    found, slopes = induced(world.model, world.point, least, 100_000, **settings)
    got = dict(zip(map(tuple, found.rows.T.tolist()), slopes, strict=True))
    large = {row: value for row, value in exact.items() if abs(value) > 0.05}
    assert got.keys() == large.keys() and len(got) == len(slopes) > 15
    assert all(got[row] == pytest.approx(value, abs=1e-9) for row, value in large.items())
    few, _ = induced(world.model, world.point, least, 7, **settings)
    np.testing.assert_array_equal(few.rows, found.rows[:, :7])
    assert set(world.triples[found.space]) == {True}


def test_thresholds_drop_small_errors_and_false_literals(world):
    errors = world.model.literals.expectations(world.model.residual(world.point)[1])
    least = [1e-9] * len(world.spaces)
    found, slopes = induced(world.model, world.point, least, 100_000, error_threshold=0.3, signal_threshold=0.4)
    rows = found.rows.T[world.triples[found.space]]
    got = slopes[world.triples[found.space]]
    for row, value in list(zip(rows.tolist(), got, strict=True))[::17]:
        values = [equation_14(world, row, errors, left_out) for left_out in range(3)]
        assert min(abs(value - each) for each in values) < 1e-9


def equation_14(world, row, errors, left_out):
    """Return a triple's score as a composite of two literals and a third, in plain loops."""
    number, *pair = row
    space, holds = world.model.literals.spaces[number], world.model.truth_values
    cells = []
    for side, k in zip(space.sides, space.decode_keys(np.array([pair]))[0], strict=True):
        span = slice(side.start[k], side.start[k + 1])
        cells.append(dict(zip(side.sample[span].tolist(), side.variable[span].tolist(), strict=True)))
    a, b = (k for k in range(3) if k != left_out)
    large = lambda value, least: value * (abs(value) > least)  # noqa: E731
    total = 0.0
    for sample in cells[0].keys() & cells[1].keys() & cells[2].keys():
        v, w, u = (cells[k][sample] for k in (a, b, left_out))
        error = large(errors[v] * holds[w] + holds[v] * errors[w], 0.3)
        total += error * large(holds[u], 0.4) + large(holds[v] * holds[w], 0.4) * large(errors[u], 0.3)
    return total


def test_gain_is_the_cost_of_removal(world):
    found = candidate_gains(world.model, world.point)
    value, _ = world.model(world.point)
    for at in range(0, len(world.chosen), 3):
        without = world.point.copy()
        without[world.model.n_base + at] = 0.0
        assert found.gain[at] == pytest.approx(world.model(without)[0] - value, abs=1e-8)
    at = int(np.flatnonzero(world.triples[world.chosen.space])[0])
    number, *pair = world.chosen.rows[:, at]
    group = world.spaces[number].build_factor_group(np.array([pair]), np.zeros(1, dtype=int), 1, 0)
    joint = np.ravel_multi_index([world.problem.states[place] for place in group.scope], group.cardinalities)
    assert found.support[at] == group.patterns[joint, 0].sum()
    assert replace(world.model, chosen=CandidateSet.empty()).curvature().shape == (world.model.n_base,)
