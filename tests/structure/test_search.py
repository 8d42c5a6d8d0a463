"""Structure search: all activation rules find the minimum over all edges; tests, queue contents and stopping criteria."""

from dataclasses import replace

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet
from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.structure.activation import BestChoice, FirstHit, TopEdges, TopWeights
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.scores import CandidateScorer, null_gradient
from relcrf.structure.search import PenaltyStrengths, SearchState, StructureSearch, group_lasso_factory

TEXT = """
domain Node = open
entity Row
predict relation value(r: Row, n: Node) : 0..2
template prior(r: Row, n: Node) over value(r, n) per n
candidates edge(r: Row, s: Node, t: Node) where s < t over value(r, s), value(r, t) per s, t
"""
N_NODES = 8
RULES = {
    "edges": TopEdges(3),
    "best": BestChoice(0.0, 10, 6),
    "strict": BestChoice(1.0, 10, 6),
    "first": FirstHit(6, batch_size=2),
}


def likelihood(states):
    """Return the edge likelihood of rows of states, shape (n_rows, n_nodes)."""
    n, n_nodes = states.shape
    names = [f"n{k}" for k in range(n_nodes)]
    value = {"r": np.repeat(np.arange(n), n_nodes).tolist(), "n": names * n, "value": states.ravel().tolist()}
    model = relcrf.parse(TEXT)
    problem = api.training_problem(
        model.ground(relcrf.Dataset({"row": {"id": list(range(n))}, "value": value})), with_candidates=True
    )
    base = blanket_graph(problem.graph, problem.roles, problem.states)
    return EdgeLikelihood.build(base, problem.states[base.variables], problem.candidates)


@pytest.fixture(scope="module")
def model():
    """Return a likelihood for a chain of nodes, each often the successor of the previous state; the last two are isolated."""
    rng = np.random.default_rng(0)
    states = rng.integers(3, size=(400, N_NODES))
    for k in range(1, N_NODES - 2):
        copied = rng.random(len(states)) < 0.6
        states[copied, k] = (states[copied, k - 1] + 1) % 3
    return likelihood(states)


def strengths(model, l1=25.0, l2=0.1):
    n = model.n_base
    return PenaltyStrengths(np.zeros(n), np.full(n, l2), np.zeros(n), np.ones(n, dtype=bool), [l1], [l2])


def make_search(model, activation, tolerance=1e-2, max_added=100, l1=25.0, l2=0.1, grouped=True, **options):
    penalties = strengths(model, l1, l2)
    make_minimiser = group_lasso_factory(penalties, tolerance, 1000)
    final_activation = (TopEdges if grouped else TopWeights)(max_added, 1.0 + tolerance)
    return StructureSearch(model, penalties, make_minimiser, activation, final_activation, grouped, **options)


def unary(model, **options):
    search = make_search(model, None, 1e-6, **options)
    return search.run(search.initial_state(np.zeros(model.n_base), CandidateSet.empty()))


def run_search(model, activation, **options):
    search = make_search(model, activation, 1e-5, **options)
    return search, search.run(search.initial_state(unary(model).point, CandidateSet.empty()))


def weights_by_edge(search, state):
    """Return the weight tables of the edges with nonzero weights."""
    chosen = state.chosen
    tables = state.point[search.model.n_base :].reshape(len(chosen), -1)
    nonzero = search.nonzero_mask(chosen, state.point)
    return {(int(chosen.first[k]), int(chosen.second[k])): tables[k] for k in np.flatnonzero(nonzero)}


@pytest.fixture(scope="module")
def whole(model):
    """Return the minimum with all edges in the model from the start."""
    search = make_search(model, None, 1e-6)
    all_candidates = CandidateSet.from_spaces(model.spaces)
    point = np.concatenate((unary(model).point, np.zeros(9 * len(all_candidates))))
    return search, search.run(search.initial_state(point, all_candidates))


