"""Ways to activate edges: all come to the minimum over all edges; what they test, what they keep, and when they stop."""

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
WAYS = {
    "edges": TopEdges(3),
    "best": BestChoice(0.0, 10, 6),
    "strict": BestChoice(1.0, 10, 6),
    "first": FirstHit(6, batch_size=2),
}


def likelihood(states):
    """Of rows of states, shape (n_rows, n_nodes)."""
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
    """A chain of nodes, each often one more than the one before; the last two are alone."""
    rng = np.random.default_rng(0)
    states = rng.integers(3, size=(400, N_NODES))
    for k in range(1, N_NODES - 2):
        tied = rng.random(len(states)) < 0.6
        states[tied, k] = (states[tied, k - 1] + 1) % 3
    return likelihood(states)


def strengths(model, l1=25.0, l2=0.1):
    n = model.n_base
    return PenaltyStrengths(np.zeros(n), np.full(n, l2), np.ones(n, dtype=bool), [l1], [l2])


def search_of(model, activation, tolerance=1e-2, most=100, l1=25.0, l2=0.1, grouped=True, **options):
    given = strengths(model, l1, l2)
    minimiser = group_lasso_factory(given, tolerance, 1000)
    final_activation = (TopEdges if grouped else TopWeights)(most, 1.0 + tolerance)
    return StructureSearch(model, given, minimiser, activation, final_activation, grouped, **options)


def unary(model, **options):
    alone = search_of(model, None, 1e-6, **options)
    return alone.run(alone.initial_state(np.zeros(model.n_base), CandidateSet.empty()))


def searched(model, activation, **options):
    search = search_of(model, activation, 1e-5, **options)
    return search, search.run(search.initial_state(unary(model).point, CandidateSet.empty()))


def weights_by_edge(search, state):
    """Tables of the edges with weights."""
    chosen = state.chosen
    tables = state.point[search.model.n_base :].reshape(len(chosen), -1)
    strong = search.strong(chosen, state.point)
    return {(int(chosen.first[k]), int(chosen.second[k])): tables[k] for k in np.flatnonzero(strong)}


@pytest.fixture(scope="module")
def whole(model):
    """The minimum with all edges in the model from the start."""
    search = search_of(model, None, 1e-6)
    every = CandidateSet.from_spaces(model.spaces)
    point = np.concatenate((unary(model).point, np.zeros(9 * len(every))))
    return search, search.run(search.initial_state(point, every))


