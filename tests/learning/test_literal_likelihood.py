"""Tests of the pseudo-likelihood with chosen candidates, of gradients of other candidates, and of gains."""

from dataclasses import replace

import numpy as np
import pytest
from induction import induced
from traits import TEXT, traits_world

import relcrf
from relcrf import api
from relcrf.backends.pseudo import PseudoLikelihoodSpec
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, PairSpace
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightLayout
from relcrf.learning.literal_likelihood import LiteralLikelihood, NodeTables
from relcrf.structure import gains
from relcrf.structure.gains import candidate_gains
from relcrf.structure.induction import ContrastiveInduction


class World:
    """A training problem, some chosen candidates, and random weights of both."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        grounding = relcrf.parse(TEXT).ground(relcrf.Dataset(traits_world(seed)))
        self.problem = api.training_problem(grounding, with_candidates=True)
        self.spaces = tuple(
            space.restrict_to_variables(self.problem.roles == Role.FREE) for space in self.problem.candidates
        )
        base = blanket_graph(self.problem.graph, self.problem.roles, self.problem.states)
        self.states = self.problem.states[base.variables]
        everything = CandidateSet.from_spaces(self.spaces)
        self.chosen = everything.select(np.sort(rng.permutation(len(everything))[: len(everything) // 2]))
        self.empty = LiteralLikelihood.build(base, self.states, self.spaces)
        self.model = self.empty.with_candidates(self.chosen)
        self.point = rng.normal(scale=0.3, size=self.model.n_base + len(self.chosen))

    def expanded(self, chosen, point):
        """Return the pseudo-likelihood of the graph with chosen candidates as factors, and the weights in its order."""
        pairs, order = {}, [np.arange(self.model.n_base)]
        for number, space in enumerate(self.spaces):
            places = chosen.indices_in_space(number)
            if len(places):
                pairs[space.name] = chosen.pairs(places)
                order.append(self.model.n_base + places)
        order = np.concatenate(order)
        return self.problem.with_candidates(pairs).total_likelihood(PseudoLikelihoodSpec()), point[order], order


@pytest.fixture(scope="module", params=[0, 1])
def world(request):
    return World(request.param)


def test_value_and_gradient_are_those_of_the_expanded_graph(world):
    objective, weights, order = world.expanded(world.chosen, world.point)
    value, gradient = objective(weights)
    found, found_gradient = world.model(world.point)
    assert found == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found_gradient[order], gradient, atol=1e-9)


def test_the_gradient_is_that_of_finite_differences(world):
    _, gradient = world.model(world.point)
    rng = np.random.default_rng(5)
    for at in rng.permutation(len(world.point))[:12]:
        step = np.zeros(len(world.point))
        step[at] = 1e-5
        slope = (world.model(world.point + step)[0] - world.model(world.point - step)[0]) / 2e-5
        assert gradient[at] == pytest.approx(slope, abs=1e-5)


def test_held_out_labels_act_as_neighbours_only(world):
    trained = np.arange(len(world.states)) % 3 > 0
    parts = [replace(world.model, trained=mask)(world.point) for mask in (trained, ~trained)]
    value, gradient = world.model(world.point)
    assert sum(part[0] for part in parts) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(sum(part[1] for part in parts), gradient, atol=1e-9)


def test_imputed_variables_are_neighbours_only(world):
    """Variables imputed with their labels act like clamped ones; probabilities of one half give half of the effect."""
    problem, block = world.problem, world.problem.roles == Role.FREE
    rng = np.random.default_rng(2)
    # Only traits, which no template joins: joined variables would need the labels of their neighbours.
    traits = np.isin(np.arange(len(block)), np.concatenate([s.first.variable for s in problem.candidates[:1]]))
    out = block & traits & (rng.random(len(block)) < 0.3)
    roles = np.where(out, Role.ABSENT, problem.roles).astype(np.int8)
    base = blanket_graph(problem.graph, roles, problem.states)
    outside = np.flatnonzero(out)
    labels = np.eye(2)[problem.states[outside]]
    spaces = tuple(space.restrict_to_variables(block) for space in problem.candidates)

    def model(tables):
        filled = NodeTables(outside, 2 * np.arange(len(outside) + 1), tables.ravel())
        return LiteralLikelihood.build(base, problem.states[base.variables], spaces, filled).with_candidates(
            world.chosen
        )

    clamped = replace(problem, roles=np.where(out, Role.CLAMPED, problem.roles).astype(np.int8), candidates=spaces)
    pairs = {s.name: world.chosen.pairs(world.chosen.indices_in_space(k)) for k, s in enumerate(spaces)}
    value, gradient = clamped.with_candidates(pairs).total_likelihood(PseudoLikelihoodSpec())(world.point)
    found, found_gradient = model(labels)(world.point)
    assert found == pytest.approx(value, rel=1e-12)
    order = world.expanded(world.chosen, world.point)[2]
    np.testing.assert_allclose(found_gradient[order], gradient, atol=1e-9)
    soft = model(0.5 * labels + 0.25)
    step = np.zeros(len(world.point))
    step[-1] = 1e-5
    slope = (soft(world.point + step)[0] - soft(world.point - step)[0]) / 2e-5
    assert soft(world.point)[1][-1] == pytest.approx(slope, abs=1e-5)
    without = world.point.copy()
    without[-1] = 0.0
    gain = candidate_gains(soft, world.point).gain[-1]
    assert gain == pytest.approx(soft(without)[0] - soft(world.point)[0], abs=1e-8)


@pytest.mark.parametrize("settings", [{"exhaustive": True}, {"centred": False}], ids=str)
def test_exact_products_are_gradients_of_inactive_candidates(world, settings):
    everything = CandidateSet.from_spaces(world.spaces)
    keys = {tuple(row) for row in world.chosen.rows.T.tolist()}
    rest = everything.select(np.array([tuple(row) not in keys for row in everything.rows.T.tolist()]))
    longer = np.concatenate((world.point, np.zeros(len(rest))))
    _, gradient = world.model.with_candidates(world.chosen.concat(rest))(longer)
    wanted = dict(zip(map(tuple, rest.rows.T.tolist()), gradient[len(world.point) :], strict=True))
    least = [0.05] * len(world.spaces)
    found, slopes = induced(world.model, world.point, least, 10_000, **settings)
    got = dict(zip(map(tuple, found.rows.T.tolist()), slopes, strict=True))
    large = {key: value for key, value in wanted.items() if abs(value) > 0.05}
    assert got.keys() == large.keys() and len(got) > 20
    assert all(got[key] == pytest.approx(value, abs=1e-9) for key, value in large.items())
    assert (np.diff(np.abs(slopes)) <= 0).all()
    _, few = induced(world.model, world.point, least, 7, **settings)
    np.testing.assert_array_equal(few, slopes[:7])


def test_thresholds_drop_small_errors_and_signals(world):
    errors = world.model.literals.expectations(world.model.residual(world.point)[1])
    for thresholds in ((0.0, 0.0), (0.2, 0.3)):
        least = dict(zip(("error_threshold", "signal_threshold"), thresholds, strict=True))
        found, gradient = induced(world.model, world.point, [1e-9] * len(world.spaces), 10_000, **least)
        got = dict(zip(map(tuple, found.rows.T.tolist()), gradient, strict=True))
        for key, value in list(got.items())[::7]:
            assert value == pytest.approx(products(world, key, errors, *thresholds), abs=1e-9)


def products(world, key, errors, error_threshold, signal_threshold):
    """Return the score of equation 13 and Theorem 3 for one candidate, in plain loops."""
    number, *keys = key
    cells, means, sums = [], [], []
    for side, k in zip(world.model.spaces[number].sides, keys, strict=True):
        span = slice(side.start[k], side.start[k + 1])
        holds = [world.model.truth_values[v] for v in side.variable[span]]
        mean = sum(holds) / max(len(holds), 1)
        means.append(mean * (mean > signal_threshold))
        sums.append(sum(errors[side.variable[span]]))
        rows = zip(side.sample[span].tolist(), side.variable[span], holds, strict=True)
        cells.append({
            z: (
                errors[v] * (abs(errors[v]) > error_threshold), (h - mean) * (abs(h - mean) > signal_threshold)
            ) for z, v, h in rows
        })  # fmt: skip
    both = cells[0].keys() & cells[1].keys()
    a, b = (total * (abs(total) > error_threshold) for total in sums)
    contrastive = sum(cells[0][z][0] * cells[1][z][1] + cells[0][z][1] * cells[1][z][0] for z in both)
    return contrastive + means[0] * b + a * means[1]


@pytest.mark.parametrize("relation", [KeyRelation.ASCENDING, KeyRelation.ANY])
def test_mean_term_makes_the_contrastive_gradient_exact(relation):
    """Theorem 3 for weights that have not converged: random labels, weights and soft truth values."""
    rng = np.random.default_rng(3)
    n_samples, sizes = 40, (9, 9) if relation == KeyRelation.ASCENDING else (9, 6)
    labels = rng.integers(2, size=(n_samples, 15)).astype(np.int32)
    graph = FactorGraph(np.full(labels.size, 2, dtype=np.int32), (), WeightLayout(()))
    base = blanket_graph(graph, np.full(labels.size, Role.FREE, dtype=np.int8), labels.ravel())
    first = (0, sizes[0]) if relation == KeyRelation.ASCENDING else (sizes[0], 15)
    sides = []
    for lo, hi in ((0, sizes[0]), first):
        sample, key = np.indices((n_samples, hi - lo)).reshape(2, -1)
        sides.append(CandidateSide.from_cells(hi - lo, key, sample, sample * 15 + lo + key, np.array([0.0, 1.0])))
    model = LiteralLikelihood.build(base, labels.ravel(), (PairSpace("pairs", *sides, relation, n_samples),))
    errors, truth = rng.normal(size=(2, labels.size))
    rule = ContrastiveInduction(10_000)
    candidates, gradient = rule.best_candidates(model, np.empty(0), errors, truth, [0.0])
    (e_a, x_a), (e_b, x_b) = (
        [values.reshape(labels.shape)[:, lo:hi] for values in (errors, truth)] for lo, hi in ((0, sizes[0]), first)
    )
    s_a, s_b = x_a - x_a.mean(axis=0), x_b - x_b.mean(axis=0)
    contrastive = s_a.T @ e_b + e_a.T @ s_b
    mean_term = np.outer(x_a.mean(axis=0), e_b.sum(axis=0)) + np.outer(e_a.sum(axis=0), x_b.mean(axis=0))
    exact = x_a.T @ e_b + e_a.T @ x_b
    np.testing.assert_allclose(contrastive + mean_term, exact, atol=1e-10)
    assert np.abs(mean_term).max() > 0.1
    assert len(candidates) == model.spaces[0].n_pairs
    np.testing.assert_allclose(gradient, exact[candidates.first, candidates.second], atol=1e-10)


def test_gain_is_the_cost_of_removal(world):
    found = candidate_gains(world.model, world.point)
    value, _ = world.model(world.point)
    for at in range(0, len(world.chosen), 5):
        without = world.point.copy()
        without[world.model.n_base + at] = 0.0
        assert found.gain[at] == pytest.approx(world.model(without)[0] - value, abs=1e-8)
    number, a, b = world.chosen.rows[:, 0]
    group = world.spaces[number].build_factor_group(np.array([[a, b]]), np.zeros(1, dtype=int), 1, 0)
    joint = world.problem.states[group.scope[0]] * group.cardinalities[1] + world.problem.states[group.scope[1]]
    assert found.support[0] == group.patterns[joint, 0].sum()


def test_gains_of_pairs_equal_those_of_general_candidates(world):
    model, point, found = world.model, world.point, candidate_gains(world.model, world.point)
    probability, masks = model.residual(point)[1] + model.observed, []
    for number, space in enumerate(model.spaces):
        indices = model.chosen.indices_in_space(number)
        gain, support = gains._candidate_gains(model, probability, space, indices, point)
        np.testing.assert_allclose(found.gain[indices], gain, atol=1e-10)
        np.testing.assert_array_equal(found.support[indices], support)
        if isinstance(space, PairSpace):
            ours, _, repeats = gains._pair_gains(model, probability, space, indices, point)
            np.testing.assert_allclose(ours[~repeats], gain[~repeats], atol=1e-10)
            masks.append(repeats)
    assert not np.concatenate(masks).all()


def test_gain_of_saturated_weights(world):
    found = candidate_gains(world.model, 300.0 * world.point)
    assert np.isfinite(found.gain).all()
