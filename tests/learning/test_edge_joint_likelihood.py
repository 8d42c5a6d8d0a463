"""The likelihood with candidate edges, against enumeration: value, gradients of chosen and of other edges, and minimum."""

from itertools import combinations, product

import numpy as np
import pytest

from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, TableSpace
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Keyed, Ones
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.inference.methods import create_inference
from relcrf.learning.edge_joint_likelihood import JointEdgeLikelihood
from relcrf.structure.activation import BestChoice, TopEdges
from relcrf.structure.scores import CandidateScorer
from relcrf.structure.search import PenaltyStrengths, StructureSearch, group_lasso_factory

N_KEYS, N_STATES = 4, 3
PAIRS = list(combinations(range(N_KEYS), 2))
TABLE = N_STATES**2


def make_rows(n=60, missing=0.0, seed=0):
    """Return rows of states, shape (n, N_KEYS), of a chain whose nodes often repeat the previous state; -1 is missing."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(N_STATES, p=[0.5, 0.3, 0.2], size=(n, N_KEYS))
    for k in range(1, N_KEYS):
        copied = rng.random(n) < 0.6
        rows[copied, k] = rows[copied, k - 1]
    rows[rng.random(rows.shape) < missing] = -1
    return rows


def bind(method):
    return lambda scopes: create_inference(method, scopes, {})


def make_model(rows, method="jt", kind="bias"):
    """Return the objective; `kind` adds a feature that depends on the row, or an edge between the first two keys."""
    sample, key = np.nonzero(rows >= 0)
    variables = np.arange(len(key), dtype=np.int32)
    features = Keyed(key.astype(np.int32), np.empty((0, 1)), N_KEYS)
    if kind == "evidence":
        features = Dense(np.random.default_rng(5).normal(size=(len(key), 1)))
    groups = [FactorGroup((variables,), (N_STATES,), features, None, 0)]
    blocks = [WeightBlock("bias", features.n_features, N_STATES)]
    if kind == "edge":
        number = np.full(rows.shape, -1)
        number[sample, key] = variables
        both = number[(number[:, :2] >= 0).all(axis=1), :2].astype(np.int32)
        scope = tuple(np.ascontiguousarray(both.T))
        groups.append(FactorGroup(scope, (N_STATES, N_STATES), Ones(len(both)), None, 1))
        blocks.append(WeightBlock("first", 1, TABLE))
    graph = FactorGraph(np.full(len(key), N_STATES, dtype=np.int32), tuple(groups), WeightLayout(tuple(blocks)))
    side = CandidateSide.from_cells(N_KEYS, key, sample, variables, np.ones(N_STATES))
    space = TableSpace("edge", side, side, KeyRelation.ASCENDING, len(rows), table=np.eye(TABLE))
    roles = np.full(len(key), Role.FREE, dtype=np.int8)
    states = rows[sample, key].astype(np.int32)
    return JointEdgeLikelihood.build(reduce_graph(graph, roles, states), roles, states, (space,), bind(method))


def choose(*pairs):
    return CandidateSet.from_pairs(0, np.array(pairs, dtype=np.int64).reshape(-1, 2))


def enumerate_row(row, kind, features, tables, evidence=None):
    """Return the score of each joint state of a row's present keys, the states, and their marginals by pair of keys."""
    present = np.flatnonzero(row >= 0)
    fixed = np.zeros(N_KEYS, dtype=bool) if evidence is None else evidence
    joint = [
        state
        for state in product(range(N_STATES), repeat=len(present))
        if all(x == row[k] for x, k in zip(state, present, strict=True) if fixed[k])
    ]
    states = np.full((len(joint), N_KEYS), -1)
    states[:, present] = joint
    scores = np.zeros(len(states))
    for k in present:
        scores += features[k][states[:, k]]
    for (s, t), table in tables.items():
        if row[s] >= 0 and row[t] >= 0:
            scores += table[states[:, s], states[:, t]]
    return states, scores


