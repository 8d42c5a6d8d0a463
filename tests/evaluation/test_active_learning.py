"""Active learning: gains compared with enumeration, batches with a plain greedy selection, and invalid requests."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from graphs import all_states, joint_scores
from scipy.sparse import csr_array

import relcrf
from relcrf.api import Fit
from relcrf.backends.base import AbstractBackend
from relcrf.backends.problems import query_problem
from relcrf.backends.propagation import LinkedProblem
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.active_learning import LabelSelection
from relcrf.evaluation.label_influence import propagated_conditionals
from relcrf.evaluation.label_requests import find_affordable
from relcrf.learning.shared_features import SharedFeatureGain

MODEL = """
domain Topic = { a, b, c }
domain Word = open
entity Page {
    predict topic : Topic
    words : bag of Word
}
relation Link(x: Page, y: Page)
template prior(p: Page) over p.topic
template word(p: Page, w: Word) where w in p.words over p.topic per w
template linked(p: Page, q: Page) where Link(p, q) over p.topic, q.topic
"""
TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (4, 6), (7, 8)]
BACKENDS = ["local", "ess", "chow-liu", "dense", "pseudo", "gated", "propagate", "smooth"]


def tables(links=TREE, n=9, seed=0):
    rng = np.random.default_rng(seed)
    labels = [None, None, "b", None, None, "c", None, "a", None] + ["a", "b", "c", None] * n
    page = pd.DataFrame({"id": [f"p{k}" for k in range(n)], "topic": pd.Series(labels[:n], dtype=object)})
    page["minutes"] = 1 + np.arange(n) % 4
    page["note"] = "long"
    words = pd.DataFrame(
        [(f"p{p}", w) for p in range(n) for w in "uvwxyz" if rng.random() < 0.5], columns=["page", "word"]
    )
    return {
        "page": page,
        "page_word": words,
        "link": pd.DataFrame([(f"p{a}", f"p{b}") for a, b in links], columns=["x", "y"]),
    }


def random_fit(data, backend="ess", seed=0, text=MODEL):
    """Return a model with random weights, so that variables depend on each other."""
    fit = relcrf.parse(text).fit(relcrf.Dataset(data), backend, max_iterations=2)
    weights = np.random.default_rng(seed).normal(size=len(fit.learned.vectors["weights"]))
    return Fit(replace(fit.learned, vectors={**fit.learned.vectors, "weights": weights}))


def enumerated_reductions(fit, grounding):
    """Return the free variables, and the expected reduction of each entropy by each label, shape (n, n), by enumeration."""
    graph, weights = grounding.graph, fit.learned.vectors_for(grounding)["weights"]
    free = np.flatnonzero(grounding.states < 0)
    scores = joint_scores(graph, weights, all_states(graph.cardinality, grounding.states, free))
    joint = np.exp(scores - scores.max()).reshape((3,) * len(free))
    joint /= joint.sum()

    def entropy(p):
        return -(p[p > 0.0] * np.log(p[p > 0.0])).sum()

    out = np.empty((len(free),) * 2)
    for i, j in product(range(len(free)), repeat=2):
        others = tuple(k for k in range(len(free)) if k not in (i, j))
        both = joint.sum(axis=others)
        if i == j:
            out[i, j] = entropy(both)
            continue
        both = both if i < j else both.T
        after = sum(row.sum() * entropy(row / row.sum()) for row in both)
        out[i, j] = entropy(both.sum(axis=0)) - after
    return free, out


@pytest.mark.parametrize("seed", range(3))
def test_first_gain_is_the_expected_reduction_of_all_entropies(seed):
    fit = random_fit(tables(), seed=seed)
    grounding = fit.ground(tables())
    free, expected = enumerated_reductions(fit, grounding)
    for row, variable in enumerate(free):
        only = np.arange(len(grounding.states)) == variable
        (request,) = fit.ask(grounding, 1, candidates=only).requests
        omitted = expected[row][expected[row] < 1e-3].sum()
        assert request.own == pytest.approx(expected[row, row], abs=1e-9)
        assert request.own + request.graph == pytest.approx(expected[row].sum() - omitted, abs=1e-9)
        assert request.gain == pytest.approx(request.own + request.graph + request.weights, abs=1e-12)


def plain_selection(information, entropy, shared, costs, budget):
    """Select greedily; each gain is computed anew from the definition.

    Args:
        information: Information of each candidate about each variable, shape (n, n).
        shared: Function that returns the gains through shared weights for a list of labelled candidates.
    """
    chosen = []
    while True:
        known = np.zeros(len(entropy)) if not chosen else information[chosen].max(axis=0)
        gains = np.maximum(information - known, 0.0).sum(axis=1) + shared(chosen)
        affordable = [k for k in range(len(costs)) if k not in chosen and costs[k] <= budget]
        if not affordable:
            return chosen
        best = max(affordable, key=lambda k: (gains[k] / costs[k], -k))
        chosen.append(best)
        budget -= costs[best]


@pytest.mark.parametrize("seed", range(10))
def test_batch_equals_plain_greedy_selection(seed):
    rng = np.random.default_rng(seed)
    n = 12
    entropy = rng.random(n)
    information = np.where(rng.random((n, n)) < 0.4, rng.random((n, n)), 0.0) * entropy
    np.fill_diagonal(information, 0.0)
    costs = rng.integers(1, 4, size=n).astype(float)
    features = csr_array(rng.normal(size=(n, 4)))

    def fresh():
        return SharedFeatureGain.from_features(features, np.ones(n), np.zeros(n, dtype=bool))

    def shared(chosen):
        gain = fresh()
        for row in chosen:
            gain.add_label(row)
        return gain.gains

    everything = np.arange(n)
    selection = LabelSelection.build(csr_array(information), everything, entropy, np.ones(n), fresh(), everything)
    found = list(selection.select(costs, 11.0))
    with_own = information + np.diag(entropy)
    expected = plain_selection(with_own, entropy, shared, costs, 11.0)
    assert [step.row for step in found] == expected
    assert costs[expected].sum() <= 11.0
    known = with_own[expected].max(axis=0)
    assert sum(step.own + step.graph for step in found) == pytest.approx(known.sum(), abs=1e-9)


def test_equal_variables_are_not_requested_together():
    links = [(0, k) for k in range(1, 6)] + [(6, k) for k in range(7, 11)]
    data = tables(links, n=14)
    data["page"]["topic"] = pd.Series([None] * 11 + ["a", "b", "c"], dtype=object)
    data["page_word"] = pd.DataFrame([(f"p{k}", "u") for k in range(14)], columns=["page", "word"])
    fit = relcrf.parse(MODEL).fit(relcrf.Dataset(data), "pseudo", agreement=3.0, l2=1000.0)
    requests = fit.ask(fit.ground(data), 2)
    assert [request.variable for request in requests.requests] == ["Page(p0).topic", "Page(p6).topic"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_backend_answers(backend):
    data = tables([*TREE, (3, 4), (9, 10), (10, 11), (12, 13), (8, 12)], n=30)
    fit = relcrf.parse(MODEL).fit(
        relcrf.Dataset(data), backend, **({"max_iterations": 20} if backend != "propagate" else {})
    )
    grounding = fit.ground(data)
    requests = fit.ask(grounding, 4)
    assert len(requests) == 4 == len(set(requests.variables))
    assert (grounding.states[requests.variables] < 0).all()
    assert all(request.gain > 0.0 and request.reason for request in requests.requests)
    assert requests.expected_errors_after < requests.expected_errors
    again = fit.ask(grounding, 4)
    assert np.array_equal(again.variables, requests.variables)


@pytest.mark.parametrize("backend", ["propagate", "smooth"])
def test_propagated_conditionals_are_changes_of_scores(backend):
    data = tables([*TREE, (3, 4)])
    options = {"alpha": 0.01} if backend == "propagate" else {"alpha_smooth": 0.01, "scale": 1e-9}
    fit = relcrf.parse(MODEL).fit(relcrf.Dataset(data), backend, **options, smoothing=0.01, sharpness=1.0)
    grounding = fit.ground(data)
    system = fit.learned.configure_backend()
    _, vectors, problem = query_problem(fit.learned, grounding)
    (propagation,) = system.propagations(LinkedProblem.build(problem, backend), vectors)
    conditionals = propagated_conditionals(propagation, 0.01)
    source, target = 1, 4
    (e,) = np.flatnonzero(conditionals.neighbour[conditionals.start[source] : conditionals.start[source + 1]] == target)
    cell = conditionals.cell[conditionals.start[source] + e]
    table = conditionals.table[cell : cell + 9].reshape(3, 3)
    for state in range(3):
        states, roles = problem.states.copy(), problem.roles.copy()
        states[source], roles[source] = state, 1
        changed = replace(problem, states=states, roles=roles)
        (after,) = system.propagations(LinkedProblem.build(changed, backend), vectors)
        # With a small alpha, paths of more than one link have hardly any weight, and with a small scale, no error is corrected.
        assert table[state] == pytest.approx(after.probabilities[target], abs=1e-3)


def test_candidates_costs_and_budget():
    data = tables()
    fit = random_fit(data)
    grounding = fit.ground(data)
    names = ["p0", "p4", "p6"]
    mask = np.isin(np.arange(len(grounding.states)), [grounding.find_variable(f"Page({name}).topic") for name in names])
    requests = fit.ask(grounding, 20, candidates=mask)
    assert sorted(r.variable for r in requests.requests) == [f"Page({name}).topic" for name in names]
    costly = fit.ask(grounding, 6, cost="minutes")
    minutes = dict(zip(data["page"]["id"], data["page"]["minutes"], strict=True))
    frame = costly.table()
    assert [minutes[key] for key in frame["id"]] == frame["cost"].tolist()
    assert costly.total_cost == frame["cost"].sum() <= 6
    rates = [r.gain / r.cost for r in costly.requests]
    assert rates[0] == max(rates)
    assert (frame["topic"] == "").all()


@pytest.mark.parametrize(("cost", "budget", "n"), [(0.2, 0.6, 3), (0.1, 0.7, 7), (0.1, 0.69, 6), (3.0, 9, 3)])
def test_sums_of_costs_are_rounded(cost, budget, n):
    """0.6 - 0.2 - 0.2 is less than 0.2 in floating-point arithmetic."""
    costs, is_left = np.full(8, cost), np.ones(8, dtype=bool)
    while (affordable := find_affordable(costs, is_left, budget)).any():
        is_left[affordable.argmax()] = False
    assert 8 - is_left.sum() == n


def test_tuples_of_a_relation_are_requested():
    text = """
