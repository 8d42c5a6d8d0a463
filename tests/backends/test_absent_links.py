"""Tests of `balanced` in backend `pseudo`, on graphs without labels on which ordinary propagation assigns one class to all."""

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf import api
from relcrf.backends.absent_links import absent_links, measure_assortativity
from relcrf.backends.problems import query_problem, training_problem
from relcrf.backends.provenance import TrainingProtocol
from relcrf.backends.registry import make_backend
from relcrf.errors import UsageError
from relcrf.inference.result import Verdict
from relcrf.updating.locality import global_training_reason, is_local_inference

MODEL = relcrf.parse("""
entity Page { predict topic : 1..3
    score_1 : real
    score_2 : real
    score_3 : real }
relation Link(source: Page, target: Page)
template scores(p: Page) over p.topic by 1, p.score_1, p.score_2, p.score_3
template linked(p: Page, q: Page) where Link(p, q) over p.topic, q.topic
""")
BALANCED = {"inference": "bp", "balanced": True}
N_PAGES = 600


def pages(seed, n=N_PAGES):
    """Return pages with noisy scores and 10 links each, 30 % of which are to pages of the same topic, others to any page."""
    rng = np.random.default_rng(seed)
    topic = rng.choice(3, p=[0.5, 0.3, 0.2], size=n)
    source = np.repeat(np.arange(n), 5)
    target = rng.integers(n, size=len(source))
    for k in range(3):
        chosen = (rng.random(len(source)) < 0.3) & (topic[source] == k)
        target[chosen] = rng.choice(np.flatnonzero(topic == k), chosen.sum())
    scores = rng.normal(size=(n, 3)) + (topic[:, None] == np.arange(3))
    page = pd.DataFrame({"id": np.arange(n), "topic": topic + 1} | {f"score_{k + 1}": scores[:, k] for k in range(3)})
    links = np.column_stack((source, target))[source != target]
    return relcrf.Dataset({"page": page, "link": pd.DataFrame(links, columns=["source", "target"])})


@pytest.fixture(scope="module")
def train():
    return MODEL.ground(pages(0))


@pytest.fixture(scope="module")
def balanced(train):
    return api.fit(MODEL, train, "pseudo", **BALANCED)


def scores_of(fit, seed=1, known=None):
    """Return the accuracy and the log-likelihood on another graph, in which only a fraction `known` of the labels is known."""
    grounding = fit.ground(pages(seed))
    hidden = np.random.default_rng(seed + 100).random(N_PAGES) >= (known or 0.0)
    found = api.predict(fit, grounding, hidden=hidden)
    assert found.verdict.is_good
    return found.score().accuracy, found.score().log_likelihood


def test_links_help_without_labels(train, balanced):
    local, plain = (
        api.fit(MODEL, train, name, **settings) for name, settings in (("local", {}), ("pseudo", {"inference": "bp"}))
    )
    (of_local, of_plain, found) = (scores_of(fit) for fit in (local, plain, balanced))
    assert of_plain[0] < of_local[0] - 0.05 and of_plain[1] < of_local[1] - 1.0  # nearly all pages have one topic
    assert found[0] > of_local[0] + 0.03 and found[1] > of_local[1] + 0.1


def test_known_labels_replace_the_balance(train, balanced):
    """If most labels are known, predictions with and without the balance are nearly the same."""
    plain = api.fit(MODEL, train, "pseudo", inference="bp")
    np.testing.assert_allclose(scores_of(balanced, known=0.8), scores_of(plain, known=0.8), atol=0.03)


def test_default_backend_chooses_balanced_propagation(train):
    chosen = api.fit(MODEL, train)
    assert chosen.learned.settings["balanced"] and chosen.learned.summary["gain_over_local"] > 0.05
    assert scores_of(chosen)[1] > scores_of(api.fit(MODEL, train, "local"))[1] + 0.1


def test_assortativity_equals_a_plain_count(train):
    problem = training_problem(train)
    topic, pairs = train.states, set()
    for group in problem.graph.groups:
        if len(group.scope) == 2:
            pairs |= {(min(a, b), max(a, b)) for a, b in np.column_stack(group.scope).tolist()}
    ends = np.array(sorted(pairs))
    equal = (topic[ends[:, 0]] == topic[ends[:, 1]]).mean()
    by_chance = ((np.bincount(topic[ends].ravel()) / ends.size) ** 2).sum()
    assert measure_assortativity(problem) == pytest.approx((equal - by_chance) / (1.0 - by_chance), rel=1e-12)
    assert 0.2 < measure_assortativity(problem) < 0.4


def test_strength_is_the_number_of_expected_links(train, balanced):
    grounding = balanced.ground(pages(1))
    hidden = np.arange(N_PAGES) >= 100
    _, _, problem = query_problem(balanced.learned, grounding, hidden)
    marginals = np.full((N_PAGES - 100, 3), [0.6, 0.3, 0.1])
    balance = absent_links(problem, marginals.ravel(), 0.3, 1000)
    neighbours = {v: set() for v in range(N_PAGES)}
    for group in problem.graph.groups:
        if len(group.scope) == 2:
            for a, b in np.column_stack(group.scope).tolist():
                neighbours[a].add(b)
                neighbours[b].add(a)
    degree = np.mean([len(neighbours[v]) for v in range(100, N_PAGES)])
    sizes = marginals.sum(axis=0) + np.bincount(grounding.states[:100], minlength=3)
    np.testing.assert_allclose(balance.strength, degree * 0.3 / sizes, rtol=1e-12)
    np.testing.assert_allclose(balance.expected, marginals.sum(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(balance.state_class, np.tile(np.arange(3), N_PAGES - 100))


def test_a_single_page_is_part_of_a_larger_graph(train, balanced):
    """The prediction of a page among labelled neighbours is that of ordinary propagation."""
    grounding = balanced.ground(pages(1, n=60))
    plain = api.fit(MODEL, train, "pseudo", inference="bp")
    hidden = np.arange(60) == 7
    found, expected = (api.predict(fit, grounding, hidden=hidden).probabilities() for fit in (balanced, plain))
    local = api.predict(api.fit(MODEL, train, "local"), grounding, hidden=hidden).probabilities()
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert np.abs(expected - local).max() > 0.05


def test_stored_model_predicts_the_same(balanced, tmp_path):
    balanced.save(tmp_path / "run")
    loaded = relcrf.load_fit(tmp_path / "run")
    expected, found = (fit.predict(pages(1)).probabilities() for fit in (balanced, loaded))
    np.testing.assert_array_equal(found, expected)


def test_components_depend_on_each_other():
    system = make_backend("pseudo", **BALANCED)
    assert not system.labels_separate and not is_local_inference(system, Verdict("converged"))
    assert "sizes of classes" in global_training_reason(system, TrainingProtocol())
    plain = make_backend("pseudo", inference="bp")
    assert plain.labels_separate and is_local_inference(plain, Verdict("converged"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"balanced": True}, "'inference' of backend 'pseudo' cannot be auto"),
        ({**BALANCED, "device": "gpu"}, "'device' of backend 'pseudo' cannot be gpu"),
        ({**BALANCED, "assortativity": 1.5}, "'assortativity' of backend 'pseudo' cannot be 1.5"),
    ],
)
def test_rejects_settings(settings, message):
    with pytest.raises(UsageError, match=f"E305[\\s\\S]*{message}"):
        make_backend("pseudo", **settings)