def enumerate_all(rows, weights, chosen, kind="bias", trained=None):
    """Return the negative log-likelihood and its gradient for the base and for the tables of all pairs, by plain NumPy."""
    n_features = 1 if kind == "evidence" else N_KEYS
    x = np.random.default_rng(5).normal(size=(int((rows >= 0).sum()), 1))
    number = np.full(rows.shape, -1)
    number[np.nonzero(rows >= 0)] = np.arange(len(x))
    bias, rest = weights[: n_features * N_STATES].reshape(-1, N_STATES), weights[n_features * N_STATES :]
    tables = [rest[k : k + TABLE].reshape(N_STATES, N_STATES) for k in range(0, len(rest), TABLE)]
    base_edges = [(0, 1)] if kind == "edge" else []
    by_pair = {}
    for pair, table in zip([*base_edges, *chosen], tables, strict=True):
        by_pair[pair] = by_pair.get(pair, 0.0) + table
    value, bias_gradient = 0.0, np.zeros_like(bias)
    gradients = {pair: np.zeros((N_STATES, N_STATES)) for pair in PAIRS}
    for r, row in enumerate(rows):
        scale = [x[number[r, k], 0] if kind == "evidence" else 1.0 for k in range(N_KEYS)]
        feature = [0 if kind == "evidence" else k for k in range(N_KEYS)]
        features = [scale[k] * bias[feature[k]] for k in range(N_KEYS)]
        evidence = None if trained is None else (number[r] >= 0) & ~trained[number[r]]
        states, scores = enumerate_row(row, kind, features, by_pair, evidence)
        log_partition = np.logaddexp.reduce(scores)
        probability = np.exp(scores - log_partition)
        observed = (states == row).all(axis=1)
        value += log_partition - scores[observed][0]
        difference = probability - observed
        for k in np.flatnonzero(row >= 0):
            np.add.at(bias_gradient[feature[k]], states[:, k], scale[k] * difference)
        for s, t in PAIRS:
            if row[s] >= 0 and row[t] >= 0:
                np.add.at(gradients[s, t], (states[:, s], states[:, t]), difference)
    base = np.concatenate([bias_gradient.ravel(), *(gradients[pair].ravel() for pair in base_edges)])
    return value, base, {pair: gradient.ravel() for pair, gradient in gradients.items()}


@pytest.mark.parametrize("method", ["jt", "auto"])
@pytest.mark.parametrize("held_out", [0.0, 0.3])
@pytest.mark.parametrize(("kind", "missing"), [("bias", 0.0), ("bias", 0.3), ("evidence", 0.3), ("edge", 0.3)])
def test_value_and_all_gradients_equal_enumeration(kind, missing, held_out, method):
    rows, rng = make_rows(25, missing), np.random.default_rng(3)
    pairs = [(2, 3), (0, 2)]
    model = make_model(rows, method, kind).with_candidates(choose(*pairs))
    trained = rng.random(model.base.n_nodes) >= held_out
    model = model.trained_on(trained)
    point = rng.normal(size=model.n_base + TABLE * len(pairs))
    value, base, expected = enumerate_all(rows, point, pairs, kind, trained)
    found, gradient = model(point)
    assert found == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(gradient, np.concatenate([base, *(expected[pair] for pair in pairs)]), atol=1e-8)
    others = [pair for pair in PAIRS if pair not in pairs]
    np.testing.assert_allclose(
        model.edge_gradients(point, 0, np.array(others)), [expected[pair] for pair in others], atol=1e-8
    )


@pytest.mark.parametrize("method", ["bp", "mf"])
def test_gradients_of_other_edges_equal_those_after_adding_them(method):
    rows, rng = make_rows(40, 0.2), np.random.default_rng(4)
    pairs = [(0, 1), (1, 2), (0, 2)]
    model = make_model(rows, method).with_candidates(choose(*pairs))
    point = rng.normal(scale=0.3, size=model.n_base + TABLE * len(pairs))
    added = [pair for pair in PAIRS if pair not in pairs]
    larger = model.with_candidates(choose(*pairs, *added))
    value, gradient = larger(np.append(point, np.zeros(TABLE * len(added))))
    assert value == pytest.approx(model(point)[0], rel=1e-8)
    found = model.edge_gradients(point, 0, np.array(added))
    np.testing.assert_allclose(found.ravel(), gradient[len(point) :], atol=1e-3)
    assert model.edge_gradients(point, 0, np.empty((0, 2), dtype=np.int64)).shape == (0, TABLE)


def test_rows_with_equal_factors_are_inferred_once():
    rows = make_rows(60, 0.2)
    (whole,) = make_model(make_rows(60)).parts
    assert whole.n_copies == 60 and (whole.roles == Role.FREE).sum() == N_KEYS
    parts = make_model(rows).parts
    _, sizes = np.unique(rows >= 0, axis=0, return_counts=True)
    sizes = sizes[(np.unique(rows >= 0, axis=0)).any(axis=1)]
    assert [part.n_copies for part in parts] == np.unique(sizes).tolist() and len(parts) > 1
    (single,) = make_model(rows, kind="evidence").parts
    assert single.n_copies == 1 and (single.roles == Role.FREE).all()