@pytest.mark.parametrize("hub_fraction", [None, 0.2])
@pytest.mark.parametrize("score_by_counts", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_finds_the_minimum_over_all_edges(model, whole, rule, score_by_counts, hub_fraction):
    search, state = run_search(model, RULES[rule], score_by_counts=score_by_counts, hub_fraction=hub_fraction)
    assert state.status == "converged"
    assert state.value == pytest.approx(whole[1].value, rel=1e-8)
    found, wanted = weights_by_edge(search, state), weights_by_edge(*whole)
    assert found.keys() == wanted.keys() > {(k, k + 1) for k in range(N_NODES - 3)}
    assert len(found) < 10
    for edge, table in wanted.items():
        np.testing.assert_allclose(found[edge], table, atol=1e-3)


def test_no_remaining_edge_passes_at_the_minimum(model):
    search, state = run_search(model, RULES["best"])
    chosen = state.chosen
    scorer = CandidateScorer(model.with_candidates(chosen), search.pair_index, state.point, (25.0,))
    others = np.arange(search.pair_index.size)
    assert (scorer.ratios(others[scorer.is_unchosen(others)]) <= 1.0 + 1e-5).all()


def test_node_groups_satisfy_the_optimality_conditions():
    rng = np.random.default_rng(2)
    states = np.stack(
        [rng.choice(3, size=500, p=p) for p in ([1 / 3, 1 / 3, 1 / 3], [0.6, 0.3, 0.1], [0.4, 0.3, 0.3])], 1
    )
    model, strength = likelihood(states), 15.0
    penalties = strengths(model, l2=0.0).with_node_groups(model.base.graph, strength)
    assert penalties.base_sizes.tolist() == [3, 3, 3]
    search = StructureSearch(model, penalties, group_lasso_factory(penalties, 1e-6, 1000), None)
    state = search.run(search.initial_state(np.zeros(9), CandidateSet.empty()))
    assert state.status == "converged"
    weights = state.point.reshape(3, 3)
    probability = np.exp(weights) / np.exp(weights).sum(axis=1, keepdims=True)
    gradient = 500 * probability - [np.bincount(column, minlength=3) for column in states.T]
    norms, limit = np.linalg.norm(weights, axis=1), strength * np.sqrt(3)
    assert (norms > 0).tolist() == [False, True, True]
    assert np.linalg.norm(gradient[0]) <= limit
    subgradient = gradient[1:] + limit * weights[1:] / norms[1:, None]
    np.testing.assert_allclose(subgradient, 0.0, atol=1e-3)


def test_node_groups_exclude_templates_with_their_own_penalty_and_templates_over_two_variables():
    text = (
        TEXT
        + """
template own(r: Row, n: Node) over value(r, n) per n l1 2
template shared(r: Row, n: Node) over value(r, n)
template both(r: Row, n: Node, m: Node) where n < m over value(r, n), value(r, m)
"""
    )
    value = {"r": [0, 0, 1, 1], "n": ["a", "b", "a", "b"], "value": [0, 1, 2, 0]}
    graph = relcrf.parse(text).ground(relcrf.Dataset({"row": {"id": [0, 1]}, "value": value})).graph
    layout = graph.layout
    penalties = PenaltyStrengths(layout.l1(0.0), layout.l2(0.1), layout.initial(), layout.learnable_mask(), [], [])
    grouped = penalties.with_node_groups(graph, 5.0)
    by_block = {"prior": [3, 3], "own": [1] * 6, "shared": [3], "both": [1] * 9}
    sizes = [size for block in layout.blocks for size in by_block[block.name]]
    assert grouped.base_sizes.tolist() == sizes
    strength = {"prior": 5.0, "own": 2.0, "shared": 5.0, "both": 0.0}
    expected = [strength[block.name] * np.sqrt(size) for block in layout.blocks for size in by_block[block.name]]
    np.testing.assert_allclose(grouped.base_l1, expected)


def test_single_weights_find_the_l1_minimum(model):
    search, state = run_search(model, TopWeights(4), grouped=False, max_added=4)
    assert state.status == "converged"
    all_candidates = CandidateSet.from_spaces(model.spaces)
    point = np.concatenate((unary(model).point, np.zeros(9 * len(all_candidates))))
    full_search = make_search(model, None, 1e-6, grouped=False)
    full = full_search.run(full_search.initial_state(point, all_candidates))
    assert state.value == pytest.approx(full.value, rel=1e-8)
    found, wanted = weights_by_edge(search, state), weights_by_edge(full_search, full)
    assert found.keys() == wanted.keys()
    # Some weights of the selected edges are inactive, and those are 0.
    active = state.active_weights
    assert 0 < active.sum() < len(active)
    assert not state.point[model.n_base :][~active].any()


def test_scores_by_counts_equal_gradients_without_candidates(model):
    point = unary(model, l2=0.0).point
    numbers = make_search(model, None).pair_index
    by_gradient, by_counts = (
        CandidateScorer(model, numbers, point, (25.0,), score_by_counts).ratios(np.arange(numbers.size))
        for score_by_counts in (False, True)
    )
    np.testing.assert_allclose(by_gradient, by_counts, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("tested", [[0, 3, 7], []])
def test_gradient_of_candidates_equals_gradient_of_objective(model, tested):
    search = make_search(model, TopEdges(3))
    numbers, point = search.pair_index, np.random.default_rng(1).normal(size=model.n_base)
    scorer = CandidateScorer(model, numbers, point, (0.01,))
    scorer.ratios(np.array(tested, dtype=np.int64))
    added = np.array([7, 0, 12])
    gradient = model.with_candidates(numbers.decode(added))(np.concatenate((point, np.zeros(27))))[1]
    np.testing.assert_allclose(scorer.gradient(added), gradient[model.n_base :], rtol=1e-9)


def test_best_choice_adds_edges_above_its_threshold(model):
    search = make_search(model, None)
    point = unary(model).point
    scorer = CandidateScorer(model, search.pair_index, point, (25.0,))
    ratios = scorer.ratios(np.arange(search.pair_index.size))
    passing = np.sort(ratios[ratios > 1.0])[::-1][:6]
    assert len(passing) == 6
    for alpha in (0.0, 0.5, 1.0):
        found = BestChoice(alpha, 6, 1000).choose(scorer, EdgeQueue.untested())
        threshold = (1 - alpha) * passing.mean() + alpha * passing[0]
        pairs = search.pair_index.encode(found.candidates)
        np.testing.assert_allclose(ratios[pairs], passing[passing >= threshold])
        # The rest of the reservoir is queued first; all other pairs are in the history.
        assert set(found.queue.waiting) == set(np.flatnonzero(ratios >= passing[-1])) - set(pairs)
        assert (np.diff(ratios[found.queue.waiting]) <= 0.0).all()
        assert set(found.queue.failed) == set(np.flatnonzero(ratios < passing[-1]))
        np.testing.assert_allclose(found.queue.violation, 1.0 - ratios[found.queue.failed])


def test_first_hit_stops_at_the_first_passing_edge(model):
    search = make_search(model, None, seed=7)
    scorer = CandidateScorer(model, search.pair_index, unary(model).point, (25.0,))
    queue = EdgeQueue.untested()
    order = search.pair_index.search_order(np.arange(search.pair_index.size))
    ratios = scorer.ratios(order)
    first = int(np.flatnonzero(ratios > 1.0)[0])
    found = FirstHit(1000, batch_size=4).choose(scorer, queue)
    assert search.pair_index.encode(found.candidates).tolist() == [order[first]] and found.n_tests == first + 1
    assert set(found.queue.failed) == set(order[:first])


def test_best_choice_tests_fewer_edges(model):
    all_edges, best = (run_search(model, RULES[rule])[1].n_tests for rule in ("edges", "best"))
    assert best < all_edges


def test_state_round_trips_through_arrays(model):
    state = run_search(model, BestChoice(0.0, 2, 6), hub_fraction=0.2)[1]
    restored = SearchState.from_arrays(state.to_arrays())
    for name, array in state.to_arrays().items():
        np.testing.assert_array_equal(restored.to_arrays()[name], array, err_msg=name)
    assert isinstance(restored.queue, EdgeQueue) and (restored.is_exhausted, restored.n_tests) == (True, state.n_tests)
    with pytest.raises(KeyError):
        SearchState.from_arrays({name: array for name, array in state.to_arrays().items() if name != "queue.cursor"})


def test_search_stops_at_the_time_limit(model):
    ticks = iter(range(1000))
    search = make_search(model, RULES["strict"], max_seconds=3.5, clock=lambda: float(next(ticks)))
    state = search.run(search.initial_state(unary(model).point, CandidateSet.empty()))
    assert state.status == "out of time" and state.seconds == 4.0
    assert len(state.chosen) == 4


def test_time_limit_stops_tests_without_exhaustion(model):
    """If the time limit is exceeded before all edges are tested, the search is not exhausted."""
    search = make_search(model, None, l1=1e6)
    scorer = CandidateScorer(model, search.pair_index, unary(model).point, (1e6,), is_out_of_time=lambda: True)
    found = TopEdges(3).choose(scorer, EdgeQueue.untested())
    assert found.n_tests == 0 and not found.is_exhausted
    assert TopEdges(3).choose(replace(scorer, is_out_of_time=lambda: False), found.queue).is_exhausted


def test_held_out_labels_stop_the_search(model):
    """With a small penalty, the search overfits the training rows until early stopping."""
    trained = np.random.default_rng(0).random(model.base.n_nodes) < 0.5
    search = make_search(model.trained_on(trained), TopEdges(2), 1e-3, l1=1.0, patience=2, iterations_per_round=20)
    state = search.run(search.initial_state(unary(model).point, CandidateSet.empty()))
    assert state.status == "stopped early"
    chosen = state.chosen
    assert len(chosen) < search.pair_index.size and len(state.point) == model.n_base + 9 * len(chosen)


def test_null_gradient_matches_independent_ends():
    rng = np.random.default_rng(1)
    independent = likelihood(rng.choice(3, p=[0.6, 0.3, 0.1], size=(1000, 20)))
    search = make_search(independent, None)
    scorer = CandidateScorer(independent, search.pair_index, np.zeros(independent.n_base), (1.0,), score_by_counts=True)
    observed = np.sqrt((scorer.ratios(np.arange(search.pair_index.size)) ** 2).mean())
    assert null_gradient(independent, 0, 0) == pytest.approx(observed, rel=0.1)