domain Kind = open
entity Person { kind : Kind }
predict relation likes(a: Person, b: Person) where a != b
template prior(a: Person, b: Person) where a != b over likes(a, b) per a.kind
template mutual(a: Person, b: Person) where a < b over likes(a, b) == likes(b, a)
"""
    person = pd.DataFrame({"id": ["ann", "ben", "cas", "dan"], "kind": ["x", "x", "y", "y"]})
    pairs = [
        ("ann", "ben", True),
        ("cas", "dan", False),
        ("ben", "cas", True),
        ("ann", "dan", None),
        ("dan", "ann", None),
    ]
    data = {"person": person, "likes": pd.DataFrame(pairs, columns=["a", "b", "value"]).astype({"value": "boolean"})}
    fit = relcrf.parse(text).fit(relcrf.Dataset(data), "ess")
    requests = fit.ask(data, 1)
    assert requests.requests[0].variable in ("likes(ann, dan)", "likes(dan, ann)")
    assert list(requests.table().columns)[:3] == ["a", "b", "value"]


def test_loop_of_labels():
    truth = np.array(["a", "b", "c"] * 10, dtype=object)
    data = tables([(k, (k + 3) % 30) for k in range(30)], n=30)
    data["page"]["topic"] = pd.Series([*truth[:3], *[None] * 27], dtype=object)
    n_labels = []
    for _ in range(3):
        fit = relcrf.parse(MODEL).fit(relcrf.Dataset(data), "pseudo", agreement=1.0)
        requests = fit.ask(data, 5).table()
        rows = data["page"]["id"].isin(requests["id"])
        data["page"].loc[rows, "topic"] = truth[rows]
        n_labels.append(int(data["page"]["topic"].notna().sum()))
    assert n_labels == [8, 13, 18]


def test_invalid_requests(monkeypatch):
    data = tables()
    fit = random_fit(data)
    labelled = {**data, "page": data["page"].assign(topic="a")}
    with pytest.raises(DataError, match="no variable without a label") as caught:
        fit.ask(labelled, 3)
    assert caught.value.diagnostics[0].code == "E446"
    with pytest.raises(DataError, match="has no column 'minute'") as caught:
        fit.ask(data, 3, cost="minute")
    assert caught.value.diagnostics[0].code == "E212"
    with pytest.raises(DataError, match="the cost 'long' of Page\\(p0\\) is not a positive number") as caught:
        fit.ask(data, 3, cost="note")
    assert caught.value.diagnostics[0].code == "E447"
    free = {**data, "page": data["page"].assign(minutes=[1, 0, 1, 1, 1, 1, 1, 1, 1])}
    with pytest.raises(DataError, match="the cost '0' of Page\\(p1\\)"):
        fit.ask(free, 3, cost="minutes")
    with pytest.raises(UsageError, match="less than the smallest cost") as caught:
        fit.ask(data, 0.5)
    assert caught.value.diagnostics[0].code == "E448"
    with pytest.raises(UsageError) as caught:
        fit.ask(data, 3, attribute="topc")
    assert caught.value.diagnostics[0].code == "E310"
    system = type(fit.learned.configure_backend())
    monkeypatch.setattr(system, "inference_tasks", AbstractBackend.inference_tasks)
    monkeypatch.setattr(
        system, "infer", lambda self, problem, vectors: random_fit(data, "pseudo").predict(data).inferred
    )
    with pytest.raises(UsageError) as caught:
        fit.ask(data, 3)
    assert caught.value.diagnostics[0].code == "E368"