@pytest.mark.parametrize("hubs", [None, 0.2])
@pytest.mark.parametrize("score_by_counts", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_comes_to_the_minimum_over_all_edges(model, whole, way, score_by_counts, hubs):
    search, state = searched(model, WAYS[way], score_by_counts=score_by_counts, hubs=hubs)
    assert state.status == "converged"
    assert state.value == pytest.approx(whole[1].value, rel=1e-8)
    found, wanted = weights_by_edge(search, state), weights_by_edge(*whole)
    assert found.keys() == wanted.keys() > {(k, k + 1) for k in range(N_NODES - 3)}
    assert len(found) < 10
    for edge, table in wanted.items():
        np.testing.assert_allclose(found[edge], table, atol=1e-3)


def test_no_edge_is_left_that_would_be_worth_its_penalty(model):
    search, state = searched(model, WAYS["best"])
    chosen = state.chosen
    tests = CandidateScorer(model.with_candidates(chosen), search.pair_index, state.point, (25.0,))
    others = np.arange(search.pair_index.size)
    assert (tests.ratios(others[tests.is_unchosen(others)]) <= 1.0 + 1e-5).all()


def test_features_come_to_the_minimum_with_l1(model):
    search, state = searched(model, TopWeights(4), grouped=False, most=4)
    assert state.status == "converged"
    every = CandidateSet.from_spaces(model.spaces)
    point = np.concatenate((unary(model).point, np.zeros(9 * len(every))))
    all_in = search_of(model, None, 1e-6, grouped=False)
    full = all_in.run(all_in.initial_state(point, every))
    assert state.value == pytest.approx(full.value, rel=1e-8)
    found, wanted = weights_by_edge(search, state), weights_by_edge(all_in, full)
    assert found.keys() == wanted.keys()
    # Not all weights of an edge have joined, and those that have not are 0.
    opened = state.active_weights
    assert 0 < opened.sum() < len(opened)
    assert not state.point[model.n_base :][~opened].any()


def test_scores_by_counts_are_gradients_where_nothing_is_chosen(model):
    point = unary(model, l2=0.0).point
    numbers = search_of(model, None).pair_index
    exact, score_by_counts = (
        CandidateScorer(model, numbers, point, (25.0,), counts).ratios(np.arange(numbers.size))
        for counts in (False, True)
    )
    np.testing.assert_allclose(exact, score_by_counts, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seen", [[0, 3, 7], []])
def test_the_gradient_of_what_joins_is_that_of_the_objective(model, seen):
    search = search_of(model, TopEdges(3))
    numbers, point = search.pair_index, np.random.default_rng(1).normal(size=model.n_base)
    tests = CandidateScorer(model, numbers, point, (0.01,))
    tests.ratios(np.array(seen, dtype=np.int64))
    joining = np.array([7, 0, 12])
    whole = model.with_candidates(numbers.decode(joining))(np.concatenate((point, np.zeros(27))))[1]
    np.testing.assert_allclose(tests.gradient(joining), whole[model.n_base :], rtol=1e-9)


def test_best_choice_takes_what_is_above_its_threshold(model):
    search = search_of(model, None)
    point = unary(model).point
    tests = CandidateScorer(model, search.pair_index, point, (25.0,))
    ratios = tests.ratios(np.arange(search.pair_index.size))
    passing = np.sort(ratios[ratios > 1.0])[::-1][:6]
    assert len(passing) == 6
    for alpha in (0.0, 0.5, 1.0):
        found = BestChoice(alpha, 6, 1000).choose(tests, EdgeQueue.untested())
        threshold = (1 - alpha) * passing.mean() + alpha * passing[0]
        pairs = search.pair_index.encode(found.candidates)
        taken = ratios[pairs]
        np.testing.assert_allclose(taken, passing[passing >= threshold])
        # What else the reservoir holds waits, ahead; all others are history.
        assert set(found.queue.waiting) == set(np.flatnonzero(ratios >= passing[-1])) - set(pairs)
        assert (np.diff(ratios[found.queue.waiting]) <= 0.0).all()
        assert set(found.queue.failed) == set(np.flatnonzero(ratios < passing[-1]))
        np.testing.assert_allclose(found.queue.violation, 1.0 - ratios[found.queue.failed])


def test_first_hit_tests_no_more_than_it_needs(model):
    search = search_of(model, None, seed=7)
    tests = CandidateScorer(model, search.pair_index, unary(model).point, (25.0,))
    queue = EdgeQueue.untested()
    order = search.pair_index.search_order(np.arange(search.pair_index.size))
    ratios = tests.ratios(order)
    first = int(np.flatnonzero(ratios > 1.0)[0])
    found = FirstHit(1000, batch_size=4).choose(tests, queue)
    assert search.pair_index.encode(found.candidates).tolist() == [order[first]] and found.n_tests == first + 1
    assert set(found.queue.failed) == set(order[:first])


def test_best_choice_tests_fewer_edges(model):
    every, best = (searched(model, WAYS[way])[1].n_tests for way in ("edges", "best"))
    assert best < every


def test_the_state_as_arrays_is_the_same_state(model):
    state = searched(model, BestChoice(0.0, 2, 6), hubs=0.2)[1]
    again = SearchState.from_arrays(state.to_arrays())
    for name, array in state.to_arrays().items():
        np.testing.assert_array_equal(again.to_arrays()[name], array, err_msg=name)
    assert isinstance(again.queue, EdgeQueue) and (again.is_exhausted, again.n_tests) == (True, state.n_tests)
    with pytest.raises(KeyError):
        SearchState.from_arrays({name: array for name, array in state.to_arrays().items() if name != "queue.cursor"})


def test_it_stops_in_time(model):
    ticks = iter(range(1000))
    search = search_of(model, WAYS["strict"], max_seconds=3.5, clock=lambda: float(next(ticks)))
    state = search.run(search.initial_state(unary(model).point, CandidateSet.empty()))
    assert state.status == "out of time" and state.seconds == 4.0
    assert len(state.chosen) == 4


def test_time_ends_tests_of_all_edges(model):
    """Where it runs out before all are tested, none being found does not mean that there is none."""
    search = search_of(model, None, l1=1e6)
    tests = CandidateScorer(model, search.pair_index, unary(model).point, (1e6,), is_out_of_time=lambda: True)
    found = TopEdges(3).choose(tests, EdgeQueue.untested())
    assert found.n_tests == 0 and not found.is_exhausted
    assert TopEdges(3).choose(replace(tests, late=lambda: False), found.queue).is_exhausted


def test_held_out_labels_end_it(model):
    """Without much of a penalty edges join that only learning rows speak for."""
    trained = np.random.default_rng(0).random(model.base.n_nodes) < 0.5
    search = search_of(model.trained_on(trained), TopEdges(2), 1e-3, l1=1.0, patience=2, steps=20)
    state = search.run(search.initial_state(unary(model).point, CandidateSet.empty()))
    assert state.status == "stopped early"
    chosen = state.chosen
    assert len(chosen) < search.pair_index.size and len(state.point) == model.n_base + 9 * len(chosen)


def test_chance_is_what_independent_ends_give():
    rng = np.random.default_rng(1)
    independent = likelihood(rng.choice(3, p=[0.6, 0.3, 0.1], size=(1000, 20)))
    search = search_of(independent, None)
    tests = CandidateScorer(independent, search.pair_index, np.zeros(independent.n_base), (1.0,), score_by_counts=True)
    seen = np.sqrt((tests.ratios(np.arange(search.pair_index.size)) ** 2).mean())
    assert null_gradient(independent, 0, 0) == pytest.approx(seen, rel=0.1)