L1, L2 = 6.0, 0.1


def proximal_gradient(rows, n_steps=3000):
    """Return the minimum of the penalised likelihood over all edges, by accelerated proximal gradient descent."""
    n_base = N_KEYS * N_STATES
    point = ahead = np.zeros(n_base + TABLE * len(PAIRS))
    rate, momentum = 1.0 / (0.5 * len(rows) * (len(PAIRS) + 2) + L2), 1.0
    counts = np.unique(rows, axis=0, return_counts=True)

    def smooth(weights):
        states = np.array(list(product(range(N_STATES), repeat=N_KEYS)))
        bias, tables = weights[:n_base].reshape(N_KEYS, N_STATES), weights[n_base:].reshape(-1, N_STATES, N_STATES)
        scores = sum(bias[k][states[:, k]] for k in range(N_KEYS))
        scores = scores + sum(table[states[:, s], states[:, t]] for (s, t), table in zip(PAIRS, tables, strict=True))
        log_partition = np.logaddexp.reduce(scores)
        empirical = np.zeros(len(states))
        empirical[counts[0] @ N_STATES ** np.arange(N_KEYS)[::-1]] = counts[1]
        difference = len(rows) * np.exp(scores - log_partition) - empirical
        gradient = [np.bincount(states[:, k], difference, N_STATES) for k in range(N_KEYS)]
        gradient += [np.bincount(states[:, s] * N_STATES + states[:, t], difference, TABLE) for s, t in PAIRS]
        value = len(rows) * log_partition - empirical @ scores + 0.5 * L2 * weights @ weights
        return value, np.concatenate(gradient) + L2 * weights

    for _ in range(n_steps):
        following = ahead - rate * smooth(ahead)[1]
        tables = following[n_base:].reshape(-1, TABLE)
        norms = np.linalg.norm(tables, axis=1)
        strength = L1 * np.sqrt(TABLE)
        tables *= np.maximum(1.0 - rate * strength / np.maximum(norms, 1e-300), 0.0)[:, None]
        next_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        if (ahead - following) @ (following - point) > 0.0:
            next_momentum = 1.0
        ahead = following + (momentum - 1.0) / next_momentum * (following - point)
        point, momentum = following, next_momentum
    tables = point[n_base:].reshape(-1, TABLE)
    norms = np.linalg.norm(tables, axis=1)
    return smooth(point)[0] + L1 * np.sqrt(TABLE) * norms.sum(), dict(zip(PAIRS, tables, strict=True))


@pytest.fixture(scope="module")
def minimum():
    return proximal_gradient(make_rows(200, seed=1))


@pytest.mark.parametrize("method", ["jt", "auto"])
@pytest.mark.parametrize("activation", [TopEdges(1), BestChoice(0.0, 3, 2)], ids=["edges", "best-choice"])
def test_search_finds_the_minimum_over_all_edges(minimum, activation, method):
    model = make_model(make_rows(200, seed=1), method)
    n = model.n_base
    strengths = PenaltyStrengths(np.zeros(n), np.full(n, L2), np.zeros(n), np.ones(n, dtype=bool), [L1], [L2])
    search = StructureSearch(
        model, strengths, group_lasso_factory(strengths, 1e-5, 1000), activation, TopEdges(3, 1.0 + 1e-5)
    )
    state = search.run(search.initial_state(np.zeros(n), CandidateSet.empty()))
    assert state.status == "converged"
    value, tables = minimum
    assert state.value == pytest.approx(value, rel=1e-7)
    nonzero = search.nonzero_mask(state.chosen, state.point)
    found = {tuple(pair) for pair in state.chosen.pairs(np.flatnonzero(nonzero)).tolist()}
    assert found == {pair for pair, table in tables.items() if np.linalg.norm(table) > 1e-6}
    assert {(0, 1), (1, 2), (2, 3)} <= found < set(PAIRS)
    scorer = CandidateScorer(model.with_candidates(state.chosen), search.pair_index, state.point, (L1,))
    others = np.arange(search.pair_index.size)
    assert (scorer.ratios(others[scorer.is_unchosen(others)]) <= 1.0 + 1e-5).all()
