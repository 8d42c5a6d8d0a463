"""Feature induction with billions of candidate pairs, and with keys that are compared by a part of the key."""

from types import SimpleNamespace

import numpy as np
import pytest
from induction import induced

import relcrf
from relcrf import api
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, PairSpace
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightLayout
from relcrf.learning.literal_likelihood import LiteralLikelihood
from relcrf.structure.induction import ContrastiveInduction, key_means, key_sums


def test_chosen_pair_is_not_proposed_again_among_billions():
    """Keys are int32, but the code of this pair needs 64 bits."""
    n_keys, n_samples, n_rare = 60_000, 8, 2
    key = np.repeat(np.arange(n_keys - n_rare, n_keys), n_samples)
    sample, variable = np.tile(np.arange(n_samples), n_rare), np.arange(n_rare * n_samples)
    side = CandidateSide.from_cells(n_keys, key, sample, variable, np.array([0.0, 1.0]))
    space = PairSpace("pairs", side, side, KeyRelation.ASCENDING, n_samples)
    graph = FactorGraph(np.full(len(variable), 2, dtype=np.int32), (), WeightLayout(()))
    labels = (sample < 4).astype(np.int32)
    base = blanket_graph(graph, np.full(len(variable), Role.FREE, dtype=np.int8), labels)
    model = LiteralLikelihood.build(base, labels, (space,))
    first, _ = induced(model, np.empty(0), [1.5], 1, error_threshold=0.4, signal_threshold=0.4)
    assert first.rows.T.tolist() == [[0, 59_998, 59_999]]
    extended = model.with_candidates(first)
    assert len(induced(extended, np.array([0.1]), [1.5], 1, error_threshold=0.4, signal_threshold=0.4)[0]) == 0
    assert len(induced(model, np.empty(0), [1.5], 1, error_threshold=0.4, signal_threshold=0.4)[0]) == 1


@pytest.mark.parametrize("falls_back", [False, True])
def test_exact_gradients_are_computed_where_all_estimates_are_too_small(falls_back):
    rng = np.random.default_rng(0)
    n_keys, n_samples = 6, 200
    key, sample = (each.ravel() for each in np.meshgrid(np.arange(n_keys), np.arange(n_samples), indexing="ij"))
    side = CandidateSide.from_cells(n_keys, key, sample, np.arange(len(key)), np.array([0.0, 1.0]))
    space = PairSpace("pairs", side, side, KeyRelation.ASCENDING, n_samples)
    labels = (rng.random((n_keys, n_samples)) < 0.5).astype(np.int32)
    labels[1] = labels[0]  # one pair of keys that depend on each other
    graph = FactorGraph(np.full(len(key), 2, dtype=np.int32), (), WeightLayout(()))
    base = blanket_graph(graph, np.full(len(key), Role.FREE, dtype=np.int8), labels.ravel())
    model = LiteralLikelihood.build(base, labels.ravel(), (space,))
    scorer = SimpleNamespace(model=model, point=np.empty(0), l1=(1.0,))
    # No error of a probability exceeds the threshold, so that all estimates are 0.
    rule = ContrastiveInduction(1, 0.9, 0.9, falls_back=falls_back)
    found = rule.choose(scorer, None)
    assert found.is_exhausted is not falls_back
    if falls_back:
        best = rule.exact().choose(scorer, None)
        assert found.candidates.rows.T.tolist() == best.candidates.rows.T.tolist()


RANKED = """
entity Person
domain Kind = open
predict relation knows(x: Person, y: Person, k: Kind)
template prior(x: Person, y: Person, k: Kind) over knows(x, y, k) per k
candidates rows(x: Person, y: Person, z: Person, k: Kind, l: Kind)
    where y {} z
    over knows(x, y, k) and knows(x, z, l)
    per y, k, z, l
candidates inverse(x: Person, y: Person, k: Kind, l: Kind)
    where k <= l
    over knows(x, y, k) and knows(y, x, l)
    per k, l
"""


@pytest.mark.parametrize("exhaustive", [False, True])
@pytest.mark.parametrize("operator", ["<", "!="])
def test_all_pairs_of_compared_parts_are_scored(operator, exhaustive):
    rng = np.random.default_rng(0)
    cells = [(f"p{x}", f"p{y}", k) for x in range(6) for y in range(6) for k in "abc" if rng.random() < 0.3]
    knows = dict(zip("xyk", map(list, zip(*cells, strict=True)), strict=True))
    data = relcrf.Dataset({"person": {"id": [f"p{k}" for k in range(6)]}, "knows": knows})
    grounding = relcrf.parse(RANKED.format(operator)).ground(data)
    problem = api.training_problem(grounding, with_candidates=True)
    base = blanket_graph(problem.graph, problem.roles, problem.states)
    model = LiteralLikelihood.build(base, problem.states[base.variables], problem.candidates)
    every = CandidateSet.from_spaces(problem.candidates)
    assert len(every) == (15 if operator == "<" else 30) * 9 + 6
    point = np.array([-1.0, 0.5, 0.2])
    errors, truth = model.errors_and_signals(point)
    expected = {}
    for number, space in enumerate(problem.candidates):
        # The exact gradient uses truth values; contrastive induction subtracts the mean of each key, and adds the mean
        # term of Theorem 3.
        means = [(not exhaustive) * key_means(side, truth[side.variable]) for side in space.sides]
        sums = [key_sums(side, errors[side.variable]) for side in space.sides]
        signals = [truth[side.variable] - mean[side.key] for side, mean in zip(space.sides, means, strict=True)]
        pairs = space.all_pairs()
        for a, b in pairs.tolist():
            first, second, _ = space.matching_cells(np.array([[a, b]]))
            error, other_error = errors[space.first.variable[first]], errors[space.second.variable[second]]
            mean_term = means[0][a] * sums[1][b] + sums[0][a] * means[1][b]
            expected[number, a, b] = signals[0][first] @ other_error + error @ signals[1][second] + mean_term
    settings = {"exhaustive": exhaustive, "error_threshold": 0.0, "signal_threshold": 0.0}
    found, scores = induced(model, point, [0.01, 0.01], 10_000, **settings)
    got = dict(zip(map(tuple, found.rows.T.tolist()), scores, strict=True))
    assert got == pytest.approx({row: value for row, value in expected.items() if abs(value) > 0.01}, abs=1e-9)
    assert len(got) > 0.8 * len(every)
