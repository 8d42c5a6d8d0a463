"""Rows of binary states: the same objective and the same candidates as those of the graph."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import relcrf
from relcrf import api
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import KeyRelation, PairSpace
from relcrf.learning.induced import Chosen, InducedLikelihood
from relcrf.learning.rows import RowsLikelihood
from relcrf.structure.candidate_scores import Scorer
from relcrf.structure.induction import Induction, Strengths
from relcrf.structure.row_scores import RowScorer

MODEL = """
domain State = open
entity Row
predict relation on(row: Row, state: State)
template prior(r: Row, s: State) over on(r, s) per s
candidates together(r: Row, s: State, t: State) where s < t over on(r, s) and on(r, t) per s, t
"""


def drawn(rng, rows=200, states=20):
    """Rows whose states go together in fours."""
    cause = rng.random((rows, states // 4)) < 0.4
    return (np.repeat(cause, 4, axis=1) & (rng.random((rows, states)) < 0.8)) | (rng.random((rows, states)) < 0.1)


def tables(on):
    row, state = np.nonzero(on)
    names = [f"s{s:02}" for s in state]
    return {"row": {"id": list(range(len(on)))}, "on": {"row": row.tolist(), "state": names}}


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(1)
    on = drawn(rng)
    on[0] = True  # so that every state is in the tables
    rows = RowsLikelihood.of(csr_array(on))
    grounding = relcrf.parse(MODEL).ground(relcrf.Dataset(tables(on)))
    problem = api.training_problem(grounding, with_candidates=True)
    base = blanket_graph(problem.graph, problem.roles, problem.states)
    graph = InducedLikelihood.of(base, problem.states[base.variables], problem.candidates)
    return on, rows, graph


def test_value_gradient_and_choice_are_those_of_the_graph(world):
    _, rows, graph = world
    rng = np.random.default_rng(2)
    everything = Chosen.everything([rows.space])
    chosen = everything.only(np.sort(rng.permutation(len(everything))[:50]))
    point = rng.normal(size=20 + 50)
    value, gradient = graph.having(chosen)(point)
    found, found_gradient = rows.having(chosen)(point)
    assert found == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found_gradient, gradient, atol=1e-9)
    np.testing.assert_allclose(rows.having(chosen).curvature()[20:], graph.having(chosen).curvature()[20:], rtol=1e-6)


@pytest.mark.parametrize("least", [(0.0, 0.0), (0.2, 0.3), (0.5, 0.5), (0.7, 0.1)])
def test_candidates_are_those_of_the_graph(world, least):
    _, rows, graph = world
    rng = np.random.default_rng(3)
    chosen = Chosen.everything([rows.space]).only(np.sort(rng.permutation(190)[:30]))
    for scale in (0.3, 2.0):
        point = rng.normal(scale=scale, size=20 + 30)
        one = RowScorer(rows.space, *least).best(rows.having(chosen), [rows.space], point, [1.0], 40)
        other = Scorer(*least).best(graph.having(chosen), [graph_space(graph)], point, [1.0], 40)
        assert len(one.gradient) > 5
        np.testing.assert_array_equal(one.candidates.rows, other.candidates.rows)
        np.testing.assert_allclose(one.gradient, other.gradient, atol=1e-9)


def graph_space(graph):
    return PairSpace("together", *graph.sides[0], KeyRelation.ASCENDING, graph.literals.n_samples[0])


def test_extreme_scores_have_finite_values(world):
    on, rows, _ = world
    for bias, wrong in ((1e4, ~on), (-1e4, on)):
        value, gradient = rows(np.full(20, bias))
        assert value == pytest.approx(1e4 * wrong.sum())
        np.testing.assert_allclose(np.abs(gradient), wrong.sum(axis=0))


def test_states_that_are_never_on_and_no_states():
    rows = RowsLikelihood.of(csr_array((5, 3), dtype=bool))
    value, gradient = rows.having(Chosen.of(np.array([[0], [0], [2]])))(np.array([0.0, 1.0, -1.0, 2.0]))
    assert value == pytest.approx(5 * np.log1p(np.exp([0.0, 1.0, -1.0])).sum())
    assert gradient[3] == 0.0
    value, gradient = RowsLikelihood.of(csr_array((5, 0), dtype=bool))(np.empty(0))
    assert value == 0.0 and len(gradient) == 0


def test_rounds_end_at_the_minimum(world):
    on, rows, _ = world
    strengths = Strengths(np.zeros(20), np.full(20, 0.1), np.ones(20, dtype=bool), [6.0], [0.1])
    induction = Induction(rows, (rows.space,), RowScorer(rows.space, 0.0, 0.0), strengths, 5, 1, 5, 1e-5, 500)
    state = induction.run(induction.begin(np.log(on.mean(axis=0) / (1 - on.mean(axis=0) + 1e-3)), Chosen.none()))
    assert state.status == "converged"
    chosen = Chosen.of(state.kept["chosen"])
    _, gradient = rows.having(chosen)(state.point)
    weights = state.point[20:]
    moved = weights != 0.0
    assert moved.sum() > 3
    smooth = gradient[20:] + 0.1 * weights
    np.testing.assert_allclose(smooth[moved], -6.0 * np.sign(weights[moved]), atol=0.05)
    assert (np.abs(smooth[~moved]) <= 6.05).all()
